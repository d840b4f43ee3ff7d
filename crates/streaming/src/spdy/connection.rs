//! A connection: frames out, frames in, pings answered.
//!
//! Owns the byte stream, what waits to be sent, and the state of header blocks.
//! Which streams exist is its user's concern.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Decoder, Encoder, Frame, Headers, SpdyError, StreamId};

/// Bytes read at once.
const READ_BYTES: usize = 32 << 10;
/// Bytes that may wait to be sent before the other end's demands are too many.
const OUTGOING_MAX: usize = 256 << 10;

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Opens streams with odd numbers.
    Client,
    /// Opens streams with even numbers.
    Server,
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A frame came.
    Frame(Frame),
    /// All that was queued is sent.
    Drained,
}

/// One end of a connection.
pub struct Connection<S> {
    io: S,
    side: Side,
    decoder: Decoder,
    encoder: Encoder,
    next_stream: u32,
    outgoing: Vec<u8>,
    sent: usize,
    /// The other end reads no more; what it said last may still come.
    deaf: bool,
    buffer: Box<[u8]>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Over a byte stream from which `already` was read.
    pub fn new(io: S, side: Side, already: &[u8]) -> Self {
        let mut decoder = Decoder::default();
        decoder.push(already);
        let next_stream = match side {
            Side::Client => 1,
            Side::Server => 2,
        };
        Self {
            io,
            side,
            decoder,
            encoder: Encoder::default(),
            next_stream,
            outgoing: Vec::new(),
            sent: 0,
            deaf: false,
            buffer: vec![0; READ_BYTES].into(),
        }
    }

    /// Queues the opening of a stream.
    pub fn open(&mut self, headers: Headers) -> StreamId {
        let stream = StreamId(self.next_stream);
        self.next_stream += 2;
        self.queue(&Frame::SynStream { stream, fin: false, headers });
        stream
    }

    /// Queues a frame. It is sent while [`Connection::poll_event`] waits; whoever
    /// has much to send waits for [`Event::Drained`] in between.
    pub fn queue(&mut self, frame: &Frame) {
        self.encoder.encode(frame, &mut self.outgoing);
        if self.deaf {
            self.outgoing.clear();
        }
    }

    /// Queues a frame that the other end asked for, unless it reads none of them.
    pub fn answer(&mut self, frame: &Frame) -> Result<(), SpdyError> {
        if self.outgoing.len() > OUTGOING_MAX {
            return Err(SpdyError::Flooded);
        }
        self.queue(frame);
        Ok(())
    }

    /// Nothing waits to be sent.
    pub fn is_drained(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Sends what is queued and waits for what comes; none at the end.
    pub fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Event>, SpdyError>> {
        loop {
            if !self.is_drained() && self.poll_send(context).is_ready() {
                return Poll::Ready(Ok(Some(Event::Drained)));
            }
            match self.decoder.next_frame()? {
                Some(Frame::Ping(id)) if self.is_asked(id) => self.answer(&Frame::Ping(id))?,
                // It came back, which is all that a ping is for.
                Some(Frame::Ping(_)) => {}
                Some(frame) => return Poll::Ready(Ok(Some(Event::Frame(frame)))),
                None => {
                    let mut buffer = ReadBuf::new(&mut self.buffer);
                    ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer))?;
                    if buffer.filled().is_empty() {
                        return Poll::Ready(Ok(None));
                    }
                    self.decoder.push(buffer.filled());
                }
            }
        }
    }

    /// Ready once nothing waits any more.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Some(rest) = self.outgoing.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.io).poll_write(context, rest)) {
                Ok(count @ 1..) => self.sent += count,
                Ok(0) | Err(_) => {
                    self.deaf = true;
                    break;
                }
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Poll::Ready(())
    }

    /// The other end's own pings have numbers as its streams have.
    fn is_asked(&self, ping: u32) -> bool {
        ping.is_multiple_of(2) == (self.side == Side::Client)
    }
}
