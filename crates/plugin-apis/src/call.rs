//! One call: its limits, and from a gRPC status to the reason it failed.
//!
//! tonic uses one type for what the plugin said and for what went wrong on
//! the way. Callers must tell them apart: a refusal is final, a broken
//! connection is not.

use std::error::Error;
use std::time::Duration;

use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Request, Response, Status};

use crate::error::{CallError, CallErrorKind};
use crate::socket::ConnectFailed;

/// Largest message, either way: the default of Go's gRPC, which drivers use.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Statuses that tonic makes itself when it cannot use a reply. They carry no
/// source, so only their text tells them from a plugin's own; the client's
/// tests fail if tonic rewords them.
const UNUSABLE: [(Code, &str); 3] = [
    (Code::OutOfRange, "Error, decoded message length too large"),
    (Code::Internal, "failed to decode Protobuf message"),
    (Code::Internal, "Missing response message"),
];

/// Which call to whom, and how long it may take.
pub(crate) struct Call<'a> {
    pub driver: &'a str,
    pub name: &'static str,
    pub volume: String,
    pub limit: Duration,
}

impl Call<'_> {
    /// Sends the request and waits for the reply. The plugin is told the
    /// limit, and that the caller gave up if this future is dropped.
    pub(crate) async fn send<Q: Message, R, Reply>(
        &self,
        request: Q,
        rpc: impl FnOnce(Request<Q>) -> Reply,
    ) -> Result<R, CallError>
    where
        Reply: Future<Output = Result<Response<R>, Status>>,
    {
        let bytes = request.encoded_len();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(self.failed(CallErrorKind::TooLarge(bytes)));
        }
        let mut request = Request::new(request);
        request.set_timeout(self.limit);
        let deadline = Instant::now() + self.limit;
        match timeout_at(deadline, rpc(request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) if gave_up(status.code()) && Instant::now() >= deadline => {
                // The plugin, or tonic, watches the same limit and was quicker.
                Err(self.failed(CallErrorKind::TimedOut(self.limit)))
            }
            Ok(Err(status)) => Err(self.failed(reason(&status))),
            Err(_) => Err(self.failed(CallErrorKind::TimedOut(self.limit))),
        }
    }

    fn failed(&self, kind: CallErrorKind) -> CallError {
        CallError {
            driver: self.driver.to_owned(),
            call: self.name,
            volume: self.volume.clone(),
            kind,
        }
    }

    /// The error for a reply that cannot be true.
    pub(crate) fn nonsense(&self, why: &str) -> CallError {
        self.failed(CallErrorKind::Nonsense(why.to_owned()))
    }
}

fn gave_up(code: Code) -> bool {
    matches!(code, Code::Cancelled | Code::DeadlineExceeded)
}

fn reason(status: &Status) -> CallErrorKind {
    // A status read from the wire has no source.
    if let Some(source) = status.source() {
        return CallErrorKind::Unreachable(explain(source));
    }
    let unusable = |&(code, text)| status.code() == code && status.message().starts_with(text);
    if UNUSABLE.iter().any(unusable) {
        return CallErrorKind::Nonsense(status.message().to_owned());
    }
    CallErrorKind::Answered { code: status.code(), message: status.message().to_owned() }
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
