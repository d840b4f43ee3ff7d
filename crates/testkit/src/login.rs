//! logind, of a machine whose bus is a thread of the test.
//!
//! Owns a socket in the directory it is given, and the other ends of the locks that it
//! gave away. Speaks D-Bus as far as those who watch for shutdowns need it.

use std::io::{BufRead, BufReader, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use dbus::{Body, Message, PREFIX};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The bus's own name for logind, until it is started anew.
pub const LOGIND: &str = ":1.7";

/// What it knows, and how it is to behave.
#[derive(Debug)]
struct State {
    asked: Vec<String>,
    locks: Vec<UnixStream>,
    talk: Option<UnixStream>,
    delay: Duration,
    refuses: bool,
    owner: String,
}

/// The bus with logind behind it.
#[derive(Debug, Clone)]
pub struct FakeLogind {
    socket: PathBuf,
    state: Arc<Mutex<State>>,
}

impl FakeLogind {
    /// Listens on a socket in this directory; has shutdowns wait this long for others.
    pub fn start(dir: &Path, delay: Duration) -> Result<Self> {
        let socket = dir.join("bus");
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let state = Arc::new(Mutex::new(State {
            asked: Vec::new(),
            locks: Vec::new(),
            talk: None,
            delay,
            refuses: false,
            owner: LOGIND.to_owned(),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(std::io::Result::ok) {
                let state = Arc::clone(&shared);
                // The other side leaving is how it ends.
                std::thread::spawn(move || converse(stream, &state));
            }
        });
        Ok(Self { socket, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where it listens, as D-Bus writes addresses.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket.display())
    }

    /// Somebody tells that the machine goes, or does not after all.
    pub fn signal(&self, sender: &str, goes: bool) -> Result<()> {
        let body = Body::default().bool(goes);
        let bytes = message(4, 0, &[(3, "PrepareForShutdown"), (7, sender)], &body, 0);
        let mut state = self.state();
        let talk = state.talk.as_mut().context("nobody listens")?;
        talk.write_all(&bytes).context("nobody listens any more")
    }

    /// Starts it anew: the bus has another name for it.
    pub fn rename(&self, owner: &str) {
        owner.clone_into(&mut self.state().owner);
    }

    /// From now on nobody is given a lock.
    pub fn refuse(&self) {
        self.state().refuses = true;
    }

    /// Ends the conversation.
    pub fn hang_up(&self) -> Result<()> {
        let talk = self.state().talk.take().context("nobody listens")?;
        Ok(talk.shutdown(std::net::Shutdown::Both)?)
    }

    /// What was asked since this was last asked.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().asked)
    }

    /// How many of the locks that were given away are still held.
    pub fn locks_held(&self) -> usize {
        let mut state = self.state();
        state.locks.retain_mut(|lock| {
            let _ = lock.set_nonblocking(true);
            matches!(lock.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        state.locks.len()
    }
}

fn converse(mut stream: UnixStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut greeting = String::new();
    for _ in 0..3 {
        reader.read_line(&mut greeting).ok()?;
    }
    assert!(greeting.starts_with("\0AUTH EXTERNAL "), "{greeting}");
    assert!(greeting.ends_with("\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n"), "{greeting}");
    stream.write_all(b"OK 0123456789abcdef0123456789abcdef\r\nAGREE_UNIX_FD\r\n").ok()?;
    loop {
        let mut prefix = [0; PREFIX];
        reader.read_exact(&mut prefix).ok()?;
        let mut bytes = prefix.to_vec();
        bytes.resize(PREFIX + dbus::rest_of(&prefix).expect("a message"), 0);
        reader.read_exact(&mut bytes[PREFIX..]).ok()?;
        answer(&mut stream, &Message::parse(&bytes).expect("a message"), state)?;
    }
}

fn answer(stream: &mut UnixStream, call: &Message, state: &Mutex<State>) -> Option<()> {
    let mut state = state.lock().expect("nobody panics while holding it");
    let mut body = call.body();
    let mut words = vec![call.member.clone()];
    for kind in call.signature.chars() {
        words.push(match kind {
            's' => body.text().expect("a text"),
            'i' => body.u32().expect("a number").to_string(),
            other => panic!("an argument of type {other}"),
        });
    }
    state.asked.push(words.join(" "));
    let serial = call.serial;
    match call.member.as_str() {
        "Hello" => {
            state.talk = stream.try_clone().ok();
            stream.write_all(&message(2, serial, &[], &Body::default().text(":1.9"), 0)).ok()
        }
        "GetNameOwner" => {
            let owner = Body::default().text(&state.owner);
            stream.write_all(&message(2, serial, &[], &owner, 0)).ok()
        }
        "Get" => {
            // A variant that holds 64 bits, which are aligned.
            let mut bytes = b"\x01t\0\0\0\0\0\0".to_vec();
            let micros = u64::try_from(state.delay.as_micros()).unwrap_or(u64::MAX);
            bytes.extend_from_slice(&micros.to_le_bytes());
            let value = Body { signature: "v".to_owned(), bytes };
            stream.write_all(&message(2, serial, &[], &value, 0)).ok()
        }
        "Inhibit" if state.refuses => {
            let named = [(4, "org.freedesktop.DBus.Error.AccessDenied")];
            let body = Body::default().text("Permission denied");
            stream.write_all(&message(3, serial, &named, &body, 0)).ok()
        }
        "Inhibit" => {
            let (ours, theirs) = UnixStream::pair().ok()?;
            state.locks.push(ours);
            let body = Body { signature: "h".to_owned(), bytes: vec![0; 4] };
            send_with(stream, &message(2, serial, &[], &body, 1), theirs.into());
            Some(())
        }
        _ => stream.write_all(&message(2, serial, &[], &Body::default(), 0)).ok(),
    }
}

fn send_with(stream: &UnixStream, bytes: &[u8], descriptor: OwnedFd) {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty());
    assert_eq!(sent.ok(), Some(bytes.len()));
}

/// A message of logind or the bus, with further texts in its header and so many
/// descriptors.
fn message(kind: u8, answers: u32, texts: &[(u8, &str)], body: &Body, descriptors: u32) -> Vec<u8> {
    let mut bytes = vec![b'l', kind, 1, 1];
    dbus::put_u32(&mut bytes, u32::try_from(body.bytes.len()).expect("it is short"));
    dbus::put_u32(&mut bytes, 1);
    dbus::put_array(&mut bytes, 8, |bytes| {
        for (code, text) in texts {
            dbus::put_field(bytes, *code, 's', text);
        }
        for (code, number) in [(5, answers), (9, descriptors)] {
            if number != 0 {
                dbus::align(bytes, 8);
                bytes.push(code);
                dbus::put_signature(bytes, "u");
                dbus::put_u32(bytes, number);
            }
        }
        dbus::put_field(bytes, 8, 'g', &body.signature);
    });
    dbus::align(&mut bytes, 8);
    bytes.extend_from_slice(&body.bytes);
    bytes
}
