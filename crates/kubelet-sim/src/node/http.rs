//! The URL that serves manifests.

use std::sync::Arc;

use async_trait::async_trait;
use kubelet::ports::{Fetched, HttpFetch, HttpFetchError};
use rand::RngExt;
use tokio::time::sleep;

use crate::world::{Life, World};

/// What the URL answers.
#[derive(Default)]
pub(crate) struct WebPage {
    pub(crate) body: Vec<u8>,
}

/// The fetching port of one life.
pub struct SimHttp {
    world: Arc<World>,
    life: Life,
}

impl SimHttp {
    /// A handle for one life.
    pub fn new(world: Arc<World>, life: Life) -> Self {
        Self { world, life }
    }
}

#[async_trait]
impl HttpFetch for SimHttp {
    async fn get(
        &self,
        url: &str,
        _headers: &[(String, String)],
        limit: usize,
    ) -> Result<Fetched, HttpFetchError> {
        let (wait, failed, cut) = {
            let mut state = self.world.lock();
            let rate = state.faults.http_error;
            (state.delay(), state.chance(rate), state.rng.random_bool(0.5))
        };
        sleep(wait).await;
        if !self.life.is_alive() {
            std::future::pending::<()>().await;
        }
        if failed && cut {
            return Ok(Fetched { status: 503, body: b"simulated: come back later".to_vec() });
        }
        if failed {
            return Err(HttpFetchError::Failed {
                url: url.to_owned(),
                why: "simulated: connection reset".to_owned(),
            });
        }
        let body = {
            let mut state = self.world.lock();
            state.oracle.note_list_read();
            state.page.body.clone()
        };
        if body.len() > limit {
            return Err(HttpFetchError::TooLarge { url: url.to_owned(), limit });
        }
        Ok(Fetched { status: 200, body })
    }
}
