//! From a gRPC status to the reason of a [`CallError`](crate::CallError).
//!
//! tonic uses one type for what the runtime said and for what went wrong on
//! the way. Callers must tell them apart: a refusal is final, a broken
//! connection is not.

use std::error::Error;

use tonic::{Code, Status};

use crate::endpoint::ConnectFailed;
use crate::error::CallErrorKind;

/// Statuses that tonic makes itself when it cannot use a reply. They carry no
/// source, so only their text tells them from a runtime's own; the client's
/// tests fail if tonic rewords them.
const UNUSABLE: [(Code, &str); 3] = [
    (Code::OutOfRange, "Error, decoded message length too large"),
    (Code::Internal, "failed to decode Protobuf message"),
    (Code::Internal, "Missing response message"),
];

impl From<Status> for CallErrorKind {
    fn from(status: Status) -> Self {
        // A status read from the wire has no source.
        if let Some(source) = status.source() {
            return Self::Unreachable(explain(source));
        }
        let unusable = |&(code, text)| status.code() == code && status.message().starts_with(text);
        if UNUSABLE.iter().any(unusable) {
            return Self::Nonsense(status.message().to_owned());
        }
        Self::Answered { code: status.code(), message: status.message().to_owned() }
    }
}

/// Our own words where the connector gave them, else the root cause.
fn explain(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    loop {
        if let Some(failed) = error.downcast_ref::<ConnectFailed>() {
            return failed.to_string();
        }
        match error.source() {
            Some(source) => error = source,
            None => return format!("the connection broke: {error}"),
        }
    }
}
