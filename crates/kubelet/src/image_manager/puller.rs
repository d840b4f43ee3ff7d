//! Pulling: one pull per image at a time, so many at once, so many a second.
//!
//! Owns the pulls under way. Writes to the runtime's image service. Never
//! decides whether a pull is due. Upstream: pkg/kubelet/images/puller.go,
//! helpers.go and kuberuntime_image.go; that equal pulls are one is ours.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cri::{CallError, CallErrorKind, Runtime, v1};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::flights::Flights;
use super::keyring::Login;
use super::progress::{Board, PullState};
use super::settings::ImageSettings;
use super::throttle::TokenBucket;
use crate::ports::Clock;

/// How often a pull's progress is asked for.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// A pull that succeeded.
#[derive(Debug, Clone, PartialEq)]
pub struct Pulled {
    /// The image in the runtime's words.
    pub image_ref: String,
    /// What the runtime tells of it, if it does.
    pub details: Option<v1::Image>,
    /// How long it took, without waiting for its turn.
    pub took: Duration,
    /// The login that opened it, if one was needed.
    pub login: Option<Login>,
}

/// A pull that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PullError {
    /// Why, in the runtime's words.
    pub message: String,
    /// The runtime did not answer, so this says nothing about the image.
    pub unreachable: bool,
}

type Outcome = Result<Pulled, PullError>;

/// Pulls with equal keys are one pull.
type Key = (String, Vec<Login>);

/// Pulls images. Cheap to clone.
#[derive(Clone)]
pub struct Puller(Arc<Inner>);

struct Inner {
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    turns: Option<Semaphore>,
    throttle: Option<Mutex<TokenBucket>>,
    flights: Flights<Key, Outcome>,
    board: Board,
    tells_progress: AtomicBool,
}

impl Puller {
    /// A puller with the configured limits.
    pub fn new(runtime: Arc<dyn Runtime>, clock: Arc<dyn Clock>, settings: &ImageSettings) -> Self {
        let at_once = if settings.serialize_pulls {
            Some(1)
        } else {
            settings.max_parallel_pulls.map(|max| usize::try_from(max).unwrap_or(usize::MAX))
        };
        let throttle = (settings.pull_qps > 0)
            .then(|| Mutex::new(TokenBucket::new(settings.pull_qps, settings.pull_burst)));
        Self(Arc::new(Inner {
            runtime,
            clock,
            turns: at_once.map(|max| Semaphore::new(max.clamp(1, Semaphore::MAX_PERMITS))),
            throttle,
            flights: Flights::default(),
            board: Board::default(),
            tells_progress: AtomicBool::new(true),
        }))
    }

    /// Pulls, or waits for the same pull begun by another.
    pub async fn pull(
        &self,
        spec: v1::ImageSpec,
        logins: Vec<Login>,
        sandbox: v1::PodSandboxConfig,
    ) -> Outcome {
        let key = (spec.image.clone(), logins.clone());
        let inner = Arc::clone(&self.0);
        let begin = || async move { inner.pull(spec, &logins, sandbox).await };
        self.0.flights.join(&key, begin).await
    }

    /// How far the pull of an image is.
    pub fn state(&self, image: &str) -> Option<PullState> {
        self.0.board.of(image)
    }
}

impl Inner {
    async fn pull(
        &self,
        spec: v1::ImageSpec,
        logins: &[Login],
        sandbox: v1::PodSandboxConfig,
    ) -> Outcome {
        let entry = self.board.queue(&spec.image);
        let _turn = match &self.turns {
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        let began = self.clock.mono();
        if !self.has_token() {
            return Err(PullError { message: "pull QPS exceeded".to_owned(), unreachable: false });
        }
        entry.run();
        let pulled = tokio::select! { biased;
            pulled = self.try_all(&spec, logins, sandbox) => pulled,
            () = self.follow_progress() => unreachable!("it never ends"),
        };
        drop(entry);
        let (image_ref, login) = pulled?;
        let details = self.runtime.image_status(spec).await.ok().flatten();
        Ok(Pulled { image_ref, details, took: self.clock.mono().since(began), login })
    }

    fn has_token(&self) -> bool {
        let Some(throttle) = &self.throttle else { return true };
        let mut bucket = throttle.lock().expect("token lock: no code panics while holding it");
        bucket.take(self.clock.mono())
    }

    /// Tries one login after the other, or none at all if there is none.
    async fn try_all(
        &self,
        spec: &v1::ImageSpec,
        logins: &[Login],
        sandbox: v1::PodSandboxConfig,
    ) -> Result<(String, Option<Login>), PullError> {
        let auth = |login: &Login| v1::AuthConfig {
            username: login.username.clone(),
            password: login.password.clone(),
            ..Default::default()
        };
        let mut tries: Vec<Option<&Login>> = logins.iter().map(Some).collect();
        if tries.is_empty() {
            tries.push(None);
        }
        let (mut texts, mut unreachable) = (Vec::new(), true);
        for login in tries {
            let auth = login.map(auth);
            match self.runtime.pull_image(spec.clone(), auth, Some(sandbox.clone())).await {
                Ok(image_ref) => return Ok((image_ref, login.cloned())),
                Err(error) => {
                    unreachable &= error.is_unreachable();
                    let text = error_text(&error);
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
            }
        }
        let message = match texts.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        Err(PullError { message, unreachable })
    }

    /// Asks for progress again and again; a runtime that cannot tell is asked once.
    async fn follow_progress(&self) {
        while self.tells_progress.load(Ordering::Relaxed) {
            sleep(PROGRESS_EVERY).await;
            match self.runtime.downloads().await {
                Ok(downloads) => self.board.note(&downloads),
                Err(error) if error.is_unimplemented() => {
                    self.tells_progress.store(false, Ordering::Relaxed);
                }
                Err(error) => tracing::debug!(%error, "progress of pulls not told"),
            }
        }
        pending().await
    }
}

/// An error as Go's gRPC prints it, but the bare message if its code says nothing.
pub(super) fn error_text(error: &CallError) -> String {
    match &error.kind {
        CallErrorKind::Answered { code, message } => match format!("{code:?}").as_str() {
            "Unknown" => message.clone(),
            "Cancelled" => format!("rpc error: code = Canceled desc = {message}"),
            code => format!("rpc error: code = {code} desc = {message}"),
        },
        other => other.to_string(),
    }
}
