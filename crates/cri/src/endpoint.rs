//! Endpoints: from the configured text to a gRPC channel over a unix socket.
//!
//! Owns the connection settings. The channel connects on first use and again
//! after a break, never in between: no pings, no timers, no polling.
//! Upstream: staging/src/k8s.io/cri-client/pkg/util.

use std::io;
use std::path::PathBuf;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Longest socket path the kernel takes: 108 bytes with the closing zero.
const PATH_BYTES_MAX: usize = 107;
/// Flow control. A stream that nobody reads, such as events, may hold back at
/// most its own window; the rest of the connection's stays free for calls.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// An endpoint setting that names no unix socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Nothing is set.
    #[error("the runtime endpoint is empty: set it to unix:///path/of/the/runtime.sock")]
    Empty,
    /// Another scheme, or a relative path.
    #[error("runtime endpoint {0:?} is not a unix socket: write unix:///path or /path")]
    NotUnix(String),
    /// The kernel would refuse the path.
    #[error(
        "socket path of runtime endpoint {0:?} is longer than {PATH_BYTES_MAX} bytes: use a shorter one"
    )]
    TooLong(String),
}

/// The path of a unix socket, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Socket(PathBuf);

impl Socket {
    /// Accepts `unix:///path`, `unix:/path` and `/path`.
    pub(crate) fn parse(endpoint: &str) -> Result<Self, EndpointError> {
        if endpoint.is_empty() {
            return Err(EndpointError::Empty);
        }
        let path = endpoint
            .strip_prefix("unix://")
            .or_else(|| endpoint.strip_prefix("unix:"))
            .unwrap_or(endpoint);
        if !path.starts_with('/') || path.contains('\0') {
            return Err(EndpointError::NotUnix(endpoint.to_owned()));
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(EndpointError::TooLong(endpoint.to_owned()));
        }
        Ok(Self(PathBuf::from(path)))
    }

    /// A channel that connects when first used. Its worker runs on the
    /// current tokio runtime.
    pub(crate) fn channel(&self) -> Channel {
        let path = self.0.clone();
        let connect = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move {
                match UnixStream::connect(&path).await {
                    Ok(stream) => Ok(TokioIo::new(stream)),
                    Err(error) => Err(ConnectFailed { path, error }),
                }
            }
        });
        // The address is only the `:authority` that runtimes expect to see.
        Endpoint::from_static("http://localhost")
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .connect_with_connector_lazy(connect)
    }
}

/// The socket did not take a connection.
#[derive(Debug)]
pub(crate) struct ConnectFailed {
    path: PathBuf,
    error: io::Error,
}

impl std::fmt::Display for ConnectFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        match self.error.kind() {
            io::ErrorKind::NotFound => {
                write!(f, "no socket at {path}: is the runtime running, and is this its endpoint?")
            }
            io::ErrorKind::ConnectionRefused => {
                write!(f, "nobody listens on {path}: is the runtime running?")
            }
            io::ErrorKind::PermissionDenied => {
                write!(f, "no permission to open {path}: run as root")
            }
            io::ErrorKind::WouldBlock => {
                write!(f, "{path} takes no more connections: is the runtime stuck?")
            }
            _ => write!(f, "cannot connect to {path}: {}", self.error),
        }
    }
}

impl std::error::Error for ConnectFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_unix_sockets_only() {
        let path = |endpoint| Socket::parse(endpoint).map(|socket| socket.0);
        let expected = Ok(PathBuf::from("/run/c.sock"));
        for endpoint in ["unix:///run/c.sock", "unix:/run/c.sock", "/run/c.sock"] {
            assert_eq!(path(endpoint), expected, "{endpoint}");
        }
        for endpoint in
            ["unix://run/c.sock", "tcp://1.2.3.4:5", "run/c.sock", "http:///x", "unix://"]
        {
            assert_eq!(path(endpoint), Err(EndpointError::NotUnix(endpoint.to_owned())));
        }
        assert_eq!(path(""), Err(EndpointError::Empty));
        let longest = format!("/{}", "x".repeat(PATH_BYTES_MAX - 1));
        assert!(path(&longest).is_ok());
        assert_eq!(
            path(&format!("{longest}x")),
            Err(EndpointError::TooLong(format!("{longest}x")))
        );
    }
}
