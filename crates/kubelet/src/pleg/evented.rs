//! The runtime's event stream: connect, follow, reconnect.

use std::sync::Arc;
use std::time::Duration;

use cri::{CallError, EventStream, Runtime, RuntimeEvent};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

/// Pause before the first reconnect; doubles up to the maximum.
const RECONNECT_MIN: Duration = Duration::from_secs(1);
const RECONNECT_MAX: Duration = Duration::from_secs(30);
/// A runtime that cannot stream may be replaced by one that can.
const ASK_AGAIN: Duration = Duration::from_secs(600);

/// What happened on the stream.
#[derive(Debug)]
pub(super) enum Signal {
    /// Events flow from here on; whatever happened before was not told.
    Connected,
    /// An event.
    Event(RuntimeEvent),
    /// The stream ended or failed; events are being lost.
    Lost(Option<CallError>),
    /// The runtime cannot stream events.
    Unsupported,
}

/// The stream and its reconnects.
pub(super) struct Events {
    runtime: Arc<dyn Runtime>,
    state: State,
    pause: Duration,
}

enum State {
    /// Nobody wants events.
    Off,
    Pausing(Instant),
    Connecting(BoxFuture<'static, Result<EventStream, CallError>>),
    Live(EventStream),
}

impl Events {
    pub(super) fn new(runtime: Arc<dyn Runtime>, follow: bool) -> Self {
        let state = if follow { State::Pausing(Instant::now()) } else { State::Off };
        Self { runtime, state, pause: RECONNECT_MIN }
    }

    /// True while events flow.
    pub(super) fn live(&self) -> bool {
        matches!(self.state, State::Live(_))
    }

    /// The next signal. Cancel safe: progress lives in `self`.
    pub(super) async fn next(&mut self) -> Signal {
        loop {
            match &mut self.state {
                State::Off => std::future::pending().await,
                State::Pausing(until) => {
                    sleep_until(*until).await;
                    let runtime = Arc::clone(&self.runtime);
                    self.state = State::Connecting(Box::pin(async move { runtime.events().await }));
                }
                State::Connecting(connecting) => match connecting.await {
                    Ok(stream) => {
                        self.state = State::Live(stream);
                        return Signal::Connected;
                    }
                    Err(error) if error.is_unimplemented() => {
                        self.state = State::Pausing(Instant::now() + ASK_AGAIN);
                        return Signal::Unsupported;
                    }
                    Err(error) => return self.lost(Some(error)),
                },
                State::Live(stream) => match stream.next().await {
                    Some(Ok(event)) => {
                        self.pause = RECONNECT_MIN;
                        return Signal::Event(event);
                    }
                    Some(Err(error)) if error.is_unimplemented() => {
                        self.state = State::Pausing(Instant::now() + ASK_AGAIN);
                        return Signal::Unsupported;
                    }
                    Some(Err(error)) => return self.lost(Some(error)),
                    None => return self.lost(None),
                },
            }
        }
    }

    fn lost(&mut self, error: Option<CallError>) -> Signal {
        self.state = State::Pausing(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(RECONNECT_MAX);
        Signal::Lost(error)
    }
}
