//! Whose token this is: the API server knows.
//!
//! Owns what it said, under keys that tell nothing of the tokens. The same token is asked
//! about once at a time, however many show it, and nobody may ask about many that mean
//! nothing. What is known of good tokens is kept apart from what is known of bad ones,
//! so that no flood of those makes it forget these.
//! Upstream: authenticator/token/webhook, pkg/authentication/token/cache.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api_client::Api;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::User;
use super::memory::{Key, Memory};
use super::review::{ReviewError, Reviewer, hide, secret};
use super::strangers::Strangers;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Tokens that are remembered.
const REMEMBERED: usize = 4096;

/// For how long a token that was good is asked about again, whoever shows it.
const PROVEN: Duration = Duration::from_secs(60 * 60);
/// For how long it holds that a token is bad which the API server complained about.
/// Upstream asks again at once.
const COMPLAINT: Duration = Duration::from_secs(10);

/// Why a token's user is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    /// The API server complains about it.
    #[error("{0}")]
    Refused(String),
    /// The API server does not say.
    #[error("{0}")]
    Silent(#[from] ReviewError),
    /// Too many that mean nothing came from the same peer.
    #[error("its peer has shown too many tokens that mean nothing")]
    TooMany,
}

/// What became of a token: a user, nobody, or no answer.
type Outcome = Result<Option<Arc<User>>, TokenError>;

pub(super) struct Tokens {
    reviewer: Reviewer,
    lasts: Duration,
    secret: ring::hmac::Key,
    /// Whose the good ones are.
    known: Memory<Arc<User>>,
    /// Those that were good, longer than it is known whose.
    proven: Memory<()>,
    /// Those that are nobody's.
    refused: Memory<()>,
    strangers: Strangers,
    asking: Mutex<HashMap<Key, Arc<OnceCell<Outcome>>>>,
}

impl Tokens {
    pub(super) fn new(api: Arc<dyn Api>, lasts: Duration) -> Self {
        Self {
            reviewer: Reviewer::new(api),
            lasts,
            secret: secret(),
            known: Memory::new(REMEMBERED),
            proven: Memory::new(REMEMBERED),
            refused: Memory::new(REMEMBERED),
            strangers: Strangers::default(),
            asking: Mutex::default(),
        }
    }

    /// The user; none if the token is nobody's. Somebody at `peer` shows it.
    pub(super) async fn user(&self, token: &str, peer: IpAddr) -> Outcome {
        let key = hide(&self.secret, token.as_bytes());
        if let Some(known) = self.remembered(&key) {
            return Ok(known);
        }
        let vouched = self.proven.get(&key).is_some();
        if !vouched && !self.strangers.take(peer, Instant::now()) {
            return Err(TokenError::TooMany);
        }
        let cell = {
            let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(asking.entry(key).or_default())
        };
        let asked = Asked { tokens: self, key };
        let outcome = cell.get_or_init(|| self.ask(key, token)).await.clone();
        drop(asked);
        if !vouched && matches!(outcome, Ok(Some(_)) | Err(TokenError::Silent(_))) {
            self.strangers.give_back(peer);
        }
        outcome
    }

    fn remembered(&self, key: &Key) -> Option<Option<Arc<User>>> {
        let good = self.known.get(key);
        if good.is_some() { Some(good) } else { self.refused.get(key).map(|()| None) }
    }

    async fn ask(&self, key: Key, token: &str) -> Outcome {
        // Whoever asked a moment ago may have been told.
        if let Some(known) = self.remembered(&key) {
            return Ok(known);
        }
        let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token}});
        let status = self.reviewer.review(PATH, &question).await?;
        match read(&status) {
            Ok(Some(user)) => {
                let user = Arc::new(user);
                self.known.put(key, Arc::clone(&user), self.lasts);
                self.proven.put(key, (), PROVEN);
                Ok(Some(user))
            }
            Ok(None) => {
                self.refused.put(key, (), self.lasts);
                Ok(None)
            }
            Err(complaint) => {
                self.refused.put(key, (), self.lasts.min(COMPLAINT));
                Err(TokenError::Refused(complaint))
            }
        }
    }
}

/// Forgets a question when nobody waits for its answer any more.
struct Asked<'a> {
    tokens: &'a Tokens,
    key: Key,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut asking = self.tokens.asking.lock().unwrap_or_else(PoisonError::into_inner);
        // One in the table, one with each who waits: this is the last.
        if asking.get(&self.key).is_some_and(|cell| Arc::strong_count(cell) <= 2) {
            asking.remove(&self.key);
        }
    }
}

/// What a review says.
fn read(status: &Value) -> Result<Option<User>, String> {
    if status["authenticated"] != true {
        return match status["error"].as_str().unwrap_or_default() {
            "" => Ok(None),
            error => Err(error.to_owned()),
        };
    }
    let text = |key: &str| status["user"][key].as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| {
        let mut texts = Vec::new();
        for text in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
            texts.push(text.to_owned());
        }
        texts
    };
    let mut extra = Vec::new();
    for (key, values) in status["user"]["extra"].as_object().into_iter().flatten() {
        extra.push((key.clone(), texts(values)));
    }
    let groups = texts(&status["user"]["groups"]);
    Ok(Some(User { name: text("username"), uid: text("uid"), groups, extra }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_names_a_user_or_says_why_not() {
        let user = read(&json!({"authenticated": true, "user": {"username": "u", "uid": "1",
            "groups": ["a", "b"], "extra": {"k": ["v"]}}}));
        let wanted = User {
            name: "u".into(),
            uid: "1".into(),
            groups: vec!["a".into(), "b".into()],
            extra: vec![("k".into(), vec!["v".into()])],
        };
        assert_eq!(user, Ok(Some(wanted)));
        assert_eq!(read(&json!({})), Ok(None));
        assert_eq!(read(&Value::Null), Ok(None));
        assert_eq!(read(&json!({"authenticated": "true"})), Ok(None));
        assert_eq!(read(&json!({"error": "expired"})), Err("expired".into()));
    }
}
