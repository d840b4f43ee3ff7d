//! Tests of the store: revisions, the past, followers.

use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::json;

use super::*;

fn key(name: &str) -> Key {
    Key { resource: "pods".into(), namespace: "default".into(), name: name.into() }
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.items.iter().map(|((_, name), _)| name.as_str()).collect()
}

#[test]
fn revisions_guard_writes() {
    let store = Store::new(10);
    let first = store.create(&key("a"), json!({"metadata": {}})).unwrap();
    assert_eq!(first.value(), json!({"metadata": {"resourceVersion": "2"}}));
    assert_eq!(store.create(&key("a"), json!({})), Err(StoreError::Exists));
    let second = store.update(&key("a"), first.revision, json!({"spec": 1})).unwrap();
    assert_eq!(store.update(&key("a"), first.revision, json!({})), Err(StoreError::Stale(3)));
    assert_eq!(store.delete(&key("a"), 2), Err(StoreError::Stale(3)));
    assert_eq!(store.delete(&key("a"), second.revision).unwrap().revision, 4);
    assert_eq!(store.delete(&key("a"), 4), Err(StoreError::Absent));
    assert_eq!(store.changed("pods"), 4);
}

#[test]
fn the_past_can_be_listed_until_it_is_forgotten() {
    let store = Store::new(10);
    let a = store.create(&key("a"), json!({"v": 1})).unwrap();
    store.create(&key("b"), json!({})).unwrap();
    store.update(&key("a"), a.revision, json!({"v": 2})).unwrap();
    let b = store.get(&key("b")).unwrap();
    store.delete(&key("b"), b.revision).unwrap();
    assert_eq!(names(&store.list("pods", "default")), ["a"]);
    let past = store.list_at("pods", "", 3).unwrap();
    assert_eq!(names(&past), ["a", "b"]);
    assert_eq!(past.items[0].1.value()["v"], 1);
    assert_eq!(names(&store.list_at("pods", "other", 3).unwrap()), [""; 0]);
    store.forget(4);
    let expired = StoreError::Expired { asked: 3, oldest: 4 };
    assert_eq!(store.list_at("pods", "", 3).unwrap_err(), expired);
    assert_eq!(names(&store.list_at("pods", "", 4).unwrap()), ["a", "b"]);
    assert!(matches!(store.list_at("pods", "", 9), Err(StoreError::Ahead { .. })));
}

#[test]
fn a_restored_store_knows_nothing_of_what_came_after() {
    let store = Arc::new(Store::new(10));
    let a = store.create(&key("a"), json!({"v": 1})).unwrap();
    store.create(&key("b"), json!({})).unwrap();
    store.update(&key("a"), a.revision, json!({"v": 2})).unwrap();
    let b = store.get(&key("b")).unwrap();
    store.delete(&key("b"), b.revision).unwrap();
    store.create(&key("c"), json!({})).unwrap();
    assert!(matches!(store.roll_back(9, 0), Err(StoreError::Ahead { .. })));
    store.roll_back(3, 0).unwrap();
    let now = store.list("pods", "");
    assert_eq!((names(&now), now.revision), (vec!["a", "b"], 3));
    assert_eq!(now.items[0].1.value()["v"], 1);
    // Who knows more than the store waits in silence until the store knows as much.
    let mut ahead = store.watch("pods", "", Start::After(4)).unwrap();
    assert_eq!(store.create(&key("d"), json!({})).unwrap().revision, 4);
    assert_eq!(names(&store.list_at("pods", "", 2).unwrap()), ["a"]);
    store.create(&key("e"), json!({})).unwrap();
    let heard = ahead.next().now_or_never().flatten();
    assert!(matches!(heard, Some(Signal::Change(change)) if change.key.name == "e"));
}

#[test]
fn a_store_restored_with_later_revisions_has_forgotten_the_past() {
    let store = Arc::new(Store::new(10));
    for name in ["a", "b", "c"] {
        store.create(&key(name), json!({})).unwrap();
    }
    store.roll_back(3, 1000).unwrap();
    let now = store.list("pods", "");
    assert_eq!((names(&now), now.revision), (vec!["a", "b"], 1003));
    for revision in [3, 4, 1002] {
        let expired = StoreError::Expired { asked: revision, oldest: 1003 };
        assert_eq!(store.watch("pods", "", Start::After(revision)).unwrap_err(), expired);
    }
    assert_eq!(store.create(&key("d"), json!({})).unwrap().revision, 1004);
}

#[test]
fn only_so_many_changes_are_remembered() {
    let store = Arc::new(Store::new(2));
    for name in ["a", "b", "c"] {
        store.create(&key(name), json!({})).unwrap();
    }
    assert!(matches!(store.watch("pods", "", Start::After(1)), Err(StoreError::Expired { .. })));
    let mut watcher = store.watch("pods", "", Start::After(2)).unwrap();
    assert_eq!(watcher.next_of_first().unwrap().key.name, "b");
}

#[tokio::test]
async fn a_follower_hears_all_in_order_and_its_own_resource_only() {
    let store = Arc::new(Store::new(10));
    let a = store.create(&key("a"), json!({})).unwrap();
    let mut watcher = store.watch("pods", "default", Start::WithObjects).unwrap();
    store.create(&Key { resource: "nodes".into(), ..key("n") }, json!({})).unwrap();
    store.create(&Key { namespace: "other".into(), ..key("o") }, json!({})).unwrap();
    store.delete(&key("a"), a.revision).unwrap();
    watcher.ask_for_progress();
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(match watcher.next().await.unwrap() {
            Signal::Change(change) => format!("{:?} {}", change.kind, change.object.revision),
            Signal::Progress(revision) => format!("progress {revision}"),
        });
    }
    assert_eq!(heard, ["Created 2", "Deleted 5", "progress 5"]);
}

#[tokio::test]
async fn a_slow_follower_is_cut_off() {
    let store = Arc::new(Store::new(10));
    let mut watcher = store.watch("pods", "", Start::Now).unwrap();
    for number in 0..1001 {
        store.create(&key(&number.to_string()), json!({})).unwrap();
    }
    let mut heard = 0;
    while watcher.next().await.is_some() {
        heard += 1;
    }
    assert_eq!(heard, 1000);
    assert!(store.lock().watchers.is_empty());
}
