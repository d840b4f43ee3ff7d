//! How long a token lasts, and when it is time for the next. Pure.
//!
//! Upstream: requiresRefresh in pkg/kubelet/token/token_manager.go; it draws the jitter
//! anew at each look, here it is drawn once, so that the time of refresh is known.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// No token is used for longer, however long it lasts.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// A refresh is earlier by up to this much.
pub(super) const JITTER_MAX: Duration = Duration::from_secs(10);
/// Bytes of a token.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// What is shown to whoever asks.
    pub secret: String,
    /// When it ends.
    pub expires: Timestamp,
    /// When it is time for another.
    pub refresh: Timestamp,
}

/// When it ends, but not what it is.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expires, refresh, .. } = self;
        f.debug_struct("Token").field("expires", expires).field("refresh", refresh).finish()
    }
}

impl Token {
    /// The token in an answer.
    pub(super) fn read(answer: &Value, jitter: Duration) -> Result<Self, String> {
        let secret = answer["status"]["token"].as_str().unwrap_or_default();
        if secret.is_empty() || secret.len() > TOKEN_BYTES_MAX {
            return Err("a TokenRequest without a usable status.token".to_owned());
        }
        let expires = answer["status"]["expirationTimestamp"].as_str().unwrap_or_default();
        let expires: Timestamp = expires
            .parse()
            .map_err(|_| "a TokenRequest without a usable expirationTimestamp".to_owned())?;
        let lasts = answer["spec"]["expirationSeconds"].as_i64();
        let refresh = refresh(expires, lasts, jitter);
        Ok(Self { secret: secret.to_owned(), expires, refresh })
    }

    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        now > self.expires
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        now > self.refresh
    }
}

/// When a token that lasts so many seconds is to be replaced: after four fifths of its
/// life, or a day. One that does not say how long it lasts serves until it ends.
fn refresh(expires: Timestamp, lasts: Option<i64>, jitter: Duration) -> Timestamp {
    let Some(lasts) = lasts.filter(|lasts| *lasts >= 0) else { return expires };
    let lasts = lasts.unsigned_abs();
    let issued = earlier(expires, Duration::from_secs(lasts));
    let by_share = earlier(expires, Duration::from_secs(lasts / 5));
    earlier(by_share.min(later(issued, AGE_MAX)), jitter)
}

/// A moment so much later, or the last there is.
pub(super) fn later(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.saturating_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_is_replaced_in_time() {
        const HOUR: i64 = 3600;
        // Seconds it lasts, jitter, seconds after its issue when it is due.
        for (lasts, jitter, due) in [
            (HOUR, 0, 2880),
            (HOUR, 10, 2870),
            (600, 0, 480),
            (601, 0, 481),
            (30 * HOUR, 0, 24 * HOUR),
            (30 * HOUR + 5, 7, 24 * HOUR - 7),
            (29 * HOUR, 0, 29 * HOUR - 29 * HOUR / 5),
            (365 * 24 * HOUR, 0, 24 * HOUR),
            (0, 0, 0),
        ] {
            let issued = 1_700_000_000;
            let expires = Timestamp::from_second(issued + lasts).unwrap();
            let at = refresh(expires, Some(lasts), Duration::from_secs(jitter));
            assert_eq!(at.as_second() - issued, due, "{lasts} s, {jitter} s");
        }
        let expires = Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(refresh(expires, None, JITTER_MAX), expires);
        assert_eq!(refresh(expires, Some(-5), JITTER_MAX), expires);
        assert!(refresh(expires, Some(i64::MAX), JITTER_MAX) < expires, "no overflow");
        assert!(refresh(Timestamp::MIN, Some(i64::MAX), JITTER_MAX) <= Timestamp::MIN);
    }

    #[test]
    fn answers_are_read_and_never_shown() {
        let good = json!({"spec": {"expirationSeconds": 3600},
            "status": {"token": "hunter2", "expirationTimestamp": "2026-01-01T01:00:00Z"}});
        let token = Token::read(&good, Duration::ZERO).unwrap();
        assert_eq!(token.refresh.to_string(), "2026-01-01T00:48:00Z");
        assert_eq!(
            (token.secret.as_str(), format!("{token:?}").contains("hunter2")),
            ("hunter2", false)
        );
        for (pointer, wrong) in [
            ("/status/token", json!("")),
            ("/status/token", json!(5)),
            ("/status/token", json!("x".repeat(TOKEN_BYTES_MAX + 1))),
            ("/status/expirationTimestamp", json!("hunter2")),
            ("/status", json!(null)),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = wrong;
            let why = Token::read(&bad, Duration::ZERO).unwrap_err();
            assert!(why.starts_with("a TokenRequest without") && !why.contains("hunter2"), "{why}");
        }
    }
}
