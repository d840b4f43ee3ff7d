//! Rules about pods that the node itself ends: nothing of them starts again in the
//! same life of the agent, they get no more time than they were given, and they are
//! told to have failed, for the reason given first.
//!
//! Upstream: killPodNow in pkg/kubelet/pod_workers.go. What the agent only remembers
//! does not outlive it: a static pod then runs again, as upstream's do.

use std::collections::BTreeMap;
use std::time::Duration;

use kubelet::pod_workers::Kill;

use crate::checkers::ReportedPod;
use crate::world::{State, Violation};

/// The pods that were ended, by uid.
#[derive(Default)]
pub(crate) struct Kills(BTreeMap<String, Killed>);

/// How a pod was ended.
#[derive(Clone)]
pub(crate) struct Killed {
    /// When it was first told to.
    pub(crate) at: Duration,
    /// The most that its containers get.
    pub(crate) grace: Option<Duration>,
    reason: String,
    life: u64,
}

impl State {
    /// The agent is told to end a pod.
    pub(crate) fn note_kill(&mut self, pod: &str, uid: &str, kill: &Kill) {
        let (at, life) = (self.now(), self.history.life);
        self.note(pod, format!("the node ends it: {}", kill.reason));
        let grace = kill.grace.map(|grace| grace.duration());
        let new = Killed { at, grace, reason: kill.reason.clone(), life };
        let known = self.kills.0.entry(uid.to_owned()).or_insert_with(|| new.clone());
        if known.life != life {
            *known = new;
        } else {
            known.grace = [known.grace, grace].into_iter().flatten().min();
        }
    }

    /// How a pod was ended, if the agent of this life was told to.
    pub(crate) fn killed(&self, uid: &str) -> Option<&Killed> {
        self.kills.0.get(uid).filter(|killed| killed.life == self.history.life)
    }

    /// Something of a pod is about to be made.
    pub(crate) fn check_not_killed(&mut self, pod: &str, uid: &str, what: &str) {
        let now = self.now();
        if self.killed(uid).is_some_and(|killed| now > killed.at) {
            self.violate(pod, format!("{what} asked for though the node has ended the pod"));
        }
    }

    /// The uid of a pod of this name that was ended, if there is one and it stays so.
    pub(crate) fn stays_killed(
        &self,
        pod: &str,
        reported: &[ReportedPod],
    ) -> Result<Option<String>, Violation> {
        let fail = |text: String| Err(Violation { pod: pod.to_owned(), text });
        for report in reported.iter().filter(|report| report.name == pod) {
            let Some(killed) = self.killed(&report.uid) else { continue };
            let mut all = self.objects.containers.values();
            if all.any(|c| c.is_running() && c.uid() == report.uid) {
                return fail("runs though the node has ended it".to_owned());
            }
            let told = (report.phase.as_str(), report.reason.as_deref());
            if told != ("Failed", Some(killed.reason.as_str())) && told.0 != "Succeeded" {
                return fail(format!("was ended for {}, and is told as {told:?}", killed.reason));
            }
            return Ok(Some(report.uid.clone()));
        }
        Ok(None)
    }
}
