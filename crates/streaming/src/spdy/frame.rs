//! Frames, and how they are written.

use super::headers::{Headers, Packer};

/// A stream's number: odd if the client opened it, even if the server did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Status of a reset: the stream is not wanted.
pub const RESET_REFUSED: u32 = 3;

pub(super) const VERSION: u16 = 3;
pub(super) const SYN_STREAM: u16 = 1;
pub(super) const SYN_REPLY: u16 = 2;
pub(super) const RST_STREAM: u16 = 3;
pub(super) const PING: u16 = 6;
pub(super) const GOAWAY: u16 = 7;
pub(super) const HEADERS: u16 = 8;
/// The sender says no more on the stream.
pub(super) const FIN: u8 = 1;
/// Marks a frame that is about the connection or a stream, and not data.
pub(super) const CONTROL: u16 = 0x8000;
/// The top bit of numbers that have 31.
pub(super) const RESERVED: u32 = 0x8000_0000;
/// Data of one frame; it could be 16 MiB, but others wait for as long.
const DATA_MAX: usize = 32 << 10;

/// One frame. Kinds that are not here change nothing for Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// Its number.
        stream: StreamId,
        /// The sender will say nothing on it.
        fin: bool,
        /// What it is for.
        headers: Headers,
    },
    /// Accepts a stream.
    SynReply {
        /// Its number.
        stream: StreamId,
        /// The sender will say nothing on it.
        fin: bool,
        /// More about it.
        headers: Headers,
    },
    /// Ends a stream in both directions.
    RstStream {
        /// Its number.
        stream: StreamId,
        /// Why.
        status: u32,
    },
    /// Is to be sent back as it is.
    Ping(u32),
    /// The sender accepts no more streams.
    GoAway {
        /// The last one it accepted; 0 for none.
        last: u32,
        /// Why.
        status: u32,
    },
    /// More headers of a stream.
    Headers {
        /// Its number.
        stream: StreamId,
        /// The sender says no more on it.
        fin: bool,
        /// The headers.
        headers: Headers,
    },
    /// Data, which is a part of what was sent as one frame, or all of it.
    Data {
        /// The stream's number.
        stream: StreamId,
        /// The sender says no more on it.
        fin: bool,
        /// The data.
        bytes: Vec<u8>,
    },
}

/// Writes frames. One per connection: header blocks build on earlier ones.
pub struct Encoder(Packer);

impl Default for Encoder {
    fn default() -> Self {
        Self(Packer::new())
    }
}

impl Encoder {
    /// Appends a frame to `to`; long data becomes several.
    pub fn encode(&mut self, frame: &Frame, to: &mut Vec<u8>) {
        match frame {
            Frame::SynStream { stream, fin, headers } => {
                // Associated with no other stream, of the highest priority, in no slot.
                let fixed = [&stream.0.to_be_bytes()[..], &[0; 6]].concat();
                self.with_headers(SYN_STREAM, *fin, &fixed, headers, to);
            }
            Frame::SynReply { stream, fin, headers } => {
                self.with_headers(SYN_REPLY, *fin, &stream.0.to_be_bytes(), headers, to);
            }
            Frame::Headers { stream, fin, headers } => {
                self.with_headers(HEADERS, *fin, &stream.0.to_be_bytes(), headers, to);
            }
            Frame::RstStream { stream, status } => {
                control(
                    RST_STREAM,
                    0,
                    &[stream.0.to_be_bytes(), status.to_be_bytes()].concat(),
                    to,
                );
            }
            Frame::Ping(id) => control(PING, 0, &id.to_be_bytes(), to),
            Frame::GoAway { last, status } => {
                control(GOAWAY, 0, &[last.to_be_bytes(), status.to_be_bytes()].concat(), to);
            }
            Frame::Data { stream, fin, bytes } => data(*stream, *fin, bytes, to),
        }
    }

    fn with_headers(
        &mut self,
        kind: u16,
        fin: bool,
        fixed: &[u8],
        headers: &Headers,
        to: &mut Vec<u8>,
    ) {
        let body = [fixed, &self.0.pack(headers)].concat();
        control(kind, if fin { FIN } else { 0 }, &body, to);
    }
}

fn control(kind: u16, flags: u8, body: &[u8], to: &mut Vec<u8>) {
    to.extend((CONTROL | VERSION).to_be_bytes());
    to.extend(kind.to_be_bytes());
    put_length(flags, body.len(), to);
    to.extend(body);
}

fn data(stream: StreamId, fin: bool, bytes: &[u8], to: &mut Vec<u8>) {
    let mut rest = bytes;
    loop {
        let (now, later) = rest.split_at(rest.len().min(DATA_MAX));
        let last = later.is_empty();
        to.extend((stream.0 & !RESERVED).to_be_bytes());
        put_length(if fin && last { FIN } else { 0 }, now.len(), to);
        to.extend(now);
        if last {
            return;
        }
        rest = later;
    }
}

/// Flags, and a length of three bytes.
fn put_length(flags: u8, length: usize, to: &mut Vec<u8>) {
    let length = u32::try_from(length).unwrap_or(u32::MAX) & 0x00ff_ffff;
    to.extend((u32::from(flags) << 24 | length).to_be_bytes());
}
