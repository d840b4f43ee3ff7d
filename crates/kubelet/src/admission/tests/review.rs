//! Several pods at once, pods of before, and what is waited for.

use std::sync::Arc;
use std::time::Duration;

use kubelet_model::{Mono, PodUid, Source};
use serde_json::json;

use super::{Entry, asks, entry, from, pod, text, texts, world};
use crate::admission::{NodeNews, NodeView, Recovered, Verdict};

const SHORT: &str =
    "OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 1500, capacity: 2000";

fn big(uid: &str) -> Entry {
    entry(pod(uid, asks(json!({"cpu": "1500m"}))))
}

fn created(uid: &str, at: &str) -> Entry {
    let mut spec = asks(json!({"cpu": "1500m"}));
    spec["metadata"] = json!({"creationTimestamp": at});
    entry(pod(uid, spec))
}

#[test]
fn of_two_that_race_for_the_last_processor_one_wins() {
    let found = world().decide(&[big("a"), big("b")]);
    assert_eq!(texts(&found), ["a: admit".to_owned(), format!("b: {SHORT}")]);
    let (new, old) = (created("a", "2026-02-01T00:00:00Z"), created("b", "2026-01-01T00:00:00Z"));
    let found = world().decide(&[new, old]);
    assert_eq!(texts(&found), [format!("a: {SHORT}"), "b: admit".to_owned()], "the older one");
}

#[test]
fn what_ran_before_comes_before_what_did_not() {
    let young =
        |recovered, recorded| Entry { recovered, recorded, ..created("b", "2026-02-01T00:00:00Z") };
    let old = || created("a", "2026-01-01T00:00:00Z");
    for (recovered, recorded) in
        [(Recovered::Runs, false), (Recovered::Runs, true), (Recovered::New, true)]
    {
        let found = world().decide(&[old(), young(recovered, recorded)]);
        assert_eq!(texts(&found), [format!("a: {SHORT}"), "b: admit".to_owned()]);
    }
    // One that is over holds nothing, and is not refused for it.
    let found = world().decide(&[old(), young(Recovered::Over, true)]);
    assert_eq!(texts(&found), ["a: admit", "b: over"]);
}

#[test]
fn nobody_is_refused_for_a_pod_that_may_be_over() {
    let unseen = || Entry { recovered: Recovered::Unseen, recorded: true, ..big("job") };
    let found = world().decide(&[unseen(), Entry { recovered: Recovered::Runs, ..big("web") }]);
    assert_eq!(texts(&found), ["job: wait for the runtime", "web: wait for the runtime"]);
    let small = entry(pod("small", asks(json!({"cpu": "500m"}))));
    let huge = entry(pod("huge", asks(json!({"cpu": "9"}))));
    let found = world().decide(&[unseen(), small, huge]);
    assert_eq!(text(&found[&PodUid::new("small")]), "admit", "there is room for both");
    assert!(text(&found[&PodUid::new("huge")]).starts_with("OutOfcpu: "), "whatever comes of it");
}

#[test]
fn who_counts_and_who_does_not() {
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let mut leaving = asks(json!({"cpu": "1500m"}));
    leaving["metadata"] = deleted;
    let leaving = || entry(pod("l", leaving.clone()));
    let mut failed = asks(json!({"cpu": "1500m"}));
    failed["status"] = json!({"phase": "Failed"});
    let failed = || entry(pod("f", failed.clone()));
    let found = world().decide(&[leaving(), failed()]);
    assert_eq!(texts(&found), ["f: over", "l: leaving"]);
    let judged = |verdict, active, of: Entry| {
        let mut world = world();
        world.pods.push(Entry { verdict: Some(verdict), active, ..of });
        text(&world.decide(&[big("a")])[&PodUid::new("a")])
    };
    let rejected = || Verdict::Rejected(crate::admission::Rejection::new("R", "m"));
    assert_eq!(judged(Verdict::Admitted, true, big("b")), SHORT);
    assert_eq!(judged(Verdict::Admitted, false, big("b")), "admit", "it has ended");
    assert_eq!(judged(Verdict::Leaving, true, leaving()), SHORT, "until nothing of it runs");
    assert_eq!(judged(Verdict::Leaving, false, leaving()), "admit");
    assert_eq!(judged(Verdict::Over, true, failed()), "admit");
    assert_eq!(judged(rejected(), true, big("b")), "admit");
}

fn server_node(zone: &str) -> NodeView {
    NodeView::read(&json!({
        "metadata": {"name": "n1", "labels": {"zone": zone}},
        "status": {"allocatable": {"cpu": "1", "example.com/gpu": "5"}},
    }))
}

#[test]
fn the_node_is_read_again_when_only_its_labels_are_in_the_way() {
    let wants_b = || pod("a", json!({"nodeSelector": {"zone": "b"}}));
    let mut world = world();
    world.news = Some(NodeNews::default());
    assert_eq!(world.judge(wants_b()), "wait for the node", "nothing is known of it");
    assert_eq!(world.judge(pod("a", json!({}))), "wait for the node", "whatever it asks for");
    let judged = |pod| {
        let one = Entry { recorded: true, ..entry(pod) };
        text(&world.decide(&[one])[&PodUid::new("a")])
    };
    assert_eq!(judged(pod("a", json!({}))), "admit", "it was, and the server may be away");
    assert_eq!(judged(wants_b()), "admit", "its Node was looked at then");
    let of_file = from(Source::File, "s", json!({"nodeSelector": {"zone": "a"}}));
    assert_eq!(world.judge(of_file), "admit", "a static pod is judged by what is known here");
    let node =
        |zone, answered| Some(NodeNews { node: Some(Arc::new(server_node(zone))), answered });
    world.news = node("a", 0);
    assert_eq!(world.judge(pod("a", json!({}))), "admit");
    assert_eq!(world.judge(wants_b()), "wait for the node");
    let asked = |world: &super::World| {
        let one = Entry { asked_node: Some(2), ..entry(wants_b()) };
        text(&world.decide(&[one])[&PodUid::new("a")])
    };
    world.news = node("a", 1);
    assert_eq!(asked(&world), "wait for the node", "an answer of before");
    world.news = node("b", 1);
    assert_eq!(asked(&world), "admit", "the news came by themselves");
    world.news = node("a", 2);
    assert!(asked(&world).starts_with("NodeAffinity: "));
    // Another reason besides: nobody asks.
    world.news = node("a", 0);
    let mut spec = asks(json!({"cpu": "9"}));
    spec["nodeSelector"] = json!({"zone": "b"});
    assert!(world.judge(pod("a", spec)).starts_with("OutOfcpu: "));
    // That there is no Node is an answer, too.
    world.news = Some(NodeNews { node: None, answered: 1 });
    assert_eq!(world.judge(pod("a", json!({}))), "admit");
}

#[test]
fn what_the_machine_has_is_known_better_here() {
    let mut world = world();
    let node = Some(Arc::new(server_node("a")));
    world.news = Some(NodeNews { node, answered: 0 });
    assert_eq!(world.judge(pod("a", asks(json!({"cpu": "2"})))), "admit");
    world.node(|node| {
        node.allocatable.remove("example.com/gpu");
    });
    assert_eq!(world.judge(pod("a", asks(json!({"example.com/gpu": "5"})))), "admit");
    let six = world.judge(pod("a", asks(json!({"example.com/gpu": "6"}))));
    assert!(six.ends_with("requested: 6, used: 0, capacity: 5"), "{six}");
}

#[test]
fn a_critical_pod_waits_for_its_victims_and_others_for_it() {
    let mut world = world().with(pod("victim", asks(json!({"cpu": "1500m"}))));
    let mut spec = asks(json!({"cpu": "1500m"}));
    spec["priority"] = json!(2_000_000_000);
    let critical = || entry(pod("c", spec.clone()));
    let small = || entry(pod("small", asks(json!({"cpu": "500m"}))));
    // The small one would fit once the victim is gone.
    let found = world.decide(&[critical(), small(), big("z")]);
    assert_eq!(
        texts(&found),
        [
            "c: preempt victim for cpu until 145s",
            "small: wait for victim",
            "z: OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 1500, capacity: 2000",
        ]
    );
    let preempting = Verdict::Preempting {
        victims: vec![PodUid::new("victim")],
        until: Mono(Duration::from_secs(145)),
    };
    world.pods.push(Entry { verdict: Some(preempting), ..critical() });
    assert_eq!(texts(&world.decide(&[small()])), ["c: wait for victim", "small: wait for victim"]);
    world.now = Mono(Duration::from_secs(145));
    let found = world.decide(&[small()]);
    assert_eq!(text(&found[&PodUid::new("c")]), "admit", "it has waited long enough");
    assert!(text(&found[&PodUid::new("small")]).starts_with("OutOfcpu: "), "what runs counts");
    world.now = Mono(Duration::from_secs(101));
    world.pods[0].active = false;
    assert_eq!(texts(&world.decide(&[small()])), ["c: admit", "small: admit"]);
}
