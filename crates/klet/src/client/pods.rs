//! `klet pods`.

use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use kubelet::server::local::wire::{PodItem, PodsAnswer};
use kubelet::why::{InFlight, length};

use super::endpoint::Endpoint;
use super::summary::summarise;
use super::{emit, table, which};
use crate::cli::complain;

/// How often a watch looks.
const EVERY: Duration = Duration::from_secs(1);

pub async fn run(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let shown = Shown::from(matches);
    let answer: PodsAnswer = endpoint.get("/pods").await?;
    let items = shown.select(&answer);
    if matches.get_one::<String>("output").is_some_and(|output| output == "json") {
        let items = items.into_iter().map(|item| item.pod.clone()).collect();
        let list = serde_json::to_string_pretty(&List::<Pod> { items, ..Default::default() })?;
        emit(format!("{list}\n").as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = shown.rows(&answer);
    if rows.len() > 1 {
        let cells: Vec<_> = rows.iter().map(|row| row.cells.clone()).collect();
        emit(table::columns(&cells).as_bytes())?;
    }
    shown.hint(rows.len() - 1, answer.items.len());
    if matches.get_flag("watch") {
        watch(endpoint, &shown, rows).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows every row anew that differs from what was shown, the passage of time aside.
async fn watch(endpoint: &Endpoint, shown: &Shown, first: Vec<Row>) -> anyhow::Result<()> {
    let mut widths: Vec<usize> = vec![0; first[0].cells.len()];
    let mut before: Vec<Row> = Vec::new();
    let mut rows = first;
    loop {
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if !before.is_empty() {
            let is_new = |row: &&Row| before.iter().all(|old| old.timeless != row.timeless);
            for row in rows.iter().filter(is_new) {
                emit(table::line(&row.cells, &widths).as_bytes())?;
            }
        }
        before = rows;
        tokio::time::sleep(EVERY).await;
        let answer: PodsAnswer = endpoint.get("/pods").await?;
        rows = shown.rows(&answer);
    }
}

/// A row of the table.
struct Row {
    /// What is shown.
    cells: Vec<String>,
    /// The same without what changes because time passes.
    timeless: Vec<String>,
}

/// Which pods are shown, and what of them.
struct Shown {
    namespace: Option<String>,
    all: bool,
    wide: bool,
}

impl From<&ArgMatches> for Shown {
    fn from(matches: &ArgMatches) -> Self {
        Self {
            namespace: matches.get_one::<String>("namespace").cloned(),
            all: matches.get_flag("all-namespaces"),
            wide: matches.get_one::<String>("output").is_some_and(|output| output == "wide"),
        }
    }
}

impl Shown {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    fn select<'a>(&self, answer: &'a PodsAnswer) -> Vec<&'a PodItem> {
        let inside = |item: &&PodItem| self.all || which::namespace(&item.pod) == self.namespace();
        answer.items.iter().filter(inside).collect()
    }

    /// Says what is not shown.
    fn hint(&self, shown: usize, all: usize) {
        match (shown, all - shown) {
            (0, 0) => complain("No pods on this node. Put a manifest into its manifest directory."),
            (0, others) => complain(&format!(
                "No pods in namespace {}; {others} in others: klet pods -A",
                self.namespace()
            )),
            _ => {}
        }
    }

    fn header(&self) -> Vec<String> {
        let namespace: &[&str] = if self.all { &["NAMESPACE"] } else { &[] };
        let wide: &[&str] = if self.wide { &["DOING"] } else { &[] };
        table::header(
            &[namespace, &["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"], wide].concat(),
        )
    }

    fn rows(&self, answer: &PodsAnswer) -> Vec<Row> {
        let header = Row { cells: self.header(), timeless: Vec::new() };
        let row = |item| Row {
            cells: self.cells(item, answer.now, true),
            timeless: self.cells(item, answer.now, false),
        };
        std::iter::once(header).chain(self.select(answer).into_iter().map(row)).collect()
    }

    /// The cells of a pod, with or without what changes because time passes.
    fn cells(&self, item: &PodItem, now: Timestamp, timed: bool) -> Vec<String> {
        let pod = &item.pod;
        let status = pod.status.as_ref();
        let summary = summarise(item);
        let began = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        let ip = status.and_then(|status| status.pod_ip.clone());
        let age = if timed { table::age(began, now) } else { String::new() };
        let restarts = match summary.restarted.filter(|_| timed) {
            Some(at) => format!("{} ({} ago)", summary.restarts, table::age(Some(at), now)),
            None => summary.restarts.to_string(),
        };
        let mut row = Vec::new();
        row.extend(self.all.then(|| which::namespace(pod).to_owned()));
        row.extend([
            which::name(pod).to_owned(),
            summary.ready,
            summary.status,
            restarts,
            age,
            ip.unwrap_or_else(|| "<none>".to_owned()),
        ]);
        let doing = || match item.in_flight.is_empty() {
            true => "<none>".to_owned(),
            false => doing(&item.in_flight, timed),
        };
        row.extend(self.wide.then(doing));
        row
    }
}

/// Calls under way, and for how long.
fn doing(calls: &[InFlight], timed: bool) -> String {
    let told = |call: &InFlight| match timed {
        true => format!("{}, for {}", call.what, length(call.seconds)),
        false => call.what.clone(),
    };
    calls.iter().map(told).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_shown_with_how_long_they_last() {
        let call = |what: &str, seconds| InFlight { what: what.to_owned(), seconds };
        let item = |seconds| PodItem {
            pod: Pod::default(),
            doing: vec!["start app".to_owned()],
            in_flight: vec![
                call("PullImage a:1: 1.0 MB of 2.0 MB", seconds),
                call("preStop hook of b", 3),
            ],
            pull: Some("pulling 1.0 MB of 2.0 MB".to_owned()),
            ending: false,
        };
        let shown = Shown { namespace: None, all: true, wide: true };
        let now = Timestamp::UNIX_EPOCH;
        let cells = shown.cells(&item(90), now, true);
        let last = "PullImage a:1: 1.0 MB of 2.0 MB, for 90s; preStop hook of b, for 3s";
        assert_eq!(cells.last().unwrap(), last);
        assert_eq!(cells[3], "Unknown (pulling 1.0 MB of 2.0 MB)");
        // A watch does not repeat a row because a second has passed.
        assert_eq!(shown.cells(&item(90), now, false), shown.cells(&item(91), now, false));
        assert_ne!(shown.cells(&item(90), now, true), shown.cells(&item(91), now, true));
    }

    #[test]
    fn a_watch_does_not_repeat_a_pod_because_its_restart_grows_old() {
        let pod = serde_json::json!({"spec": {"containers": [{"name": "a"}]}, "status": {"containerStatuses": [{
            "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 2, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "1970-01-01T00:15:00Z"}},
        }]}});
        let item = PodItem {
            pod: serde_json::from_value(pod).unwrap(),
            doing: Vec::new(),
            in_flight: Vec::new(),
            pull: None,
            ending: false,
        };
        let shown = Shown { namespace: None, all: false, wide: false };
        let cells =
            |second, timed| shown.cells(&item, Timestamp::from_second(second).unwrap(), timed);
        assert_eq!(cells(1_000, true)[3], "2 (100s ago)");
        assert_eq!(cells(1_000, false), cells(1_001, false));
    }
}
