//! One event after the other, tried until the server has it, refuses it, or is away for
//! too long. Upstream: recordToSink and recordEvent in client-go tools/record/event.go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api_client::{Api, ApiError, Call, Limit, Patch, Spread, path};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::names::Names;
use super::{Counters, EventReport, Settings};

/// Tries of one event, as upstream.
const TRIES_MAX: u32 = 12;
/// Pause between tries, as upstream; the first is a random part of it.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest pause that a server may ask for.
const ASKED_MAX: Duration = Duration::from_secs(60);
/// What a server says of a namespace that goes away.
const TERMINATING: &str = "because it is being terminated";

/// Writes events while [`EventWriter::run`] runs.
pub struct EventWriter {
    api: Arc<dyn Api>,
    host: String,
    limit: Limit,
    spread: Spread,
    waiting: mpsc::Receiver<EventReport>,
    counters: Arc<Counters>,
    names: Names,
    /// Nanoseconds in the last name: no two names are the same.
    last_nanos: u64,
}

/// What is to be done after a try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server has it.
    Written,
    /// The server does not want it.
    Refused,
    /// It may work later: at the usual time, or when the server says.
    Again(Option<Duration>),
}

/// What follows from the answer to the first try, or a later one.
pub(super) fn judge(answer: &Result<Value, ApiError>, tries: u32) -> Verdict {
    let Err(error) = answer else { return Verdict::Written };
    match (error.code(), error.retry_after()) {
        // No answer: everything waits for the server.
        (None, _) => Verdict::Again(None),
        // It arrived at an earlier try whose answer was lost.
        (Some(409), _) if tries > 1 => Verdict::Written,
        (Some(429 | 500..), Some(after)) => Verdict::Again(Some(after.min(ASKED_MAX))),
        (Some(_), _) => Verdict::Refused,
    }
}

impl EventWriter {
    pub(super) fn new(
        api: Arc<dyn Api>,
        settings: Settings,
        spread: Spread,
        waiting: mpsc::Receiver<EventReport>,
        counters: Arc<Counters>,
    ) -> Self {
        let Settings { node_name, qps, burst } = settings;
        Self {
            api,
            host: node_name,
            limit: Limit::new(qps, burst),
            spread,
            waiting,
            counters,
            names: Names::default(),
            last_nanos: 0,
        }
    }

    /// Writes until every sink is dropped and the queue is empty.
    pub async fn run(mut self) {
        while let Some(event) = self.waiting.recv().await {
            let counter = match self.write(&event).await {
                true => &self.counters.written,
                false => &self.counters.failed,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes one event; returns whether the server has it.
    async fn write(&mut self, event: &EventReport) -> bool {
        let known = self.names.get(event.key).filter(|_| event.count > 1).map(str::to_owned);
        let is_known = known.is_some();
        let name = match known {
            Some(name) => name,
            None => event.name(self.nanos(event)),
        };
        self.names.put(event.key, name.clone());
        for tries in 1..=TRIES_MAX {
            let answer = self.try_once(event, &name, is_known).await;
            let pause = match (judge(&answer, tries), answer) {
                (Verdict::Written, _) => return true,
                (Verdict::Refused, Err(error)) => {
                    log_refusal(event, &error);
                    return false;
                }
                (Verdict::Again(pause), Err(error)) => {
                    tracing::debug!(object = %event.object, %error, tries, "event cannot be written for now");
                    pause
                }
                (Verdict::Refused | Verdict::Again(_), Ok(_)) => return true,
            };
            if tries < TRIES_MAX {
                sleep(pause.unwrap_or_else(|| match tries {
                    1 => (self.spread)(PAUSE),
                    _ => PAUSE,
                }))
                .await;
            }
        }
        tracing::warn!(object = %event.object, reason = event.reason, "event given up: the API server is away");
        false
    }

    async fn try_once(
        &mut self,
        event: &EventReport,
        name: &str,
        is_known: bool,
    ) -> Result<Value, ApiError> {
        if is_known {
            let path = path("api/v1", event.namespace(), &["events", name]);
            match self.call(Call::patch(&path, Patch::Strategic, event.patch())).await {
                // It has expired: it is written anew.
                Err(error) if error.is_not_found() => {}
                answer => return answer,
            }
        }
        let path = path("api/v1", event.namespace(), &["events"]);
        self.call(Call::post(&path, event.body(name, &self.host))).await
    }

    async fn call(&mut self, call: Call) -> Result<Value, ApiError> {
        sleep_until(self.limit.take(Instant::now())).await;
        self.api.call(call).await
    }

    /// The time in an event's name: when it happened, and never what was used before.
    fn nanos(&mut self, event: &EventReport) -> u64 {
        let nanos = u64::try_from(event.last.as_nanosecond()).unwrap_or_default();
        self.last_nanos = nanos.max(self.last_nanos.saturating_add(1));
        self.last_nanos
    }
}

/// A namespace that goes away takes its events along: nobody needs to know.
fn log_refusal(event: &EventReport, error: &ApiError) {
    let (object, reason) = (&event.object, &event.reason);
    if error.to_string().contains(TERMINATING) {
        tracing::debug!(%object, reason, %error, "event refused by the API server");
    } else {
        tracing::warn!(%object, reason, %error, "event refused by the API server");
    }
}
