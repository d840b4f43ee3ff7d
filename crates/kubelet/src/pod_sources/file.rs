//! The file source: rescans the manifest path on start, on every announced
//! change and at intervals.
//!
//! Level-triggered: a lost announcement costs time, never a change. Upstream:
//! pkg/kubelet/config/file.go and file_linux.go.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use kubelet_model::Source;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::merge::SourceUpdate;
use super::notice::Notice;
use super::scan::Scanner;
use super::{FREQUENCY_MIN, SourcePorts};
use crate::ports::{ChangeStream, Fs};

/// Quiet that ends a burst of changes.
const QUIET: Duration = Duration::from_millis(20);
/// Longest wait for quiet.
const QUIET_WAIT_MAX: Duration = Duration::from_millis(200);
/// First and longest pause before the path is watched anew.
const WATCH_RETRY_MIN: Duration = Duration::from_secs(1);
const WATCH_RETRY_MAX: Duration = Duration::from_secs(20);

/// What the file source was told.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) path: PathBuf,
    pub(super) node_name: String,
    pub(super) root_dir: PathBuf,
    pub(super) frequency: Duration,
}

/// Delivers the path's pods until the receiver is gone.
pub(super) async fn run(config: Config, ports: SourcePorts, sender: mpsc::Sender<SourceUpdate>) {
    // Collecting the components again drops a trailing slash.
    let path: PathBuf = config.path.components().collect();
    let mut scanner = Scanner::new(
        path.clone(),
        config.node_name,
        &config.root_dir,
        ports.fs.clone(),
        ports.clock.clone(),
    );
    let mut watch = Watch::new(path);
    let frequency = config.frequency.max(FREQUENCY_MIN);
    loop {
        // Watch first: what changes during the scan is then announced.
        watch.establish(ports.fs.as_ref());
        let (pods, notices) = scanner.scan().await;
        notices.iter().for_each(|notice| notice.tell(&ports.recorder));
        if let Some(pods) = pods {
            let pods = pods.into_iter().map(Arc::new).collect();
            let (objects, complete) = (scanner.objects(), scanner.complete());
            let update = SourceUpdate { source: Source::File, pods, objects, complete };
            if sender.send(update).await.is_err() {
                return;
            }
        }
        watch.wait(Instant::now() + frequency).await;
    }
}

/// The watch on the path, renewed when it breaks.
struct Watch {
    path: PathBuf,
    stream: Option<ChangeStream>,
    retry_at: Instant,
    pause: Duration,
    said: Option<String>,
}

impl Watch {
    fn new(path: PathBuf) -> Self {
        Self { path, stream: None, retry_at: Instant::now(), pause: WATCH_RETRY_MIN, said: None }
    }

    fn establish(&mut self, fs: &dyn Fs) {
        if self.stream.is_some() || Instant::now() < self.retry_at {
            return;
        }
        match fs.watch(&self.path) {
            Ok(stream) => {
                self.stream = Some(stream);
                self.said = None;
            }
            Err(error) => {
                self.lose();
                let why = error.to_string();
                if self.said.as_ref() != Some(&why) {
                    Notice::WatchFailed { path: self.path.clone(), why: why.clone() }.log();
                }
                self.said = Some(why);
            }
        }
    }

    fn lose(&mut self) {
        self.stream = None;
        self.retry_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(WATCH_RETRY_MAX);
    }

    /// Waits until it is worth looking again.
    async fn wait(&mut self, rescan_at: Instant) {
        let Some(stream) = &mut self.stream else {
            return sleep_until(rescan_at.min(self.retry_at)).await;
        };
        tokio::select! {
            biased;
            change = stream.next() => match change {
                Some(()) => {
                    self.pause = WATCH_RETRY_MIN;
                    if !settle(stream).await {
                        self.lose();
                    }
                }
                None => self.lose(),
            },
            () = sleep_until(rescan_at) => {}
        }
    }
}

/// Waits for the end of a burst. Returns whether the watch still lives.
async fn settle(stream: &mut ChangeStream) -> bool {
    let latest = Instant::now() + QUIET_WAIT_MAX;
    loop {
        let quiet_at = (Instant::now() + QUIET).min(latest);
        tokio::select! {
            biased;
            // First: a storm of changes must not put off the scan for ever.
            () = sleep_until(quiet_at) => return true,
            change = stream.next() => match change {
                Some(()) if Instant::now() >= latest => return true,
                Some(()) => {}
                None => return false,
            },
        }
    }
}
