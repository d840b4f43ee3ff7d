//! Counting, combining and holding back, as tables and properties.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use expect_test::{Expect, expect};
use kubelet_model::Mono;
use proptest::prelude::*;

use super::correlate::CACHE_MAX;
use super::*;

fn object(name: &str, field_path: &str) -> EventObject {
    EventObject::Pod {
        uid: kubelet_model::PodUid::new(name),
        name: name.to_owned(),
        namespace: "ns".to_owned(),
        field_path: field_path.to_owned(),
    }
}

fn news(pod: &str, reason: &'static str, message: impl Into<String>) -> News {
    let (object, kind) = (object(pod, ""), EventType::Warning);
    News { object, kind, reason, message: message.into() }
}

fn at(seconds: u64) -> (Timestamp, Mono) {
    let elapsed = Duration::from_secs(seconds);
    (Timestamp::UNIX_EPOCH + elapsed, Mono(elapsed))
}

/// Each line: `<second> <message>`; shown is `<message> x<count> since <first>`.
fn check(script: &str, expected: Expect) {
    let mut correlator = Correlator::new();
    let mut shown = String::new();
    for line in script.lines() {
        let (second, message) = line.trim().split_once(' ').expect("a time and a message");
        let (wall, now) = at(second.parse().expect("a second"));
        let line = match correlator.correlate(news("web", "Failed", message), wall, now) {
            None => "-".to_owned(),
            Some((_, event)) => {
                format!("{} x{} since {}", event.message, event.count, event.first.as_second())
            }
        };
        shown += &format!("{second}: {line}\n");
    }
    expected.assert_eq(&shown);
}

#[test]
fn the_same_is_counted() {
    check(
        "1 a\n2 b\n3 a\n9000 a",
        expect![[r#"
            1: a x1 since 1
            2: b x1 since 2
            3: a x2 since 1
            9000: a x3 since 1
        "#]],
    );
}

#[test]
fn the_tenth_of_its_kind_is_combined() {
    let script: Vec<String> = (1..=12).map(|n| format!("{n} m{n}")).collect();
    let script = script.join("\n") + "\n13 m1\n700 m14";
    check(
        &script,
        expect![[r#"
            1: m1 x1 since 1
            2: m2 x1 since 2
            3: m3 x1 since 3
            4: m4 x1 since 4
            5: m5 x1 since 5
            6: m6 x1 since 6
            7: m7 x1 since 7
            8: m8 x1 since 8
            9: m9 x1 since 9
            10: (combined from similar events): m10 x1 since 10
            11: (combined from similar events): m11 x2 since 10
            12: (combined from similar events): m12 x3 since 10
            13: m1 x2 since 1
            700: m14 x1 since 700
        "#]],
    );
}

#[test]
fn a_burst_of_twenty_five_then_one_in_five_minutes() {
    let mut correlator = Correlator::new();
    let mut shown = |second: u64, pod: &str| {
        let (wall, now) = at(second);
        correlator.correlate(news(pod, "Failed", "again"), wall, now).is_some()
    };
    let burst = (0..40).filter(|_| shown(1, "web")).count();
    assert_eq!(burst, 25);
    assert!(shown(1, "other"), "each object has its own budget");
    assert!(!shown(300, "web"));
    assert!(shown(301, "web"));
    assert!(!shown(302, "web"));
    // A day of quiet fills the budget, and no further.
    assert_eq!((0..40).filter(|_| shown(90_000, "web")).count(), 25);
}

#[test]
fn containers_of_a_pod_share_its_budget_but_not_their_counts() {
    let mut correlator = Correlator::new();
    let (wall, now) = at(1);
    for path in ["spec.containers{a}", "spec.containers{b}"] {
        let event = News { object: object("web", path), ..news("web", "Failed", "x") };
        let Some((_, event)) = correlator.correlate(event, wall, now) else {
            panic!("two events are not too many");
        };
        assert_eq!((event.count, event.object), (1, object("web", path)));
    }
    assert_eq!(correlator.sizes(), [1, 2, 1]);
}

struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        at(self.0.load(Ordering::Relaxed)).0
    }
    fn mono(&self) -> Mono {
        at(self.0.fetch_add(1, Ordering::Relaxed)).1
    }
}

#[test]
fn the_record_is_in_order() {
    let recorder = Recorder::new(Arc::new(TestClock(AtomicU64::new(1))));
    let record = |object: &EventObject, message: &str| {
        recorder.record(object, EventType::Normal, "Started", message);
    };
    let (node, web) = (EventObject::Node("n1".to_owned()), object("web", "spec.containers{a}"));
    record(&web, "one");
    record(&node, "two");
    record(&object("db", ""), "three");
    record(&web, "one");
    record(&object("web", ""), &"é".repeat(MESSAGE_MAX));
    let shown = |events: Vec<Event>| -> Vec<String> {
        events.iter().map(|e| format!("{:.5} x{}", e.message, e.count)).collect()
    };
    assert_eq!(shown(recorder.all()), ["two x1", "three x1", "one x2", "ééééé x1"]);
    let last = recorder.all().pop();
    assert_eq!(last.map(|event| event.message.len()), Some(MESSAGE_MAX));
}

#[test]
fn the_record_is_bounded() {
    let recorder = Recorder::new(Arc::new(TestClock(AtomicU64::new(1))));
    for n in 0..CACHE_MAX + 100 {
        recorder.record(&object(&format!("p{n}"), ""), EventType::Normal, "Started", "x");
    }
    assert_eq!(recorder.all().len(), EVENTS_MAX);
    assert_eq!(recorder.lock().correlator.sizes(), [CACHE_MAX; 3]);
}

#[test]
fn the_newest_explanation_is_kept_however_many_there_were() {
    let clock = Arc::new(TestClock(AtomicU64::new(1)));
    let recorder = Recorder::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let app = object("web", "spec.containers{app}");
    let say = |reason, message: &str| recorder.record(&app, EventType::Warning, reason, message);
    for _ in 0..40 {
        clock.0.fetch_add(1, Ordering::Relaxed);
        say("Unhealthy", "Readiness probe failed: connection refused");
        say("BackOff", "again");
    }
    say("Unhealthy", "Liveness probe failed: 500");
    say("Unhealthy", "Readiness probe failed: 500");
    let shown = |events: Vec<Event>| -> Vec<String> {
        events.into_iter().map(|event| event.message).collect()
    };
    assert!(!shown(recorder.all()).iter().any(|message| message.ends_with("500")), "held back");
    let newest = ["Liveness probe failed: 500", "Readiness probe failed: 500"];
    assert_eq!(shown(recorder.explaining()), newest);
}

proptest! {
    /// What is shown last of each key counts every event that was not held
    /// back before it, and nothing is held back that the budget allows.
    #[test]
    fn nothing_is_lost_but_by_the_budget(
        steps in proptest::collection::vec((0_u64..400, 0_u8..3, 0_u8..14), 1..120),
    ) {
        let mut correlator = Correlator::new();
        let mut counts: BTreeMap<Key, u32> = BTreeMap::new();
        let mut left: BTreeMap<u8, (f64, u64)> = BTreeMap::new();
        let (mut held_back, mut second) = (0, 0);
        for (pause, pod, message) in &steps {
            second += pause;
            let (wall, now) = at(second);
            let event = news(&format!("p{pod}"), "Failed", format!("m{message}"));
            let (tokens, last) = left.entry(*pod).or_insert((25.0, second));
            *tokens = (*tokens + (second - *last) as f64 / 300.0).min(25.0);
            *last = second;
            match correlator.correlate(event, wall, now) {
                Some((key, event)) => {
                    *tokens -= 1.0;
                    counts.insert(key, event.count);
                    prop_assert_eq!(event.last, wall);
                }
                None => {
                    held_back += 1;
                    prop_assert!(*tokens < 1.0 + 1e-6, "held back with {} to spend", tokens);
                }
            }
        }
        let counted: u32 = counts.values().sum();
        let all = u32::try_from(steps.len()).expect("few");
        prop_assert!(counted <= all && counted + held_back >= all, "{counted} + {held_back} of {all}");
    }
}
