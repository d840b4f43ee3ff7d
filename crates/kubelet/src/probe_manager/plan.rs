//! When a probe runs and what its outcomes add up to. Pure.
//!
//! One [`Course`] per container and kind of probe, kept for as long as the pod
//! lives. Upstream: pkg/kubelet/prober/worker.go.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Probe;
use kubelet_model::{ContainerId, ProbeKind, ProbeResult};

/// A container that started this long before the agent was probed by the one
/// before it, whose verdict stands until this one has its own.
pub(crate) const RESTART_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// What of a probe decides about timing and thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    pub kind: ProbeKind,
    /// The container is a restartable init container.
    pub sidecar: bool,
    /// The pod was being deleted when its probes were set up.
    pub deleting: bool,
    pub initial_delay_secs: i64,
    pub period_secs: i64,
    pub failures_needed: u32,
    pub successes_needed: u32,
}

impl Rules {
    pub(super) fn new(kind: ProbeKind, probe: &Probe, sidecar: bool, deleting: bool) -> Self {
        let at_least_one = |given: Option<i32>, default: u32| {
            given.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        Self {
            kind,
            sidecar,
            deleting,
            initial_delay_secs: probe.initial_delay_seconds.unwrap_or(0).into(),
            period_secs: probe.period_seconds.filter(|n| *n > 0).unwrap_or(10).into(),
            failures_needed: at_least_one(probe.failure_threshold, 3),
            successes_needed: at_least_one(probe.success_threshold, 1),
        }
    }

    /// What holds for a new container before anything was tried.
    fn initially(self) -> ProbeResult {
        match self.kind {
            ProbeKind::Startup => ProbeResult::Unknown,
            ProbeKind::Readiness => ProbeResult::Failure,
            ProbeKind::Liveness => ProbeResult::Success,
        }
    }
}

/// What a tick sees of the container, all from one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// The pod has no status yet, or the container no instance.
    Nothing,
    /// The pod has succeeded or failed.
    PodEnded,
    /// The instance that stands for the container.
    Instance {
        id: ContainerId,
        /// Since when it runs; `None` if it does not.
        running_since: Option<Timestamp>,
        /// Its start-up is over.
        started: bool,
    },
}

/// The moment of a tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub now: Timestamp,
    pub agent_started: Timestamp,
}

/// A change to the stored results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Set(ContainerId, ProbeResult),
    Forget(ContainerId),
}

/// What a tick leads to, once its changes are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Try the container.
    Probe(ContainerId),
    /// Nothing until the next tick.
    Wait,
    /// Nothing ever again.
    End,
}

/// What one try came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Well,
    Unwell,
    /// The try itself went wrong, which says nothing about the container.
    Void,
}

/// How far one container's probe has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Course {
    id: Option<ContainerId>,
    last: Option<ProbeResult>,
    /// Equal outcomes in a row. A new container does not end the row.
    run: u32,
    /// Nothing more is tried on this instance.
    on_hold: bool,
    /// How often this instance was looked at.
    looks: u32,
    /// It ran before the agent did, and is only taken to have started: no status
    /// outlives the agent. Nobody may have asked, so it is asked all the same.
    presumed: bool,
}

impl Course {
    /// Decides about one tick.
    pub(super) fn tick(&mut self, rules: Rules, seen: &Seen, at: Moment) -> (Vec<Change>, Next) {
        let (id, running_since, started) = match seen {
            Seen::Nothing => return (Vec::new(), Next::Wait),
            Seen::PodEnded => return (Vec::new(), Next::End),
            Seen::Instance { id, running_since, started } => (id, *running_since, *started),
        };
        let mut changes = Vec::new();
        if self.id.as_ref() != Some(id) {
            changes.extend(self.id.take().map(Change::Forget));
            let older = is_older(running_since, at);
            changes.extend(first_value(rules, id, older, started));
            self.presumed = older && started;
            self.id = Some(id.clone());
            self.on_hold = false;
            self.looks = 0;
        }
        self.looks = self.looks.saturating_add(1);
        if self.on_hold {
            return (changes, Next::Wait);
        }
        let set = |result| Change::Set(id.clone(), result);
        let Some(since) = running_since else {
            // Upstream's worker ends here if the container will not run again, and
            // the next look at the pod starts another. This one waits: whether a
            // container may run again can change with the others of its pod.
            // What does not run is not ready. Nothing follows for the others: it may
            // only have been created yet, and must not be stopped once it runs.
            if rules.kind == ProbeKind::Readiness {
                changes.push(set(ProbeResult::Failure));
            }
            return (changes, Next::Wait);
        };
        if rules.deleting && rules.kind != ProbeKind::Readiness {
            changes.push(set(ProbeResult::Success));
            return (changes, Next::End);
        }
        let age = match at.now.duration_since(since) {
            // The clock was set back, which must not keep probes waiting: the looks tell.
            ahead if ahead.is_negative() => i64::from(self.looks - 1) * rules.period_secs,
            age => age.as_secs(),
        };
        let young = age < rules.initial_delay_secs;
        let turn = match rules.kind {
            ProbeKind::Startup => !started || self.presumed,
            ProbeKind::Readiness | ProbeKind::Liveness => started,
        };
        let next = if young || !turn { Next::Wait } else { Next::Probe(id.clone()) };
        (changes, next)
    }

    /// Counts the outcome of a try of `id`.
    pub(super) fn count(
        &mut self,
        rules: Rules,
        id: &ContainerId,
        verdict: Verdict,
    ) -> Option<Change> {
        let result = match verdict {
            Verdict::Well => ProbeResult::Success,
            Verdict::Unwell => ProbeResult::Failure,
            Verdict::Void => return None,
        };
        self.run = if self.last == Some(result) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(result);
        let needed = match verdict {
            Verdict::Well => rules.successes_needed,
            _ => rules.failures_needed,
        };
        if self.run < needed {
            return None;
        }
        let settled = match rules.kind {
            ProbeKind::Startup => true,
            ProbeKind::Liveness => result == ProbeResult::Failure,
            ProbeKind::Readiness => false,
        };
        if settled {
            // Probing a container that is being stopped helps nobody.
            self.on_hold = true;
            self.run = 0;
        }
        Some(Change::Set(id.clone(), result))
    }

    /// What must be forgotten when the probe ends.
    pub(super) fn instance(&self) -> Option<&ContainerId> {
        self.id.as_ref()
    }
}

/// Did it run before the agent did?
fn is_older(running_since: Option<Timestamp>, at: Moment) -> bool {
    running_since.is_some_and(|since| at.agent_started.duration_since(since) > RESTART_GRACE)
}

/// What a newly seen instance starts with.
fn first_value(rules: Rules, id: &ContainerId, older: bool, started: bool) -> Option<Change> {
    if !older {
        return Some(Change::Set(id.clone(), rules.initially()));
    }
    // Without a result the status keeps what was known, so readiness does not
    // flap. Only the order of sidecars needs one.
    let over = rules.kind == ProbeKind::Startup && rules.sidecar && started;
    over.then(|| Change::Set(id.clone(), ProbeResult::Success))
}

#[cfg(test)]
mod tests;
