//! A stream that loses patience with a peer that does not get on with it.
//!
//! Between requests a connection may rest, for as long as hyper waits for a header. Once
//! a request has begun, its header must be whole before long, and a peer that takes no
//! byte of an answer for hours is gone. While a request is being answered nothing limits
//! what is read: that is the business of whoever reads the body.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Time for a whole header, once it has begun; the first also for beginning.
pub(crate) const HEADER_LIMIT: Duration = Duration::from_secs(20);
/// Time in which a peer must take something, as upstream's limit on an answer.
const WRITE_STALL: Duration = Duration::from_secs(4 * 60 * 60);

/// Tells whether a request is being answered.
#[derive(Clone, Default)]
pub(crate) struct Busy(Arc<AtomicBool>);

impl Busy {
    pub(crate) fn begin(&self) -> Answering {
        self.0.store(true, Ordering::Release);
        Answering(Some(self.clone()))
    }
}

/// A request is being answered for as long as this lives.
pub(crate) struct Answering(Option<Busy>);

impl Answering {
    /// It was the last: from here on the connection speaks another protocol, and has no
    /// headers to wait for.
    pub(crate) fn for_good(mut self) {
        self.0 = None;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(Busy(busy)) = &self.0 {
            busy.store(false, Ordering::Release);
        }
    }
}

/// A stream with limits in time.
pub(crate) struct Patience<S> {
    stream: S,
    busy: Busy,
    header: Option<Pin<Box<Sleep>>>,
    stall: Option<Pin<Box<Sleep>>>,
}

impl<S> Patience<S> {
    pub(crate) fn new(stream: S, busy: Busy) -> Self {
        Self { stream, busy, header: Some(Box::pin(sleep(HEADER_LIMIT))), stall: None }
    }
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        if this.busy.0.load(Ordering::Acquire) {
            this.header = None;
            return read;
        }
        if buffer.filled().len() > before && this.header.is_none() {
            this.header = Some(Box::pin(sleep(HEADER_LIMIT)));
        }
        if let Some(header) = &mut this.header
            && header.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(late("the header of a request took too long")));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> Patience<S> {
    fn wrote<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stall = None;
            return poll;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(WRITE_STALL)));
        match stall.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(late("the peer takes nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.wrote(context, poll)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_flush(context);
        this.wrote(context, poll)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, timeout};

    #[tokio::test(start_paused = true)]
    async fn a_header_must_come_in_time_and_a_rest_need_not() {
        let (mut peer, ours) = duplex(64);
        let busy = Busy::default();
        let mut stream = Patience::new(ours, busy.clone());
        let begun = Instant::now();
        let late = stream.read_u8().await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), HEADER_LIMIT);

        let (mut other, ours) = duplex(64);
        let mut stream = Patience::new(ours, busy.clone());
        other.write_all(b"GET").await.unwrap();
        let answering = busy.begin();
        assert_eq!(stream.read_u8().await.unwrap(), b'G');
        drop(answering);
        // What was read before counts for nothing: the connection rests.
        let mut rest = [0; 2];
        let resting = stream.read(&mut rest[..1]);
        resting.await.unwrap();
        let (mut third, ours) = duplex(64);
        let mut stream = Patience::new(ours, busy.clone());
        {
            let _answering = busy.begin();
            assert!(timeout(HEADER_LIMIT * 3, stream.read_u8()).await.is_err());
        }
        assert!(timeout(HEADER_LIMIT * 3, stream.read_u8()).await.is_err());
        third.write_all(b"x").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        peer.shutdown().await.unwrap();
    }
}
