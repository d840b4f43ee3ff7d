//! The lease.

use serde_json::json;

use super::fake::{World, answered, away};
use crate::node::test_parts::settings;

#[tokio::test(start_paused = true)]
async fn it_is_made_once_the_node_is_there_and_renewed() {
    let mut world = World::new(settings());
    world.pass(35_000).await;
    assert_eq!(
        world.api.calls("lease"),
        [
            "0 GET lease", // and there is no node yet
            "100 GET lease",
            "100 POST lease",
            "10100 PUT lease",
            "20100 PUT lease",
            "30100 PUT lease",
        ]
    );
    let lease = world.api.lease().expect("a lease");
    assert_eq!(
        lease["spec"],
        json!({"holderIdentity": "n1", "leaseDurationSeconds": 40,
            "renewTime": "1970-01-01T00:00:30.100000Z"})
    );
    let uid = world.api.node()["metadata"]["uid"].clone();
    assert_eq!(
        lease["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}])
    );
    let health = world.handle.health().borrow().clone();
    assert_eq!(health.lease_renewed.map(|at| at.as_millisecond()), Some(30_100));
}

#[tokio::test(start_paused = true)]
async fn without_a_node_there_is_none() {
    let mut settings = settings();
    settings.register = false;
    let mut world = World::new(settings);
    world.pass(25_000).await;
    assert!(world.api.calls("POST").is_empty());
    assert_eq!(world.api.calls("GET lease"), ["0 GET lease", "10000 GET lease", "20000 GET lease"]);
    world.api.put_node(json!({"metadata": {"name": "n1"}}));
    world.pass(100).await;
    assert_eq!(world.api.calls("POST lease"), ["25000 POST lease"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_others_changed_or_deleted() {
    let mut world = World::new(settings());
    world.pass(5_000).await;
    world.api.put_lease(|lease| lease.as_mut().expect("a lease")["spec"]["odd"] = 1.into());
    world.pass(6_000).await;
    assert_eq!(
        world.api.calls("lease")[3..],
        ["10100 PUT lease", "10100 GET lease", "10100 PUT lease"]
    );
    assert_eq!(world.api.lease().expect("a lease")["spec"]["odd"], 1, "it is no business of ours");
    world.api.put_lease(|lease| *lease = None);
    world.pass(10_000).await;
    assert_eq!(
        world.api.calls("lease")[6..],
        ["20100 PUT lease", "20100 GET lease", "20100 POST lease"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_added_to_one_without() {
    let mut world = World::new(settings());
    world.api.put_lease(|lease| {
        *lease = Some(json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "old"}}));
    });
    world.pass(20_000).await;
    let lease = world.api.lease().expect("a lease");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(lease["spec"]["holderIdentity"], "old");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_asked_less_and_less() {
    let mut world = World::new(settings());
    world.pass(5_000).await;
    world.api.fail(|words| words.contains("lease").then(away));
    world.pass(30_000).await;
    let calls = world.api.calls("lease");
    assert_eq!(calls[3..8], ["10100 PUT lease"; 5], "a few attempts at once");
    assert_eq!(
        calls[8..],
        [
            "10100 GET lease",
            "10300 GET lease",
            "10700 GET lease",
            "11500 GET lease",
            "13100 GET lease",
            "16300 GET lease",
            "22700 GET lease",
            "29700 GET lease",
        ]
    );
    assert_eq!(*world.node.reconnects.lock().unwrap(), 4);
    let trouble = world.handle.health().borrow().last_trouble.clone().expect("a trouble");
    assert_eq!(trouble.what, "renew the lease");
    assert_eq!(trouble.why, "cannot reach the API server at x: refused");
    world.api.fail(|_| None);
    world.pass(5_000).await;
    assert_eq!(world.api.calls("PUT lease").last().expect("a call"), "36700 PUT lease");
    assert!(world.handle.health().borrow().troubles.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_tried_again() {
    let mut world = World::new(settings());
    world.api.fail(|words| (words == "POST lease").then(|| answered(403)));
    world.pass(3_000).await;
    assert_eq!(
        world.api.calls("POST lease"),
        ["100 POST lease", "300 POST lease", "700 POST lease", "1500 POST lease"]
    );
    world.api.fail(|_| None);
    world.pass(1_000).await;
    assert!(world.api.lease().is_some());
}
