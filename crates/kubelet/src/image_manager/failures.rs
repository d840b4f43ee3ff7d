//! Pulls that failed, and how long each rests.
//!
//! Owns one back-off per pod and image, forgotten after a quiet while. It holds
//! for every container of the pod that wants the image. Upstream: imageBackOff
//! in pkg/kubelet/images.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use kubelet_model::{Backoff, BackoffPolicy, Mono, PodUid, WaitReason};

/// Ten seconds doubling to five minutes, whatever the crash-loop maximum.
const POLICY: BackoffPolicy = BackoffPolicy {
    initial: Duration::from_secs(10),
    max: Duration::from_secs(300),
    forget_after: Duration::from_secs(600),
};

type Key = (PodUid, String);

/// Failed pulls by pod and image.
#[derive(Default)]
pub struct Failures(Mutex<BTreeMap<Key, Failure>>);

struct Failure {
    backoff: Backoff,
    at: Mono,
    reason: WaitReason,
    message: String,
}

/// A pull that must wait.
#[derive(Debug, PartialEq, Eq)]
pub struct Held {
    /// For so long.
    pub rest: Duration,
    /// The failure before, as `reason: message`.
    pub why: String,
}

impl Failures {
    /// Whether a pull must wait, and why.
    pub fn held(&self, uid: &PodUid, image: &str, now: Mono) -> Option<Held> {
        let failures = self.lock();
        let failure = failures.get(&(uid.clone(), image.to_owned()))?;
        let delay = failure.backoff.delay(POLICY, failure.at);
        let rest = delay.saturating_sub(now.since(failure.at));
        let why = format!("{}: {}", failure.reason, failure.message);
        (!rest.is_zero()).then_some(Held { rest, why })
    }

    /// A pull failed; returns how long the next one waits.
    pub fn note(
        &self,
        uid: &PodUid,
        image: &str,
        (reason, message): (WaitReason, &str),
        now: Mono,
    ) -> Duration {
        let mut failures = self.lock();
        failures.retain(|_, failure| now.since(failure.at) <= POLICY.forget_after);
        let failure = failures.entry((uid.clone(), image.to_owned())).or_insert(Failure {
            backoff: Backoff::default(),
            at: now,
            reason,
            message: String::new(),
        });
        failure.backoff.advance(POLICY, now, now);
        (failure.at, failure.reason, failure.message) = (now, reason, message.to_owned());
        failure.backoff.delay(POLICY, now)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Failure>> {
        self.0.lock().expect("failure lock: no code panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_forgotten() {
        let failures = Failures::default();
        let (uid, other) = (PodUid::new("u"), PodUid::new("v"));
        let at = |seconds| Mono(Duration::from_secs(seconds));
        let why = (WaitReason::ErrImagePull, "gone");
        assert_eq!(failures.held(&uid, "x", at(0)), None);
        assert_eq!(failures.note(&uid, "x", why, at(0)).as_secs(), 10);
        let held = failures.held(&uid, "x", at(4)).unwrap();
        assert_eq!(held, Held { rest: Duration::from_secs(6), why: "ErrImagePull: gone".into() });
        assert_eq!(failures.held(&uid, "x", at(10)), None);
        assert_eq!(failures.held(&uid, "y", at(4)), None);
        assert_eq!(failures.held(&other, "x", at(4)), None);
        let waits =
            [10, 30, 70, 150, 310, 610].map(|t| failures.note(&uid, "x", why, at(t)).as_secs());
        assert_eq!(waits, [20, 40, 80, 160, 300, 300]);
        assert_eq!(failures.note(&uid, "x", why, at(1_211)).as_secs(), 10);
        failures.note(&other, "x", why, at(5_000));
        assert_eq!(failures.lock().len(), 1);
    }
}
