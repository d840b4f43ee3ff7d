//! Metrics as Prometheus reads them.

use std::fmt::Write;

use jiff::Timestamp;

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric with all its series.
#[derive(Debug)]
pub(crate) struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    series: Vec<(String, f64, Option<Timestamp>)>,
}

impl Family {
    pub(crate) fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, help, kind, series: Vec::new() }
    }

    /// Adds a series; one whose value nobody knows is left out.
    pub(crate) fn add(&mut self, labels: &str, value: Option<f64>, time: Option<Timestamp>) {
        if let Some(value) = value {
            self.series.push((labels.to_owned(), value, time));
        }
    }
}

/// Labels as they stand between braces. Give them sorted by name.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    text
}

/// All metrics that have a series, in the order of their names.
pub(crate) fn render(mut families: Vec<Family>) -> String {
    families.sort_by_key(|family| family.name);
    let mut text = String::new();
    for family in &mut families {
        if family.series.is_empty() {
            continue;
        }
        family.series.sort_by(|a, b| a.0.cmp(&b.0));
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let name = family.name;
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n", family.help);
        for (labels, value, time) in &family.series {
            text.push_str(name);
            if !labels.is_empty() {
                let _ = write!(text, "{{{labels}}}");
            }
            let _ = write!(text, " {value}");
            if let Some(time) = time {
                let _ = write!(text, " {}", time.as_millisecond());
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prometheus_reads() {
        let mut later = Family::new("b_total", Kind::Counter, "[STABLE] Later");
        let time = Timestamp::from_millisecond(1_700_000_000_123).ok();
        later.add(&labels(&[("pod", "z")]), Some(0.5), time);
        later.add(&labels(&[("pod", "a\"\\\n")]), Some(1e12), None);
        later.add("", None, None);
        let mut first = Family::new("a", Kind::Gauge, "First");
        first.add("", Some(0.0), None);
        let empty = Family::new("c", Kind::Gauge, "Nothing");
        let expected = "# HELP a First\n# TYPE a gauge\na 0\n\
            # HELP b_total [STABLE] Later\n# TYPE b_total counter\n\
            b_total{pod=\"a\\\"\\\\\\n\"} 1000000000000\n\
            b_total{pod=\"z\"} 0.5 1700000000123\n";
        assert_eq!(render(vec![later, first, empty]), expected);
    }
}
