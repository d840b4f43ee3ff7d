//! What becomes of one certificate: asked for, waited for, used, and asked for again in
//! time. Pure: the time is an argument.
//!
//! A request that is denied or fails ends it for good, whatever was issued before. Upstream:
//! the states of pkg/kubelet/podcertificate.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubelet_model::quote;

use super::Credential;
use super::keys::PrivateKey;
use super::parse::{RequestName, Verdict, Words};

/// A request that cannot be seen for so long was deleted.
const ABANDON: Duration = Duration::from_secs(10 * 60);
/// A refresh that is so late is overdue.
const OVERDUE: Duration = Duration::from_secs(10 * 60);
/// Refreshes are later by up to this much, so that not all come at once.
const JITTER_MAX: Duration = Duration::from_secs(5 * 60);
/// From then on users are told that there is no certificate yet.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause after the first request that could not be made; doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(122);

/// A certificate, and how far the next one is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Life {
    held: Option<Held>,
    asking: Asking,
    /// Requests that could not be made, one after the other.
    failures: u32,
    not_before: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    refresh: Timestamp,
    not_after: Timestamp,
    told_overdue: bool,
    told_expired: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Asking {
    /// There is no request.
    #[default]
    Not,
    /// One is being made.
    UnderWay,
    /// One was made.
    Waiting {
        request: Request,
        since: Timestamp,
        /// When it counts as deleted, while it cannot be seen.
        abandon: Timestamp,
        is_seen: bool,
        told: bool,
    },
    /// There will be none any more.
    Over,
}

/// A request that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The key that it is for.
    pub(super) key: PrivateKey,
    pub(super) name: RequestName,
    pub(super) created: Timestamp,
}

/// What is to be done, or told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// A request is to be made.
    Request,
    /// This is the certificate now.
    Issued(Credential),
    /// There will be none.
    Over(String),
    /// There is none yet.
    Wait(String),
    /// Users are to hear of this: reason and message.
    Event(&'static str, String),
}

impl Life {
    /// What follows from what has come of the request, and from the time.
    pub(super) fn step(
        &mut self,
        verdict: impl Fn(&RequestName) -> Option<Verdict>,
        spread: &dyn Fn(Duration) -> Duration,
        now: Timestamp,
    ) -> Vec<Act> {
        let mut acts = Vec::new();
        if let Asking::Waiting { request, abandon, is_seen, .. } = &mut self.asking {
            let verdict = verdict(&request.name);
            *is_seen = verdict.is_some();
            match verdict {
                None if now > *abandon => {
                    let (namespace, name) = &request.name;
                    acts.push(Act::Wait(format!(
                        "PodCertificateRequest {} appears to have been deleted",
                        quote::go(&format!("{namespace}/{name}"))
                    )));
                    self.asking = Asking::Not;
                }
                None | Some(Verdict::Pending) => {}
                Some(Verdict::Denied(words)) => {
                    return self.end(&words, "Denied", "was denied", "denied");
                }
                Some(Verdict::Failed(words)) => {
                    return self.end(&words, "Failed", "failed", "failed");
                }
                Some(Verdict::Issued { chain, refresh, not_after }) => {
                    let refresh = later(refresh, spread(JITTER_MAX));
                    acts.push(Act::Issued(Credential { key: request.key.clone(), chain }));
                    let (told_overdue, told_expired) = (false, false);
                    self.held = Some(Held { refresh, not_after, told_overdue, told_expired });
                    self.asking = Asking::Not;
                }
            }
        }
        self.tell_late(now, &mut acts);
        if self.asking == Asking::Not && self.ask_at().is_none_or(|at| now >= at) {
            self.asking = Asking::UnderWay;
            acts.push(Act::Request);
        }
        if let Asking::Waiting { request, since, told, .. } = &mut self.asking
            && self.held.is_none()
            && !*told
            && now >= later(*since, PATIENCE)
        {
            *told = true;
            acts.push(Act::Wait(format!(
                "credential bundle is not issued yet: no signer has answered \
                 PodCertificateRequest {}/{}",
                request.name.0, request.name.1
            )));
        }
        acts
    }

    /// A request was made, or could not be.
    pub(super) fn note(
        &mut self,
        made: Option<Request>,
        spread: &dyn Fn(Duration) -> Duration,
        now: Timestamp,
    ) {
        match made {
            Some(request) => {
                let abandon = later(request.created, ABANDON + spread(JITTER_MAX));
                self.asking =
                    Asking::Waiting { request, since: now, abandon, is_seen: false, told: false };
                (self.failures, self.not_before) = (0, None);
            }
            None => {
                let pause = PAUSE_FIRST.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
                self.failures = self.failures.saturating_add(1);
                self.not_before = Some(later(now, pause));
                self.asking = Asking::Not;
            }
        }
    }

    /// When time alone changes something.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        let just_after = |at| later(at, Duration::from_millis(1));
        let asks = match &self.asking {
            // It asks for itself at once if there is no time to wait for.
            Asking::Not => self.ask_at(),
            Asking::Waiting { since, told: false, .. } if self.held.is_none() => {
                Some(later(*since, PATIENCE))
            }
            Asking::Waiting { abandon, is_seen: false, .. } => Some(just_after(*abandon)),
            Asking::Waiting { .. } | Asking::UnderWay => None,
            Asking::Over => return None,
        };
        let held = self.held.iter().flat_map(|held| {
            let overdue = (!held.told_overdue).then(|| later(held.refresh, OVERDUE));
            let expired = (!held.told_expired).then_some(held.not_after);
            overdue.into_iter().chain(expired).map(just_after)
        });
        held.chain(asks).min()
    }

    /// When the next request is due; `None` if it is already.
    fn ask_at(&self) -> Option<Timestamp> {
        self.held.as_ref().map(|held| held.refresh).max(self.not_before)
    }

    fn tell_late(&mut self, now: Timestamp, acts: &mut Vec<Act>) {
        let Some(held) = &mut self.held else { return };
        if !held.told_overdue && now > later(held.refresh, OVERDUE) {
            held.told_overdue = true;
            let text = "PodCertificate refresh overdue".to_owned();
            acts.push(Act::Event("CertificateOverdueForRefresh", text));
        }
        if !held.told_expired && now > held.not_after {
            held.told_expired = true;
            acts.push(Act::Event("CertificateExpired", "PodCertificate expired".to_owned()));
        }
    }

    fn end(&mut self, words: &Words, reason: &'static str, said: &str, ended: &str) -> Vec<Act> {
        let name = match &self.asking {
            Asking::Waiting { request, .. } => format!("{}/{}", request.name.0, request.name.1),
            _ => String::new(),
        };
        (self.asking, self.held) = (Asking::Over, None);
        let (why, message) = (quote::go(&words.reason), quote::go(&words.message));
        vec![
            Act::Over(format!(
                "PodCertificateRequest was permanently {ended}: reason={why} message={message}"
            )),
            Act::Event(
                reason,
                format!("PodCertificateRequest {name} {said}, reason={why}, message={message}"),
            ),
        ]
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::*;

    const MINUTE: i64 = 60;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn request(name: &str, created: i64) -> Request {
        let key = keys::make("ED25519", &|| false).unwrap().key;
        Request { key, name: ("ns".to_owned(), name.to_owned()), created: at(created) }
    }

    fn issued(refresh: i64, not_after: i64) -> Verdict {
        let chain = format!("chain until {not_after}");
        Verdict::Issued { chain, refresh: at(refresh), not_after: at(not_after) }
    }

    fn words() -> Words {
        Words { reason: "No".to_owned(), message: "a \"b\"".to_owned() }
    }

    /// One line for all that is to be done.
    fn acts(life: &mut Life, verdict: Option<Verdict>, now: i64) -> String {
        let acts = life.step(|_| verdict.clone(), &|longest| longest / 5, at(now));
        let acts = acts.into_iter().map(|act| match act {
            Act::Request => "request".to_owned(),
            Act::Issued(credential) => format!("issued {}", credential.chain),
            Act::Over(why) => format!("over {why}"),
            Act::Wait(why) => format!("wait {why}"),
            Act::Event(reason, message) => format!("event {reason} {message}"),
        });
        acts.collect::<Vec<_>>().join("; ")
    }

    fn wake(life: &Life) -> Option<i64> {
        life.wake_at().map(|at| at.as_second() - 1_700_000_000)
    }

    fn made(life: &mut Life, name: &str, now: i64) {
        life.note(Some(request(name, now)), &|longest| longest / 5, at(now));
    }

    #[test]
    fn a_certificate_is_asked_for_used_and_renewed() {
        let mut life = Life::default();
        assert_eq!(acts(&mut life, None, 0), "request");
        assert_eq!(acts(&mut life, None, 0), "", "one at a time");
        assert_eq!(wake(&life), None);
        made(&mut life, "req-1", 1);
        assert_eq!((acts(&mut life, None, 1), wake(&life)), (String::new(), Some(4)));
        let waits = "wait credential bundle is not issued yet: no signer has answered \
                     PodCertificateRequest ns/req-1";
        assert_eq!(acts(&mut life, Some(Verdict::Pending), 4), waits);
        assert_eq!(acts(&mut life, Some(Verdict::Pending), 5), "", "once");
        assert_eq!(wake(&life), None, "it is there: news of it will come");
        assert_eq!(acts(&mut life, None, 6), "");
        assert_eq!(wake(&life), Some(1 + 11 * MINUTE));
        let half_hour = issued(30 * MINUTE, 60 * MINUTE);
        assert_eq!(acts(&mut life, Some(half_hour), 10), "issued chain until 3600");
        // A minute of jitter.
        assert_eq!(wake(&life), Some(31 * MINUTE));
        assert_eq!(acts(&mut life, None, 31 * MINUTE - 1), "");
        assert_eq!(acts(&mut life, None, 31 * MINUTE), "request");
        made(&mut life, "req-2", 31 * MINUTE);
        assert_eq!(acts(&mut life, Some(Verdict::Pending), 40 * MINUTE), "", "one is held");
        let renewed = "issued chain until 7200";
        assert_eq!(acts(&mut life, Some(issued(90 * MINUTE, 120 * MINUTE)), 40 * MINUTE), renewed);
        assert_eq!(wake(&life), Some(91 * MINUTE));
    }

    #[test]
    fn users_hear_of_refreshes_that_do_not_come() {
        let mut life = Life::default();
        acts(&mut life, None, 0);
        made(&mut life, "req-1", 0);
        acts(&mut life, Some(issued(30 * MINUTE, 60 * MINUTE)), 0);
        assert_eq!(acts(&mut life, None, 31 * MINUTE), "request");
        life.note(None, &|_| Duration::ZERO, at(31 * MINUTE));
        assert_eq!(acts(&mut life, None, 31 * MINUTE), "", "a pause");
        assert_eq!(acts(&mut life, None, 31 * MINUTE + 1), "request");
        made(&mut life, "req-2", 31 * MINUTE + 1);
        assert_eq!(wake(&life), Some(41 * MINUTE));
        assert_eq!(acts(&mut life, Some(Verdict::Pending), 41 * MINUTE), "");
        let overdue = "event CertificateOverdueForRefresh PodCertificate refresh overdue";
        assert_eq!(acts(&mut life, Some(Verdict::Pending), 41 * MINUTE + 1), overdue);
        assert_eq!(acts(&mut life, Some(Verdict::Pending), 42 * MINUTE), "", "once");
        let expired = "event CertificateExpired PodCertificate expired";
        assert_eq!(acts(&mut life, Some(Verdict::Pending), 60 * MINUTE + 1), expired);
        assert_eq!(acts(&mut life, Some(Verdict::Pending), 61 * MINUTE), "", "once");
    }

    #[test]
    fn a_request_that_is_gone_is_made_again() {
        let mut life = Life::default();
        acts(&mut life, None, 0);
        made(&mut life, "req-1", 0);
        assert!(acts(&mut life, None, 3).starts_with("wait"));
        assert_eq!(acts(&mut life, None, 11 * MINUTE), "");
        assert_eq!(
            acts(&mut life, None, 11 * MINUTE + 1),
            "wait PodCertificateRequest \"ns/req-1\" appears to have been deleted; request"
        );
    }

    #[test]
    fn a_verdict_is_final_even_for_who_has_a_certificate() {
        for (verdict, ended, said) in [
            (Verdict::Denied(words()), "denied", "was denied"),
            (Verdict::Failed(words()), "failed", "failed"),
        ] {
            let kind = if ended == "denied" { "Denied" } else { "Failed" };
            let expected = format!(
                r#"over PodCertificateRequest was permanently {ended}: reason="No" message="a \"b\""; event {kind} PodCertificateRequest ns/req-1 {said}, reason="No", message="a \"b\"""#
            );
            let mut fresh = Life::default();
            acts(&mut fresh, None, 0);
            let mut holding = fresh.clone();
            made(&mut holding, "req-0", 0);
            acts(&mut holding, Some(issued(MINUTE, 60 * MINUTE)), 0);
            acts(&mut holding, None, 10 * MINUTE);
            for mut life in [fresh, holding] {
                made(&mut life, "req-1", 10 * MINUTE);
                assert_eq!(acts(&mut life, Some(verdict.clone()), 10 * MINUTE), expected);
                assert_eq!(acts(&mut life, None, 9_999 * MINUTE), "");
                assert_eq!(wake(&life), None);
            }
        }
    }

    #[test]
    fn what_fails_is_tried_again_ever_later() {
        let mut life = Life::default();
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..11 {
            let acts = life.step(|_| None, &|_| Duration::ZERO, now);
            assert_eq!(acts, [Act::Request]);
            life.note(None, &|_| Duration::ZERO, now);
            let next = life.wake_at().unwrap();
            pauses.push(next.duration_since(now).as_millis());
            now = next;
        }
        assert_eq!(pauses[..4], [500, 1000, 2000, 4000]);
        assert_eq!(pauses[9..], [122_000, 122_000]);
    }
}
