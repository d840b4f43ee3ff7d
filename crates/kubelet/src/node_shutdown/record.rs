//! When the machine last went, for whoever looks after it came back.
//!
//! Owns the file `graceful_node_shutdown_state` and two metrics, which outlive the agent
//! by it. Upstream: pkg/kubelet/nodeshutdown/storage.go.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use serde::{Deserialize, Serialize};

use crate::ports::Fs;

/// Upstream's name for it.
const FILE: &str = "graceful_node_shutdown_state";
/// It holds two times.
const FILE_MAX: usize = 4 << 10;
/// How Go writes a time that is none.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Times of the last shutdown, in seconds. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ShutdownMetrics {
    start: Gauge,
    end: Gauge,
}

impl ShutdownMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let name = "kubelet_graceful_shutdown_start_time";
        let help = "When the last graceful shutdown began";
        registry.register_with_unit(name, help, Unit::Seconds, self.start.clone());
        let name = "kubelet_graceful_shutdown_end_time";
        let help = "When the last graceful shutdown was over";
        registry.register_with_unit(name, help, Unit::Seconds, self.end.clone());
    }

    fn show(&self, start: Option<Timestamp>, end: Option<Timestamp>) {
        let seconds = |time: Option<Timestamp>| time.map_or(0, Timestamp::as_second);
        self.start.set(seconds(start));
        self.end.set(seconds(end));
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    start_time: String,
    end_time: String,
}

/// The record.
pub(super) struct Record {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    metrics: ShutdownMetrics,
    began: Option<Timestamp>,
}

impl Record {
    pub(super) fn new(fs: Arc<dyn Fs>, root_dir: &Path, metrics: ShutdownMetrics) -> Self {
        Self { fs, path: root_dir.join(FILE), metrics, began: None }
    }

    /// Shows what an earlier life has written.
    pub(super) fn load(&self) {
        // A file that is not there, or torn, says nothing.
        let Ok(bytes) = self.fs.read(&self.path, FILE_MAX) else { return };
        let Ok(state) = serde_json::from_slice::<State>(&bytes) else {
            tracing::warn!(path = %self.path.display(), "the record of the last shutdown cannot be read; ignored");
            return;
        };
        let time = |text: &str| text.parse::<Timestamp>().ok().filter(|_| text != NEVER);
        self.metrics.show(time(&state.start_time), time(&state.end_time));
    }

    /// A shutdown begins.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.began = Some(now);
        self.store(now, None);
    }

    /// All that could be done was.
    pub(super) fn end(&mut self, now: Timestamp) {
        if let Some(began) = self.began.take() {
            self.store(began, Some(now));
        }
    }

    fn store(&self, start: Timestamp, end: Option<Timestamp>) {
        self.metrics.show(Some(start), end);
        let state = State {
            start_time: start.to_string(),
            end_time: end.map_or_else(|| NEVER.to_owned(), |end| end.to_string()),
        };
        let written = serde_json::to_vec(&state).map_err(std::io::Error::other);
        if let Err(error) = written.and_then(|bytes| self.fs.write(&self.path, &bytes)) {
            tracing::warn!(path = %self.path.display(), %error, "the shutdown is not recorded");
        }
    }
}
