//! Which workers to start, update, end and forget. Pure.
//!
//! Level-triggered: the same facts give the same commands, and facts that are
//! settled give none. Termination only moves forward: a pod that comes back
//! while it ends is started anew once its end is finished.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubelet_model::{DesiredPod, FullName, PodSet, PodUid};

use crate::pleg::Existing;

/// What the dispatcher knows of a worker.
#[derive(Debug, Clone)]
pub(super) struct WorkerFacts {
    /// Its pod's full name.
    pub full_name: FullName,
    /// The pod it works for; `None` if only the runtime knows it.
    pub pod: Option<DesiredPod>,
    /// It was told to end the pod.
    pub ending: bool,
    /// The seconds that a deletion gave it to end, if one told it to.
    pub grace: Option<i64>,
    /// The pod ended by itself and nothing of it runs: its name is free.
    pub ended: bool,
    /// Nor does anything of it use the node.
    pub cleaned: bool,
    /// Nothing of the pod is left.
    pub finished: bool,
}

/// What the dispatcher should do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// Start a worker for a desired pod.
    Start(PodUid),
    /// Give a worker its pod's new version.
    Update(PodUid),
    /// Tell a worker to stop and remove its pod, or to be quicker about it.
    End(PodUid),
    /// Start a worker that removes a pod which only the runtime knows.
    EndOrphan(PodUid),
    /// Drop a worker that has finished.
    Forget(PodUid),
}

/// Decides. `existing` is `None` until the runtime has been listed once; pods that are
/// `held` are not started yet, and what runs of them is left alone.
pub(super) fn plan(
    desired: &PodSet,
    workers: &BTreeMap<PodUid, WorkerFacts>,
    existing: Option<&[Existing]>,
    held: &dyn Fn(&PodUid) -> bool,
) -> Vec<Command> {
    let mut commands = Vec::new();
    for (uid, worker) in workers {
        commands.extend(plan_worker(uid, worker, desired.pods.get(uid)));
    }
    let Some(existing) = existing else { return commands };
    plan_starts(desired, workers, existing, held, &mut commands);
    if desired.sources_ready {
        let orphans = existing
            .iter()
            .filter(|pod| !workers.contains_key(&pod.uid) && !desired.pods.contains_key(&pod.uid));
        commands.extend(orphans.map(|pod| Command::EndOrphan(pod.uid.clone())));
    }
    commands
}

fn plan_worker(uid: &PodUid, worker: &WorkerFacts, wanted: Option<&DesiredPod>) -> Option<Command> {
    if worker.finished {
        // The API server holds it until its last status was written: it must not
        // start again meanwhile.
        return wanted
            .is_none_or(|pod| pod.deletion().is_none() || worker.pod.is_none())
            .then(|| Command::Forget(uid.clone()));
    }
    let deletion = wanted.and_then(DesiredPod::deletion);
    if worker.ending {
        let sooner = deletion.is_some_and(|grace| worker.grace.is_some_and(|given| grace < given));
        return sooner.then(|| Command::End(uid.clone()));
    }
    if deletion.is_some() {
        return Some(Command::End(uid.clone()));
    }
    match (wanted, &worker.pod) {
        (None, _) => Some(Command::End(uid.clone())),
        (Some(new), Some(old)) if Arc::ptr_eq(new.pod(), old.pod()) => None,
        (Some(_), _) => Some(Command::Update(uid.clone())),
    }
}

/// At most one pod of a full name may run; who runs already goes first.
fn plan_starts(
    desired: &PodSet,
    workers: &BTreeMap<PodUid, WorkerFacts>,
    existing: &[Existing],
    held: &dyn Fn(&PodUid) -> bool,
    commands: &mut Vec<Command>,
) {
    let running: BTreeMap<&PodUid, &FullName> =
        existing.iter().filter(|pod| pod.may_run).map(|pod| (&pod.uid, &pod.full_name)).collect();
    let holders = workers.values().filter(|w| w.ending || !w.ended);
    let mut taken: BTreeSet<&FullName> = holders.map(|w| &w.full_name).collect();
    let mut candidates: Vec<&DesiredPod> =
        desired.pods.values().filter(|pod| !workers.contains_key(pod.uid())).collect();
    let pending: BTreeMap<&PodUid, &FullName> =
        existing.iter().filter(|pod| pod.pending).map(|pod| (&pod.uid, &pod.full_name)).collect();
    // Who runs goes before who might, and who might before who does not.
    candidates.sort_by_key(|pod| {
        let (may_run, unseen) = (running.contains_key(pod.uid()), pending.contains_key(pod.uid()));
        (!may_run, unseen, pod.source(), pod.uid())
    });
    let strangers: BTreeSet<&FullName> = running
        .iter()
        .filter(|(uid, _)| !desired.pods.contains_key(**uid))
        .map(|(_, full_name)| *full_name)
        .collect();
    // Of two that might run, either may be the one that does: one is looked at first.
    let unsure = |pod: &DesiredPod| {
        let mut rivals = pending.iter().filter(|(uid, _)| **uid != pod.uid());
        pending.contains_key(pod.uid()) && rivals.any(|(_, name)| *name == pod.full_name())
    };
    for pod in candidates {
        // One that is deleted before anything of it ran only has to say so.
        let never_ran = !running.contains_key(pod.uid()) && !pending.contains_key(pod.uid());
        if pod.deletion().is_some() && never_ran {
            commands.push(Command::Start(pod.uid().clone()));
            continue;
        }
        if held(pod.uid()) {
            // What runs of it keeps its name, also before its turn has come.
            if !never_ran {
                taken.insert(pod.full_name());
            }
            continue;
        }
        let free = !strangers.contains(pod.full_name()) && taken.insert(pod.full_name());
        if free && !unsure(pod) {
            commands.push(Command::Start(pod.uid().clone()));
        }
    }
}
