//! Metrics in Prometheus's text format. Pure.
//!
//! The library writes OpenMetrics, which upstream's kubelet never does whatever a client
//! accepts: there a counter is `x` and its samples are `x_total`. The text format knows
//! one name, and upstream has counters whose name lacks the ending.
//! Upstream: component-base metrics/http.go, which leaves OpenMetrics off.

use std::fmt::Write as _;

/// What Prometheus calls the format.
pub(super) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters without `_total` in upstream's tables of metrics.
const BARE: [&str; 4] = [
    "kubelet_certificate_manager_client_expiration_renew_errors",
    "kubelet_evictions",
    "kubelet_preemptions",
    "kubelet_server_expiration_renew_errors",
];
const TOTAL: &str = "_total";

/// A family of metrics, as its comments announce it.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    told: bool,
}

impl Family<'_> {
    fn is_bare(&self) -> bool {
        self.kind == "counter" && BARE.contains(&self.name)
    }

    /// Announces the family before its first sample; one without any is left out.
    fn tell(&mut self, to: &mut String) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let ending = if self.kind == "counter" && !self.is_bare() { TOTAL } else { "" };
        let (name, help, kind) = (self.name, self.help, self.kind);
        // Writing to a string cannot fail.
        let _ = writeln!(to, "# HELP {name}{ending} {help}\n# TYPE {name}{ending} {kind}");
    }
}

/// The text of what the library wrote.
pub(super) fn classic(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut family = Family::default();
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next()) {
            (Some("#"), Some("HELP")) => {
                let name = words.next().unwrap_or_default();
                family =
                    Family { name, help: words.next().unwrap_or_default(), ..Family::default() };
            }
            (Some("#"), Some("TYPE")) => {
                let name = words.next().unwrap_or_default();
                let help = if family.name == name { family.help } else { "" };
                let kind = words.next().unwrap_or_default();
                family = Family { name, help, kind, told: false };
            }
            // Units are part of names; the end is the end.
            (Some("#"), _) => {}
            _ => {
                family.tell(&mut text);
                sample(&mut text, line, &family);
            }
        }
    }
    text
}

fn sample(text: &mut String, line: &str, family: &Family<'_>) {
    let bare = family.is_bare().then(|| line.strip_prefix(family.name)).flatten();
    match bare.and_then(|rest| rest.strip_prefix(TOTAL)) {
        Some(rest) => text.extend([family.name, rest]),
        None => text.push_str(line),
    }
    // As Go writes it.
    if let Some(number) = text.strip_suffix(" inf") {
        text.truncate(number.len());
        text.push_str(" +Inf");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::{Registry, Unit};

    use super::*;

    #[test]
    fn every_metric_has_one_name() {
        let mut registry = Registry::default();
        let signals: Family<Vec<(String, String)>, Counter> = Family::default();
        let label = |value: &str| vec![("signal".to_owned(), value.to_owned())];
        signals.get_or_create(&label("a_total b")).inc();
        registry.register("kubelet_evictions", "Pods", signals);
        registry.register("kubelet_started_pods", "Pods # begun", Counter::<u64>::default());
        let empty: Family<Vec<(String, String)>, Counter> = Family::default();
        registry.register("kubelet_nothing", "None", empty);
        let gauge = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
        gauge.set(f64::INFINITY);
        registry.register("ttl", "Time", gauge);
        let histogram = Histogram::new([1.0]);
        histogram.observe(0.5);
        registry.register_with_unit("took", "Time", Unit::Seconds, histogram);
        let mut open = String::new();
        encode(&mut open, &registry).unwrap();
        let expected = "# HELP kubelet_evictions Pods.\n\
            # TYPE kubelet_evictions counter\n\
            kubelet_evictions{signal=\"a_total b\"} 1\n\
            # HELP kubelet_started_pods_total Pods # begun.\n\
            # TYPE kubelet_started_pods_total counter\n\
            kubelet_started_pods_total 0\n\
            # HELP ttl Time.\n\
            # TYPE ttl gauge\n\
            ttl +Inf\n\
            # HELP took_seconds Time.\n\
            # TYPE took_seconds histogram\n\
            took_seconds_sum 0.5\n\
            took_seconds_count 1\n\
            took_seconds_bucket{le=\"1.0\"} 1\n\
            took_seconds_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(classic(&open), expected);
    }
}
