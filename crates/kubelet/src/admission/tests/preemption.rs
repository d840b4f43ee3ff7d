//! Who makes room for a critical pod.

use kubelet_model::{DesiredPod, Source};
use serde_json::json;

use super::{World, asks, from, limits, pod, world};

fn critical(cpu: &str) -> DesiredPod {
    let mut spec = asks(json!({"cpu": cpu}));
    spec["priority"] = json!(2_000_000_000);
    pod("critical", spec)
}

fn crowd(pods: Vec<DesiredPod>) -> World {
    let mut world = world();
    world.node(|node| {
        node.allocatable.insert("pods".to_owned(), 9);
    });
    pods.into_iter().fold(world, World::with)
}

fn burstable(uid: &str, cpu: &str, memory: &str) -> DesiredPod {
    pod(uid, asks(json!({"cpu": cpu, "memory": memory})))
}

fn guaranteed(uid: &str, cpu: &str) -> DesiredPod {
    pod(uid, limits(json!({"cpu": cpu, "memory": "1Mi"})))
}

#[test]
fn the_fewest_of_the_least_important_go() {
    let going = |world: &World, cpu: &str| {
        let text = world.judge(critical(cpu));
        let victims = text.strip_prefix("preempt ").and_then(|text| text.split(" for cpu").next());
        victims.map_or_else(|| text.clone(), str::to_owned)
    };
    // 1500m of 2000m are taken: one more processor lacks 500m.
    let world = crowd(vec![burstable("b1", "500m", "1Mi"), burstable("b2", "1", "1Mi")]);
    assert_eq!(going(&world, "500m"), "admit", "there is room");
    assert_eq!(going(&world, "1"), "b1", "it is enough, and less than the other");
    assert_eq!(going(&world, "1500m"), "b2");
    assert_eq!(going(&world, "2"), "b2 b1", "first who brings it nearest");
    // Better classes stay as long as lesser ones will do.
    let world = crowd(vec![guaranteed("g", "1"), burstable("b", "1", "1Mi"), pod("e", json!({}))]);
    assert_eq!(going(&world, "1"), "b");
    assert_eq!(going(&world, "2"), "b g");
    // Of equal ones, who has less memory.
    let world = crowd(vec![burstable("b1", "1", "2Mi"), burstable("b2", "1", "1Mi")]);
    assert_eq!(going(&world, "1"), "b2");
}

#[test]
fn whoever_is_as_important_stays() {
    let hopeless = |resource: &str, amount: i64| {
        format!(
            "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: {resource}, q: {amount}), ]"
        )
    };
    let with = |source, priority: Option<i64>| {
        let mut spec = asks(json!({"cpu": "2"}));
        if let Some(priority) = priority {
            spec["priority"] = json!(priority);
        }
        crowd(vec![from(source, "other", spec)])
    };
    let no = hopeless("cpu", 1000);
    assert_eq!(with(Source::File, None).judge(critical("1")), no);
    assert_eq!(with(Source::Api, Some(2_000_000_000)).judge(critical("1")), no);
    let lower = with(Source::File, Some(1_999_999_999)).judge(critical("1"));
    assert_eq!(lower, "preempt other for cpu until 145s", "by its priority");
    let more = crowd(vec![burstable("b", "500m", "1Mi")]);
    assert_eq!(more.judge(critical("9")), hopeless("cpu", 7000));
}

#[test]
fn room_for_a_pod_and_reasons_that_room_does_not_mend() {
    let full =
        || world().with(pod("b", json!({}))).with(pod("c", json!({}))).with(pod("d", json!({})));
    let static_pod = |spec| from(Source::File, "s", spec);
    assert_eq!(full().judge(static_pod(json!({}))), "preempt b for pods until 145s");
    // Upstream hides what is short: others would have to go for nothing.
    let elsewhere = static_pod(json!({"nodeSelector": {"zone": "b"}}));
    assert!(full().judge(elsewhere).starts_with("NodeAffinity: "));
    let mut down = full();
    down.shutting_down = true;
    assert!(down.judge(static_pod(json!({}))).starts_with("NodeShutdown: "));
    // A short grace is waited for ten seconds all the same.
    let mut spec = asks(json!({"cpu": "2"}));
    spec["terminationGracePeriodSeconds"] = json!(1);
    let world = world().with(pod("quick", spec));
    assert_eq!(world.judge(critical("1")), "preempt quick for cpu until 110s");
}
