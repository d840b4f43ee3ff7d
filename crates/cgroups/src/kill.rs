//! Ending every process of a group and removing it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

use crate::error::CgroupError;
use crate::files;
use crate::hierarchy::Tree;
use crate::name::CgroupName;
use crate::read::{processes_of, subtree};

/// A process may fork while it is looked for.
const KILL_ROUNDS: usize = 5;
/// Process handles held open at once.
const HANDLES_MAX: usize = 256;
/// Processes named in an error.
const NAMED_MAX: usize = 10;
/// A killed process leaves its group within milliseconds, or is stuck for long.
const WAITS: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
];

impl Tree {
    /// Kills whatever runs in the group or below it and removes them all; absent is
    /// fine. Blocks for some milliseconds if processes have to go first. An error
    /// may come from processes that take longer: try again later.
    pub fn remove(&self, name: &CgroupName) -> Result<(), CgroupError> {
        if name.is_root() {
            let path = PathBuf::from("/");
            return Err(CgroupError::remove(&path, std::io::ErrorKind::InvalidInput.into()));
        }
        let mut dirs = self.all_dirs(name);
        // A group that nothing runs in goes in one call, and most are such.
        match self.systemd {
            None => dirs.retain(|dir| std::fs::remove_dir(dir).is_err_and(|e| !files::is_gone(&e))),
            Some(_) => dirs.retain(|dir| dir.is_dir()),
        }
        if dirs.is_empty() {
            return Ok(());
        }
        self.kill(&dirs)?;
        if let Some(systemd) = &self.systemd {
            systemd.stop(&name.unit().0)?;
        }
        let mut waits = WAITS.into_iter();
        loop {
            let result = dirs.iter().try_for_each(|dir| remove_subtree(dir));
            let Err(error) = result else { return Ok(()) };
            let Some(wait) = waits.next() else {
                let pids: Vec<i32> = self.processes(name)?.into_iter().take(NAMED_MAX).collect();
                let group = name.path(self.driver());
                return Err(if pids.is_empty() {
                    error
                } else {
                    CgroupError::Busy { group, pids }
                });
            };
            std::thread::sleep(wait);
            self.kill(&dirs)?;
        }
    }

    fn kill(&self, dirs: &[PathBuf]) -> Result<(), CgroupError> {
        for dir in dirs {
            let all_at_once = dir.join("cgroup.kill");
            if all_at_once.exists() {
                files::write(&all_at_once, "1")?;
                continue;
            }
            for _ in 0..KILL_ROUNDS {
                let mut any = false;
                for group in subtree(dir)? {
                    any |= kill_processes_of(&group)?;
                }
                if !any {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Kills the processes right in one directory; were there any? A handle is taken
/// before the directory is read again, so that a number that was given to another
/// process in between is never signalled.
fn kill_processes_of(dir: &Path) -> Result<bool, CgroupError> {
    let pids = processes_of(dir)?;
    for some in pids.chunks(HANDLES_MAX) {
        let handles: Vec<_> = some
            .iter()
            .filter_map(|raw| Pid::from_raw(*raw))
            .filter(|pid| *pid != getpid() && !pid.is_init())
            .map(|pid| (pid, pidfd_open(pid, PidfdFlags::empty())))
            .collect();
        let still = processes_of(dir)?;
        for (pid, handle) in handles {
            if !still.contains(&pid.as_raw_nonzero().get()) {
                continue;
            }
            // An error means that the process is gone, or cannot be killed: then
            // the removal says so.
            let _ = match handle {
                Ok(handle) => pidfd_send_signal(handle, Signal::KILL),
                // Kernels before 5.3 have no handles.
                Err(rustix::io::Errno::NOSYS) => kill_process(pid, Signal::KILL),
                Err(error) => Err(error),
            };
        }
    }
    Ok(!pids.is_empty())
}

fn remove_subtree(dir: &Path) -> Result<(), CgroupError> {
    for group in subtree(dir)?.iter().rev() {
        match std::fs::remove_dir(group) {
            Err(error) if !files::is_gone(&error) => return Err(CgroupError::remove(group, error)),
            _ => {}
        }
    }
    Ok(())
}
