//! `/metrics/slis`: how the health checks went.
//!
//! Owns the counts, which begin anew when somebody deletes them. Only `/healthz` as a
//! whole counts, as upstream. Upstream: component-base metrics/prometheus/slis.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::{Method, StatusCode};
use jiff::Timestamp;

use crate::answer::{self, Reply};
use crate::view::Answer;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    healthy: bool,
    successes: u64,
    errors: u64,
}

/// The counts, by check.
#[derive(Debug, Default)]
pub(crate) struct Slis(Mutex<BTreeMap<&'static str, Count>>);

impl Slis {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<&'static str, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A check went well, or did not.
    pub(crate) fn note(&self, check: &'static str, healthy: bool) {
        let mut counts = self.counts();
        let count = counts.entry(check).or_default();
        count.healthy = healthy;
        *(if healthy { &mut count.successes } else { &mut count.errors }) += 1;
    }

    /// Shows them, or begins anew.
    pub(crate) fn serve(&self, method: &Method, started: Option<Timestamp>) -> Reply {
        if *method == Method::DELETE {
            self.counts().clear();
            return answer::text(StatusCode::OK, "metrics reset\n");
        }
        answer::content(Answer::text(TEXT, self.text(started)))
    }

    fn text(&self, started: Option<Timestamp>) -> String {
        let (mut last, mut totals) = (String::new(), String::new());
        for (name, count) in self.counts().iter() {
            let labels = format!("name=\"{name}\",type=\"healthz\"");
            let healthy = u8::from(count.healthy);
            // Writing to a string cannot fail.
            let _ = writeln!(last, "kubernetes_healthcheck{{{labels}}} {healthy}");
            for (status, count) in [("error", count.errors), ("success", count.successes)] {
                if count > 0 {
                    let labels = format!("name=\"{name}\",status=\"{status}\",type=\"healthz\"");
                    let _ = writeln!(totals, "kubernetes_healthchecks_total{{{labels}}} {count}");
                }
            }
        }
        let mut text = String::new();
        if !last.is_empty() {
            text = format!(
                "# HELP kubernetes_healthcheck [STABLE] Whether a health check passed when it was last run.\n\
                 # TYPE kubernetes_healthcheck gauge\n{last}\
                 # HELP kubernetes_healthchecks_total [STABLE] Health checks that were run, by result.\n\
                 # TYPE kubernetes_healthchecks_total counter\n{totals}"
            );
        }
        if let Some(started) = started {
            let seconds = started.as_duration().as_secs_f64();
            let _ = write!(
                text,
                "# HELP process_start_time_seconds [ALPHA] When the process started, in seconds since the epoch.\n\
                 # TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {seconds}\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_by_result() {
        let slis = Slis::default();
        assert_eq!(slis.text(None), "");
        for (check, healthy) in [("ping", true), ("log", true), ("log", false), ("ping", true)] {
            slis.note(check, healthy);
        }
        let text = slis.text(Timestamp::from_second(7).ok());
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                r#"kubernetes_healthcheck{name="log",type="healthz"} 0"#,
                r#"kubernetes_healthcheck{name="ping",type="healthz"} 1"#,
                r#"kubernetes_healthchecks_total{name="log",status="error",type="healthz"} 1"#,
                r#"kubernetes_healthchecks_total{name="log",status="success",type="healthz"} 1"#,
                r#"kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2"#,
                "process_start_time_seconds 7",
            ]
        );
        assert_eq!(slis.serve(&Method::DELETE, None).status(), StatusCode::OK);
        assert_eq!(slis.text(None), "");
    }
}
