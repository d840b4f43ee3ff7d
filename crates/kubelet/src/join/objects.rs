//! Objects and tokens of the API server, for whoever follows them.
//!
//! Owns nothing: what is followed in the object cache is asked for, and what is
//! answered goes there. One small future per object, which ends when nobody follows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::objects::{self, Address, Listener, Reader, Trouble, Use, Wanted};
use cluster::tokens::{BoundPod, Token, Tokens};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kubelet_model::token::{EXPIRES, TOKEN, TokenAsk};
use kubelet_model::{ConfigObject, ObjectKey};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::credentials::{self, Makers};
use crate::object_cache::{Answers, Objects};
use crate::ports::Clock;

/// How soon what could not be learnt is asked for again.
const RETRY: Duration = Duration::from_secs(10);
/// From so many reads without an answer on, users are told.
const LATE_MAX: u32 = 3;
/// The shortest time between two requests for a token.
const TOKEN_PAUSE: Duration = Duration::from_secs(1);
/// After a failure it doubles up to the longest: a node has many tokens, and a server
/// that is away must not be asked by all of them all the time.
const TOKEN_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Within this time they are asked for when it is back.
const RETURN_SPREAD: Duration = Duration::from_secs(2);

/// Hands what the server says to the cache.
struct Told(Arc<Answers>);

impl Listener for Told {
    fn present(&self, at: &Address, object: Value) -> Result<(), String> {
        let Some(key) = at.key() else { return Ok(()) };
        let object = objects::config_object(&key, object)?;
        self.0.know(&key, Some(Arc::new(object)));
        Ok(())
    }
    fn absent(&self, at: &Address) {
        if let Some(key) = at.key() {
            self.0.know(&key, None);
        }
    }
    fn forget(&self, at: &Address) {
        if let Some(key) = at.key() {
            self.0.forget(&key);
        }
    }
}

/// Keeps the cache's objects up to date.
pub(super) struct ObjectKeeper {
    pub(super) cache: Objects,
    pub(super) connect: objects::Connect,
    pub(super) settings: objects::Settings,
    pub(super) spread: api_client::Spread,
    pub(super) tokens: Arc<Tokens>,
    pub(super) makers: Makers,
    pub(super) clock: Arc<dyn Clock>,
}

impl ObjectKeeper {
    /// Works until it is dropped.
    pub(super) async fn run(self) {
        let answers = Arc::new(self.cache.join_cluster());
        let (wanted, reader) = watch::channel(Wanted::default());
        let listener = Arc::new(Told(Arc::clone(&answers)));
        let (keeper, reader) =
            objects::new(self.connect, self.settings, reader, listener, self.spread.clone());
        let (made, makers) = credentials::new(self.makers, &answers);
        let (tokens, clock, spread) = (self.tokens, self.clock, self.spread);
        let asks = Asks { reader, tokens, answers, clock, spread, returns: self.cache.returns() };
        tokio::join!(keeper.run(), makers, follow(&self.cache, &wanted, made, &asks));
    }
}

/// What one future needs.
struct Asks {
    reader: Reader,
    tokens: Arc<Tokens>,
    answers: Arc<Answers>,
    clock: Arc<dyn Clock>,
    spread: api_client::Spread,
    returns: ordered_watch::Receiver<u64>,
}

/// Asks for what somebody follows, for as long as somebody does.
async fn follow(
    cache: &Objects,
    wanted: &watch::Sender<Wanted>,
    mut made: credentials::Asks,
    asks: &Asks,
) {
    let mut changes = cache.wanted_changes();
    let mut under_way: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    let mut stops: BTreeMap<ObjectKey, oneshot::Sender<()>> = BTreeMap::new();
    loop {
        changes.borrow_and_update();
        let keys = cache.wanted();
        let news = keys.iter().any(|key| !stops.contains_key(key)) || keys.len() != stops.len();
        if news {
            wanted.send_replace(Arc::new(addresses(&keys)));
            made.turn_to(&keys);
        }
        // Dropping it ends the future.
        stops.retain(|key, _| keys.contains(key));
        for key in keys {
            if stops.contains_key(&key) {
                continue;
            }
            let (stop, stopped) = oneshot::channel();
            stops.insert(key.clone(), stop);
            if credentials::is_made(&key) {
                continue;
            }
            under_way.push(Box::pin(asks.keep(key, stopped)));
        }
        tokio::select! { biased;
            changed = changes.changed() => if changed.is_err() { return },
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
        }
    }
}

fn addresses(keys: &BTreeSet<ObjectKey>) -> BTreeMap<Address, Use> {
    let mut all = BTreeMap::new();
    for key in keys {
        if let Some(at) = Address::of(key) {
            all.insert(at, Use::Held);
        }
    }
    all
}

impl Asks {
    async fn keep(&self, key: ObjectKey, stopped: oneshot::Receiver<()>) {
        let work = async {
            match (Address::of(&key), TokenAsk::of(&key)) {
                (Some(at), _) => self.keep_object(&key, &at).await,
                (None, Some(ask)) => self.keep_token(&key, &ask).await,
                (None, None) => {}
            }
        };
        tokio::select! { biased;
            // It never sends: it is dropped when nobody follows the object.
            _ = stopped => {}
            () = work => {}
        }
        if let Some(ask) = TokenAsk::of(&key) {
            self.answers.forget(&key);
            self.tokens.forget(&request(&ask));
        }
    }

    /// Reads until there is an answer; from then on the listener is told of changes.
    async fn keep_object(&self, key: &ObjectKey, at: &Address) {
        let mut late = 0;
        loop {
            match self.reader.read(at).await {
                Ok(()) | Err(Trouble::NotFound(_) | Trouble::Ended(_)) => {
                    return std::future::pending().await;
                }
                Err(trouble @ (Trouble::Late(_) | Trouble::NotWanted(_))) => {
                    late += 1;
                    if late == LATE_MAX {
                        self.answers.fail(key, &trouble.to_string());
                    }
                    sleep(TOKEN_PAUSE).await;
                }
                Err(trouble) => {
                    self.answers.fail(key, &trouble.to_string());
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Asks for a token, and for another before it ends.
    async fn keep_token(&self, key: &ObjectKey, ask: &TokenAsk) {
        let request = request(ask);
        let mut failures = 0_u32;
        let mut returns = self.returns.clone();
        loop {
            returns.borrow_and_update();
            let pause = match self.tokens.get(&request).await {
                Ok(token) => {
                    failures = 0;
                    self.answers.know(key, Some(Arc::new(object(key, &token))));
                    let next = self.tokens.next_refresh(&request);
                    let left = next.map(|at| at.duration_since(self.clock.wall()));
                    left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(TOKEN_PAUSE)
                }
                Err(error) => {
                    self.answers.fail(key, &error.to_string());
                    failures = failures.saturating_add(1);
                    let pause = TOKEN_PAUSE.saturating_mul(1 << failures.min(10));
                    let pause = pause.min(TOKEN_PAUSE_MAX);
                    pause + (self.spread)(pause / 2)
                }
            };
            tokio::select! { biased;
                () = sleep(pause.max(TOKEN_PAUSE)) => {}
                // Its pod runs without it; not all of them ask at once.
                Ok(()) = returns.changed() => sleep((self.spread)(RETURN_SPREAD)).await,
            }
        }
    }
}

fn request(ask: &TokenAsk) -> cluster::tokens::TokenAsk {
    let audiences = Some(ask.audience.clone()).filter(|audience| !audience.is_empty());
    cluster::tokens::TokenAsk {
        namespace: ask.namespace.clone(),
        account: ask.account.clone(),
        audiences: audiences.into_iter().collect(),
        expiration_seconds: Some(ask.seconds).filter(|seconds| *seconds > 0),
        pod: Some(BoundPod { name: ask.pod.clone(), uid: ask.uid.clone() }),
        account_uid: String::new(),
    }
}

fn object(key: &ObjectKey, token: &Token) -> ConfigObject {
    let value = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    ConfigObject {
        key: key.clone(),
        uid: String::new(),
        secret_type: String::new(),
        data: BTreeMap::from([
            value(TOKEN, &token.secret),
            value(EXPIRES, &token.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ]),
        binary: BTreeMap::new(),
    }
}
