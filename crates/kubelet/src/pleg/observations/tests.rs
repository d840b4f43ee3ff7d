//! What the table keeps, hands out and wakes.

use super::*;
use futures_util::FutureExt;
use jiff::Timestamp;
use kubelet_model::{ContainerName, ObservedContainer, ObservedSandbox, SandboxId};
use std::time::Duration;

fn at(seconds: u64) -> Mono {
    Mono(Duration::from_secs(seconds))
}

/// A pod `<uid>` with a sandbox, seen by a listing that began then.
fn pod(uid: &str, ready: bool, began: u64) -> ObservedPod {
    let sandbox = ObservedSandbox {
        id: SandboxId::new(format!("sandbox-{uid}")),
        attempt: 0,
        ready,
        created_at: Timestamp::UNIX_EPOCH,
        host_network: false,
        ips: Vec::new(),
    };
    ObservedPod {
        name: uid.to_owned(),
        namespace: "ns".to_owned(),
        sandboxes: vec![sandbox],
        ..ObservedPod::absent(PodUid::new(uid), at(began))
    }
}

fn list(all: &Observations, began: u64, present: &[&str], unchanged: &[&str]) {
    let named = |uid: &&str| (PodUid::new(*uid), FullName::of(uid, "ns"));
    let unchanged = unchanged.iter().map(|uid| PodUid::new(*uid)).collect();
    all.listed_all(at(began), &present.iter().map(named).collect(), &unchanged);
}

fn existing(all: &Observations) -> Vec<String> {
    let text = |pod: &Existing| {
        format!("{} {}", pod.full_name, if pod.may_run { "may run" } else { "is dead" })
    };
    all.existing().iter().map(text).collect()
}

#[test]
fn the_newer_observation_wins() {
    let (all, _requests) = Observations::new();
    all.publish(pod("a", true, 5));
    all.publish(pod("a", false, 4));
    assert!(all.get(&"a".into()).expect("known").sandboxes[0].ready);
    all.publish(pod("a", false, 6));
    assert!(!all.get(&"a".into()).expect("known").sandboxes[0].ready);
}

#[test]
fn a_listing_that_found_the_same_outdates_what_began_before_it() {
    let (all, _requests) = Observations::new();
    let mut watch = all.follow(&"a".into());
    all.publish(pod("a", true, 5));
    list(&all, 9, &["a"], &["a"]);
    all.publish(pod("a", false, 7));
    assert!(watch.current().sandboxes[0].ready);
}

#[test]
fn nothing_is_known_before_the_first_listing() {
    let (all, _requests) = Observations::new();
    let watch = all.follow(&"a".into());
    assert_eq!((all.listed(), watch.began()), (None, None));
    all.publish(pod("a", true, 1));
    assert_eq!(watch.began(), None);
    list(&all, 2, &[], &[]);
    assert_eq!((all.listed(), watch.began()), (Some(at(2)), Some(at(2))));
}

#[test]
fn a_listed_pod_is_unknown_until_somebody_looks() {
    let (all, _requests) = Observations::new();
    let mut watch = all.follow(&"a".into());
    list(&all, 3, &["a", "b"], &[]);
    assert_eq!(watch.began(), None);
    assert_eq!(existing(&all), ["a_ns may run", "b_ns may run"]);
    all.publish(pod("a", false, 4));
    assert_eq!(watch.began(), Some(at(4)));
    assert!(!watch.current().may_run());
    assert_eq!(existing(&all), ["a_ns is dead", "b_ns may run"]);
}

#[test]
fn what_a_listing_does_not_mention_is_gone() {
    let (all, _requests) = Observations::new();
    let mut watch = all.follow(&"a".into());
    list(&all, 1, &["a", "b"], &[]);
    all.publish(pod("a", true, 2));
    all.publish(pod("b", true, 2));
    list(&all, 3, &[], &[]);
    assert!(watch.current().is_gone());
    assert_eq!(watch.began(), Some(at(3)));
    assert!(existing(&all).is_empty());
    assert!(all.get(&"b".into()).is_none(), "nobody follows it");
    assert!(all.get(&"a".into()).is_some(), "somebody follows it");
}

#[test]
fn an_old_listing_does_not_remove_what_was_seen_since() {
    let (all, _requests) = Observations::new();
    let mut watch = all.follow(&"a".into());
    list(&all, 1, &[], &[]);
    all.publish(pod("a", true, 5));
    list(&all, 4, &[], &[]);
    assert!(watch.current().may_run());
}

#[test]
fn a_pod_followed_after_a_listing_that_lacked_it_is_absent() {
    let (all, _requests) = Observations::new();
    list(&all, 3, &[], &[]);
    let mut watch = all.follow(&"a".into());
    assert_eq!(watch.began(), Some(at(3)));
    assert!(watch.current().is_gone());
}

#[test]
fn a_listing_without_news_wakes_nobody() {
    let (all, _requests) = Observations::new();
    list(&all, 1, &["a"], &[]);
    all.publish(pod("a", true, 2));
    let mut watch = all.follow(&"a".into());
    watch.current();
    list(&all, 3, &["a"], &["a"]);
    assert!(!watch.seen.has_changed().expect("the table lives"));
    assert_eq!(watch.began(), Some(at(3)));
}

#[test]
fn a_pod_that_stays_absent_wakes_nobody() {
    let (all, _requests) = Observations::new();
    list(&all, 1, &[], &[]);
    let mut watch = all.follow(&"a".into());
    watch.current();
    list(&all, 2, &[], &[]);
    assert!(!watch.seen.has_changed().expect("the table lives"));
    assert_eq!(watch.began(), Some(at(2)));
}

#[test]
fn owners_follow_the_newest_observation() {
    let (all, _requests) = Observations::new();
    all.publish(pod("a", true, 1));
    assert_eq!(all.owner(&"sandbox-a".into()), Some("a".into()));
    all.publish(ObservedPod::absent("a".into(), at(2)));
    assert_eq!(all.owner(&"sandbox-a".into()), None);
}

#[tokio::test]
async fn events_wait_while_a_worker_acts() {
    let (all, mut requests) = Observations::new();
    let watch = all.follow(&"a".into());
    assert!(all.touch(&"a".into()));
    let hold = watch.hold();
    assert!(!all.touch(&"a".into()));
    assert!(all.touch(&"b".into()), "other pods are not held");
    hold.settle();
    assert!(all.touch(&"a".into()));
    assert!(requests.try_recv().is_err(), "the worker's own look covers every event");
}

#[tokio::test]
async fn a_hold_that_is_dropped_passes_on_what_it_held_back() {
    let (all, mut requests) = Observations::new();
    let watch = all.follow(&"a".into());
    drop(watch.hold());
    assert!(requests.try_recv().is_err(), "nothing was held back");
    let hold = watch.hold();
    all.touch(&"a".into());
    drop(hold);
    assert_eq!(requests.recv().await, Some("a".into()));
}

#[tokio::test]
async fn a_request_names_the_pod() {
    let (all, mut requests) = Observations::new();
    all.follow(&"a".into()).request().await;
    assert_eq!(requests.recv().await, Some("a".into()));
}

#[test]
fn news_is_announced() {
    let (all, _requests) = Observations::new();
    let mut known = all.known_changes();
    let mut news = || {
        let changed = known.has_changed().expect("the table lives");
        known.borrow_and_update();
        changed
    };
    list(&all, 1, &[], &[]);
    assert!(news(), "a listing");
    all.publish(pod("a", true, 2));
    assert!(news(), "a new pod");
    all.publish(pod("a", true, 3));
    assert!(!news(), "the same again");
    all.publish(pod("a", false, 4));
    assert!(news(), "a change");
}

#[tokio::test]
async fn containers_that_start_are_told_once() {
    let (all, _requests) = Observations::new();
    let with = |state, began| {
        let container = ObservedContainer {
            id: "c1".into(),
            name: ContainerName::new("app"),
            sandbox: SandboxId::new("sandbox-a"),
            restart_count: 0,
            hash: None,
            created_at: Timestamp::UNIX_EPOCH,
            image: String::new(),
            image_id: String::new(),
            user: None,
            stop_signal: None,
            grace: None,
            resources: None,
            log_path: String::new(),
            state,
        };
        ObservedPod { containers: vec![container], ..pod("a", true, began) }
    };
    let started = || all.container_started().now_or_never().is_some();
    let running = || ContainerState::Running { started_at: Timestamp::UNIX_EPOCH };
    all.publish(with(ContainerState::Created, 1));
    assert!(!started() && all.running().is_empty());
    all.publish(with(running(), 2));
    all.publish(with(running(), 3));
    assert!(started() && !started());
    assert!(all.is_running(&"c1".into()) && !all.is_running(&"c2".into()));
    assert_eq!(all.running().len(), 1);
    all.publish(with(ContainerState::Unknown, 4));
    assert!(!started() && !all.is_running(&"c1".into()));
}

#[test]
fn what_the_worker_saw_of_a_new_sandbox_is_not_asked_for_again() {
    let (all, _requests) = Observations::new();
    let watch = all.follow(&"a".into());
    all.publish(pod("a", false, 1));
    let known = |all: &Observations| {
        let pod = all.details(&"a".into()).expect("followed");
        pod.sandboxes.iter().map(|sandbox| sandbox.id.to_string()).collect::<Vec<_>>()
    };
    let mut new = pod("a", true, 0).sandboxes.remove(0);
    watch.note_sandbox(&new);
    assert_eq!(known(&all), ["sandbox-a"], "known already");
    new.id = SandboxId::new("sandbox-2");
    watch.note_sandbox(&new);
    assert_eq!(known(&all), ["sandbox-a", "sandbox-2"]);
    assert_eq!(all.get(&"a".into()).expect("known").sandboxes.len(), 1, "not observed yet");
    // From the next look on that one knows better.
    all.publish(pod("a", false, 2));
    assert_eq!(known(&all), ["sandbox-a"]);
}
