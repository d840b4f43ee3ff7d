//! A watch as the agent gets it: late, cut, or ended by 410.

use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiError, WatchEvent, Watching};
use async_trait::async_trait;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::world::{Life, World};

type Event = Option<Result<WatchEvent, ApiError>>;

pub(super) struct SimWatch {
    world: Arc<World>,
    life: Life,
    inner: Box<dyn Watching>,
    of_pods: bool,
    cut_at: Option<Instant>,
    /// What was sent and has not arrived: whoever waits may be dropped meanwhile.
    coming: Option<(Instant, Event)>,
    ended: bool,
}

impl SimWatch {
    pub(super) fn new(
        world: Arc<World>,
        life: Life,
        inner: Box<dyn Watching>,
        path: &str,
        cut: Option<Duration>,
    ) -> Self {
        let cut_at = cut.map(|after| Instant::now() + after);
        let of_pods = path.starts_with("/api/v1/pods?");
        Self { world, life, inner, of_pods, cut_at, coming: None, ended: false }
    }

    /// What the server sends next, and when that arrives.
    async fn sent(&mut self) -> (Instant, Event) {
        let far = Instant::now() + Duration::from_secs(30 * 24 * 3600);
        let event = tokio::select! { biased;
            () = sleep_until(self.cut_at.unwrap_or(far)) => None,
            event = self.inner.next() => event,
        };
        let mut state = self.world.lock();
        let at = Instant::now() + state.delay();
        let rate = state.faults.api.expired;
        let expires = matches!(event, Some(Ok(_))) && state.chance(rate);
        if expires {
            let status = json!({"reason": "Expired", "message": "too old resource version"});
            return (at, Some(Err(ApiError::of_status(&status, 410, None))));
        }
        (at, event)
    }
}

#[async_trait]
impl Watching for SimWatch {
    async fn next(&mut self) -> Event {
        if self.ended {
            return None;
        }
        if self.coming.is_none() {
            self.coming = Some(self.sent().await);
        }
        if let Some((at, _)) = &self.coming {
            sleep_until(*at).await;
        }
        if !self.life.is_alive() {
            std::future::pending::<()>().await;
        }
        let event = self.coming.take().and_then(|(_, event)| event);
        match &event {
            Some(Ok(news)) if self.of_pods => self.world.lock().hear_event(news),
            Some(Ok(_)) => {}
            _ => self.ended = true,
        }
        event
    }
}
