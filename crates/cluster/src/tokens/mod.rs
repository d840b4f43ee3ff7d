//! Tokens of service accounts, for pods and for those who act for them.
//!
//! Owns the tokens that were asked for, until they expire, their pod is gone, or there
//! are too many. One request at a time for each; a token that can still be used serves
//! while no newer one can be had. Never prints a token. Upstream: pkg/kubelet/token.

mod ask;
mod life;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api_client::{Api, ApiError, Call, Clock, Spread, path};
use jiff::Timestamp;
use serde_json::Value;

pub use ask::{BoundPod, TokenAsk};
pub use life::Token;

use life::JITTER_MAX;

/// Tokens kept; a node of 500 pods with some drivers each has fewer.
const TOKENS_MAX: usize = 4_096;
/// Pause between looks for expired tokens, as upstream.
const CLEAN_EVERY: Duration = Duration::from_secs(60);
/// Pause before a refresh that failed is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Why there is no token; in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There never was one.
    #[error("failed to fetch token: {0}")]
    Fetch(#[source] TokenRefusal),
    /// There was one, which is too old.
    #[error("token {key} expired and refresh failed: {error}")]
    Expired {
        /// What was asked for.
        key: String,
        /// Why there is no newer one.
        #[source]
        error: TokenRefusal,
    },
}

/// Why the API server gave no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// In its own words.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// It gives none to anybody.
    #[error("the API server does not have TokenRequest endpoints enabled")]
    Unsupported,
}

/// All tokens. Shared by reference.
pub struct Tokens {
    api: Arc<dyn Api>,
    clock: Clock,
    jitter: Spread,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    slots: BTreeMap<TokenAsk, Arc<Slot>>,
    cleaned: Option<Timestamp>,
    /// Whether the server gives tokens at all; asked when one is refused.
    supported: Option<bool>,
}

/// One token, and whose turn it is to ask for it.
#[derive(Default)]
struct Slot {
    turn: tokio::sync::Mutex<()>,
    /// Requests so far.
    asked: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default, Clone)]
struct State {
    token: Option<Token>,
    /// Why the last request gave none, and when.
    failed: Option<(TokenRefusal, Timestamp)>,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("token lock: no code panics while holding it")
    }
}

impl Tokens {
    /// No tokens yet. `jitter` spreads refreshes.
    pub fn new(api: Arc<dyn Api>, clock: Clock, jitter: Spread) -> Self {
        Self { api, clock, jitter, cache: Mutex::default() }
    }

    /// A token that is good for a while: one that is known, or a new one.
    ///
    /// # Errors
    /// There is none, and the API server gives none.
    pub async fn get(&self, ask: &TokenAsk) -> Result<Token, TokenError> {
        let slot = self.slot(ask);
        let asked = slot.asked.load(Ordering::Acquire);
        if let Some(token) = self.fresh(&slot) {
            return Ok(token);
        }
        let _turn = slot.turn.lock().await;
        if slot.asked.load(Ordering::Acquire) != asked {
            // Somebody asked while this one waited: the answer is for both.
            return self.known(ask, &slot);
        }
        let answer = self.request(ask).await;
        let now = (self.clock)();
        let mut state = slot.state();
        match answer {
            Ok(token) => *state = State { token: Some(token), failed: None },
            Err(error) => {
                if state.token.as_ref().is_some_and(|token| !token.is_expired(now)) {
                    tracing::warn!(account = %ask, %error, "token cannot be renewed; the old one serves on");
                }
                state.failed = Some((error, now));
            }
        }
        drop(state);
        slot.asked.fetch_add(1, Ordering::Release);
        self.known(ask, &slot)
    }

    /// When it is worth asking again for a token that was given; `None` if there is none.
    pub fn next_refresh(&self, ask: &TokenAsk) -> Option<Timestamp> {
        let state = self.lock().slots.get(ask)?.state().clone();
        let token = state.token?;
        Some(match state.failed {
            // Sooner if it does not last that long.
            Some((_, failed)) => {
                let retry = life::later(failed, RETRY_AFTER);
                if failed < token.expires { retry.min(token.expires) } else { retry }
            }
            None => token.refresh,
        })
    }

    /// Forgets a token that nobody needs any more.
    pub fn forget(&self, ask: &TokenAsk) {
        self.lock().slots.remove(ask);
    }

    fn fresh(&self, slot: &Slot) -> Option<Token> {
        let now = (self.clock)();
        slot.state().token.clone().filter(|token| !token.is_due(now))
    }

    /// What is known of a token after it was asked for.
    fn known(&self, ask: &TokenAsk, slot: &Slot) -> Result<Token, TokenError> {
        let now = (self.clock)();
        let State { token, failed } = slot.state().clone();
        match (token, failed) {
            (Some(token), None) => Ok(token),
            (Some(token), Some(_)) if !token.is_expired(now) => Ok(token),
            (Some(_), Some((error, _))) => Err(TokenError::Expired { key: ask.to_string(), error }),
            (None, Some((error, _))) => Err(TokenError::Fetch(error)),
            (None, None) => {
                let why = "it was asked for, and nothing came of it".to_owned();
                Err(TokenError::Fetch(ApiError::Unusable(why).into()))
            }
        }
    }

    async fn request(&self, ask: &TokenAsk) -> Result<Token, TokenRefusal> {
        let path = path("api/v1", &ask.namespace, &["serviceaccounts", &ask.account, "token"]);
        match self.api.call(Call::post(&path, ask.body())).await {
            Ok(answer) => {
                let jitter = (self.jitter)(JITTER_MAX).min(JITTER_MAX);
                Ok(Token::read(&answer, jitter).map_err(ApiError::Unusable)?)
            }
            Err(error) if error.is_not_found() && !self.is_supported().await => {
                Err(TokenRefusal::Unsupported)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Does the server give tokens? Unknown means no, as upstream, until it is known.
    async fn is_supported(&self) -> bool {
        if let Some(known) = self.lock().supported {
            return known;
        }
        let Ok(answer) = self.api.call(Call::get("/api/v1")).await else { return false };
        let resources = answer["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_token = |resource: &Value| resource["name"] == "serviceaccounts/token";
        let supported = resources.iter().any(is_token);
        self.lock().supported = Some(supported);
        supported
    }

    /// The place of a token; makes room for it.
    fn slot(&self, ask: &TokenAsk) -> Arc<Slot> {
        let now = (self.clock)();
        let mut cache = self.lock();
        cache.clean(now);
        if let Some(slot) = cache.slots.get(ask) {
            return Arc::clone(slot);
        }
        while cache.slots.len() >= TOKENS_MAX && cache.drop_oldest() {}
        let slot = Arc::<Slot>::default();
        cache.slots.insert(ask.clone(), Arc::clone(&slot));
        slot
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().expect("tokens lock: no code panics while holding it")
    }
}

impl Cache {
    /// Forgets what has expired, now and then.
    fn clean(&mut self, now: Timestamp) {
        let due = |cleaned: Timestamp| now < cleaned || life::later(cleaned, CLEAN_EVERY) <= now;
        if self.cleaned.is_some_and(|cleaned| !due(cleaned)) {
            return;
        }
        self.cleaned = Some(now);
        self.slots.retain(|_, slot| match &slot.state().token {
            Some(token) => !token.is_expired(now),
            // Either somebody asks for it right now, or nothing came of it.
            None => Arc::strong_count(slot) > 1,
        });
    }

    /// Forgets the token that expires first. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let mut oldest: Option<(&TokenAsk, Option<Timestamp>)> = None;
        for (ask, slot) in &self.slots {
            let expires = slot.state().token.as_ref().map(|token| token.expires);
            if oldest.is_none_or(|(_, other)| expires < other) {
                oldest = Some((ask, expires));
            }
        }
        let Some(ask) = oldest.map(|(ask, _)| ask.clone()) else { return false };
        self.slots.remove(&ask).is_some()
    }
}
