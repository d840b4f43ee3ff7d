//! A way to a server that can be made slow, or blocked, while it is in use.
//!
//! Owns a port on loopback and the threads that pass bytes on. Takes down what
//! is asked for, in order. Speaks no HTTP beyond the first line of a request
//! without a body: whoever pulls images sends no other.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Bytes passed on at once: few, so that a slow way is even.
const CHUNK: usize = 4 * 1024;
/// Longest request looked at.
const HEAD_MAX: usize = 64 * 1024;

/// How fast answers come through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Not at all, until another pace is set.
    Blocked,
    /// So many bytes a second, on each connection.
    BytesPerSecond(u64),
    /// As fast as it goes.
    Free,
}

/// Something that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// When.
    pub at: Instant,
    /// Method and path, as in `GET /path`.
    pub line: String,
}

/// The proxy. Connections end with their peers.
#[derive(Debug, Clone)]
pub struct SlowProxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    asked: Vec<Question>,
}

impl SlowProxy {
    /// Listens for connections and passes them on to a port on loopback.
    pub fn start(server: u16, pace: Pace) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
        let port = listener.local_addr().context("cannot read the port")?.port();
        let state = Mutex::new(State { pace, asked: Vec::new() });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let proxy = Self { port, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server)))
                else {
                    continue;
                };
                shared.pass(&client, &server);
            }
        });
        Ok(proxy)
    }

    /// Its port, on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes it slower or faster, also for what is on its way.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.lock().pace = pace;
        self.shared.changed.notify_all();
    }

    /// What was asked for so far, in order.
    pub fn asked(&self) -> Vec<Question> {
        self.shared.lock().asked.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// Passes bytes on, both ways, until either end closes.
    fn pass(self: &Arc<Self>, client: &TcpStream, server: &TcpStream) {
        let pair = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
        let (Some((asks, serves)), Some((listens, answers))) = (pair(), pair()) else { return };
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            let _ = shared.pass_questions(&asks, &serves);
            let _ = serves.shutdown(Shutdown::Write);
        });
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            let _ = shared.pass_answers(&answers, &listens);
            let _ = listens.shutdown(Shutdown::Both);
        });
    }

    fn pass_questions(&self, mut from: &TcpStream, mut to: &TcpStream) -> std::io::Result<()> {
        let (mut chunk, mut head) = ([0; CHUNK], Vec::new());
        loop {
            let size = from.read(&mut chunk)?;
            if size == 0 {
                return Ok(());
            }
            head.extend_from_slice(&chunk[..size]);
            while let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&head[..end]).into_owned();
                let words: Vec<&str> = text.split_whitespace().take(2).collect();
                self.lock().asked.push(Question { at: Instant::now(), line: words.join(" ") });
                head.drain(..end + 4);
            }
            head.truncate(HEAD_MAX);
            to.write_all(&chunk[..size])?;
        }
    }

    fn pass_answers(&self, mut from: &TcpStream, mut to: &TcpStream) -> std::io::Result<()> {
        let mut chunk = [0; CHUNK];
        loop {
            let size = from.read(&mut chunk)?;
            if size == 0 {
                return Ok(());
            }
            self.wait_turn(size);
            to.write_all(&chunk[..size])?;
        }
    }

    /// Waits as long as so many bytes take.
    fn wait_turn(&self, bytes: usize) {
        let mut state = self.lock();
        while state.pace == Pace::Blocked {
            state = self.changed.wait(state).expect("nobody panics while holding it");
        }
        let Pace::BytesPerSecond(rate) = state.pace else { return };
        let wait = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        // A new pace ends the wait.
        let asleep =
            self.changed.wait_timeout_while(state, wait, |s| s.pace == Pace::BytesPerSecond(rate));
        drop(asleep.expect("nobody panics while holding it"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;
    use std::sync::mpsc;

    #[test]
    fn a_blocked_answer_comes_when_the_way_is_free() {
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").unwrap();
        });
        let proxy = SlowProxy::start(port, Pace::Blocked).unwrap();
        let (sender, answers) = mpsc::channel();
        let through = proxy.port();
        std::thread::spawn(move || sender.send(http::get_ok(through, "/some/thing").unwrap()));
        crate::eventually(Duration::from_secs(10), "the question to pass", || {
            let asked: Vec<_> = proxy.asked().into_iter().map(|question| question.line).collect();
            anyhow::ensure!(asked == ["GET /some/thing"], "{asked:?}");
            Ok(())
        })
        .unwrap();
        assert!(answers.try_recv().is_err(), "the answer is held back");
        proxy.set_pace(Pace::Free);
        assert_eq!(answers.recv_timeout(Duration::from_secs(10)).unwrap(), "hello");
    }
}
