//! `klet events`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use jiff::Timestamp;
use kubelet::server::local::wire::{EventItem, EventsAnswer};

use super::endpoint::Endpoint;
use super::{emit, table, which};
use crate::cli::complain;

/// How often a watch looks.
const EVERY: Duration = Duration::from_secs(1);

pub async fn run(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let path = path(matches)?;
    let answer: EventsAnswer = endpoint.get(&path).await?;
    let mut rows = vec![table::header(&["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"])];
    rows.extend(answer.items.iter().map(|event| row(event, answer.now)));
    match rows.len() {
        1 => complain("No events: nothing happened since klet was started."),
        _ => emit(table::columns(&rows).as_bytes())?,
    }
    if !matches.get_flag("watch") {
        return Ok(ExitCode::SUCCESS);
    }
    let mut seen: BTreeMap<String, (u32, Timestamp)> = BTreeMap::new();
    note(&mut seen, &answer.items);
    loop {
        tokio::time::sleep(EVERY).await;
        let answer: EventsAnswer = endpoint.get(&path).await?;
        for event in note(&mut seen, &answer.items) {
            emit(table::line(&row(event, answer.now), &WIDTHS).as_bytes())?;
        }
    }
}

/// Columns of a watch, which cannot know what comes.
const WIDTHS: [usize; 4] = [9, 7, 12, 24];

fn path(matches: &ArgMatches) -> anyhow::Result<String> {
    let namespace = matches.get_one::<String>("namespace").map(String::as_str);
    let mut query = Vec::new();
    let namespace = match matches.get_one::<String>("pod") {
        Some(pod) => {
            let (namespace, name) = which::split(pod, namespace)?;
            query.push(format!("pod={name}"));
            namespace
        }
        None => {
            which::split("any", namespace)?;
            namespace
        }
    };
    query.extend(namespace.map(|namespace| format!("namespace={namespace}")));
    Ok(format!("/events?{}", query.join("&")))
}

/// The events that are new or happened again.
fn note<'a>(
    seen: &mut BTreeMap<String, (u32, Timestamp)>,
    events: &'a [EventItem],
) -> Vec<&'a EventItem> {
    let key = |e: &EventItem| {
        format!(
            "{}\0{}\0{}\0{}\0{}\0{}",
            e.kind, e.namespace, e.name, e.field_path, e.reason, e.message
        )
    };
    let keys: BTreeMap<_, _> = events.iter().map(|e| (key(e), (e.count, e.last))).collect();
    let news = events.iter().filter(|e| seen.get(&key(e)) != Some(&(e.count, e.last))).collect();
    // What the agent has forgotten need not be remembered here.
    *seen = keys;
    news
}

fn row(event: &EventItem, now: Timestamp) -> Vec<String> {
    let last = table::age(Some(event.last), now);
    let seen = match event.count {
        0 | 1 => last,
        many => format!("{last} (x{many} over {})", table::age(Some(event.first), now)),
    };
    let object = match event.kind.as_str() {
        "Pod" => {
            let container =
                event.field_path.split_once('{').map(|(_, name)| name.trim_end_matches('}'));
            let container = container.map(|name| format!(" [{name}]")).unwrap_or_default();
            format!("{}/{}{container}", event.namespace, event.name)
        }
        kind => format!("{}/{}", kind.to_lowercase(), event.name),
    };
    let message = event.message.trim().replace(|c: char| c.is_control(), " ");
    vec![seen, event.severity.clone(), event.reason.clone(), object, message]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(count: u32, second: i64) -> EventItem {
        let at = |s| Timestamp::from_second(s).unwrap();
        EventItem {
            kind: "Pod".into(),
            namespace: "default".into(),
            name: "web-n1".into(),
            field_path: "spec.containers{app}".into(),
            severity: "Warning".into(),
            reason: "BackOff".into(),
            message: "Back-off\nrestarting \u{1b}[31m".into(),
            count,
            first: at(0),
            last: at(second),
        }
    }

    #[test]
    fn a_row_tells_how_often_and_stays_one_line() {
        let text = row(&event(3, 90), Timestamp::from_second(100).unwrap()).join("|");
        assert_eq!(
            text,
            "10s (x3 over 100s)|Warning|BackOff|default/web-n1 [app]|Back-off restarting  [31m"
        );
    }

    #[test]
    fn a_watch_shows_only_what_is_new() {
        let mut seen = BTreeMap::new();
        assert_eq!(note(&mut seen, &[event(1, 1)]).len(), 1);
        assert_eq!(note(&mut seen, &[event(1, 1)]).len(), 0);
        assert_eq!(note(&mut seen, &[event(2, 2)]).len(), 1);
    }
}
