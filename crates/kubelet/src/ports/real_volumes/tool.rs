//! Programs of the machine that volumes need: `mount`, `mkfs`, `iscsiadm` and others.
//!
//! Every run ends: a program that takes too long is killed, with all that it started.
//! What it prints is kept up to a limit, and the rest is read so that it can go on.
//! Never uses a shell. Blocks: runs on a thread of its own.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

/// Bytes of each stream that are kept.
const KEPT_BYTES_MAX: usize = 16 << 10;
/// Bytes of what a tool complains that are told.
const COMPLAINT_BYTES_MAX: usize = 1_024;
/// Where tools lie that are in nobody's PATH.
const TOOL_DIRS: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Pauses between looks at a program that runs: short first, as most are quick.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// How long the end of a killed program is awaited. One that waits for a disk or a
/// server ends when the kernel lets it.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// Why a tool said nothing.
#[derive(Debug)]
pub(super) enum ToolError {
    /// It is not there.
    Missing,
    /// It cannot be started.
    Run(io::Error),
    /// It was killed after so long; what it had said.
    TimedOut(Duration, String),
}

/// How a tool ended.
#[derive(Debug)]
pub(super) struct Said {
    /// How.
    pub status: ExitStatus,
    /// What it printed.
    pub output: Vec<u8>,
    /// What it complained.
    pub errors: Vec<u8>,
}

impl Said {
    /// What it said and how it ended, for a message.
    pub(super) fn complaint(&self) -> String {
        format!("{} ({})", text(&self.output, &self.errors), self.status)
    }
}

fn text(output: &[u8], errors: &[u8]) -> String {
    let bytes = if errors.is_empty() { output } else { errors };
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(COMPLAINT_BYTES_MAX)]);
    text.trim().to_owned()
}

/// Where a tool lies. What is in the agent's own PATH comes first.
pub(super) fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(TOOL_DIRS.map(PathBuf::from));
    dirs.map(|dir| dir.join(tool)).find(|program| program.is_file())
}

/// Runs a tool to its end.
pub(super) fn run(tool: &str, arguments: &[&str], limit: Duration) -> Result<Said, ToolError> {
    let program = find(tool).ok_or(ToolError::Missing)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("LC_ALL", "C")
        // So that what it starts can be killed with it.
        .process_group(0)
        .spawn()
        .map_err(ToolError::Run)?;
    let mut output = Stream::of(child.stdout.take()).map_err(ToolError::Run)?;
    let mut errors = Stream::of(child.stderr.take()).map_err(ToolError::Run)?;
    let (mut waited, mut pause) = (Duration::ZERO, PAUSE_FIRST);
    loop {
        output.drain();
        errors.drain();
        if let Some(status) = child.try_wait().map_err(ToolError::Run)? {
            // Whoever it left running may hold the pipes: what is there now is all.
            output.drain();
            errors.drain();
            return Ok(Said { status, output: output.kept, errors: errors.kept });
        }
        if waited >= limit {
            kill(child);
            return Err(ToolError::TimedOut(limit, text(&output.kept, &errors.kept)));
        }
        sleep(pause);
        waited += pause;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Ends a program and all that it started.
fn kill(mut child: Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended since.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let mut waited = Duration::ZERO;
    while waited < KILL_PATIENCE {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        sleep(PAUSE_MAX);
        waited += PAUSE_MAX;
    }
    // The kernel holds it; somebody has to be there for its end, whenever that is.
    std::thread::spawn(move || child.wait());
}

/// What comes out of a program.
struct Stream<R> {
    pipe: Option<R>,
    kept: Vec<u8>,
}

impl<R: Read + AsFd> Stream<R> {
    fn of(pipe: Option<R>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(Self { pipe, kept: Vec::new() })
    }

    /// Reads what is there.
    fn drain(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut part = [0; 4 << 10];
        // A program that never pauses is not waited for.
        for _ in 0..64 {
            match pipe.read(&mut part) {
                Ok(read) if read > 0 => {
                    let room = KEPT_BYTES_MAX.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&part[..read.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It is at its end, or broken.
                _ => {
                    self.pipe = None;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn what_a_tool_does_is_told() {
        let sh = |script: &str| run("sh", &["-c", script], LONG).expect("it runs");
        let said = sh("echo hello");
        assert!(said.status.success() && said.output == b"hello\n", "{said:?}");
        assert_eq!(sh("echo sorry >&2; exit 3").complaint(), "sorry (exit status: 3)");
        let much = sh("yes | head -c 1000000; echo end >&2");
        assert_eq!((much.output.len(), much.errors.as_slice()), (KEPT_BYTES_MAX, &b"end\n"[..]));
        // A daemon that keeps the pipe open is not waited for.
        assert_eq!(sh("sleep 30 & echo up").output, b"up\n");
        assert!(matches!(run("no-such-tool", &[], LONG), Err(ToolError::Missing)));
    }

    #[test]
    fn a_tool_that_hangs_is_killed_with_what_it_started() {
        let temp = tempfile::tempdir().expect("a directory");
        let file = temp.path().join("alive");
        let script = format!("(sleep 1; touch {}) & echo waiting; sleep 30", file.display());
        let ended = run("sh", &["-c", &script], Duration::from_millis(200));
        let Err(ToolError::TimedOut(_, said)) = ended else { panic!("{ended:?}") };
        assert_eq!(said, "waiting");
        sleep(Duration::from_millis(1_500));
        assert!(!file.exists(), "its child is dead, too");
    }
}
