//! Rotation and reading of real files by tasks under paused time.

mod counted_fs;
mod fake;
mod reading;
mod rotation;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubelet_model::Mono;
use tokio::time::Instant;

use super::{LogOptions, RotationPolicy};
use crate::metrics::Metrics;
use crate::pleg;
use crate::ports::{Clock, Fs, Ports, RealFs};
use fake::FakeRuntime;

/// Wall time that passes with tokio's.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.0.elapsed()
    }
    fn mono(&self) -> Mono {
        Mono(self.0.elapsed())
    }
}

/// One container, its log, and the worker that looks after it.
struct Node {
    dir: tempfile::TempDir,
    runtime: FakeRuntime,
}

impl Node {
    fn start(max_bytes: u64) -> Self {
        Self::start_on(Arc::new(RealFs), max_bytes)
    }

    fn start_on(fs: Arc<dyn Fs>, max_bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = FakeRuntime::new(dir.path().join("0.log"));
        let ports = Ports {
            clock: Arc::new(PausedClock(Instant::now())),
            fs,
            ..Ports::around(Arc::new(runtime.clone()))
        };
        let (observations, _) = pleg::start(&ports, &Arc::new(Metrics::new()), false);
        let policy = RotationPolicy { max_bytes: Some(max_bytes), ..RotationPolicy::default() };
        super::start(&ports, &policy, &observations);
        Self { dir, runtime }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("0.log")
    }

    fn size(&self) -> u64 {
        fs::metadata(self.path()).map_or(0, |found| found.len())
    }

    /// Names of all files of the log, the current one first.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn gunzip(path: &Path) -> String {
    let mut text = String::new();
    let file = fs::File::open(path).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
    text
}

async fn pass(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
