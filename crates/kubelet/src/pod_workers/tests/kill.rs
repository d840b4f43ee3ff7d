//! Orders to end pods for the node's sake: what workers are told, and what callers hear.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, Grace, Mono, PodUid, Source};
use serde_json::json;
use tokio::sync::watch;

use super::super::kill::{Command, Kill, KillError, KillStage, Killed, PodKiller};
use crate::events::Recorder;
use crate::ports::SystemClock;

fn pod(grace: i64) -> DesiredPod {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [], "terminationGracePeriodSeconds": grace},
    }))
    .unwrap();
    DesiredPod::new(Source::Api, Arc::new(pod)).unwrap()
}

fn kill(reason: &str, grace: Option<i64>) -> Kill {
    Kill {
        reason: reason.to_owned(),
        message: format!("because of {reason}"),
        grace: grace.map(Grace::from_secs),
        disruption: None,
        evict: false,
    }
}

fn command(kill: Kill) -> (Command, watch::Receiver<KillStage>) {
    let (stage, watch) = watch::channel(KillStage::Asked);
    (Command { uid: PodUid::new("u"), kill, stage }, watch)
}

fn at(seconds: u64) -> Mono {
    Mono(Duration::from_secs(seconds))
}

/// Seconds of grace that each order in turn leaves, by the pod's own and those ordered.
#[test]
fn grace_is_the_least_of_all() {
    for (own, orders, ends_at) in [
        (30, vec![(0, None)], 30),
        (30, vec![(0, Some(5))], 5),
        (3, vec![(0, Some(60))], 3),
        (30, vec![(0, Some(5)), (1, Some(10))], 5),
        (30, vec![(0, None), (10, Some(5))], 15),
        (30, vec![(0, None), (29, Some(5))], 30),
    ] {
        let mut killed = Killed::default();
        let mut last = None;
        for (now, grace) in &orders {
            let (command, _) = command(kill("A", *grace));
            last = Some(killed.take(command, Some(&pod(own)), KillStage::Asked, at(*now)));
        }
        let termination = last.unwrap().termination;
        assert_eq!(termination.ends_at(), at(ends_at), "{own} {orders:?}");
    }
}

#[test]
fn the_first_reason_stays_and_everybody_hears_of_the_end() {
    let mut killed = Killed::default();
    let uid = PodUid::new("u");
    let (first, first_watch) = command(kill("A", None));
    killed.take(first, Some(&pod(30)), KillStage::Asked, at(0));
    let (second, second_watch) = command(Kill { evict: true, ..kill("B", None) });
    let order = killed.take(second, Some(&pod(30)), KillStage::Asked, at(1));
    assert_eq!((order.ended.reason.as_str(), order.evict), ("A", true));
    assert_eq!(killed.order_of(&uid), Some(order));
    killed.reach(&uid, KillStage::Dead);
    assert_eq!((*first_watch.borrow(), *second_watch.borrow()), (KillStage::Dead, KillStage::Dead));
    // Who asks late hears at once, and nothing goes back.
    let (third, third_watch) = command(kill("C", None));
    killed.take(third, Some(&pod(30)), KillStage::Asked, at(2));
    assert_eq!(*third_watch.borrow(), KillStage::Dead);
    killed.retain(|_| false);
    assert_eq!(*third_watch.borrow(), KillStage::CleanedUp);
    assert_eq!(killed.order_of(&uid), None);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_if_it_takes_too_long() {
    let recorder = Recorder::new(Arc::new(SystemClock::new()));
    let (killer, mut commands) = PodKiller::new(recorder.clone());
    for (own, grace, limit) in [(30, None, 45), (30, Some(1), 10), (30, Some(20), 30)] {
        let began = tokio::time::Instant::now();
        let (mut watch, dead) = killer.kill_and_wait(&pod(own), kill("A", grace)).await;
        assert!(matches!(dead, Err(KillError::TooLong(..))));
        assert_eq!(began.elapsed().as_secs(), limit, "{own} {grace:?}");
        // It can be waited for on.
        let command = commands.recv().await.unwrap();
        command.stage.send_replace(KillStage::CleanedUp);
        assert_eq!(watch.cleaned_up().await, Ok(()));
    }
    let told = recorder.all();
    assert_eq!((told[0].reason, told[0].count), ("ExceededGracePeriod", 3));
    drop(commands);
    let (_, dead) = killer.kill_and_wait(&pod(1), kill("A", None)).await;
    assert_eq!(dead, Err(KillError::AgentStops));
}
