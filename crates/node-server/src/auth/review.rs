//! Asking the API server to review something, again if it may have been a bad moment.
//!
//! Upstream: apiserver pkg/util/webhook, with the options of
//! DefaultAuthWebhookRetryBackoff.

use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, ApiError, Call};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::memory::Key;

/// Tries, and the pauses between them.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LATER_PAUSES_MAX: Duration = Duration::from_secs(10);
/// For one try, and for all of them.
const TRY_LIMIT: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(30);
/// Reviews at once: tokens that mean nothing must not become a flood of questions.
const AT_ONCE: usize = 64;

/// Why nothing was reviewed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error("the API server did not review it: {0}")]
    Failed(ApiError),
    #[error("the API server did not review it within {} seconds", LIMIT.as_secs())]
    TooLate,
}

/// Asks the API server.
pub(super) struct Reviewer {
    api: Arc<dyn Api>,
    at_once: Semaphore,
}

impl Reviewer {
    pub(super) fn new(api: Arc<dyn Api>) -> Self {
        Self { api, at_once: Semaphore::new(AT_ONCE) }
    }

    /// Reviews; the answer is the object's status.
    pub(super) async fn review(&self, path: &str, object: &Value) -> Result<Value, ReviewError> {
        let work = async {
            let mut pause = FIRST_PAUSE;
            let mut tries = 1;
            loop {
                let call = Call::post(path, object.clone()).within(TRY_LIMIT);
                // Whoever waits for another try keeps nobody from theirs.
                let turn = self.at_once.acquire().await;
                let answer = self.api.call(call).await;
                drop(turn);
                let error = match answer {
                    Ok(mut answer) => return Ok(answer["status"].take()),
                    Err(error) => error,
                };
                if tries == TRIES || !is_passing(&error) {
                    return Err(ReviewError::Failed(error));
                }
                tries += 1;
                sleep(error.retry_after().unwrap_or(pause).min(LATER_PAUSES_MAX)).await;
                pause = pause * 3 / 2;
            }
        };
        timeout(LIMIT, work).await.unwrap_or(Err(ReviewError::TooLate))
    }
}

/// Is it worth asking again?
fn is_passing(error: &ApiError) -> bool {
    match error {
        ApiError::Answered { code, retry_after, .. } => {
            matches!(code, 429 | 500 | 504) || retry_after.is_some()
        }
        ApiError::Unreachable { .. } | ApiError::TimedOut { .. } => true,
        ApiError::Unusable(_) | ApiError::Credentials(_) => false,
    }
}

/// A key for a memory that tells nothing of the text.
pub(super) fn hide(secret: &ring::hmac::Key, text: &[u8]) -> Key {
    let mut key = [0; 32];
    key.copy_from_slice(ring::hmac::sign(secret, text).as_ref());
    key
}

/// A secret for this process alone.
pub(super) fn secret() -> ring::hmac::Key {
    let random = ring::rand::SystemRandom::new();
    ring::hmac::Key::generate(ring::hmac::HMAC_SHA256, &random)
        .expect("the system has randomness, or TLS would not work either")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bad_moments_are_worth_another_try() {
        let said = |code, retry_after| ApiError::Answered {
            code,
            reason: String::new(),
            message: String::new(),
            retry_after,
        };
        let second = Some(Duration::from_secs(1));
        for (error, again) in [
            (said(500, None), true),
            (said(429, None), true),
            (said(504, None), true),
            (said(503, None), false),
            (said(503, second), true),
            (said(403, None), false),
            (ApiError::Unusable("x".into()), false),
            (ApiError::Unreachable { server: "s".into(), why: "w".into() }, true),
        ] {
            assert_eq!(is_passing(&error), again, "{error:?}");
        }
    }
}
