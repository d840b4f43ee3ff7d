//! SPDY/3.1, as much of it as Kubernetes uses.
//!
//! Frames and header blocks know no side; a [`Connection`] is told which it has.
//! There is no flow control besides TCP's: those who speak this protocol for
//! Kubernetes neither grant windows nor heed them. Everything a peer can make
//! this hold is bounded.

mod connection;
mod decode;
mod dictionary;
mod frame;
mod headers;
#[cfg(test)]
mod tests;

pub use connection::{Connection, Event, Side};
pub use decode::Decoder;
pub use frame::{Encoder, Frame, RESET_REFUSED, StreamId};
pub use headers::Headers;

/// What a peer did wrong, or what became of the connection.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    /// The other end speaks something else.
    #[error("it speaks version {0} of SPDY; version 3 is needed")]
    Version(u16),
    /// A frame has a length that its kind cannot have.
    #[error("a {kind} frame has {length} bytes, which cannot be")]
    Length {
        /// The frame's kind.
        kind: &'static str,
        /// Its length.
        length: usize,
    },
    /// A frame is about stream 0, which does not exist.
    #[error("a {0} frame names no stream")]
    NoStream(&'static str),
    /// A header block cannot be read.
    #[error("a header block {0}")]
    Headers(&'static str),
    /// More had to be sent than the other end takes.
    #[error("it asks for more than it reads")]
    Flooded,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
}
