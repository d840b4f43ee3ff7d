//! A conversation over a bus that never blocks and takes descriptors.
//!
//! Owns the socket, what was read of the next message, and what was told unasked.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use dbus::{BUS, Body, GREETING_LINE_MAX, Kind, MESSAGE_MAX, Message, PREFIX, Target, WireError};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// What one answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Read at once.
const CHUNK: usize = 4096;
/// Signals that nobody has asked for yet: of a machine that goes there are two.
const SIGNALS_MAX: usize = 64;
/// Descriptors that wait for their message: each answer here has one at the most.
const DESCRIPTORS_MAX: usize = 16;

/// Why there is no answer, or not the one hoped for.
#[derive(Debug, thiserror::Error)]
pub(super) enum BusError {
    /// The conversation is over.
    #[error("{0}")]
    Broken(#[from] io::Error),
    /// What came is not D-Bus.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The other side says no.
    #[error("{name}: {message}")]
    Refused { name: String, message: String },
}

/// A conversation.
pub(super) struct Bus {
    stream: UnixStream,
    serial: u32,
    /// What was read and is not a whole message yet.
    read: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    signals: VecDeque<Message>,
}

impl Bus {
    /// Begins to talk.
    pub(super) async fn open(socket: &Path) -> Result<Self, BusError> {
        let begin = async {
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", socket.display()))
            };
            let stream = UnixStream::connect(socket).await.map_err(named)?;
            let mut bus = Self {
                stream,
                serial: 0,
                read: Vec::new(),
                descriptors: VecDeque::new(),
                signals: VecDeque::new(),
            };
            bus.greet().await?;
            bus.call(BUS, "Hello", &Body::default()).await?;
            Ok(bus)
        };
        in_time(begin).await
    }

    async fn greet(&mut self) -> Result<(), BusError> {
        self.send(dbus::greeting(true).as_bytes()).await?;
        for expected in ["OK ", "AGREE_UNIX_FD"] {
            let line = self.line().await?;
            if !line.starts_with(expected) {
                return Err(BusError::Refused { name: "not let in".to_owned(), message: line });
            }
        }
        Ok(())
    }

    async fn line(&mut self) -> Result<String, BusError> {
        loop {
            if let Some(end) = self.read.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.read.drain(..end + 2).take(end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.read.len() > GREETING_LINE_MAX {
                return Err(io::Error::other("its greeting does not end").into());
            }
            self.read_some().await?;
        }
    }

    /// Asks, and waits for the answer.
    pub(super) async fn call(
        &mut self,
        to: Target,
        member: &str,
        body: &Body,
    ) -> Result<Message, BusError> {
        self.serial = self.serial.wrapping_add(1).max(1);
        let serial = self.serial;
        let talk = async {
            self.send(&dbus::call(serial, to, member, body, true)).await?;
            loop {
                let message = self.message().await?;
                match message.kind {
                    Kind::Answer if message.answers == Some(serial) => return Ok(message),
                    Kind::Error if message.answers == Some(serial) => {
                        let text = message.signature.starts_with('s');
                        let text = text.then(|| message.body().text()).and_then(Result::ok);
                        let (name, message) = (message.error, text.unwrap_or_default());
                        return Err(BusError::Refused { name, message });
                    }
                    _ => self.note(message),
                }
            }
        };
        in_time(talk).await
    }

    /// Waits for what is told unasked.
    pub(super) async fn next(&mut self) -> Result<Message, BusError> {
        match self.signals.pop_front() {
            Some(signal) => Ok(signal),
            None => self.message().await,
        }
    }

    /// The descriptors that came with a message that was just read.
    pub(super) fn descriptors_of(&mut self, message: &Message) -> Vec<OwnedFd> {
        let count = (message.descriptors as usize).min(self.descriptors.len());
        self.descriptors.drain(..count).collect()
    }

    fn note(&mut self, message: Message) {
        drop(self.descriptors_of(&message));
        if message.kind == Kind::Signal && self.signals.len() < SIGNALS_MAX {
            self.signals.push_back(message);
        }
    }

    /// The next message. What was read of one stays if nobody waits for the rest.
    async fn message(&mut self) -> Result<Message, BusError> {
        loop {
            if let Some(prefix) = self.read.first_chunk::<PREFIX>() {
                let length = PREFIX + dbus::rest_of(prefix)?;
                if self.read.len() >= length {
                    let bytes: Vec<u8> = self.read.drain(..length).collect();
                    return Ok(Message::parse(&bytes)?);
                }
            }
            self.read_some().await?;
        }
    }

    async fn read_some(&mut self) -> Result<(), BusError> {
        let mut chunk = [0; CHUNK];
        let stream = &self.stream;
        let (count, came) =
            stream.async_io(Interest::READABLE, || receive(stream, &mut chunk)).await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let room = DESCRIPTORS_MAX.saturating_sub(self.descriptors.len());
        self.descriptors.extend(came.into_iter().take(room));
        self.read.extend_from_slice(&chunk[..count]);
        if self.read.len() > MESSAGE_MAX * 4 {
            return Err(io::Error::other("it sends more than anybody reads").into());
        }
        Ok(())
    }

    async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

async fn in_time<T>(talk: impl Future<Output = Result<T, BusError>>) -> Result<T, BusError> {
    let silence = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
    timeout(ANSWER, talk).await.unwrap_or_else(|_| Err(silence().into()))
}

/// What is there, and the descriptors that come with it.
fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((got.bytes, descriptors))
}
