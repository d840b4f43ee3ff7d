//! Which pods are given what they ask for, in which order. Pure.
//!
//! Level-triggered: the same facts give the same answer, so whatever may free
//! room, a pod that goes, ends or shrinks, is reason enough to ask again.
//! Upstream: retryPendingResizes and sortPendingResizes in
//! pkg/kubelet/allocation/allocation_manager.go.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use kubelet_model::{DesiredPod, PodResources, PodUid};

use super::policy::{Refusal, Requests, held, is_guaranteed, judge};
use crate::container_manager::allocatable::Allocatable;

/// What is known of one pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    /// As its source asks for it.
    pub(super) asked: &'a DesiredPod,
    /// What it was given; nothing if it is new.
    pub(super) allocated: Option<&'a PodResources>,
    /// What is in force.
    pub(super) actuated: Option<&'a PodResources>,
    /// It has not ended.
    pub(super) active: bool,
    /// Since when its resize waits.
    pub(super) pending_since: Option<Timestamp>,
}

/// What to do about the pods of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Review {
    /// New pods: they get what they ask for.
    pub(super) admit: Vec<PodUid>,
    /// Pods whose resize is allocated, in this order.
    pub(super) resize: Vec<PodUid>,
    /// Pods whose resize waits, and why.
    pub(super) pending: BTreeMap<PodUid, Refusal>,
}

/// Reviews all pods. Until every source has told its pods nothing is resized:
/// the room may belong to a pod that is not known yet.
pub(super) fn review(pods: &[Known<'_>], sources_ready: bool, node: Option<Allocatable>) -> Review {
    let mut review = Review::default();
    let mut waiting: Vec<(Known<'_>, DesiredPod)> = Vec::new();
    for pod in pods {
        match pod.allocated {
            None => review.admit.push(pod.asked.uid().clone()),
            Some(allocated) => waiting.extend(allocated.give(pod.asked).map(|given| (*pod, given))),
        }
    }
    if waiting.is_empty() || !sources_ready {
        return review;
    }
    waiting.sort_by_cached_key(|(pod, given)| urgency(pod, given));
    let mut held = all_held(pods);
    for (pod, given) in waiting {
        let uid = pod.asked.uid();
        let Some(asked) = pod.asked.asked().spec.as_ref() else { continue };
        let others = held.iter().filter(|(other, _)| **other != uid);
        let used = others.fold(Requests::default(), |sum, (_, requests)| sum.plus(*requests));
        match judge(asked, given.spec(), used, node) {
            Ok(()) => {
                if let Some(own) = held.get_mut(uid) {
                    *own = self::held(asked, pod.actuated);
                }
                review.resize.push(uid.clone());
            }
            Err(refusal) => {
                review.pending.insert(uid.clone(), refusal);
            }
        }
    }
    review
}

/// What every active pod holds of the node.
fn all_held<'a>(pods: &[Known<'a>]) -> BTreeMap<&'a PodUid, Requests> {
    let active = pods.iter().filter(|pod| pod.active);
    let one = |pod: &Known<'a>| {
        let given = pod.allocated.and_then(|allocated| allocated.give(pod.asked));
        let spec = given.as_ref().unwrap_or(pod.asked).spec();
        (pod.asked.uid(), held(spec, pod.actuated))
    };
    active.map(one).collect()
}

/// Those that ask for no more come first, then by priority, class, and how long
/// they have waited.
fn urgency(pod: &Known<'_>, given: &DesiredPod) -> impl Ord + use<> {
    let spec = pod.asked.asked().spec.as_ref();
    let grows = spec.is_some_and(|asked| Requests::of(given.spec()).grows_to(Requests::of(asked)));
    let priority = spec.and_then(|spec| spec.priority).unwrap_or(0);
    let guaranteed = spec.is_some_and(is_guaranteed);
    let since = pod.pending_since.map_or(i128::MAX, Timestamp::as_nanosecond);
    (grows, Reverse(priority), Reverse(guaranteed), since, pod.asked.uid().clone())
}
