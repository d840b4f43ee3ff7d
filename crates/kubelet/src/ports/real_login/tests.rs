//! logind, of a machine whose bus is a thread of the test.

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use dbus::{Body, Message, PREFIX};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::*;

const LOGIND: &str = ":1.7";

#[derive(Default)]
struct State {
    asked: Vec<String>,
    /// The other ends of locks that were given away.
    locks: Vec<UnixStream>,
    /// Who listens.
    talk: Option<UnixStream>,
    delay_micros: u64,
    /// Says no to whoever wants a lock.
    refuses: bool,
    /// Answers nothing.
    owner: String,
}

struct Fake {
    dir: tempfile::TempDir,
    state: Arc<Mutex<State>>,
}

impl Fake {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("bus")).unwrap();
        let state = State { delay_micros: 5_000_000, owner: LOGIND.to_owned(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&shared));
                // The other side leaving is how it ends.
                std::thread::spawn(move || converse(stream, &state));
            }
        });
        Self { dir, state }
    }

    fn logind(&self) -> Logind {
        Logind::at(self.dir.path().join("bus"))
    }

    /// Somebody tells of a shutdown.
    fn signal(&self, sender: &str, goes: bool) {
        let bytes = message(4, 0, &[(3, "PrepareForShutdown"), (7, sender)], &truth(goes), 0);
        let mut state = self.state.lock().unwrap();
        state.talk.as_mut().unwrap().write_all(&bytes).unwrap();
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }
}

fn truth(is: bool) -> Body {
    Body::default().bool(is)
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
        bytes.resize(PREFIX + dbus::rest_of(&prefix).unwrap(), 0);
        reader.read_exact(&mut bytes[PREFIX..]).ok()?;
        answer(&mut stream, &Message::parse(&bytes).unwrap(), state)?;
    }
}

fn answer(stream: &mut UnixStream, call: &Message, state: &Mutex<State>) -> Option<()> {
    let mut state = state.lock().unwrap();
    let mut body = call.body();
    let mut words = vec![call.member.clone()];
    for kind in call.signature.chars() {
        words.push(match kind {
            's' => body.text().unwrap(),
            'i' => body.u32().unwrap().to_string(),
            other => panic!("{other}"),
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
            let mut bytes = b"\x01t\0\0\0\0\0\0".to_vec();
            bytes.truncate(8);
            bytes.extend_from_slice(&state.delay_micros.to_le_bytes());
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
    assert_eq!(sent.unwrap(), bytes.len());
}

/// A message to us, with further texts in its header and so many descriptors.
fn message(kind: u8, answers: u32, texts: &[(u8, &str)], body: &Body, descriptors: u32) -> Vec<u8> {
    let mut bytes = vec![b'l', kind, 1, 1];
    dbus::put_u32(&mut bytes, u32::try_from(body.bytes.len()).unwrap());
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

#[tokio::test]
async fn a_conversation_to_the_letter() {
    let fake = Fake::new();
    let mut session = fake.logind().open().await.unwrap();
    assert_eq!(session.inhibit_delay().await, Ok(Duration::from_secs(5)));
    session.reload().await.unwrap();
    drop(session.inhibit().await.unwrap());
    assert_eq!(
        fake.asked(),
        [
            "Hello",
            &format!("AddMatch {RULE}"),
            "GetNameOwner org.freedesktop.login1",
            "Get org.freedesktop.login1.Manager InhibitDelayMaxUSec",
            "KillUnit systemd-logind.service all 1",
            "Inhibit shutdown kubelet Kubelet needs time to handle node shutdown delay",
        ]
    );
}

#[tokio::test]
async fn a_lock_holds_until_it_is_dropped() {
    let fake = Fake::new();
    let mut session = fake.logind().open().await.unwrap();
    let lock = session.inhibit().await.unwrap();
    let mut other = fake.state.lock().unwrap().locks.pop().unwrap();
    other.set_nonblocking(true).unwrap();
    let held = other.read(&mut [0]).unwrap_err();
    assert_eq!(held.kind(), std::io::ErrorKind::WouldBlock, "somebody holds it");
    drop(session);
    assert!(other.read(&mut [0]).is_err(), "it outlives the conversation");
    drop(lock);
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
}

#[tokio::test]
async fn only_logind_is_believed() {
    let fake = Fake::new();
    let mut session = fake.logind().open().await.unwrap();
    fake.signal(":1.66", true);
    fake.signal(LOGIND, false);
    assert_eq!(session.next().await, Ok(false), "a stranger's word does not count");
    // It was started anew.
    ":1.8".clone_into(&mut fake.state.lock().unwrap().owner);
    fake.signal(":1.8", true);
    assert_eq!(session.next().await, Ok(true));
    // What is told while something else is asked is not lost.
    fake.signal(":1.8", false);
    session.inhibit_delay().await.unwrap();
    assert_eq!(session.next().await, Ok(false));
}

#[tokio::test]
async fn refusals_and_absence_are_told() {
    let fake = Fake::new();
    let mut session = fake.logind().open().await.unwrap();
    fake.state.lock().unwrap().refuses = true;
    let error = session.inhibit().await.err().unwrap().to_string();
    assert_eq!(
        error,
        "the login manager refused Inhibit: org.freedesktop.DBus.Error.AccessDenied: Permission denied"
    );
    let talk = fake.state.lock().unwrap().talk.take().unwrap();
    talk.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(matches!(session.next().await, Err(LoginError::Unreachable(_))));
    let nobody = Logind::at(fake.dir.path().join("none"));
    let error = nobody.open().await.err().unwrap().to_string();
    assert!(error.contains("none: No such file or directory"), "{error}");
}
