//! Registration and status.

use std::time::Duration;

use api_client::ApiError;
use serde_json::{Value, json};

use super::fake::{World, answered, away};
use crate::node::test_parts::settings;

fn ready(world: &World) -> Value {
    let node = world.api.node();
    super::super::conditions::find(&node, "Ready").expect("Ready")["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_change_is_written_now_and_then() {
    let mut world = World::new(settings());
    world.pass(1_000_000).await;
    assert_eq!(world.api.calls("POST node"), ["100 POST node"]);
    // The first period is half as long here, where nothing is spread; then they are even.
    assert_eq!(
        world.api.calls("PATCH node"),
        ["100 PATCH node", "150100 PATCH node", "450100 PATCH node", "750100 PATCH node"]
    );
    assert!(world.api.calls("GET node").len() <= 2, "what is known is not asked for");
    assert_eq!(ready(&world), "True");
    let health = world.handle.health().borrow().clone();
    assert_eq!(health.registered.map(|at| at.as_millisecond()), Some(100));
    assert_eq!(health.status_written.map(|at| at.as_millisecond()), Some(750_100));
    assert!(health.settled);
    assert_eq!(world.handle.node().borrow().as_ref().map(|node| node.is_ready()), Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_drops_a_field_is_written_to_no_more_often() {
    let mut settings = settings();
    settings.declared_features = Some(vec!["A".to_owned()]);
    let mut world = World::new(settings);
    world.api.drop_field("declaredFeatures");
    world.pass(1_000_000).await;
    // The look after the first write meets the answer to that; registration has none.
    assert_eq!(
        world.api.calls("PATCH node"),
        ["100 PATCH node", "150100 PATCH node", "450100 PATCH node", "750100 PATCH node"]
    );
    world.node.network_is_down();
    world.pass(10_000).await;
    assert_eq!(world.api.calls("PATCH node").len(), 5, "a change is written");
}

#[tokio::test(start_paused = true)]
async fn what_changes_is_written_at_the_next_turn_or_when_poked() {
    let mut world = World::new(settings());
    world.pass(15_000).await;
    world.node.network_is_down();
    world.pass(1_000).await;
    assert_eq!(ready(&world), "True", "nobody said so");
    world.handle.poke();
    world.pass(50).await;
    assert_eq!(world.api.calls("PATCH node"), ["100 PATCH node", "16000 PATCH node"]);
    assert_eq!(ready(&world), "False");
    // Whoever pokes all the time does not keep the server busy.
    for _ in 0..10 {
        world.node.network_is_up();
        world.handle.poke();
        world.pass(20).await;
        world.node.network_is_down();
        world.handle.poke();
        world.pass(20).await;
    }
    assert!(world.api.calls("PATCH node").len() <= 7, "{:?}", world.api.calls("PATCH node"));
    world.node.network_is_up();
    world.pass(10_500).await;
    assert_eq!(ready(&world), "True", "at its turn");
    let events = world.node.events.lock().unwrap().clone();
    assert_eq!(events[3], "NodeNotReady");
    assert_eq!(events.last(), Some(&"NodeReady"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_yet_is_looked_at_often() {
    let mut world = World::new(settings());
    world.node.network_is_down();
    world.pass(3_150).await;
    assert_eq!(ready(&world), "False");
    assert!(!world.handle.health().borrow().settled);
    assert_eq!(world.api.calls("PATCH node"), ["100 PATCH node"], "looking writes nothing");
    world.node.network_is_up();
    world.pass(100).await;
    assert_eq!(ready(&world), "True");
    assert_eq!(world.api.calls("PATCH node"), ["100 PATCH node", "3200 PATCH node"]);
    let looks = world.node.asked.lock().unwrap().len();
    world.pass(5_000).await;
    assert_eq!(world.node.asked.lock().unwrap().len(), looks, "no more of that");
    assert!(world.handle.health().borrow().settled);
}

#[tokio::test(start_paused = true)]
async fn looking_often_has_an_end() {
    let mut world = World::new(settings());
    world.node.network_is_down();
    world.pass(119_000).await;
    assert!(!world.handle.health().borrow().settled);
    world.pass(2_000).await;
    assert!(world.handle.health().borrow().settled);
    let looks = world.node.asked.lock().unwrap().len();
    assert!((1_000..1_300).contains(&looks), "{looks}");
    world.pass(5_000).await;
    assert_eq!(world.node.asked.lock().unwrap().len(), looks);
}

#[tokio::test(start_paused = true)]
async fn registration_is_tried_until_it_works() {
    let mut world = World::new(settings());
    world.api.fail(|_| Some(away()));
    world.pass(30_000).await;
    assert_eq!(
        world.api.calls("POST node"),
        [
            "100 POST node",
            "300 POST node",
            "700 POST node",
            "1500 POST node",
            "3100 POST node",
            "6300 POST node",
            "12700 POST node",
            "19700 POST node",
            "26700 POST node",
        ]
    );
    assert!(world.api.calls("PATCH").is_empty());
    assert_eq!(world.handle.health().borrow().registered, None);
    assert_eq!(world.node.events.lock().unwrap().len(), 3, "told once, not at every attempt");
    world.api.fail(|_| None);
    world.pass(10_000).await;
    assert_eq!(ready(&world), "True");
    assert!(world.handle.health().borrow().registered.is_some());
    world.pass(30_000).await;
    let troubles = world.handle.health().borrow().troubles.clone();
    assert!(troubles.is_empty(), "{troubles:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_there_is_made_to_agree() {
    let mut world = World::new(settings());
    world.api.put_node(json!({"metadata": {"name": "n1", "labels": {"mine": "x",
        "kubernetes.io/hostname": "old"}}, "spec": {"taints": [{"key": "a"}]}}));
    // Who may not make nodes may have one.
    world.api.fail(|words| (words == "POST node").then(|| answered(403)));
    world.pass(200).await;
    let calls = world.api.calls(" node");
    let own: Vec<&String> = calls.iter().filter(|call| !call.contains("nodes")).collect();
    assert_eq!(own.len(), 5, "{own:?}");
    assert_eq!(*own[2], "100 GET node", "{own:?}");
    assert_eq!(*own[3], "100 PATCH node", "it agrees");
    assert_eq!(*own[4], "100 PATCH node", "its status");
    let node = world.api.node();
    assert_eq!(node["metadata"]["labels"]["mine"], "x");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "host1");
    assert_eq!(node["spec"], json!({"taints": [{"key": "a"}]}));
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.36.4");
    assert_eq!(ready(&world), "True");
}

#[tokio::test(start_paused = true)]
async fn nobody_may_make_a_node_that_is_not_there() {
    let mut world = World::new(settings());
    world.api.fail(|words| (words == "POST node").then(|| answered(403)));
    world.pass(5_000).await;
    assert_eq!(world.api.calls("POST node").len(), 5);
    let trouble = world.handle.health().borrow().last_trouble.clone().expect("a trouble");
    assert_eq!(trouble.what, "register the node");
    assert_eq!(trouble.why, "cannot create the Node object: code 403", "not that it is absent");
}

#[tokio::test(start_paused = true)]
async fn an_update_is_tried_a_few_times_and_again_at_the_next_turn() {
    let mut world = World::new(settings());
    world.pass(5_000).await;
    world.node.facts.lock().unwrap().pressure.disk = true;
    world.api.fail(|words| (words == "PATCH node").then(away));
    world.pass(6_000).await;
    let mut own = world.api.calls(" node");
    own.retain(|call| call.starts_with("10100 ") && call.ends_with(" node"));
    let mut expected = vec!["10100 PATCH node"];
    for _ in 0..4 {
        expected.extend(["10100 GET node", "10100 PATCH node"]);
    }
    assert_eq!(own, expected);
    assert_eq!(*world.node.reconnects.lock().unwrap(), 4);
    let events = world.node.events.lock().unwrap()[3..].to_vec();
    assert_eq!(events, ["NodeHasDiskPressure"], "told once, however often it was tried");
    world.api.fail(|_| None);
    world.pass(10_000).await;
    let node = world.api.node();
    let disk = super::super::conditions::find(&node, "DiskPressure").expect("a condition");
    assert_eq!(disk["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_left_alone() {
    let mut world = World::new(settings());
    world.pass(5_000).await;
    world.node.network_is_down();
    world.api.fail(|words| {
        (words == "PATCH node").then(|| ApiError::Answered {
            code: 429,
            reason: "TooManyRequests".into(),
            message: "busy".into(),
            retry_after: Some(Duration::from_secs(3)),
        })
    });
    world.pass(12_000).await;
    assert_eq!(
        world.api.calls("PATCH node")[1..],
        ["10100 PATCH node", "13100 PATCH node", "16100 PATCH node"]
    );
}

#[tokio::test(start_paused = true)]
async fn networks_of_pods_reach_the_runtime_at_once() {
    let mut world = World::new(settings());
    world.pass(3_000).await;
    *world.node.networks_fail.lock().unwrap() = true;
    let mut node = world.api.node();
    node["spec"]["podCIDRs"] = json!(["10.1.0.0/24", "fd00::/64"]);
    world.api.put_node(node);
    world.pass(200).await;
    assert_eq!(*world.node.networks.lock().unwrap(), ["10.1.0.0/24,fd00::/64"]);
    *world.node.networks_fail.lock().unwrap() = false;
    world.pass(11_000).await;
    assert_eq!(world.node.networks.lock().unwrap().len(), 2, "told again until it worked");
    world.pass(30_000).await;
    assert_eq!(world.node.networks.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn volumes_are_in_use_once_the_server_knows() {
    let mut world = World::new(settings());
    world.pass(5_000).await;
    world.node.facts.lock().unwrap().volumes_in_use = Some(vec!["v".to_owned()]);
    world.api.fail(|words| (words == "PATCH node").then(away));
    world.handle.poke();
    world.pass(100).await;
    let reported = |world: &World| world.node.volumes.lock().unwrap().last().cloned();
    assert_eq!(reported(&world), Some(Vec::new()));
    world.api.fail(|_| None);
    world.handle.poke();
    world.pass(200).await;
    assert_eq!(reported(&world), Some(vec!["v".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_others_made_is_kept_up_to_date() {
    let mut settings = settings();
    settings.register = false;
    let mut world = World::new(settings);
    world.pass(5_000).await;
    world.api.put_node(json!({"metadata": {"name": "n1"}}));
    world.pass(6_000).await;
    assert!(world.api.calls("POST node").is_empty());
    assert_eq!(ready(&world), "True");
    assert_eq!(world.api.node()["metadata"]["labels"]["kubernetes.io/os"], "linux");
    assert_eq!(world.handle.health().borrow().registered, None);
}

#[tokio::test(start_paused = true)]
async fn facts_that_do_not_come_are_given_up_on() {
    struct Silent;
    #[async_trait::async_trait]
    impl crate::node::Facts for Silent {
        async fn gather(&self, _: bool) -> crate::node::NodeFacts {
            std::future::pending().await
        }
    }
    let world = World::new(settings());
    let node = std::sync::Arc::clone(&world.node);
    let (handle, keeper) = crate::node::start(crate::node::NodeParts {
        settings: settings(),
        api: std::sync::Arc::clone(&world.api) as _,
        facts: std::sync::Arc::new(Silent),
        reports: node,
        clock: std::sync::Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
        spread: std::sync::Arc::new(|_| Duration::ZERO),
    });
    tokio::select! { biased;
        () = keeper.run() => panic!("it runs for ever"),
        () = tokio::time::sleep(Duration::from_secs(35)) => {}
    }
    let health = handle.health();
    let why = health.borrow().last_trouble.clone().expect("a trouble").why;
    assert_eq!(why, "what the node is like was not known in 30 s");
}
