//! What happened in a run, in order.
//!
//! Owns the newest lines and a digest of all of them: two runs of one seed must
//! end with the same digest. Never decides anything.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Lines kept for a failure report. A run writes a few thousand.
const LINES_MAX: usize = 6_000;

/// The event trace of one run.
pub struct Trace {
    lines: VecDeque<Line>,
    hasher: DefaultHasher,
    echo: bool,
    count: u64,
}

struct Line {
    at: Duration,
    about: String,
    text: String,
}

impl Trace {
    /// An empty trace; `echo` also prints every line as it happens.
    pub fn new(echo: bool) -> Self {
        Self {
            lines: VecDeque::new(),
            // Fixed keys: the digest is comparable between processes.
            hasher: DefaultHasher::new(),
            echo,
            count: 0,
        }
    }

    /// Adds a line about one pod (its name), or about the whole node (empty).
    pub fn record(&mut self, at: Duration, about: &str, text: String) {
        self.count += 1;
        at.hash(&mut self.hasher);
        about.hash(&mut self.hasher);
        text.hash(&mut self.hasher);
        let line = Line { at, about: about.to_owned(), text };
        if self.echo {
            eprintln!("{line}");
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Digest of every line so far.
    pub fn digest(&self) -> u64 {
        self.hasher.finish()
    }

    /// Number of lines so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The newest `max` lines about `pod` or the whole node; all lines if no pod is named.
    pub fn tail(&self, pod: Option<&str>, max: usize) -> String {
        let wanted = |line: &&Line| match pod {
            Some(pod) => line.about.is_empty() || line.about == pod,
            None => true,
        };
        let mut newest: Vec<String> =
            self.lines.iter().rev().filter(wanted).take(max).map(ToString::to_string).collect();
        newest.reverse();
        newest.join("\n")
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let about = if self.about.is_empty() { "node" } else { &self.about };
        write!(f, "{:>9.3}s {about:<10} {}", self.at.as_secs_f64(), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_every_line_and_tail_selects() {
        let mut first = Trace::new(false);
        let mut second = Trace::new(false);
        for trace in [&mut first, &mut second] {
            trace.record(Duration::from_secs(1), "web", "started".into());
            trace.record(Duration::from_secs(2), "db", "started".into());
        }
        assert_eq!(first.digest(), second.digest());
        second.record(Duration::from_secs(3), "", "crash".into());
        assert_ne!(first.digest(), second.digest());
        let tail = second.tail(Some("web"), 10);
        assert!(tail.contains("web") && tail.contains("crash") && !tail.contains("db"));
    }
}
