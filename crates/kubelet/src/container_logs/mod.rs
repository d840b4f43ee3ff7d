//! Container logs: rotation, reading, following.
//!
//! Owns what happens to log files once a container writes them: the worker
//! moves and compresses those that grew too large, the reader yields their
//! lines. Reads `Observations` and files; writes files and asks the runtime to
//! open logs anew. Never touches the log of a container that does not run, and
//! never removes a log that is in use. Upstream: pkg/kubelet/logs and
//! cri-client/pkg/logs.

mod alarms;
mod gzip;
mod parse;
mod plan;
mod reader;
mod rotate;
mod tail;
#[cfg(test)]
mod tests;
mod worker;

use std::time::Duration;

pub use parse::LogStream;
pub use reader::{LogChunk, LogError, LogOptions, StillRunning, read};
pub(crate) use tail::last_text;

use crate::pleg::Observations;
use crate::ports::Ports;

/// When logs are rotated, and how many are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationPolicy {
    /// Size in bytes from which on a log is rotated; `None` rotates nothing.
    pub max_bytes: Option<u64>,
    /// Files of one container instance, the current one included.
    pub max_files: usize,
    /// Rotations at once.
    pub max_workers: usize,
    /// Longest time between two looks at a log; a silent one waits for its alarm so long.
    pub interval: Duration,
}

impl Default for RotationPolicy {
    fn default() -> Self {
        Self {
            max_bytes: Some(10 << 20),
            max_files: 5,
            max_workers: 1,
            interval: Duration::from_secs(10),
        }
    }
}

/// Starts rotating logs, unless the policy is to rotate none.
pub fn start(ports: &Ports, policy: &RotationPolicy, observations: &Observations) {
    if let Some(max_bytes) = policy.max_bytes {
        let worker =
            worker::Worker::new(ports.clone(), observations.clone(), policy.clone(), max_bytes);
        ports.tasks.spawn_vital("log rotation", worker.run());
    }
}
