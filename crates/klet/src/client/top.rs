//! `klet top`: processor time from two samples, memory from the second.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use kubelet::server::local::wire::{StatsAnswer, StatsItem};

use super::endpoint::Endpoint;
use super::{emit, table};
use crate::cli::complain;

/// Between the samples.
const PAUSE: Duration = Duration::from_secs(1);
/// Looks until the runtime has taken a second sample: some refresh rarely.
const LOOKS_MAX: usize = 12;

pub async fn run(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let first: StatsAnswer = endpoint.get("/stats").await?;
    let mut second = first.clone();
    for _ in 0..LOOKS_MAX {
        tokio::time::sleep(PAUSE).await;
        second = endpoint.get("/stats").await?;
        if second.items.iter().all(|item| is_newer(&first, item)) {
            break;
        }
    }
    let namespace = matches.get_one::<String>("namespace");
    second.items.retain(|item| namespace.is_none_or(|wanted| item.namespace == *wanted));
    let mut uses = uses(&first, &second, matches.get_flag("containers"));
    match matches.get_one::<String>("sort").map(String::as_str) {
        Some("cpu") => uses.sort_by_key(|(_, one)| std::cmp::Reverse(one.millicores)),
        Some("memory") => uses.sort_by_key(|(_, one)| std::cmp::Reverse(one.memory)),
        _ => {}
    }
    if uses.is_empty() {
        complain("No running containers.");
        return Ok(ExitCode::SUCCESS);
    }
    let mut titles = vec!["NAMESPACE", "POD"];
    titles.extend(matches.get_flag("containers").then_some("CONTAINER"));
    titles.extend(["CPU(cores)", "MEMORY(bytes)"]);
    let mut rows = vec![table::header(&titles)];
    rows.extend(uses.into_iter().map(|(name, one)| {
        let mut row = name;
        row.push(one.millicores.map_or("<unknown>".to_owned(), |milli| format!("{milli}m")));
        row.push(one.memory.map_or("<unknown>".to_owned(), table::mebibytes));
        row
    }));
    emit(table::columns(&rows).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The sample was taken after the first one, or there is no first one. Of a container
/// that has ended there will be no other.
fn is_newer(first: &StatsAnswer, item: &StatsItem) -> bool {
    let before = first.items.iter().find(|one| one.id == item.id);
    item.cpu_ns.is_none() || before.is_none_or(|before| item.cpu_at > before.cpu_at)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Use {
    millicores: Option<u64>,
    memory: Option<u64>,
}

/// Use per pod or container, by name.
fn uses(first: &StatsAnswer, second: &StatsAnswer, containers: bool) -> Vec<(Vec<String>, Use)> {
    let before: BTreeMap<&str, &StatsItem> =
        first.items.iter().map(|item| (item.id.as_str(), item)).collect();
    let mut uses: BTreeMap<Vec<String>, Use> = BTreeMap::new();
    for item in &second.items {
        let mut name = vec![item.namespace.clone(), item.pod.clone()];
        name.extend(containers.then(|| item.container.clone()));
        let millicores = before.get(item.id.as_str()).and_then(|before| rate(before, item));
        let sum = uses.entry(name).or_default();
        sum.millicores = add(sum.millicores, millicores);
        sum.memory = add(sum.memory, item.memory);
    }
    uses.into_iter().collect()
}

fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    if a.is_none() && b.is_none() {
        None
    } else {
        Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0)))
    }
}

/// Thousandths of a core between two samples, rounded up as kubectl does.
fn rate(before: &StatsItem, after: &StatsItem) -> Option<u64> {
    let elapsed =
        u64::try_from(after.cpu_at.checked_sub(before.cpu_at)?).ok().filter(|ns| *ns > 0)?;
    let used = after.cpu_ns?.checked_sub(before.cpu_ns?)?;
    u64::try_from((u128::from(used) * 1000).div_ceil(u128::from(elapsed))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(container: &str, at: i64, cpu: u64, memory: u64) -> StatsItem {
        StatsItem {
            namespace: "d".into(),
            pod: "p".into(),
            container: container.into(),
            id: container.into(),
            cpu_at: at,
            cpu_ns: Some(cpu),
            memory: Some(memory),
        }
    }

    #[test]
    fn a_pod_is_the_sum_of_its_containers() {
        let first = StatsAnswer { items: vec![item("a", 0, 0, 9), item("b", 0, 5, 9)] };
        let second = StatsAnswer {
            items: vec![
                item("a", 1_000_000, 500_000, 10),
                item("b", 1_000_000, 5, 20),
                item("new", 7, 7, 30),
            ],
        };
        let sum = uses(&first, &second, false);
        assert_eq!(
            sum,
            [(vec!["d".into(), "p".into()], Use { millicores: Some(500), memory: Some(60) })]
        );
        assert_eq!(uses(&first, &second, true)[2].1.millicores, None, "one sample is no rate");
    }

    #[test]
    fn nobody_waits_for_a_sample_of_what_has_ended() {
        let ended = StatsItem { cpu_ns: None, ..item("ended", 0, 0, 0) };
        let first = StatsAnswer { items: vec![item("runs", 5, 1, 1), ended.clone()] };
        assert!(is_newer(&first, &ended) && is_newer(&first, &item("runs", 6, 1, 1)));
        assert!(!is_newer(&first, &item("runs", 5, 1, 1)));
    }

    #[test]
    fn a_counter_that_began_anew_is_no_rate() {
        assert_eq!(rate(&item("a", 0, 10, 0), &item("a", 1, 5, 0)), None);
        assert_eq!(rate(&item("a", 5, 10, 0), &item("a", 5, 10, 0)), None);
    }
}
