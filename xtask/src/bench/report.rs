//! docs/benchmarks.md: the promises, the figures, how they were taken.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::results::{Idle, Measured, Results};
use super::{Plan, baseline, goals, plot};

const CONTENDERS: [&str; 8] = [
    "klet",
    "klet, listing",
    "klet, volumes",
    "klet, joined",
    "raw CRI",
    "raw CRI, volumes",
    "upstream kubelet",
    "upstream, joined",
];

/// Writes the report and its plot.
pub fn write(dir: &Path, plan: &Plan, results: &Results) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let put = |name: &str, text: String| {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    put("benchmarks.svg", plot::svg(plan, results))?;
    put("benchmarks.md", page(plan, results))
}

fn page(plan: &Plan, results: &Results) -> String {
    format!(
        "# Benchmarks\n\n\
         Written by `make bench`; do not edit. Machine: {machine}.\n\n\
         ## Promises\n\n{goals}\n\
         ## Figures\n\n{table}\n\
         ![Memory, processor time and speed side by side](benchmarks.svg)\n\n\
         ## How they were taken\n\n{method}",
        machine = machine(),
        goals = goal_table(plan, results),
        table = table(plan, results),
        method = method(plan),
    )
}

fn goal_table(plan: &Plan, results: &Results) -> String {
    let mut text = String::from("| promise | found | kept |\n|---|---|---|\n");
    for goal in goals::check(plan, results) {
        let mark = match goal.kept {
            Some(true) => "✔",
            Some(false) => "✘",
            None => "–",
        };
        let _ = writeln!(text, "| {} | {} | {mark} |", goal.promise, goal.found);
    }
    text
}

/// The figures, one line each.
pub fn table(plan: &Plan, results: &Results) -> String {
    let mut text =
        format!("| | {} |\n|---|{}\n", CONTENDERS.join(" | "), "---:|".repeat(CONTENDERS.len()));
    let mut row = |name: &str, pick: &dyn Fn(&Measured) -> Option<f64>, digits: usize| {
        let cell = |who: &str| {
            let value = results.get(who).and_then(pick);
            value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
        };
        let cells: Vec<String> = CONTENDERS.iter().map(|who| cell(who)).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    };
    let megabytes = |kb: u64| goals::megabytes(kb * 1024);
    row("binary, MB", &|who| who.binary_bytes.map(goals::megabytes), 1);
    row("start to healthy, ms", &Measured::healthy_ms, 1);
    for pods in [0, plan.pods / 2, plan.pods] {
        let mut idle = |name: &str, pick: &dyn Fn(&Idle) -> f64, digits| {
            row(&format!("{name}, {pods} pods idle"), &|who| who.idle_at(pods).map(pick), digits);
        };
        idle("resident (RSS), MB", &|idle| megabytes(idle.rss_kb), 1);
        idle("proportional (PSS), MB", &|idle| megabytes(idle.pss_kb), 1);
        idle("processor, % of a core", &|idle| idle.cpu_percent, 3);
        idle("wake-ups per second", &|idle| idle.wakeups_per_s, 1);
        idle("threads", &|idle| idle.threads as f64, 0);
    }
    let pods = plan.pods;
    let listings = |who: &Measured| who.idle_at(pods).and_then(|idle| idle.listings_per_min);
    row(&format!("full listings per minute, {pods} pods idle"), &listings, 1);
    let requests = |who: &Measured| who.idle_at(pods).and_then(|idle| idle.requests_per_min);
    row(&format!("requests to the API server per minute, {pods} pods idle"), &requests, 1);
    row("exit to restart begun, ms", &|who| who.reaction_ms(|exit| exit.restarted_ms), 1);
    row("exit to status told, ms", &|who| who.reaction_ms(|exit| exit.told_ms), 1);
    for kind in ["tcpSocket", "httpGet", "grpc", "exec"] {
        let name = format!("1,000 {kind} probes a second, % of a core");
        row(&name, &|who| who.probes.get(kind).map(|cores| cores * 100.0), 1);
    }
    row(&format!("{pods} pods up, s"), &|who| who.round_s(|round| Some(round.up)), 2);
    row("… own processor time, s", &|who| who.round_s(|round| round.up_cpu), 2);
    row(&format!("{pods} pods stopped, s"), &|who| who.round_s(|round| Some(round.stopped)), 2);
    row(&format!("{pods} pods removed, s"), &|who| who.round_s(|round| Some(round.removed)), 2);
    row("… own processor time, s", &|who| who.round_s(|round| round.removed_cpu), 2);
    text
}

fn method(plan: &Plan) -> String {
    format!(
        "- Everything is measured from outside the process: /proc for memory, processor time and \
         wake-ups (voluntary context switches of all threads), the runtime's own listing, each \
         100 ms on a separate connection, for pods.\n\
         - Every contender and every round gets a fresh private containerd; rounds alternate the \
         order. Its files and the agent's lie in memory, so that no one pays for the disk's \
         history. Pods have one container with the pause image.\n\
         - Start to healthy: median of {starts}. At rest: a window of {window:?} after {settle:?} \
         to settle. Up and down: median of {rounds} rounds.\n\
         - Up: from writing the first of {pods} manifests to the last container running in the \
         runtime. Stopped: from removing the first manifest until nothing runs. Removed: until \
         the runtime lists no sandbox and no container.\n\
         - Raw CRI: RunPodSandbox, ImageStatus, CreateContainer, StartContainer, and StopContainer, \
         RemoveContainer, StopPodSandbox, RemovePodSandbox, {parallel} pods at a time; \
         klet takes as many turns (docs/adr/0004).\n\
         - klet, listing: the same klet with the gate EventedPLEG off, so that it lists the \
         runtime each second instead of following its events; measured at rest with {pods} pods \
         only. Full listings are klet's own count, over a minute or the window if that is longer.\n\
         - klet, volumes, and raw CRI, volumes: each pod has five, an emptyDir, one in memory, a \
         configMap, a secret and a downwardAPI; raw CRI binds five directories that are there. \
         What the runtime takes for mounts is in both, what klet takes for volumes in one.\n\
         - klet, joined, and upstream, joined: nodes of a small API server (crates/apiserver) that \
         runs in the measuring process, answers both in JSON and gives them their pods. They are \
         measured once it knows the node and every pod as ready.\n\
         - Exits: median of 20 containers that end one after the other; the runtime tells when \
         each ended and its successor was created, /pods, asked every 4 ms, when the status knew.\n\
         - Probes: 100 pods of 10 containers with one probe each, every second, against servers \
         in another process; the share of a core is the probing process's own.\n\
         - Upstream runs with eviction, QoS groups and image collection off. It leaves \
         removal to a collector that runs each minute.\n\
         - Again: `UPSTREAM_KUBELET=/path/to/kubelet make bench`.\n",
        starts = plan.starts,
        window = plan.window,
        settle = plan.settle,
        rounds = plan.rounds,
        pods = plan.pods,
        parallel = baseline::PARALLEL,
    )
}

/// Processor, cores, memory, kernel, runtime.
fn machine() -> String {
    let first = |path: &str, key: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let run = |program: &str| {
        testkit::process::run(Command::new(program).arg("--version")).unwrap_or_default()
    };
    let containerd = run("containerd");
    let runc = run("runc");
    format!(
        "{}, {cores} cores, {} of memory, Linux {}, containerd {}, {}",
        first("/proc/cpuinfo", "model name"),
        first("/proc/meminfo", "MemTotal"),
        kernel.trim(),
        containerd.split_whitespace().nth(2).unwrap_or("of unknown version"),
        runc.lines().next().unwrap_or("runc of unknown version"),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::results::Round;

    fn idle(cpu_percent: f64, listings_per_min: Option<f64>) -> Idle {
        Idle {
            pods: 100,
            rss_kb: 9000,
            pss_kb: 9000,
            cpu_percent,
            wakeups_per_s: 1.0,
            threads: 3,
            listings_per_min,
            requests_per_min: None,
        }
    }

    #[test]
    fn figures_and_marks_are_in_the_page() {
        let mut results = Results::default();
        let round = |up, cpu| Round {
            up: Duration::from_millis(up),
            up_cpu: cpu,
            stopped: Duration::from_secs(4),
            removed: Duration::from_secs(5),
            removed_cpu: cpu,
        };
        results.of("klet").binary_bytes = Some(9_000_000);
        results.of("klet").rounds.push(round(21_000, Some(Duration::from_millis(400))));
        results.of("raw CRI").rounds.push(round(20_000, None));
        let page = page(&Plan::of_tests(), &results);
        assert!(page.contains("| binary at most 15 MB | 9.00 MB | ✔ |"), "{page}");
        assert!(page.contains("| 100 pods up within 1.1 × raw CRI | 1.050 × | ✔ |"), "{page}");
        assert!(page.contains("processor time | 0.40 s | ✘ |"), "{page}");
        assert!(
            page.contains("| 100 pods up, s | 21.00 | – | – | – | 20.00 | – | – | – |"),
            "{page}"
        );
        assert!(page.contains("upstream's processor time | not compared | – |"), "{page}");
        assert!(page.contains("where events stream | not measured | – |"), "{page}");
    }

    #[test]
    fn listing_is_held_against_upstream_and_counted() {
        let mut results = Results::default();
        results.of("klet").idle.push(idle(0.01, Some(0.99)));
        results.of("klet, listing").idle.push(idle(0.2, Some(59.0)));
        results.of("upstream kubelet").idle.push(idle(1.6, None));
        let page = page(&Plan::of_tests(), &results);
        assert!(page.contains("100 pods, no events, on at most 1/10"), "{page}");
        assert!(page.contains("upstream's processor time | 0.006 × | ✔ |"), "{page}");
        assert!(page.contains("upstream's processor time | 0.125 × | ✘ |"), "{page}");
        assert!(page.contains("where events stream | 0.99 a minute | ✔ |"), "{page}");
        assert!(
            page.contains("per minute, 100 pods idle | 1.0 | 59.0 | – | – | – | – | – | – |"),
            "{page}"
        );
    }

    #[test]
    fn a_node_of_a_cluster_is_held_against_upstreams() {
        let mut results = Results::default();
        let joined = Idle { requests_per_min: Some(6.0), ..idle(0.1, Some(1.0)) };
        results.of("klet, joined").idle.push(joined);
        results.of("upstream, joined").idle.push(idle(2.0, None));
        let page = page(&Plan::of_tests(), &results);
        assert!(page.contains("a node of a cluster, idle with 100 pods on at most 1/10"), "{page}");
        assert!(page.contains("upstream's processor time | 0.050 × | ✔ |"), "{page}");
        assert!(page.contains("25 MB resident with 100 pods | 9.22 MB | ✔ |"), "{page}");
        assert!(page.contains("per minute, 100 pods idle | – | – | – | 6.0 | –"), "{page}");
    }

    #[test]
    fn volumes_are_to_cost_nothing_at_rest() {
        let page_of = |wakeups_per_s, cpu| {
            let mut results = Results::default();
            results.of("klet").idle.push(idle(0.05, Some(1.0)));
            let busy = Idle { wakeups_per_s, ..idle(cpu, Some(1.0)) };
            results.of("klet, volumes").idle.push(busy);
            page(&Plan::of_tests(), &results)
        };
        let same = page_of(0.5, 0.05);
        assert!(same.contains("one wake-up a second at rest | 0.00 more a second | ✔ |"), "{same}");
        assert!(same.contains("0.02 % of a core at rest | 0.00 % of a core more | ✔ |"), "{same}");
        let busy = page_of(6.0, 0.15);
        assert!(busy.contains("one wake-up a second at rest | 5.00 more a second | ✘ |"), "{busy}");
        assert!(busy.contains("0.02 % of a core at rest | 0.10 % of a core more | ✘ |"), "{busy}");
    }
}
