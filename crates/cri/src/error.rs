//! The one error of a runtime call: which call, on what, why.

use std::time::Duration;

/// A CRI call that did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{call}{} failed: {kind}", Of(.object))]
pub struct CallError {
    /// The RPC, e.g. `RunPodSandbox`.
    pub call: &'static str,
    /// What it acted on: an id, an image, a pod. Empty for calls on the runtime itself.
    pub object: String,
    /// Why it failed.
    pub kind: CallErrorKind,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallErrorKind {
    /// The runtime answered with an error.
    #[error("{message} (code {code:?})")]
    Answered {
        /// gRPC status code.
        code: tonic::Code,
        /// The runtime's own words.
        message: String,
    },
    /// No answer within the limit. The effect may still have happened.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The runtime could not be reached, or the connection broke.
    /// The effect may still have happened.
    #[error("cannot reach the runtime: {0}")]
    Unreachable(String),
    /// The runtime's answer breaks the protocol.
    #[error("unusable answer: {0}")]
    Nonsense(String),
}

struct Of<'a>(&'a str);
impl std::fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " of {}", self.0) }
    }
}

impl CallError {
    /// The answer of a runtime that does not offer a call.
    pub fn unimplemented(call: &'static str, object: &str) -> Self {
        let message = "the runtime does not offer this call".to_owned();
        let kind = CallErrorKind::Answered { code: tonic::Code::Unimplemented, message };
        Self { call, object: object.to_owned(), kind }
    }
    /// The runtime answered "no such object".
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(tonic::Code::NotFound)
    }
    /// The runtime does not offer this call.
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Some(tonic::Code::Unimplemented)
    }
    /// The runtime itself is gone or not answering, as opposed to refusing this call.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.kind, CallErrorKind::Unreachable(_))
            || self.code() == Some(tonic::Code::Unavailable)
    }
    /// The time given for the work itself ran out.
    pub fn is_deadline(&self) -> bool {
        self.code() == Some(tonic::Code::DeadlineExceeded)
            || matches!(self.kind, CallErrorKind::TimedOut(_))
    }
    /// The status code, if the runtime answered.
    pub fn code(&self) -> Option<tonic::Code> {
        match self.kind {
            CallErrorKind::Answered { code, .. } => Some(code),
            _ => None,
        }
    }
    /// The bare reason, as it appears in a container's waiting message.
    pub fn reason_text(&self) -> String {
        match &self.kind {
            CallErrorKind::Answered { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }
}
