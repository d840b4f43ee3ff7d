//! Endpoints: from a plugin's text to a gRPC channel over a unix socket.
//!
//! The channel connects on first use and again after a break, never in
//! between: no pings, no timers, no polling. A plugin that comes back on the
//! same socket is found by the next call.

use std::io;
use std::path::PathBuf;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Longest socket path the kernel takes: 108 bytes with the closing zero.
const PATH_BYTES_MAX: usize = 107;

/// An endpoint that names no unix socket. Plugins choose the text, so it is
/// shown quoted and cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Another scheme, a relative path, or nothing.
    #[error("plugin endpoint {0:?} is not a unix socket: it must be unix:///path or /path")]
    NotUnix(String),
    /// The kernel would refuse the path.
    #[error(
        "the socket path of plugin endpoint {0:?} is longer than {PATH_BYTES_MAX} bytes: use a shorter one"
    )]
    TooLong(String),
}

/// The path of a unix socket, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Socket(PathBuf);

impl Socket {
    /// Accepts `unix:///path`, `unix:/path` and `/path`.
    pub(crate) fn parse(endpoint: &str) -> Result<Self, EndpointError> {
        let shown = || endpoint.chars().take(2 * PATH_BYTES_MAX).collect();
        let path = endpoint
            .strip_prefix("unix://")
            .or_else(|| endpoint.strip_prefix("unix:"))
            .unwrap_or(endpoint);
        if !path.starts_with('/') || path.contains('\0') {
            return Err(EndpointError::NotUnix(shown()));
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(EndpointError::TooLong(shown()));
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
        // The address is only the `:authority` that servers expect to see.
        Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect)
    }
}

/// The socket did not take a connection.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {}: {error}; is the plugin running?", path.display())]
pub(crate) struct ConnectFailed {
    path: PathBuf,
    #[source]
    error: io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_unix_sockets_only() {
        let expected = Ok(Socket(PathBuf::from("/csi/csi.sock")));
        for endpoint in ["unix:///csi/csi.sock", "unix:/csi/csi.sock", "/csi/csi.sock"] {
            assert_eq!(Socket::parse(endpoint), expected, "{endpoint}");
        }
        for endpoint in ["", "unix://", "tcp://1.2.3.4:5", "csi.sock", "/csi\0.sock"] {
            let expected = Err(EndpointError::NotUnix(endpoint.to_owned()));
            assert_eq!(Socket::parse(endpoint), expected, "{endpoint}");
        }
        let longest = format!("/{}", "x".repeat(PATH_BYTES_MAX - 1));
        assert!(Socket::parse(&longest).is_ok());
        assert!(matches!(Socket::parse(&format!("{longest}x")), Err(EndpointError::TooLong(_))));
    }

    #[test]
    fn a_huge_endpoint_makes_no_huge_message() {
        let message = Socket::parse(&"é".repeat(1 << 20)).unwrap_err().to_string();
        assert!(message.len() < 1000, "{} bytes", message.len());
    }
}
