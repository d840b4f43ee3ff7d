//! What must be true once everything is quiet.
//!
//! Compares three views: the manifests, the runtime's objects, and what the
//! agent reports. Each check returns the first disagreement it finds.

mod leftovers;
mod running;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::deadlines::was_exceeded;
use crate::manifest::{PodTemplate, Restart};
use crate::runtime::{Container, Sandbox};
use crate::sizes;
use crate::world::{State, Violation};

/// What the agent reports of one pod.
#[derive(Debug, Clone)]
pub struct ReportedPod {
    /// Uid.
    pub uid: String,
    /// Name on the node.
    pub name: String,
    /// Revision of its manifest.
    pub revision: u64,
    /// `status.phase`.
    pub phase: String,
    /// `status.reason`.
    pub reason: Option<String>,
    /// Container statuses.
    pub containers: Vec<ReportedContainer>,
}

/// What the agent reports of one container.
#[derive(Debug, Clone)]
pub struct ReportedContainer {
    /// Name.
    pub name: String,
    /// `containerID` without its scheme.
    pub id: Option<String>,
    /// `restartCount`.
    pub restarts: i32,
    /// Does `state.running` stand?
    pub running: bool,
    /// `ready`.
    pub ready: bool,
    /// `state.waiting.reason`.
    pub waiting: Option<String>,
}

/// Where the agent keeps things on the node.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// The node's name.
    pub node: &'a str,
    /// Root of log directories.
    pub logs_dir: &'a Path,
    /// Directory of log links.
    pub links_dir: &'a Path,
    /// Longest back-off.
    pub backoff_max: Duration,
}

/// Everything of one wanted pod in the runtime.
struct Actual<'a> {
    uid: String,
    template: &'a PodTemplate,
    sandboxes: Vec<&'a Sandbox>,
    /// Newest instance per container name of the manifest.
    newest: BTreeMap<&'a str, &'a Container>,
}

/// Checks everything; `None` once all agree.
pub(crate) fn unsettled(
    state: &State,
    reported: &[ReportedPod],
    layout: Layout<'_>,
) -> Option<Violation> {
    check(state, reported, layout).err()
}

/// The same for volumes alone, of pods of these uids and phases.
pub(crate) fn stale_volume(state: &State, pods: &[(&str, &str)]) -> Option<Violation> {
    let uids = pods.iter().map(|(uid, _)| (*uid).to_owned()).collect();
    let reported = |(uid, phase): &(&str, &str)| ReportedPod {
        uid: (*uid).to_owned(),
        name: String::new(),
        revision: 0,
        phase: (*phase).to_owned(),
        reason: None,
        containers: Vec::new(),
    };
    let reported: Vec<ReportedPod> = pods.iter().map(reported).collect();
    leftovers::no_stale_volumes(state, &uids, &reported).err()
}

fn check(state: &State, reported: &[ReportedPod], layout: Layout<'_>) -> Result<(), Violation> {
    let wanted = state.oracle.wanted();
    leftovers::nothing_left_behind(state, &wanted, layout)?;
    let mut uids = BTreeSet::new();
    for (name, candidates) in &wanted {
        let pod = format!("{name}-{}", layout.node);
        if ran_out_of_time_unseen(state, &pod, candidates, reported) {
            continue;
        }
        if let Some(uid) = state.stays_killed(&pod, reported)? {
            uids.insert(uid);
            continue;
        }
        let actual = no_lost_pod(state, &pod, candidates, reported)?;
        let done = running::is_done(&actual) || running::stays_ended(&actual, reported);
        if state.deadline_is_over(actual.template, &actual.sandboxes) && !done {
            return fail(&pod, "has not ended though its time is up");
        }
        if !done {
            running::runs_as_asked(state, &pod, &actual, layout.backoff_max)?;
            sizes::are_as_asked(state, &pod, &actual.uid, actual.template, &actual.newest)?;
        }
        running::few_dead_instances(state, &pod, &actual)?;
        if done && actual.newest.values().any(|c| c.is_running()) {
            return fail(&pod, "runs on though it has ended");
        }
        status::status_matches_runtime(state, &pod, &actual, done, reported)?;
        uids.insert(actual.uid);
    }
    for pod in reported {
        let known = wanted.values().flatten();
        if !known.into_iter().any(|t| t.revision == pod.revision) {
            return fail(&pod.name, format!("reported though gone: uid {}", pod.uid));
        }
        uids.insert(pod.uid.clone());
    }
    leftovers::no_stale_groups(state, &uids)?;
    leftovers::no_stale_volumes(state, &uids, reported)?;
    leftovers::no_stale_files(state, &uids, layout)
}

/// Did a pod's time run out before anything of it was made? Then nothing will be.
fn ran_out_of_time_unseen(
    state: &State,
    pod: &str,
    candidates: &[&PodTemplate],
    reported: &[ReportedPod],
) -> bool {
    let mut sandboxes = state.objects.sandboxes.values();
    let nothing = !sandboxes.any(|s| !s.foreign && s.pod() == pod);
    let limited = |r: &ReportedPod| {
        candidates.iter().any(|t| t.revision == r.revision && t.deadline_secs.is_some())
    };
    nothing && reported.iter().any(|r| r.name == pod && was_exceeded(r) && limited(r))
}

fn fail<T>(pod: &str, text: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { pod: pod.to_owned(), text: text.into() })
}

/// A wanted pod exists under exactly one uid, from one of the texts that want it.
fn no_lost_pod<'a>(
    state: &'a State,
    pod: &str,
    candidates: &[&'a PodTemplate],
    reported: &[ReportedPod],
) -> Result<Actual<'a>, Violation> {
    let mine = |s: &&Sandbox| !s.foreign && s.pod() == pod;
    let mut sandboxes: Vec<&Sandbox> = state.objects.sandboxes.values().filter(mine).collect();
    let template_of = |s: &Sandbox| {
        let mut wanted = candidates.iter();
        wanted.find(|t| t.revision == s.revision() || t.fixed_uid.as_deref() == Some(s.uid()))
    };
    // One that can neither go on nor end keeps its name from the other.
    let is_stuck = |s: &Sandbox| {
        let pending = |r: &ReportedPod| r.uid == s.uid() && r.phase == "Pending";
        let never = template_of(s).is_some_and(|t| t.restart == Restart::Never);
        never && reported.iter().any(pending)
    };
    sandboxes.sort_by_key(|s| (!s.ready, !is_stuck(s), std::cmp::Reverse(s.attempt())));
    let Some(first) = sandboxes.first().copied() else {
        return fail(pod, "lost: no sandbox");
    };
    // Where two texts want one name, the other may have run and ended before.
    for other in sandboxes.iter().filter(|s| s.uid() != first.uid()) {
        if other.ready || template_of(other).is_none() {
            let text = format!("two uids exist: {} and {}", first.uid(), other.uid());
            return fail(pod, text);
        }
    }
    let Some(template) = template_of(first).copied() else {
        let text = format!("runs revision {}, which nobody wants", first.revision());
        return fail(pod, text);
    };
    sandboxes.retain(|s| s.uid() == first.uid());
    let mut newest: BTreeMap<&str, &Container> = BTreeMap::new();
    for container in state.objects.containers.values().filter(|c| c.uid() == first.uid()) {
        if template.container(container.name()).is_none() {
            if container.is_running() {
                let text = format!("{} runs, which the manifest does not name", container.name());
                return fail(pod, text);
            }
            continue;
        }
        let slot = newest.entry(container.name()).or_insert(container);
        if container.attempt() > slot.attempt() {
            *slot = container;
        }
    }
    Ok(Actual { uid: first.uid().to_owned(), template, sandboxes, newest })
}
