//! Who makes room for a critical pod. Pure.
//!
//! As few pods of the best class as can be, of the next best then, and so on; of two
//! that would do, the one that asks for less. Upstream: pkg/kubelet/preemption.

use kubelet_model::{DesiredPod, PodUid};

use super::Rejection;
use super::fit::Shortage;
use crate::container_manager::amounts::Amounts;
use crate::container_manager::{QosClass, qos_class};

/// Reason of whoever has to go.
pub const REASON: &str = "Preempting";
/// Message of whoever has to go.
pub const MESSAGE: &str = "Preempted in order to admit critical pod";
/// Message of its condition.
pub const DISRUPTION: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

/// A pod that might go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) pod: &'a DesiredPod,
    /// What it asks for as a whole.
    pub(super) requests: &'a Amounts,
}

impl Candidate<'_> {
    fn request(&self, resource: &str) -> i64 {
        if resource == "pods" { 1 } else { self.requests.get(resource).copied().unwrap_or(0) }
    }

    /// Of two that do equally well, the one with less memory goes, then less processor.
    fn size(&self) -> (i64, i64) {
        (self.request("memory"), self.request("cpu"))
    }
}

/// How much of what is still missing.
type Needs = Vec<(String, i64)>;

/// Those who go.
///
/// # Errors
/// If all together were not enough.
pub(super) fn choose(
    preemptor: &DesiredPod,
    pods: &[Candidate<'_>],
    shortages: &[Shortage],
) -> Result<Vec<PodUid>, Rejection> {
    let needs: Needs = shortages.iter().map(|s| (s.resource.clone(), s.missing())).collect();
    let of = |class: QosClass| -> Vec<Candidate<'_>> {
        let may_go = |one: &&Candidate<'_>| {
            outranks(preemptor, one.pod) && qos_class(one.pod.spec()) == class
        };
        pods.iter().filter(may_go).copied().collect()
    };
    let (best_effort, burstable, guaranteed) =
        (of(QosClass::BestEffort), of(QosClass::Burstable), of(QosClass::Guaranteed));
    let all = [&best_effort[..], &burstable, &guaranteed].concat();
    let left = without(&needs, &all);
    if !left.is_empty() {
        return Err(hopeless(&left));
    }
    let lesser = [&best_effort[..], &burstable].concat();
    let guaranteed = nearest(&guaranteed, without(&needs, &lesser))?;
    let others = [&best_effort[..], &guaranteed].concat();
    let burstable = nearest(&burstable, without(&needs, &others))?;
    let chosen = [&burstable[..], &guaranteed].concat();
    let best_effort = nearest(&best_effort, without(&needs, &chosen))?;
    let victims = [best_effort, burstable, guaranteed].concat();
    Ok(victims.iter().map(|one| one.pod.uid().clone()).collect())
}

/// May the one be made to go for the other?
fn outranks(preemptor: &DesiredPod, other: &DesiredPod) -> bool {
    if preemptor.is_critical() && !other.is_critical() {
        return true;
    }
    match (preemptor.spec().priority, other.spec().priority) {
        (Some(own), Some(other)) => own > other,
        _ => false,
    }
}

/// Takes whoever brings what is missing nearest, until nothing is.
fn nearest<'a>(pods: &[Candidate<'a>], mut needs: Needs) -> Result<Vec<Candidate<'a>>, Rejection> {
    let (mut left, mut chosen) = (pods.to_vec(), Vec::new());
    while !needs.is_empty() {
        let rank = |one: &Candidate<'_>| (distance(&needs, one), one.size());
        let closer = |a: &(usize, &Candidate<'_>), b: &(usize, &Candidate<'_>)| {
            let (a, b) = (rank(a.1), rank(b.1));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        };
        let best = left.iter().enumerate().min_by(closer).map(|(at, _)| at);
        let Some(best) = best else { return Err(hopeless(&needs)) };
        let victim = left.swap_remove(best);
        needs = without(&needs, &[victim]);
        chosen.push(victim);
    }
    Ok(chosen)
}

/// How far from enough the pod's end would leave each need, as a part of it; squared, so
/// that much of one weighs more than a little of each.
fn distance(needs: &Needs, pod: &Candidate<'_>) -> f64 {
    let unmet = needs.iter().map(|(resource, amount)| {
        let left = amount.saturating_sub(pod.request(resource)).max(0);
        (left as f64 / *amount as f64).powi(2)
    });
    unmet.sum()
}

/// What would still be missing without these pods.
fn without(needs: &Needs, pods: &[Candidate<'_>]) -> Needs {
    let left = needs.iter().map(|(resource, amount)| {
        let freed = pods.iter().map(|one| one.request(resource)).fold(0, i64::saturating_add);
        (resource.clone(), amount.saturating_sub(freed))
    });
    left.filter(|(_, amount)| *amount > 0).collect()
}

fn hopeless(needs: &Needs) -> Rejection {
    let needs = needs.iter().map(|(resource, amount)| format!("(res: {resource}, q: {amount}), "));
    let message = format!(
        "Unexpected error while attempting to recover from admission failure: preemption: error \
         finding a set of pods to preempt: no set of running pods found to reclaim resources: [{}]",
        needs.collect::<String>()
    );
    Rejection::new("UnexpectedAdmissionError", message)
}
