//! Whose token this is: the API server knows.
//!
//! Owns what it said, under keys that tell nothing of the tokens. The same token is asked
//! about once at a time, however many show it.
//! Upstream: authenticator/token/webhook, pkg/authentication/token/cache.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api_client::Api;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::User;
use super::memory::{Key, Memory};
use super::review::{Reviewer, hide, secret};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Tokens that are remembered.
const REMEMBERED: usize = 4096;

/// What became of a token: a user, nobody, or no answer.
type Outcome = Result<Option<Arc<User>>, String>;

pub(super) struct Tokens {
    reviewer: Reviewer,
    lasts: Duration,
    secret: ring::hmac::Key,
    known: Memory<Option<Arc<User>>>,
    asking: Mutex<HashMap<Key, Arc<OnceCell<Outcome>>>>,
}

impl Tokens {
    pub(super) fn new(api: Arc<dyn Api>, lasts: Duration) -> Self {
        Self {
            reviewer: Reviewer::new(api),
            lasts,
            secret: secret(),
            known: Memory::new(REMEMBERED),
            asking: Mutex::default(),
        }
    }

    /// The user; none if the token is nobody's.
    pub(super) async fn user(&self, token: &str) -> Outcome {
        let key = hide(&self.secret, token.as_bytes());
        if let Some(known) = self.known.get(&key) {
            return Ok(known);
        }
        let cell = {
            let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(asking.entry(key).or_default())
        };
        let asked = Asked { tokens: self, key };
        let outcome = cell.get_or_init(|| self.ask(key, token)).await.clone();
        drop(asked);
        outcome
    }

    async fn ask(&self, key: Key, token: &str) -> Outcome {
        // Whoever asked a moment ago may have been told.
        if let Some(known) = self.known.get(&key) {
            return Ok(known);
        }
        let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token}});
        let status = self.reviewer.review(PATH, &question).await;
        let user = read(&status.map_err(|error| error.to_string())?)?.map(Arc::new);
        self.known.put(key, user.clone(), self.lasts);
        Ok(user)
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
