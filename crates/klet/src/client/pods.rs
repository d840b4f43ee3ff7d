//! `klet pods`.

use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use kubelet::server::local::wire::{PodItem, PodsAnswer};

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
    let mut rows = vec![shown.header()];
    rows.extend(items.iter().map(|item| shown.row(item, &answer)));
    if rows.len() > 1 {
        emit(table::columns(&rows).as_bytes())?;
    }
    shown.hint(rows.len() - 1, answer.items.len());
    if matches.get_flag("watch") {
        watch(endpoint, &shown, rows).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows every row anew that differs from what was shown, its age aside.
async fn watch(endpoint: &Endpoint, shown: &Shown, first: Vec<Vec<String>>) -> anyhow::Result<()> {
    let mut widths: Vec<usize> = vec![0; first[0].len()];
    let mut before: Vec<Vec<String>> = Vec::new();
    let mut rows = first;
    loop {
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let ageless = |row: &[String]| {
            let mut row = row.to_vec();
            row.remove(shown.age_column());
            row
        };
        let known: Vec<_> = before.iter().map(|row| ageless(row)).collect();
        if !before.is_empty() {
            for row in rows.iter().filter(|row| !known.contains(&ageless(row))) {
                emit(table::line(row, &widths).as_bytes())?;
            }
        }
        before = rows;
        tokio::time::sleep(EVERY).await;
        let answer: PodsAnswer = endpoint.get("/pods").await?;
        rows = vec![shown.header()];
        rows.extend(shown.select(&answer).iter().map(|item| shown.row(item, &answer)));
    }
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

    fn age_column(&self) -> usize {
        if self.all { 5 } else { 4 }
    }

    fn header(&self) -> Vec<String> {
        let namespace: &[&str] = if self.all { &["NAMESPACE"] } else { &[] };
        let wide: &[&str] = if self.wide { &["DOING"] } else { &[] };
        table::header(
            &[namespace, &["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"], wide].concat(),
        )
    }

    fn row(&self, item: &PodItem, answer: &PodsAnswer) -> Vec<String> {
        let pod = &item.pod;
        let status = pod.status.as_ref();
        let summary = summarise(pod, answer.now);
        let began = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        let ip = status.and_then(|status| status.pod_ip.clone());
        let mut row = Vec::new();
        row.extend(self.all.then(|| which::namespace(pod).to_owned()));
        row.extend([
            which::name(pod).to_owned(),
            summary.ready,
            summary.status,
            summary.restarts,
            table::age(began, answer.now),
            ip.unwrap_or_else(|| "<none>".to_owned()),
        ]);
        let doing = || match item.doing.is_empty() {
            true => "<none>".to_owned(),
            false => item.doing.join(", "),
        };
        row.extend(self.wide.then(doing));
        row
    }
}
