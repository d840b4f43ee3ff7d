//! Opening connections, and driving what runs over them.

use std::future::Future;
use std::io;
use std::pin::pin;

use tokio::net::TcpStream;

use super::target::join;

/// Connects; an error reads as upstream's does.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let stream = TcpStream::connect((host, port)).await.map_err(|error| {
        if error.raw_os_error().is_some() {
            format!("dial tcp {}: connect: {}", join(host, port), plain(&error))
        } else {
            format!("dial tcp: lookup {host}: {error}")
        }
    })?;
    // A request is one small write; there is nothing to gather.
    stream.set_nodelay(true).map_err(|error| plain(&error))?;
    Ok(stream)
}

/// The system's words for an error, without its number.
pub(super) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Does `work` while `connection` moves its bytes.
pub(super) async fn drive<T>(connection: impl Future, work: impl Future<Output = T>) -> T {
    let (mut connection, mut work) = (pin!(connection), pin!(work));
    tokio::select! { biased;
        done = &mut work => return done,
        _ = &mut connection => {}
    }
    // The peer may close as soon as it has answered; the answer is here already.
    work.await
}
