//! One conversation with systemd, over the system's bus or right to it.
//!
//! Blocks, but never beyond a deadline: the agent has one thread. Upstream:
//! coreos/go-systemd/dbus.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbus::{BUS, Body, GREETING_LINE_MAX, Kind, Message, PREFIX, Target, WireError};
use rustix::time::{ClockId, clock_gettime};

/// Ends of jobs that nobody has asked for yet. Each is asked for right after its start.
const FINISHED_MAX: usize = 64;
/// What the greeting gets to be over.
const GREETING: Duration = Duration::from_secs(1);

pub(super) const JOBS: &str =
    "type='signal',interface='org.freedesktop.systemd1.Manager',member='JobRemoved'";

/// A socket behind which systemd can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where it is.
    pub path: PathBuf,
    /// A bus is between; otherwise systemd itself answers.
    pub bus: bool,
}

/// Why there is no answer, or not the one hoped for.
#[derive(Debug, thiserror::Error)]
pub(super) enum TalkError {
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

impl TalkError {
    /// Nothing came in time.
    pub(super) fn is_silence(&self) -> bool {
        let Self::Broken(error) = self else { return false };
        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
    }

    /// The other side answered, so the conversation can go on.
    pub(super) fn is_refusal(&self, of: &str) -> bool {
        matches!(self, Self::Refused { name, .. } if name.contains(of))
    }
}

/// A moment of the clock that never jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(Duration);

impl Moment {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Self(Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    pub(super) fn after(span: Duration) -> Self {
        Self::now().plus(span)
    }

    pub(super) fn plus(self, span: Duration) -> Self {
        Self(self.0 + span)
    }

    /// What is left until then; an error if nothing is.
    fn left(self) -> io::Result<Duration> {
        let left = self.0.saturating_sub(Self::now().0);
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    bus: bool,
    serial: u32,
    /// Jobs that have ended, with how they did.
    finished: VecDeque<(String, String)>,
}

impl Connection {
    /// Begins to talk.
    pub(super) fn open(address: &Address) -> Result<Self, TalkError> {
        let stream = connect(&address.path)?;
        let mut connection =
            Self { stream, bus: address.bus, serial: 0, finished: VecDeque::new() };
        let until = Moment::after(GREETING);
        connection.greet(until)?;
        if address.bus {
            connection.call(BUS, "Hello", &Body::default(), until)?;
            connection.call(BUS, "AddMatch", &Body::default().text(JOBS), until)?;
        }
        Ok(connection)
    }

    /// Tells who we are.
    fn greet(&mut self, until: Moment) -> Result<(), TalkError> {
        self.send(dbus::greeting(false).as_bytes(), until)?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.receive(&mut byte, until)?;
            line.push(byte[0]);
            if line.len() > GREETING_LINE_MAX {
                return Err(io::Error::other("its greeting does not end").into());
            }
        }
        if !line.starts_with(b"OK ") {
            let said = String::from_utf8_lossy(&line).trim().to_owned();
            return Err(TalkError::Refused { name: "not let in".to_owned(), message: said });
        }
        Ok(())
    }

    /// Asks, and waits for the answer.
    pub(super) fn call(
        &mut self,
        to: Target,
        member: &str,
        body: &Body,
        until: Moment,
    ) -> Result<Message, TalkError> {
        self.serial = self.serial.wrapping_add(1).max(1);
        let serial = self.serial;
        self.send(&dbus::call(serial, to, member, body, self.bus), until)?;
        loop {
            let message = self.next(until)?;
            match message.kind {
                Kind::Answer if message.answers == Some(serial) => return Ok(message),
                Kind::Error if message.answers == Some(serial) => {
                    let text = message.signature.starts_with('s').then(|| message.body().text());
                    let text = text.and_then(Result::ok).unwrap_or_default();
                    return Err(TalkError::Refused { name: message.error, message: text });
                }
                _ => self.note(&message)?,
            }
        }
    }

    /// Waits for a job to end, and tells how it did: `done`, if all is well.
    pub(super) fn await_job(&mut self, job: &str, until: Moment) -> Result<String, TalkError> {
        loop {
            if let Some(at) = self.finished.iter().position(|(ended, _)| ended == job) {
                return Ok(self.finished.remove(at).map(|(_, how)| how).unwrap_or_default());
            }
            let message = self.next(until)?;
            self.note(&message)?;
        }
    }

    /// Of all that is said unasked, only the ends of jobs matter.
    fn note(&mut self, message: &Message) -> Result<(), TalkError> {
        let is_end = message.member == "JobRemoved" && message.signature == "uoss";
        if message.kind == Kind::Signal && is_end {
            let mut body = message.body();
            body.u32()?;
            let (job, _unit, how) = (body.text()?, body.text()?, body.text()?);
            self.finished.push_back((job, how));
            if self.finished.len() > FINISHED_MAX {
                self.finished.pop_front();
            }
        }
        Ok(())
    }

    fn next(&mut self, until: Moment) -> Result<Message, TalkError> {
        let mut prefix = [0; PREFIX];
        self.receive(&mut prefix, until)?;
        let mut bytes = prefix.to_vec();
        bytes.resize(PREFIX + dbus::rest_of(&prefix)?, 0);
        self.receive(&mut bytes[PREFIX..], until)?;
        Ok(Message::parse(&bytes)?)
    }

    fn send(&mut self, bytes: &[u8], until: Moment) -> io::Result<()> {
        self.stream.set_write_timeout(Some(until.left()?))?;
        self.stream.write_all(bytes)
    }

    fn receive(&mut self, mut bytes: &mut [u8], until: Moment) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_read_timeout(Some(until.left()?))?;
            match self.stream.read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Says which socket it was.
fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
