//! What probes found and how long they took, as metrics.
//!
//! Each probe counts for itself where its worker is registered, so a series goes
//! with its probe. Put together only when somebody asks. Upstream: ProberResults and
//! ProberDuration in pkg/kubelet/prober/prober_manager.go.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kubelet_model::{PodUid, ProbeKind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// Prometheus's own default.
const BOUNDS_SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// What one probe has found so far. A try that went wrong counts as nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Tally {
    successful: u64,
    failed: u64,
    durations: Durations,
}

/// How long probes took that found their container well.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Durations {
    /// By upper bound; the last has none.
    buckets: [u64; BOUNDS_SECONDS.len() + 1],
    seconds: f64,
}

impl Tally {
    /// A probe found its container well.
    pub(super) fn succeed(&mut self, took: Duration) {
        self.successful += 1;
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS_SECONDS.iter().position(|bound| seconds <= *bound);
        self.durations.buckets[bucket.unwrap_or(BOUNDS_SECONDS.len())] += 1;
        self.durations.seconds += seconds;
    }

    /// A probe found its container unwell.
    pub(super) fn fail(&mut self) {
        self.failed += 1;
    }
}

impl Durations {
    fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, more)| *sum += more);
        self.seconds += other.seconds;
    }
}

/// Whose probe it is. Its order is that of the text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Whose {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub kind: ProbeKind,
}

impl Whose {
    fn labels(&self) -> [(&str, &str); 4] {
        [
            ("probe_type", self.kind.as_str()),
            ("container", &self.container),
            ("pod", &self.pod),
            ("namespace", &self.namespace),
        ]
    }
}

/// Every probe's tally at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub tallies: Vec<(Whose, PodUid, Tally)>,
    /// When the agent started, in seconds since 1970.
    pub agent_started: f64,
}

impl Snapshot {
    /// The text that `/metrics/probes` answers.
    pub(super) fn text(mut self) -> String {
        self.tallies.sort_by(|(a, uid_a, _), (b, uid_b, _)| (a, uid_a).cmp(&(b, uid_b)));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }

    /// Pods of the same name, one after the other, share these.
    fn durations(&self) -> BTreeMap<&Whose, Durations> {
        let mut all: BTreeMap<&Whose, Durations> = BTreeMap::new();
        for (whose, _, tally) in self.tallies.iter().filter(|(.., tally)| tally.successful > 0) {
            all.entry(whose).or_default().add(&tally.durations);
        }
        all
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut totals = encoder.encode_descriptor(
            "prober_probe",
            "Cumulative number of a liveness, readiness or startup probe for a container by result",
            None,
            MetricType::Counter,
        )?;
        for (whose, uid, tally) in &self.tallies {
            for (result, count) in [("successful", tally.successful), ("failed", tally.failed)] {
                // A series begins with the first result of its kind.
                if count > 0 {
                    let [kind, rest @ ..] = whose.labels();
                    let own = [kind, ("result", result)].into_iter().chain(rest);
                    let labels: Vec<_> = own.chain([("pod_uid", uid.as_str())]).collect();
                    let mut series = totals.encode_family(&labels)?;
                    series.encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
                }
            }
        }
        let mut durations = encoder.encode_descriptor(
            "prober_probe_duration",
            "Duration in seconds for a probe response",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (whose, Durations { buckets, seconds }) in self.durations() {
            let bounds = BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
            let counted: Vec<(f64, u64)> = bounds.zip(buckets).collect();
            let count = buckets.iter().sum();
            let labels = whose.labels();
            let mut series = durations.encode_family(&labels)?;
            series.encode_histogram::<NoLabelSet>(seconds, count, &counted, None)?;
        }
        let mut started = encoder.encode_descriptor(
            "process_start_time",
            "Start time of the process since unix epoch in seconds",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        started.encode_gauge(&self.agent_started)
    }
}
