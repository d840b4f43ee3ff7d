//! A command over SPDY: one stream of the connection for each of its own.
//!
//! Upstream: client-go's tools/remotecommand (v4.go), kubelet's
//! pkg/cri/streaming/remotecommand for the other end.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{Channel, Event, StreamError, Wants};
use crate::spdy::{self, Connection, Frame, RESET_REFUSED, Side, StreamId};
use crate::upgrade::upgrade;

const PROTOCOL: &str = "v4.channel.k8s.io";
const VERSION_HEADER: &str = "X-Stream-Protocol-Version";
/// Frames that may come before all streams are accepted.
const EARLY_MAX: usize = 64;

pub(super) struct Streams<S> {
    connection: Connection<S>,
    /// Streams that the runtime still speaks or listens on.
    open: BTreeMap<StreamId, Channel>,
    /// Frames that came while streams were being accepted.
    early: VecDeque<Frame>,
    /// How the command ended was told, at least in part.
    told: bool,
}

pub(super) async fn connect(url: &str, wants: Wants) -> Result<Streams<TcpStream>, StreamError> {
    let upgraded = upgrade(url, "SPDY/3.1", &[(VERSION_HEADER, PROTOCOL)]).await?;
    let chosen = upgraded.headers.get(VERSION_HEADER).map(|chosen| chosen.as_bytes());
    if chosen != Some(PROTOCOL.as_bytes()) {
        let chosen = String::from_utf8_lossy(chosen.unwrap_or_default()).into_owned();
        return Err(StreamError::Protocol(chosen));
    }
    let connection = Connection::new(upgraded.stream, Side::Client, &upgraded.already);
    Streams::open(connection, wants).await
}

impl<S: AsyncRead + AsyncWrite + Unpin> Streams<S> {
    /// Opens the command's streams and waits until the runtime has accepted all:
    /// it drops what comes on one before that.
    pub(super) async fn open(
        mut connection: Connection<S>,
        wants: Wants,
    ) -> Result<Self, StreamError> {
        let mut open = BTreeMap::new();
        let names = [
            (Channel::Error, "error", true),
            (Channel::Stdin, "stdin", wants.stdin),
            (Channel::Stdout, "stdout", true),
            (Channel::Stderr, "stderr", !wants.tty),
            (Channel::Resize, "resize", wants.tty),
        ];
        for (channel, name, _) in names.into_iter().filter(|(_, _, wanted)| *wanted) {
            let headers = vec![("streamtype".to_owned(), name.to_owned())];
            open.insert(connection.open(headers), channel);
        }
        let mut waiting: Vec<StreamId> = open.keys().copied().collect();
        let mut early = VecDeque::new();
        while !waiting.is_empty() {
            match std::future::poll_fn(|context| connection.poll_event(context)).await? {
                Some(spdy::Event::Drained) => {}
                Some(spdy::Event::Frame(Frame::SynReply { stream, .. })) => {
                    waiting.retain(|waiting| *waiting != stream);
                }
                Some(spdy::Event::Frame(Frame::RstStream { stream, .. }))
                    if waiting.contains(&stream) =>
                {
                    return Err(StreamError::Streams);
                }
                Some(spdy::Event::Frame(frame)) if early.len() < EARLY_MAX => {
                    early.push_back(frame);
                }
                Some(spdy::Event::Frame(_)) | None => return Err(StreamError::Streams),
            }
        }
        Ok(Self { connection, open, early, told: false })
    }

    fn stream_of(&self, channel: Channel) -> Option<StreamId> {
        self.open.iter().find(|(_, of)| **of == channel).map(|(stream, _)| *stream)
    }

    pub(super) fn takes_input(&self) -> bool {
        self.connection.is_drained() && self.stream_of(Channel::Stdin).is_some()
    }

    pub(super) fn send(&mut self, channel: Channel, bytes: &[u8]) {
        if let Some(stream) = self.stream_of(channel) {
            let bytes = bytes.to_vec();
            self.connection.queue(&Frame::Data { stream, fin: false, bytes });
        }
    }

    pub(super) fn end_input(&mut self) {
        if let Some(stream) = self.stream_of(Channel::Stdin) {
            self.connection.queue(&Frame::Data { stream, fin: true, bytes: Vec::new() });
            self.open.remove(&stream);
        }
    }

    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Event>, StreamError>> {
        loop {
            if !self.speaks() {
                return Poll::Ready(Ok(None));
            }
            let frame = match self.early.pop_front() {
                Some(frame) => frame,
                None => match ready!(self.connection.poll_event(context)) {
                    Ok(Some(spdy::Event::Frame(frame))) => frame,
                    Ok(Some(spdy::Event::Drained)) => return Poll::Ready(Ok(Some(Event::Sent))),
                    Ok(None) => return Poll::Ready(Ok(None)),
                    // The end was told; how the connection ended after it is no matter.
                    Err(spdy::SpdyError::Io(_)) if self.told => return Poll::Ready(Ok(None)),
                    Err(error) => return Poll::Ready(Err(error.into())),
                },
            };
            if let Some(event) = self.take(frame)? {
                return Poll::Ready(Ok(Some(event)));
            }
        }
    }

    /// The runtime may still say something.
    fn speaks(&self) -> bool {
        let heard = [Channel::Stdout, Channel::Stderr, Channel::Error];
        self.open.values().any(|channel| heard.contains(channel))
    }

    fn take(&mut self, frame: Frame) -> Result<Option<Event>, StreamError> {
        match frame {
            Frame::Data { stream, fin, bytes } => {
                let channel = self.open.get(&stream).copied();
                if fin {
                    self.ended(stream);
                }
                self.told |= channel == Some(Channel::Error);
                let channel = channel.filter(|_| !bytes.is_empty());
                Ok(channel.map(|channel| Event::Output(channel, bytes)))
            }
            Frame::SynReply { stream, fin: true, .. }
            | Frame::Headers { stream, fin: true, .. } => {
                self.ended(stream);
                Ok(None)
            }
            Frame::RstStream { stream, .. } => {
                self.open.remove(&stream);
                Ok(None)
            }
            // The runtime has no streams to open.
            Frame::SynStream { stream, .. } => {
                self.connection.answer(&Frame::RstStream { stream, status: RESET_REFUSED })?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// The runtime says no more on a stream; it still listens to the input.
    fn ended(&mut self, stream: StreamId) {
        if !matches!(self.open.get(&stream), Some(Channel::Stdin | Channel::Resize)) {
            self.open.remove(&stream);
        }
    }
}
