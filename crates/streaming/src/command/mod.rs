//! A command in a container: its streams over one connection.
//!
//! Everything is sent and received in one place, [`Command::next`], so that a
//! command that is given much while it says much never waits for itself.

mod spdy;
#[cfg(test)]
mod tests;
mod websocket;

use std::time::Duration;

use tokio::net::TcpStream;

use crate::spdy::SpdyError;

/// Longest wait for a runtime to accept the streams; upstream's client has the same.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// One stream of a command, by its number in Kubernetes' channel protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// What it reads.
    Stdin = 0,
    /// What it writes.
    Stdout = 1,
    /// What it complains.
    Stderr = 2,
    /// How it ended: a `Status` object, which comes after all it said.
    Error = 3,
    /// The size of its terminal.
    Resize = 4,
}

/// The streams a command was asked to have; it always has an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// It reads.
    pub stdin: bool,
    /// It has a terminal, which is for output and complaints alike.
    pub tty: bool,
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The command said something.
    Output(Channel, Vec<u8>),
    /// All that was given to it is sent.
    Sent,
}

/// Why there is no stream, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The runtime's address is of no use.
    #[error("{0:?} is no address of a stream over plain HTTP; check the runtime's stream server")]
    Address(String),
    /// Nobody answers.
    #[error("cannot reach the runtime's stream at {url}: {source}; is the runtime running?")]
    Connect {
        /// Where.
        url: String,
        /// Why.
        source: std::io::Error,
    },
    /// What answers speaks no HTTP.
    #[error("the runtime's stream at {url} does not answer as it must: {source}")]
    Http {
        /// Where.
        url: String,
        /// Why.
        source: hyper::Error,
    },
    /// The runtime does not speak this protocol, or the address is used up.
    #[error("the runtime refuses the stream at {url} with status {status}: {text}")]
    Refused {
        /// Where.
        url: String,
        /// The HTTP status.
        status: u16,
        /// Its words.
        text: String,
    },
    /// The runtime speaks another version of the channel protocol.
    #[error("the runtime wants to speak {0:?} on the stream, which klet does not know")]
    Protocol(String),
    /// The runtime accepted the connection, but not all of its streams.
    #[error("the runtime did not accept the command's streams")]
    Streams,
    /// The runtime took too long.
    #[error("the runtime did not accept the command's streams within {} seconds", CONNECT_TIMEOUT.as_secs())]
    Silent,
    /// The SPDY connection is of no more use.
    #[error("the stream from the runtime: {0}")]
    Spdy(#[from] SpdyError),
    /// The WebSocket is of no more use.
    #[error("the WebSocket from the runtime: {0}")]
    WebSocket(#[from] Box<tokio_tungstenite::tungstenite::Error>),
}

/// A command's streams.
pub struct Command(Wire);

enum Wire {
    Spdy(Box<spdy::Streams<TcpStream>>),
    WebSocket(Box<websocket::Socket>),
}

impl Command {
    /// Connects over SPDY, which every runtime that Kubernetes knows speaks.
    pub async fn over_spdy(url: &str, wants: Wants) -> Result<Self, StreamError> {
        let streams = in_time(spdy::connect(url, wants)).await?;
        Ok(Self(Wire::Spdy(Box::new(streams))))
    }

    /// Connects over a WebSocket, with the protocol that can tell the end of the input.
    pub async fn over_websocket(url: &str) -> Result<Self, StreamError> {
        let socket = in_time(websocket::connect(url)).await?;
        Ok(Self(Wire::WebSocket(Box::new(socket))))
    }

    /// All that was given to it is sent, and it takes more.
    pub fn takes_input(&self) -> bool {
        match &self.0 {
            Wire::Spdy(streams) => streams.takes_input(),
            Wire::WebSocket(socket) => socket.takes_input(),
        }
    }

    /// Gives it input, or the size of its terminal.
    pub fn send(&mut self, channel: Channel, bytes: &[u8]) {
        match &mut self.0 {
            Wire::Spdy(streams) => streams.send(channel, bytes),
            Wire::WebSocket(socket) => socket.send(channel, bytes),
        }
    }

    /// Its input ends here.
    pub fn end_input(&mut self) {
        match &mut self.0 {
            Wire::Spdy(streams) => streams.end_input(),
            Wire::WebSocket(socket) => socket.end_input(),
        }
    }

    /// Sends what it was given and waits for what it says; none at the end. What
    /// is not waited for to the end is not lost.
    pub async fn next(&mut self) -> Result<Option<Event>, StreamError> {
        std::future::poll_fn(|context| match &mut self.0 {
            Wire::Spdy(streams) => streams.poll_next(context),
            Wire::WebSocket(socket) => socket.poll_next(context),
        })
        .await
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, StreamError>>) -> Result<T, StreamError> {
    tokio::time::timeout(CONNECT_TIMEOUT, work).await.unwrap_or(Err(StreamError::Silent))
}
