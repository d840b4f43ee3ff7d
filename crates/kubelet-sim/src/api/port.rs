//! The API port of one life of the agent: every request meets its fate here.

use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, ApiError, Call, Watching};
use async_trait::async_trait;
use rand::RngExt;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Away;
use super::watch::SimWatch;
use crate::world::{Life, State, World};

/// How long the beginning of a watch may take.
const WATCH_LIMIT: Duration = Duration::from_secs(30);
/// How soon a server that refuses connections does so.
const REFUSED_AFTER: Duration = Duration::from_millis(1);

/// The way to the server.
pub(crate) struct SimApi {
    world: Arc<World>,
    life: Life,
}

/// What becomes of a request.
enum Fate {
    /// It fails after this time, without effect.
    Fails(Duration, ApiError),
    /// It is done after the first time and answered after the second, unless the
    /// answer is replaced by an error.
    Done(Duration, Duration, Option<ApiError>),
}

pub(super) fn unreachable(why: &str) -> ApiError {
    ApiError::Unreachable { server: "sim".to_owned(), why: why.to_owned() }
}

fn timed_out(limit: Duration) -> ApiError {
    ApiError::TimedOut { server: "sim".to_owned(), limit }
}

fn answered(code: u16, reason: &str, after: Option<u64>) -> ApiError {
    let status = json!({"reason": reason, "message": format!("simulated: {reason}")});
    ApiError::of_status(&status, code, after.map(Duration::from_secs))
}

fn unauthorized() -> ApiError {
    answered(401, "Unauthorized", None)
}

fn no_credentials() -> ApiError {
    ApiError::Credentials("simulated: the certificate cannot be read".to_owned())
}

impl State {
    fn request_fate(&mut self, writes: bool, limit: Duration) -> Fate {
        match self.api_away() {
            Some(Away::Refusing) => return Fate::Fails(REFUSED_AFTER, unreachable("refused")),
            Some(Away::Silent) => return Fate::Fails(limit, timed_out(limit)),
            Some(Away::Unauthorized) => return Fate::Fails(REFUSED_AFTER, unauthorized()),
            Some(Away::NoCredentials) => return Fate::Fails(Duration::ZERO, no_credentials()),
            None => {}
        }
        let faults = self.faults.api.clone();
        let (before, after) = (self.delay(), self.delay());
        if self.chance(faults.unreachable) {
            return Fate::Fails(before, unreachable("connection reset"));
        }
        if self.chance(faults.no_credentials) {
            return Fate::Fails(Duration::ZERO, no_credentials());
        }
        if self.chance(faults.unauthorized) {
            return Fate::Fails(before, unauthorized());
        }
        if self.chance(faults.too_many) {
            let pause = self.rng.random_range(1..=30);
            return Fate::Fails(before, answered(429, "TooManyRequests", Some(pause)));
        }
        if self.chance(faults.internal) {
            return Fate::Fails(before, answered(500, "InternalError", None));
        }
        if writes && self.chance(faults.conflict) {
            return Fate::Fails(before, answered(409, "Conflict", None));
        }
        if self.chance(faults.silent) {
            let lost = timed_out(limit);
            let done = writes && self.rng.random_bool(0.5);
            return match done {
                true => Fate::Done(before, limit.saturating_sub(before), Some(lost)),
                false => Fate::Fails(limit, lost),
            };
        }
        let lost = writes && self.chance(faults.lost_answer);
        Fate::Done(before, after, lost.then(|| unreachable("connection reset while waiting")))
    }
}

impl SimApi {
    pub(crate) fn new(world: Arc<World>, life: Life) -> Self {
        Self { world, life }
    }

    /// A dead agent hears nothing any more.
    async fn pass(&self, time: Duration) {
        sleep(time).await;
        if !self.life.is_alive() {
            std::future::pending::<()>().await;
        }
    }

    fn crashes(&self, call: &Call, when: &str) -> bool {
        let mut state = self.world.lock();
        let rate = state.faults.crash_at_call;
        let crashes = call.method != "GET" && state.chance(rate);
        drop(state);
        if crashes {
            self.world.request_crash(&self.life, &format!("{when} {} {}", call.method, call.path));
        }
        crashes
    }
}

#[async_trait]
impl Api for SimApi {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        let writes = call.method != "GET";
        let fate = {
            let mut state = self.world.lock();
            state.count_request(call.method.as_str(), &call.path);
            state.request_fate(writes, call.limit)
        };
        if self.crashes(&call, "before") {
            std::future::pending::<()>().await;
        }
        let (before, after, lost) = match fate {
            Fate::Fails(after, error) => {
                self.pass(after).await;
                return Err(error);
            }
            Fate::Done(before, after, lost) => (before, after, lost),
        };
        self.pass(before).await;
        let answer = self.world.lock().serve(&call, lost.is_some());
        if self.crashes(&call, "after") {
            std::future::pending::<()>().await;
        }
        self.pass(after).await;
        match lost {
            Some(error) => Err(error),
            None => {
                self.world.lock().hear_answer(&call, &answer);
                answer
            }
        }
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        let fate = {
            let mut state = self.world.lock();
            state.count_request("WATCH", path);
            state.request_fate(false, WATCH_LIMIT)
        };
        match fate {
            Fate::Fails(after, error) => {
                self.pass(after).await;
                Err(error)
            }
            Fate::Done(before, ..) => {
                self.pass(before).await;
                let state = self.world.lock();
                if state.api_away().is_some() {
                    return Err(unreachable("connection reset"));
                }
                let inner = state.api.as_ref().map(|server| server.watch(path));
                let inner = inner.unwrap_or_else(|| Err(unreachable("no server")))?;
                let cut = state.faults.api.watch_cut;
                drop(state);
                let (world, life) = (Arc::clone(&self.world), self.life.clone());
                Ok(Box::new(SimWatch::new(world, life, inner, path, cut)))
            }
        }
    }
}
