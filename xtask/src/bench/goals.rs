//! What klet promises, as numbers.

use super::Plan;
use super::results::{Measured, Results};

/// A promise and what was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// What was promised.
    pub promise: String,
    /// What was found, in words.
    pub found: String,
    /// Whether it is kept; `None` if nobody was there to compare with.
    pub kept: Option<bool>,
}

/// Holds every promise against the results.
pub fn check(plan: &Plan, results: &Results) -> Vec<Goal> {
    let none = Measured::default();
    let klet = results.get("klet").unwrap_or(&none);
    let listing = results.get("klet, listing").unwrap_or(&none);
    let raw = results.get("raw CRI").unwrap_or(&none);
    let volumes = results.get("klet, volumes").unwrap_or(&none);
    let raw_volumes = results.get("raw CRI, volumes").unwrap_or(&none);
    let upstream = results.get("upstream kubelet").unwrap_or(&none);
    let joined = results.get("klet, joined").unwrap_or(&none);
    let upstream_joined = results.get("upstream, joined").unwrap_or(&none);
    let rss = |who: &Measured, pods| who.idle_at(pods).map(|idle| megabytes(idle.rss_kb * 1024));
    let cpu = |who: &Measured| who.idle_at(plan.pods).map(|idle| idle.cpu_percent);
    let wakeups = |who: &Measured| who.idle_at(plan.pods).map(|idle| idle.wakeups_per_s);
    let up = |who: &Measured| who.round_s(|round| Some(round.up));
    let removed = |who: &Measured| who.round_s(|round| Some(round.removed));
    let pods = plan.pods;
    vec![
        most("binary at most 15 MB", klet.binary_bytes.map(megabytes), 15.0, "MB"),
        most("healthy within 50 ms", klet.healthy_ms(), 50.0, "ms"),
        most("at most 12 MB resident with no pods", rss(klet, 0), 12.0, "MB"),
        most(&format!("at most 25 MB resident with {pods} pods"), rss(klet, pods), 25.0, "MB"),
        ratio(
            &format!("idle with {pods} pods on at most 1/10 of upstream's processor time"),
            cpu(klet),
            cpu(upstream),
            0.1,
        ),
        ratio(
            &format!(
                "idle with {pods} pods, no events, on at most 1/10 of upstream's processor time"
            ),
            cpu(listing),
            cpu(upstream),
            0.1,
        ),
        ratio(
            &format!(
                "a node of a cluster, idle with {pods} pods on at most 1/10 of upstream's \
                 processor time"
            ),
            cpu(joined),
            cpu(upstream_joined),
            0.1,
        ),
        most(
            &format!("a node of a cluster, at most 25 MB resident with {pods} pods"),
            rss(joined, pods),
            25.0,
            "MB",
        ),
        // Nothing at all between changes, but two runs of the very same differ: by a
        // retransmission, a line of the runtime's, a page fault. Who looked at each pod's
        // volumes once in a minute and a half, as upstream does, would wake up more often.
        most(
            "five volumes a pod add at most one wake-up a second at rest",
            more(wakeups(volumes), wakeups(klet)),
            1.0,
            "more a second",
        ),
        most(
            "five volumes a pod add at most 0.02 % of a core at rest",
            more(cpu(volumes), cpu(klet)),
            0.02,
            "% of a core more",
        ),
        most(
            "no more than one full listing a minute where events stream",
            klet.idle_at(pods).and_then(|idle| idle.listings_per_min),
            1.0,
            "a minute",
        ),
        most(
            "exit to restart begun within 20 ms where events stream",
            klet.reaction_ms(|exit| exit.restarted_ms),
            20.0,
            "ms",
        ),
        most(
            "exit to status told within 20 ms where events stream",
            klet.reaction_ms(|exit| exit.told_ms),
            20.0,
            "ms",
        ),
        most(
            "exit to restart begun within 1.1 s without events",
            listing.reaction_ms(|exit| exit.restarted_ms),
            1100.0,
            "ms",
        ),
        most(
            "exit to status told within 1.1 s without events",
            listing.reaction_ms(|exit| exit.told_ms),
            1100.0,
            "ms",
        ),
        most(
            "1,000 probes of the dearest kind a second on at most a tenth of a core",
            klet.probes.values().copied().reduce(f64::max).map(|cores| cores * 100.0),
            10.0,
            "% of a core",
        ),
        ratio(&format!("{pods} pods up within 1.1 × raw CRI"), up(klet), up(raw), 1.1),
        most(
            &format!("{pods} pods up on at most 0.3 s of processor time"),
            klet.round_s(|round| round.up_cpu),
            0.3,
            "s",
        ),
        ratio(
            &format!("{pods} pods removed within 1.2 × raw CRI"),
            removed(klet),
            removed(raw),
            1.2,
        ),
        ratio(
            "five volumes a pod add at most 5 % to that, beside raw CRI with as many mounts",
            up(volumes).zip(up(raw)).map(|(klet, raw)| klet * raw),
            up(klet).zip(up(raw_volumes)).map(|(klet, raw)| klet * raw),
            1.05,
        ),
    ]
}

/// Decimal megabytes: the strict reading.
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// How much one is above another; below it is not better, only luck.
fn more(found: Option<f64>, base: Option<f64>) -> Option<f64> {
    found.zip(base).map(|(found, base)| (found - base).max(0.0))
}

fn most(promise: &str, found: Option<f64>, limit: f64, unit: &str) -> Goal {
    Goal {
        promise: promise.to_owned(),
        found: found.map_or("not measured".to_owned(), |found| format!("{found:.2} {unit}")),
        kept: found.map(|found| found <= limit),
    }
}

fn ratio(promise: &str, found: Option<f64>, base: Option<f64>, limit: f64) -> Goal {
    let ratio = match (found, base) {
        (Some(found), Some(base)) if base > 0.0 => Some(found / base),
        _ => None,
    };
    Goal {
        promise: promise.to_owned(),
        found: ratio.map_or("not compared".to_owned(), |ratio| format!("{ratio:.3} ×")),
        kept: ratio.map(|ratio| ratio <= limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept_up_to_itself() {
        assert_eq!(most("a", Some(15.0), 15.0, "MB").kept, Some(true));
        assert_eq!(most("a", Some(15.01), 15.0, "MB").kept, Some(false));
        assert_eq!(most("a", None, 15.0, "MB").kept, None);
    }

    #[test]
    fn less_than_the_other_is_nothing_more() {
        assert_eq!(more(Some(3.5), Some(1.5)), Some(2.0));
        assert_eq!(more(Some(1.0), Some(1.5)), Some(0.0));
        assert_eq!(more(None, Some(1.5)), None);
        assert_eq!(more(Some(1.5), None), None);
    }

    #[test]
    fn a_ratio_needs_both_sides() {
        assert_eq!(ratio("a", Some(1.0), Some(10.0), 0.1).kept, Some(true));
        assert_eq!(ratio("a", Some(2.0), Some(10.0), 0.1).kept, Some(false));
        assert_eq!(ratio("a", Some(1.0), None, 0.1).kept, None);
        assert_eq!(ratio("a", Some(1.0), Some(0.0), 0.1).kept, None);
    }
}
