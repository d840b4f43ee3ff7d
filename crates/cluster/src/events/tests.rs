//! The writer under paused time, against a server that answers as it is told.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use api_client::{ApiError, Call, Watching};
use async_trait::async_trait;
use jiff::Timestamp;
use kubelet_model::EventType;
use serde_json::Value;
use tokio::time::Instant;

use super::write::{Verdict, judge};
use super::*;

#[derive(Default)]
struct Scripted {
    answers: Mutex<VecDeque<Result<(), ApiError>>>,
    /// Milliseconds since the start, method and path.
    asked: Mutex<Vec<(u128, String)>>,
    begun: Mutex<Option<Instant>>,
}

#[async_trait]
impl Api for Scripted {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        let begun = *self.begun.lock().unwrap().get_or_insert_with(Instant::now);
        let at = begun.elapsed().as_millis();
        let count = call.body.as_ref().map(|(_, body)| body["count"].to_string());
        let asked = format!("{} {} x{}", call.method, call.path, count.unwrap_or_default());
        self.asked.lock().unwrap().push((at, asked));
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Ok(()));
        answer.map(|()| Value::Null)
    }
    async fn watch(&self, _: &str) -> Result<Box<dyn Watching>, ApiError> {
        Err(ApiError::Unusable("no watches here".to_owned()))
    }
}

fn refused(code: u16, after: Option<u64>) -> ApiError {
    let retry_after = after.map(Duration::from_secs);
    ApiError::Answered { code, reason: String::new(), message: "no".into(), retry_after }
}

fn away() -> ApiError {
    ApiError::Unreachable { server: "s".into(), why: "refused".into() }
}

fn event(key: u64, count: u32) -> EventReport {
    let at = Timestamp::from_nanosecond(256).unwrap();
    let object = Involved {
        kind: "Pod".into(),
        name: format!("p{key}"),
        namespace: "ns".into(),
        ..Involved::default()
    };
    EventReport {
        key,
        object,
        kind: EventType::Normal,
        reason: "Started".into(),
        message: "Container started".into(),
        count,
        first: at,
        last: at,
        annotations: Vec::new(),
    }
}

/// The agent runs it as a task.
fn spawnable<F: Future<Output = ()> + Send + 'static>(work: F) -> F {
    work
}

/// Writes events to a server with these answers; returns what it was asked and when.
async fn write(
    events: Vec<EventReport>,
    answers: Vec<Result<(), ApiError>>,
    (qps, burst): (u32, u32),
) -> (Vec<(u128, String)>, Counts) {
    let server = Arc::new(Scripted::default());
    server.answers.lock().unwrap().extend(answers);
    let settings = Settings { node_name: "n".to_owned(), qps, burst };
    let half: Spread = Arc::new(|most| most / 2);
    let (sink, writer) = new(Arc::clone(&server) as Arc<dyn Api>, settings, half);
    for event in events {
        sink.push(event);
    }
    // It would run until the last sink is gone.
    tokio::select! { biased;
        () = spawnable(writer.run()) => {}
        () = tokio::time::sleep(Duration::from_secs(3600)) => {}
    }
    let asked = server.asked.lock().unwrap().clone();
    (asked, sink.counts())
}

#[test]
fn only_a_server_that_is_away_is_waited_for() {
    let again = |after: Option<u64>| Verdict::Again(after.map(Duration::from_secs));
    for (answer, verdict) in [
        (Ok(Value::Null), Verdict::Written),
        (Err(away()), again(None)),
        (Err(ApiError::Unusable("x".into())), again(None)),
        (Err(ApiError::Credentials("x".into())), again(None)),
        (Err(refused(409, None)), Verdict::Refused),
        (Err(refused(400, None)), Verdict::Refused),
        (Err(refused(403, None)), Verdict::Refused),
        (Err(refused(403, Some(1))), Verdict::Refused),
        (Err(refused(404, None)), Verdict::Refused),
        (Err(refused(429, None)), Verdict::Refused),
        (Err(refused(429, Some(3))), again(Some(3))),
        (Err(refused(500, None)), Verdict::Refused),
        (Err(refused(503, Some(9_999))), again(Some(60))),
    ] {
        assert_eq!(judge(&answer, 1), verdict, "{answer:?}");
    }
    // The answer to an earlier try was lost.
    assert_eq!(judge(&Err(refused(409, None)), 2), Verdict::Written);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_created_then_patched_then_created_again() {
    let events = vec![event(1, 1), event(2, 1), event(1, 2), event(1, 3), event(3, 7)];
    let answers = vec![Ok(()), Ok(()), Ok(()), Err(refused(404, None)), Ok(())];
    let (asked, counts) = write(events, answers, (0, 0)).await;
    let asked: Vec<&str> = asked.iter().map(|(_, text)| text.as_str()).collect();
    let events = "/api/v1/namespaces/ns/events";
    let expected = [
        format!("POST {events} x1"),
        format!("POST {events} x1"),
        format!("PATCH {events}/p1.100 x2"),
        format!("PATCH {events}/p1.100 x3"),
        format!("POST {events} x3"),
        // One whose first was never seen here.
        format!("POST {events} x7"),
    ];
    assert_eq!(asked, expected);
    assert_eq!(counts, Counts { written: 5, dropped: 0, failed: 0 });
}

#[tokio::test(start_paused = true)]
async fn everything_waits_for_the_server_but_not_for_ever() {
    let mut answers: Vec<Result<(), ApiError>> = (0..12).map(|_| Err(away())).collect();
    answers.extend([
        Err(away()),
        Ok(()),
        Err(refused(429, Some(2))),
        Ok(()),
        Err(refused(403, None)),
    ]);
    let events = vec![event(1, 1), event(2, 1), event(3, 1), event(4, 1)];
    let (asked, counts) = write(events, answers, (0, 0)).await;
    let seconds: Vec<u128> = asked.iter().map(|(at, _)| at / 1000).collect();
    let mut expected: Vec<u128> = vec![0];
    expected.extend((0..11).map(|n| 5 + 10 * n));
    // The next event begins when the first is given up; then 429, then a refusal.
    expected.extend([105, 110, 110, 112, 112]);
    assert_eq!(seconds, expected);
    assert_eq!(counts, Counts { written: 2, dropped: 0, failed: 2 });
}

#[tokio::test(start_paused = true)]
async fn requests_are_limited_and_the_queue_is_bounded() {
    let events = (0..1_100).map(|n| event(n, 1)).collect();
    let (asked, counts) = write(events, Vec::new(), (50, 100)).await;
    assert_eq!(counts, Counts { written: 1_000, dropped: 100, failed: 0 });
    let last = asked.last().map(|(at, _)| *at).unwrap();
    assert_eq!(last, 18_000, "100 at once, 900 at 50 a second");
    // Names differ though all happened at the same moment.
    let (asked, _) = write(vec![event(1, 1), event(1, 1), event(1, 2)], Vec::new(), (0, 0)).await;
    assert!(asked[2].1.contains("/p1.101 "), "{asked:?}");
}
