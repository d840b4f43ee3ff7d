//! The agent's own process: limits, lock file, and when to stop.
//!
//! Upstream: cmd/kubelet/app/server.go, pkg/util/oom, pkg/util/rlimit,
//! pkg/util/flock.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use inotify::{Inotify, WatchMask};
use kubelet_config::Flags;
use kubelet_config::config::Process;
use rustix::fs::FlockOperation;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::service_manager::ServiceManager;
use crate::signals::Signals;

/// Applies limits and takes the lock. Keep what it returns: it holds the lock.
pub fn prepare(process: &Process, flags: &Flags) -> anyhow::Result<Option<File>> {
    if !rustix::process::getuid().is_root() {
        tracing::error!("not running as root; most of the agent's work will fail");
    }
    set_oom_score_adj(process.oom_score_adj);
    raise_open_files(process.max_open_files);
    flags.lock_file.as_deref().map(lock).transpose()
}

/// Tells systemd that the agent is up and alive. Completes when it should stop:
/// on the first SIGTERM or SIGINT, or when somebody wants the lock and
/// `--exit-on-lock-contention` is set. A second signal ends the process at once
/// with exit code 1, see [`Signals`].
pub async fn shutdown(flags: &Flags, signals: Signals, watchdog: Option<Duration>) {
    let manager = ServiceManager::from_environment();
    manager.ready();
    let contended = async {
        match flags.lock_file.as_deref().filter(|_| flags.exit_on_lock_contention) {
            Some(path) => lock_contention(path).await,
            None => std::future::pending().await,
        }
    };
    let reason = tokio::select! { biased;
        name = signals.first() => name,
        () = contended => "lock contention",
        never = manager.keep_alive(watchdog) => match never {},
    };
    tracing::info!(reason, "asked to stop");
}

/// Best effort, as on any restricted host.
fn set_oom_score_adj(score: i16) {
    if let Err(error) = fs::write("/proc/self/oom_score_adj", score.to_string()) {
        tracing::warn!(score, %error, "cannot set the agent's oom_score_adj (CAP_SYS_RESOURCE)");
    }
}

/// Best effort, as on any restricted host: as high as allowed.
fn raise_open_files(wanted: u64) {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let full = Rlimit { current: Some(wanted), maximum: Some(wanted) };
    if setrlimit(Resource::Nofile, full).is_ok() {
        return;
    }
    let allowed = Rlimit { current: now.maximum.or(Some(wanted)), maximum: now.maximum };
    match setrlimit(Resource::Nofile, allowed) {
        Ok(()) => tracing::info!(wanted, limit = ?now.maximum, "open files limited by the host"),
        Err(error) => tracing::warn!(wanted, %error, "cannot raise the limit of open files"),
    }
}

fn lock(path: &Path) -> anyhow::Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open lock file {}", path.display()))?;
    tracing::info!(path = %path.display(), "waiting for the lock");
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Completes when another process opens or removes the lock file.
async fn lock_contention(path: &Path) {
    let watch = || -> std::io::Result<_> {
        let inotify = Inotify::init()?;
        inotify.watches().add(path, WatchMask::OPEN | WatchMask::DELETE_SELF)?;
        inotify.into_event_stream(vec![0; 1024])
    };
    match watch() {
        Ok(mut events) => {
            let _ = std::future::poll_fn(|cx| {
                futures_util::Stream::poll_next(std::pin::Pin::new(&mut events), cx)
            })
            .await;
        }
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "cannot watch the lock file");
            std::future::pending().await
        }
    }
}
