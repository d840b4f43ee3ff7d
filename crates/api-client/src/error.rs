//! What goes wrong between a node and its API server.

use std::time::Duration;

use serde_json::Value;

/// The longest that a server, or who stands in its way, can have us wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Why the API server did not give what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The server said so.
    #[error("{}", .message)]
    Answered {
        /// The HTTP status.
        code: u16,
        /// What kind of refusal, such as `NotFound`.
        reason: String,
        /// In the server's words.
        message: String,
        /// When it may be asked again.
        retry_after: Option<Duration>,
    },
    /// There was no answer.
    #[error("cannot reach the API server at {server}: {why}")]
    Unreachable {
        /// Which server.
        server: String,
        /// Why.
        why: String,
    },
    /// There was no answer in time.
    #[error("the API server at {server} gave no answer in {} s", .limit.as_secs())]
    TimedOut {
        /// Which server.
        server: String,
        /// How long it was given.
        limit: Duration,
    },
    /// The answer cannot be used.
    #[error("the API server's answer cannot be used: {0}")]
    Unusable(String),
    /// The credentials cannot be had.
    #[error("{0}")]
    Credentials(String),
}

impl ApiError {
    /// What a `Status` object says.
    pub fn of_status(status: &Value, code: u16, retry_after: Option<Duration>) -> Self {
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        let code =
            status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(code);
        let seconds = status["details"]["retryAfterSeconds"].as_u64();
        let retry_after = retry_after.or(seconds.map(Duration::from_secs));
        let retry_after = retry_after.map(|pause| pause.min(RETRY_AFTER_MAX));
        let message = match text("message") {
            none if none.is_empty() => format!("the API server answered {code}"),
            message => message,
        };
        Self::Answered { code, reason: text("reason"), message, retry_after }
    }

    /// The HTTP status, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Answered { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// The object has changed meanwhile, or is there already.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// What was asked for lies too far back.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// What was asked for lies in the future of the server, as after it was restored
    /// from a backup.
    pub fn is_ahead(&self) -> bool {
        const WORDS: &str = "Too large resource version";
        matches!(self, Self::Answered { code: 504, message, .. } if message.starts_with(WORDS))
    }

    /// When the server wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answered { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Added to a time, a pause of any length would overflow.
    #[test]
    fn nobody_can_have_us_wait_for_ever() {
        let said = serde_json::json!({"details": {"retryAfterSeconds": u64::MAX}});
        let error = ApiError::of_status(&said, 429, None);
        assert_eq!(error.retry_after(), Some(RETRY_AFTER_MAX));
        let error = ApiError::of_status(&Value::Null, 429, Some(Duration::MAX));
        assert_eq!(error.retry_after(), Some(RETRY_AFTER_MAX));
        let error = ApiError::of_status(&Value::Null, 429, Some(Duration::from_secs(7)));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    }
}
