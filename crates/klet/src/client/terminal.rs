//! The user's terminal while a command runs in a container.
//!
//! Owns the terminal's mode and gives it back on every way out: return, error,
//! panic and the signals that can be caught.

use std::io::Read;

use anyhow::Context;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Portions of input that may wait to be sent; a larger paste waits in the kernel.
const PORTIONS_MAX: usize = 4;
/// Bytes per portion.
const PORTION: usize = 16 << 10;

/// A terminal that hands on every key. Dropping it restores the old mode.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Takes over the terminal that input comes from.
    pub fn enter() -> anyhow::Result<Self> {
        let before = tcgetattr(stdin()).context("cannot read the terminal's mode")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).context("cannot set the terminal's mode")?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Nothing can be done if the terminal is gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// Input comes from a terminal.
pub fn is_terminal() -> bool {
    isatty(stdin())
}

/// Columns and rows.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// What is typed, portion by portion; it ends where the input ends.
pub fn input() -> anyhow::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(PORTIONS_MAX);
    // A thread, for reading from a terminal or a file cannot be waited for otherwise.
    let read = move || {
        let mut buffer = vec![0; PORTION];
        let mut input = std::io::stdin().lock();
        while let Ok(count @ 1..) = input.read(&mut buffer) {
            if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("input".into()).spawn(read);
    thread.context("cannot start the thread that reads the input")?;
    Ok(receiver)
}

/// Signals that would end the process without restoring the terminal.
pub struct Endings([(Signal, u8); 3]);

impl Endings {
    /// Takes over the signals.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind: SignalKind| {
            let number = u8::try_from(kind.as_raw_value()).unwrap_or(0);
            signal(kind).map(|signal| (signal, 128 + number)).context("cannot listen for signals")
        };
        let kinds = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
        let [a, b, c] = kinds.map(listen);
        Ok(Self([a?, b?, c?]))
    }

    /// The exit code that tells of the signal, once one came.
    pub async fn next(&mut self) -> u8 {
        let [(hangup, a), (interrupt, b), (terminate, c)] = &mut self.0;
        tokio::select! { biased;
            _ = hangup.recv() => *a,
            _ = interrupt.recv() => *b,
            _ = terminate.recv() => *c,
        }
    }
}

/// Tells when the terminal has another size.
pub fn resizes() -> anyhow::Result<Signal> {
    signal(SignalKind::window_change()).context("cannot listen for changes of the terminal's size")
}
