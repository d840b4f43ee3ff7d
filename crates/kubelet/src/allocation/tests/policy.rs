//! What fits, and who comes first.

use jiff::Timestamp;
use kubelet_model::{DesiredPod, PodResources};

use super::{pod, sized};
use crate::allocation::PendingReason;
use crate::allocation::plan::{Known, Review, review};
use crate::container_manager::allocatable::Allocatable;

const NODE: Allocatable = Allocatable { cpu_milli: 2000, memory_bytes: 1 << 30, storage_bytes: 0 };

struct Fact {
    asked: DesiredPod,
    allocated: Option<PodResources>,
    actuated: Option<PodResources>,
    active: bool,
    since: Option<i64>,
}

/// A pod that asks for `new` and was given `old`, which is in force.
fn wants(new: DesiredPod, old: &DesiredPod) -> Fact {
    let old = PodResources::of(old.spec());
    Fact {
        asked: new,
        allocated: Some(old.clone()),
        actuated: Some(old),
        active: true,
        since: None,
    }
}

fn settled(pod: DesiredPod) -> Fact {
    let same = pod.clone();
    wants(pod, &same)
}

fn judge(facts: &[Fact]) -> Review {
    let known: Vec<Known<'_>> = facts
        .iter()
        .map(|fact| Known {
            asked: &fact.asked,
            allocated: fact.allocated.as_ref(),
            actuated: fact.actuated.as_ref(),
            active: fact.active,
            pending_since: fact.since.and_then(|at| Timestamp::from_second(at).ok()),
        })
        .collect();
    review(&known, true, Some(NODE))
}

fn resized(review: &Review) -> Vec<&str> {
    review.resize.iter().map(kubelet_model::PodUid::as_str).collect()
}

#[test]
fn new_pods_get_what_they_ask_for() {
    let huge = sized("a", 9000, 9000);
    let review =
        judge(&[Fact { asked: huge, allocated: None, actuated: None, active: true, since: None }]);
    assert_eq!(review.admit.len(), 1);
    assert!(review.resize.is_empty() && review.pending.is_empty());
}

#[test]
fn what_fits_is_allocated_and_what_does_not_waits() {
    let fits =
        judge(&[wants(sized("a", 1500, 64), &sized("a", 100, 64)), settled(sized("b", 500, 64))]);
    assert_eq!((resized(&fits), fits.pending.len()), (vec!["a"], 0));
    let waits =
        judge(&[wants(sized("a", 1600, 64), &sized("a", 100, 64)), settled(sized("b", 500, 64))]);
    let refusal = waits.pending.values().next().expect("one waits");
    assert_eq!(refusal.reason, PendingReason::Deferred);
    assert_eq!(
        refusal.message,
        "Node didn't have enough resource: cpu, requested: 1600, used: 500, capacity: 2000"
    );
    let memory = judge(&[wants(sized("a", 100, 1025), &sized("a", 100, 64))]);
    assert_eq!(
        memory.pending.values().next().expect("it waits").message,
        "Node didn't have enough resource: memory, requested: 1074790400, used: 0, capacity: 1073741824"
    );
    assert!(judge(&[settled(sized("a", 9000, 64))]) == Review::default());
}

#[test]
fn pods_that_ended_hold_nothing() {
    let mut other = settled(sized("b", 1900, 64));
    other.active = false;
    let review = judge(&[wants(sized("a", 1600, 64), &sized("a", 100, 64)), other]);
    assert_eq!(resized(&review), ["a"]);
}

#[test]
fn a_pod_holds_what_it_has_until_it_has_shrunk() {
    let mut shrinking = wants(sized("b", 100, 64), &sized("b", 100, 64));
    shrinking.actuated = Some(PodResources::of(sized("b", 1500, 64).spec()));
    let facts = [wants(sized("a", 1000, 64), &sized("a", 100, 64)), shrinking];
    assert!(resized(&judge(&facts)).is_empty());
    let facts = [wants(sized("a", 1000, 64), &sized("a", 100, 64)), settled(sized("b", 100, 64))];
    assert_eq!(resized(&judge(&facts)), ["a"]);
}

#[test]
fn a_class_cannot_change() {
    let best_effort = pod("a", "{}", "");
    for (from, to) in [
        (&best_effort, &sized("a", 1, 1)),
        (&sized("a", 1, 1), &best_effort),
        (&pod("a", r#"{"limits":{"cpu":"1","memory":"1Mi"}}"#, ""), &sized("a", 1, 1)),
    ] {
        let review = judge(&[wants(to.clone(), from)]);
        let refusal = review.pending.values().next().expect("it is refused");
        assert_eq!(refusal.reason, PendingReason::Infeasible);
        assert_eq!(refusal.message, "Pod QOS Class may not change as a result of resizing");
    }
}

#[test]
fn the_most_urgent_come_first() {
    let small = |uid: &str| sized(uid, 10, 10);
    let priority = |uid: &str, priority: i32| {
        let more = format!(r#","priority":{priority}"#);
        pod(uid, r#"{"requests":{"cpu":"20m","memory":"10Mi"}}"#, &more)
    };
    let guaranteed = |cpu: u32| {
        let limits = format!(r#"{{"limits":{{"cpu":"{cpu}m","memory":"10Mi"}}}}"#);
        pod("guaranteed", &limits, "")
    };
    let since = |mut fact: Fact, at: i64| {
        fact.since = Some(at);
        fact
    };
    let review = judge(&[
        wants(sized("fresh", 20, 10), &small("fresh")),
        since(wants(sized("late", 20, 10), &small("late")), 200),
        since(wants(sized("early", 20, 10), &small("early")), 100),
        wants(guaranteed(20), &guaranteed(10)),
        wants(priority("high", 5), &small("high")),
        wants(sized("shrinks", 5, 10), &small("shrinks")),
    ]);
    let order = ["shrinks", "high", "guaranteed", "early", "late", "fresh"];
    assert_eq!(resized(&review), order);
}

#[test]
fn nothing_is_resized_before_every_source_has_spoken() {
    let fact = wants(sized("a", 20, 10), &sized("a", 10, 10));
    let known = Known {
        asked: &fact.asked,
        allocated: fact.allocated.as_ref(),
        actuated: None,
        active: true,
        pending_since: None,
    };
    assert_eq!(review(&[known], false, Some(NODE)), Review::default());
    assert_eq!(resized(&review(&[known], true, None)), ["a"]);
}
