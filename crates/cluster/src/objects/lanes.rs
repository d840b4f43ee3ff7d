//! Connections for watches: as many as needed, none with more than a server allows.
//!
//! A server takes only so many streams on a connection, and every watch is one for as
//! long as it lasts: what is asked beyond that would wait for a watch to end. So watches
//! are spread over connections of their own, and what else a node asks never waits for
//! them. Requests are let through a few at a time, however many objects are wanted at
//! once. Upstream: golang.org/x/net/http2 opens connections as needed.

use std::sync::Arc;

use api_client::{Api, ApiError, Call, Watching};
use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::Semaphore;

/// Watches on a connection. A server allows 100 streams by default, and requests are
/// under way as well.
pub(super) const WATCHES_MAX: usize = 80;
/// Requests under way at a time, over all connections.
pub(super) const REQUESTS_MAX: usize = 16;

/// Makes a client with a connection of its own.
pub type Connect = Arc<dyn Fn() -> Arc<dyn Api> + Send + Sync>;

/// All connections.
pub(super) struct Lanes {
    connect: Connect,
    permits: Arc<Semaphore>,
    /// By number; those without a watch are closed.
    lanes: Vec<Option<Lane>>,
    /// For requests that are no watches.
    requests: Option<Arc<dyn Api>>,
}

struct Lane {
    api: Arc<dyn Api>,
    watches: usize,
}

impl Lanes {
    pub(super) fn new(connect: Connect) -> Self {
        let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
        Self { connect, permits, lanes: Vec::new(), requests: None }
    }

    /// A place for one watch, and the client to use.
    pub(super) fn enter(&mut self) -> (usize, Arc<dyn Api>) {
        let has_room = |lane: &Option<Lane>| match lane {
            Some(lane) => lane.watches < WATCHES_MAX,
            None => false,
        };
        let closed = |lanes: &[Option<Lane>]| lanes.iter().position(Option::is_none);
        let at = self.lanes.iter().position(has_room).or_else(|| closed(&self.lanes));
        let at = at.unwrap_or(self.lanes.len());
        if at == self.lanes.len() {
            self.lanes.push(None);
        }
        let (connect, permits) = (&self.connect, &self.permits);
        let lane =
            self.lanes[at].get_or_insert_with(|| Lane { api: gate(connect, permits), watches: 0 });
        lane.watches += 1;
        (at, Arc::clone(&lane.api))
    }

    /// The client for requests that are no watches.
    pub(super) fn for_requests(&mut self) -> Arc<dyn Api> {
        let (connect, permits) = (&self.connect, &self.permits);
        Arc::clone(self.requests.get_or_insert_with(|| gate(connect, permits)))
    }

    /// A watch has ended.
    pub(super) fn leave(&mut self, at: usize) {
        if let Some(lane) = &mut self.lanes[at] {
            lane.watches -= 1;
            if lane.watches == 0 {
                self.lanes[at] = None;
            }
        }
    }

    #[cfg(test)]
    fn sizes(&self) -> Vec<usize> {
        self.lanes.iter().map(|lane| lane.as_ref().map_or(0, |lane| lane.watches)).collect()
    }
}

fn gate(connect: &Connect, permits: &Arc<Semaphore>) -> Arc<dyn Api> {
    Arc::new(Gate { api: connect(), permits: Arc::clone(permits) })
}

/// Lets a few requests through at a time. A watch counts until it has begun.
struct Gate {
    api: Arc<dyn Api>,
    permits: Arc<Semaphore>,
}

#[async_trait]
impl Api for Gate {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        // It is never closed, so there is a permit in the end.
        let _permit = self.permits.acquire().await;
        self.api.call(call).await
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        let _permit = self.permits.acquire().await;
        self.api.watch(path).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;

    use super::*;

    #[derive(Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    #[async_trait]
    impl Api for Slow {
        async fn call(&self, _: Call) -> Result<Value, ApiError> {
            let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            Ok(Value::Null)
        }
        async fn watch(&self, _: &str) -> Result<Box<dyn Watching>, ApiError> {
            Err(ApiError::Unusable("no watches here".to_owned()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_come_and_go_with_watches() {
        let opened = Arc::new(AtomicUsize::new(0));
        let slow = Arc::new(Slow::default());
        let connect: Connect = {
            let (opened, slow) = (Arc::clone(&opened), Arc::clone(&slow));
            Arc::new(move || {
                opened.fetch_add(1, Ordering::Relaxed);
                Arc::clone(&slow) as Arc<dyn Api>
            })
        };
        let mut lanes = Lanes::new(connect);
        let mut all: Vec<(usize, Arc<dyn Api>)> = (0..170).map(|_| lanes.enter()).collect();
        assert_eq!(lanes.sizes(), [80, 80, 10]);
        join_all(all.iter().map(|(_, api)| api.call(Call::get("/")))).await;
        assert_eq!(slow.most.load(Ordering::Relaxed), REQUESTS_MAX);
        for (at, _) in all.drain(80..160) {
            lanes.leave(at);
        }
        assert_eq!(lanes.sizes(), [80, 0, 10]);
        assert_eq!(lanes.enter().0, 2, "one that is open is used first");
        assert_eq!(opened.load(Ordering::Relaxed), 3);
        (0..70).for_each(|_| drop(lanes.enter()));
        assert_eq!(lanes.sizes(), [80, 1, 80]);
        assert_eq!(opened.load(Ordering::Relaxed), 4);
    }
}
