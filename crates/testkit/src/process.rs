//! Child processes: started, signalled by id, always waited for.
//!
//! Owns the child. Never signals a process by name. Marks every child's
//! environment, so that the ones a dead owner left are told from a user's own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::eventually;

/// In the environment of every child, and of what the child starts in turn:
/// containerd hands it to its shims.
const MARK: &str = "KLET_TESTKIT=1";

/// A running child whose output goes to a file. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, appending its output to `log`.
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        let errors = file.try_clone().context("cannot duplicate the log's descriptor")?;
        let (mark, value) = MARK.split_once('=').unwrap_or((MARK, ""));
        let child = command
            .env(mark, value)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            // Ctrl-C is for whoever started us: we end our children in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name} ({:?})", command.get_program()))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process id is positive")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Fails, with the end of its log, if it has already ended.
    pub fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot wait for a child")? {
            bail!("{} ended with {status}; its log ends:\n{}", self.name, tail(&self.log, 30));
        }
        Ok(())
    }

    /// SIGSTOP, and wait until every thread has stopped: the signal alone lets a
    /// thread answer one more call.
    pub fn suspend(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        eventually(Duration::from_secs(5), &format!("{} to stop", self.name), || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.id()))?;
            for thread in threads.flatten() {
                let stat = fs::read_to_string(thread.path().join("stat"))?;
                let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
                ensure!(state == Some('T'), "{} is in state {state:?}", thread.path().display());
            }
            Ok(())
        })
    }

    /// SIGKILL, and wait until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        self.child.wait().with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(())
    }

    /// SIGTERM, and wait up to `limit` for it to end.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().context("cannot wait for a child")? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill()?;
        bail!("{} did not end within {limit:?} of SIGTERM and was killed", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An already ended child is the only reason this fails.
        let _ = self.kill();
    }
}

/// The last `lines` lines of a file, or why it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(err) => format!("(cannot read {}: {err})", path.display()),
    }
}

/// Runs a command to its end; an error carries its own words.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!(
            "{command:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Ids of the processes that a testkit has started, directly or through
/// containerd, with an argument that is `path` or lies below it. An editor or
/// a `tail -f` that a user runs on such a path is not among them.
pub fn started_below(path: &Path) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id().to_string();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| *name != own)
        .filter_map(|name| name.parse().ok().and_then(Pid::from_raw))
        .filter(|pid| is_marked(*pid) && mentions(*pid, path))
        .collect()
}

fn is_marked(pid: Pid) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
    environment.is_ok_and(|all| all.split(|byte| *byte == 0).any(|entry| entry == MARK.as_bytes()))
}

fn mentions(pid: Pid, path: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())) else {
        return false;
    };
    line.split(|byte| *byte == 0).any(|argument| {
        let argument = String::from_utf8_lossy(argument);
        // Also `--flag=path` and `unix://path`.
        let value = argument.rsplit_once('=').map_or(&*argument, |(_, value)| value);
        Path::new(value.strip_prefix("unix://").unwrap_or(value)).starts_with(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_processes_are_found_by_argument_and_a_users_are_not() {
        let dir = std::env::temp_dir().join(format!("klet-process-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        // `tail -f` names a file below `dir` on its command line.
        fs::write(dir.join("f"), "").unwrap();
        let tail = || {
            let mut command = Command::new("tail");
            command.arg("-f").arg(dir.join("f"));
            command
        };
        let mut users = tail().stdout(Stdio::null()).spawn().unwrap();
        let process = Process::spawn("tail", &mut tail(), &dir.join("log")).unwrap();
        let found = || started_below(&dir);
        // The kernel lets the parent go on before it has laid out the arguments.
        let pids = eventually(Duration::from_secs(5), "the process to be found", || {
            Some(found()).filter(|pids| !pids.is_empty()).context("none is found")
        });
        let ids: Vec<_> = pids.unwrap().iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        assert_eq!(ids, [i32::try_from(process.id()).unwrap()]);
        drop(process);
        assert!(found().is_empty());
        assert!(users.try_wait().unwrap().is_none(), "the user's own process lives");
        users.kill().unwrap();
        users.wait().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_early_end_is_reported_with_the_log() {
        let log = std::env::temp_dir().join(format!("klet-early-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo out of luck; exit 3"]);
        let mut process = Process::spawn("sh", &mut command, &log).unwrap();
        process.child.wait().unwrap();
        let err = process.check_alive().unwrap_err().to_string();
        assert!(err.contains("out of luck") && err.contains("exit status: 3"), "{err}");
        fs::remove_file(&log).unwrap();
    }
}
