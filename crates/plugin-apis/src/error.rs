//! The one error of a plugin call: which plugin, which call, why.

use std::time::Duration;

use tonic::Code;

/// A call to a plugin that did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{call}{} failed at plugin {driver}: {kind}", Of(.volume))]
pub struct CallError {
    /// The CSI driver's name; for registration, the socket.
    pub driver: String,
    /// The RPC, e.g. `NodeStageVolume`.
    pub call: &'static str,
    /// The volume it acted on; empty for calls on the plugin itself.
    pub volume: String,
    /// Why it failed.
    pub kind: CallErrorKind,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallErrorKind {
    /// The plugin answered with an error.
    #[error("{message} (code {code:?})")]
    Answered {
        /// gRPC status code.
        code: Code,
        /// The plugin's own words.
        message: String,
    },
    /// No answer within the limit. The effect may still happen.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The plugin could not be reached, or the connection broke. The effect
    /// may still have happened.
    #[error("cannot reach the plugin: {0}")]
    Unreachable(String),
    /// The request is larger than plugins accept; it was not sent.
    #[error("the request has {0} bytes, more than plugins accept")]
    TooLarge(usize),
    /// The plugin's answer breaks the protocol. The effect has likely happened.
    #[error("unusable answer: {0}")]
    Nonsense(String),
}

struct Of<'a>(&'a str);
impl std::fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " of volume {}", self.0) }
    }
}

/// Whether a driver that answers this has certainly ended the operation
/// without success. After any other answer the operation may be under way or
/// done, so the volume counts as mounted until it is unmounted.
pub fn is_final(code: Code) -> bool {
    !matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
    )
}

impl CallError {
    /// Whether the operation has certainly ended without success, see
    /// [`is_final`]. Only the driver's own answer can say so.
    pub fn is_final(&self) -> bool {
        matches!(self.kind, CallErrorKind::Answered { code, .. } if is_final(code))
    }

    /// Whether a call has to come before this one: the driver has no trace of it.
    pub fn lacks_precondition(&self) -> bool {
        matches!(self.kind, CallErrorKind::Answered { code: Code::FailedPrecondition, .. })
    }

    /// The gRPC code that callers and metrics know this failure by.
    pub fn code(&self) -> Code {
        match self.kind {
            CallErrorKind::Answered { code, .. } => code,
            CallErrorKind::TimedOut(_) => Code::DeadlineExceeded,
            CallErrorKind::Unreachable(_) => Code::Unavailable,
            CallErrorKind::TooLarge(_) => Code::ResourceExhausted,
            CallErrorKind::Nonsense(_) => Code::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_codes_leave_the_outcome_open() {
        // 0 is success, the errors are 1 to 16.
        let open = (1..=16).map(Code::from_i32).filter(|code| !is_final(*code));
        let expected = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::ResourceExhausted,
            Code::Aborted,
            Code::Unavailable,
        ];
        assert_eq!(open.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_an_answer_is_final() {
        let kinds = [
            CallErrorKind::Answered { code: Code::Internal, message: "no disk".to_owned() },
            CallErrorKind::TimedOut(Duration::from_secs(1)),
            CallErrorKind::Unreachable("gone".to_owned()),
            CallErrorKind::TooLarge(1),
            CallErrorKind::Nonsense("bits".to_owned()),
        ];
        let error = |kind| CallError {
            driver: "d.example".to_owned(),
            call: "NodeStageVolume",
            volume: "vol-1".to_owned(),
            kind,
        };
        let finals: Vec<bool> = kinds.iter().map(|kind| error(kind.clone()).is_final()).collect();
        assert_eq!(finals, [true, false, false, false, false]);
        assert_eq!(
            error(kinds[0].clone()).to_string(),
            "NodeStageVolume of volume vol-1 failed at plugin d.example: no disk (code Internal)"
        );
    }
}
