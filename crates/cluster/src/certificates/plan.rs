//! When a certificate is asked for, with what, and how the node begins. Pure.
//!
//! Upstream: client-go util/certificate (certificate_manager.go),
//! pkg/kubelet/certificate/bootstrap.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::parse::Leaf;
use super::template::Template;

/// Parts in a hundred of its life after which a certificate is renewed at the earliest,
/// and how much later it may be.
const RENEW_AT: i32 = 70;
const RENEW_SPREAD: u32 = 20;
/// Pause after the first failure; doubles with each up to the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(32);

/// How much later than at the earliest a certificate may be renewed, so that nodes which
/// began together do not ask together.
pub fn spread_max(leaf: &Leaf) -> Duration {
    life(leaf).unsigned_abs() / 100 * RENEW_SPREAD
}

/// When a certificate is renewed; `later` is part of [`spread_max`].
pub fn renew_at(leaf: &Leaf, later: Duration) -> Timestamp {
    let later = SignedDuration::try_from(later).unwrap_or(SignedDuration::ZERO);
    let after = (life(leaf) / 100 * RENEW_AT).saturating_add(later);
    leaf.not_before.saturating_add(after).unwrap_or(leaf.not_after)
}

fn life(leaf: &Leaf) -> SignedDuration {
    leaf.not_after.duration_since(leaf.not_before).max(SignedDuration::ZERO)
}

/// How long to pause after so many failures in a row, and how much longer it may be.
pub fn pause(failures: u32) -> (Duration, Duration) {
    let pause = PAUSE_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10));
    if pause < PAUSE_MAX { (pause, pause / 10) } else { (PAUSE_MAX, Duration::ZERO) }
}

/// What is known of a certificate that is kept.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The certificate there is.
    pub leaf: Option<&'a Leaf>,
    /// When it is renewed.
    pub renew_at: Option<Timestamp>,
    /// It is to be replaced whatever it says.
    pub forced: bool,
    /// What is wanted; nothing while that is not known.
    pub wanted: Option<&'a Template>,
    /// Not asked for before, after a failure.
    pub not_before: Option<Timestamp>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask for one, for a reason.
    Ask(String),
    /// Nothing until then, or until something else is wanted.
    Rest(Option<Timestamp>),
}

/// What to do next.
pub fn next(of: &Situation<'_>, now: Timestamp) -> Step {
    // Whoever uses it has to hear that it has expired.
    let expiry = of.leaf.map(|leaf| leaf.not_after).filter(|at| *at >= now);
    let expiry = expiry.map(|at| at.saturating_add(SignedDuration::from_secs(1)).unwrap_or(at));
    let rest = |until: Timestamp| Step::Rest(Some(expiry.map_or(until, |at| at.min(until))));
    let Some(wanted) = of.wanted else { return Step::Rest(expiry) };
    let why = match of.leaf {
        None => "there is none".to_owned(),
        Some(leaf) if leaf.is_expired(now) => format!("it expired at {}", leaf.not_after),
        Some(_) if of.forced => "it is to be replaced at the first opportunity".to_owned(),
        Some(leaf) => match (wanted.missing_in(leaf), of.renew_at) {
            (Some(missing), _) => missing,
            (None, Some(at)) if now < at => return rest(at),
            (None, _) => format!("it expires at {}", leaf.not_after),
        },
    };
    match of.not_before {
        Some(at) if now < at => rest(at),
        _ => Step::Ask(why),
    }
}

/// With which credentials a certificate is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// The certificate there is.
    Own,
    /// `--bootstrap-kubeconfig`.
    Bootstrap,
    /// Whatever `--kubeconfig` holds.
    Given,
}

impl Means {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Own => "the node's own credentials",
            Self::Bootstrap => "--bootstrap-kubeconfig",
            Self::Given => "--kubeconfig",
        }
    }
}

/// The means there are: what is good is used, then what was given for this.
pub fn means(leaf: Option<&Leaf>, bootstrap: bool, now: Timestamp) -> Means {
    match leaf {
        Some(leaf) if !leaf.is_expired(now) => Means::Own,
        _ if bootstrap => Means::Bootstrap,
        _ => Means::Given,
    }
}

/// How `--kubeconfig` stands when the node begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There is no such file.
    Absent,
    /// It cannot be used for a node's certificate.
    Unusable(String),
    /// A certificate of it has expired.
    Expired(Timestamp),
    /// It can be used.
    Good,
}

/// How the node begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With `--kubeconfig` as it is; nothing is renewed.
    AsGiven,
    /// With `--kubeconfig`, whose certificate is renewed.
    Renewing,
    /// With a certificate that is asked for, and renewed; `--kubeconfig` is written
    /// first, to point at it.
    BootstrapRenewing,
    /// With a certificate that is asked for once; `--kubeconfig` is written when it is
    /// there.
    BootstrapOnce,
}

/// How the node begins, by what was configured and how the kubeconfig stands. Without
/// `bootstrap` the kubeconfig is taken as it is.
pub fn begin(rotates: bool, bootstrap: bool, standing: &Standing) -> Begin {
    match (rotates, bootstrap && *standing != Standing::Good) {
        (false, false) => Begin::AsGiven,
        (true, false) => Begin::Renewing,
        (true, true) => Begin::BootstrapRenewing,
        (false, true) => Begin::BootstrapOnce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::test_parts::{leaf, minute};

    #[test]
    fn certificates_are_renewed_late_in_their_life() {
        let leaf = leaf(100, 200);
        assert_eq!(spread_max(&leaf), Duration::from_secs(20 * 60));
        assert_eq!(renew_at(&leaf, Duration::ZERO), minute(170));
        assert_eq!(renew_at(&leaf, spread_max(&leaf)), minute(190));
        // Times that make no sense are renewed at once, and nothing overflows.
        let odd = crate::certificates::test_parts::leaf(200, 100);
        assert_eq!(renew_at(&odd, spread_max(&odd)), minute(200));
        renew_at(&leaf, Duration::MAX);
    }

    #[test]
    fn pauses_grow_to_half_a_minute() {
        let seconds: Vec<u64> = (1..8).map(|failures| pause(failures).0.as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 32, 32]);
        assert_eq!(pause(1).1, Duration::from_millis(200));
        assert_eq!((pause(5).1, pause(u32::MAX).0), (Duration::ZERO, PAUSE_MAX));
    }

    #[test]
    fn what_comes_next() {
        let good = leaf(0, 100);
        let wanted = Template::client("n1");
        let other = Template::client("n2");
        let usual = Situation {
            leaf: Some(&good),
            renew_at: Some(minute(80)),
            forced: false,
            wanted: Some(&wanted),
            not_before: None,
        };
        let expiry = minute(100).saturating_add(SignedDuration::from_secs(1)).unwrap();
        let ask = |why: &str| Step::Ask(why.to_owned());
        let rest = |at| Step::Rest(Some(at));
        let none = Situation { leaf: None, renew_at: None, ..usual };
        let table = [
            (usual, 10, rest(minute(80))),
            (usual, 80, ask("it expires at 2026-01-01T01:40:00Z")),
            (usual, 101, ask("it expired at 2026-01-01T01:40:00Z")),
            (Situation { renew_at: Some(minute(999)), ..usual }, 10, rest(expiry)),
            (
                Situation { forced: true, ..usual },
                10,
                ask("it is to be replaced at the first opportunity"),
            ),
            (
                Situation { wanted: Some(&other), ..usual },
                10,
                ask("it is of \"system:node:n1\", not of \"system:node:n2\""),
            ),
            (Situation { wanted: None, ..usual }, 90, Step::Rest(Some(expiry))),
            (Situation { not_before: Some(minute(85)), ..usual }, 81, rest(minute(85))),
            (Situation { not_before: Some(minute(999)), ..usual }, 81, rest(expiry)),
            (none, 10, ask("there is none")),
            (Situation { wanted: None, ..none }, 10, Step::Rest(None)),
            (Situation { not_before: Some(minute(11)), ..none }, 10, rest(minute(11))),
            (Situation { not_before: Some(minute(11)), ..none }, 11, ask("there is none")),
        ];
        for (index, (situation, now, expected)) in table.into_iter().enumerate() {
            assert_eq!(next(&situation, minute(now)), expected, "case {index}");
        }
    }

    #[test]
    fn an_expired_certificate_is_replaced_by_other_means() {
        let own = leaf(0, 100);
        for (leaf, bootstrap, now, expected) in [
            (Some(&own), true, 50, Means::Own),
            (Some(&own), true, 101, Means::Bootstrap),
            (Some(&own), false, 101, Means::Given),
            (None, true, 0, Means::Bootstrap),
            (None, false, 0, Means::Given),
        ] {
            assert_eq!(means(leaf, bootstrap, minute(now)), expected);
        }
    }

    #[test]
    fn how_a_node_begins() {
        use Begin::{AsGiven, BootstrapOnce, BootstrapRenewing, Renewing};
        let bad = [
            Standing::Absent,
            Standing::Unusable("odd".to_owned()),
            Standing::Expired(Timestamp::UNIX_EPOCH),
        ];
        for standing in &bad {
            assert_eq!(begin(true, true, standing), BootstrapRenewing);
            assert_eq!(begin(false, true, standing), BootstrapOnce);
            assert_eq!(begin(true, false, standing), Renewing);
            assert_eq!(begin(false, false, standing), AsGiven);
        }
        assert_eq!(begin(true, true, &Standing::Good), Renewing);
        assert_eq!(begin(false, true, &Standing::Good), AsGiven);
    }
}
