//! Pods end in order before the machine does.
//!
//! Owns whether the machine is about to go, the lock that makes it wait, and the record
//! of the last shutdown. Hears of shutdowns from the login manager, ends pods through
//! their workers, lowest priority first. Writes logind's drop-in where it would not wait
//! long enough. Upstream: pkg/kubelet/nodeshutdown.

mod flag;
mod plan;
mod record;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use flag::NOT_READY;
pub use flag::{ShutdownFlag, ShutdownReader};
pub use plan::ShutdownPlan;
pub use record::ShutdownMetrics;

use std::path::PathBuf;
use std::sync::Arc;

use crate::events::NodeEvents;
use crate::pod_sources::PodSetReader;
use crate::pod_workers::PodKiller;
use crate::ports::{Fs, LoginManager, Ports};
use crate::status_manager::Statuses;
use record::Record;
use worker::ShutdownWatch;

/// Where logind's drop-ins lie.
const LOGIND_DROP_INS: &str = "/etc/systemd/logind.conf.d";

/// What a shutdown works with.
pub struct ShutdownParts {
    /// Who is ended when, and within what time.
    pub plan: ShutdownPlan,
    /// Tells of shutdowns.
    pub login: Arc<dyn LoginManager>,
    /// Which pods there are.
    pub desired: PodSetReader,
    /// How they are doing.
    pub statuses: Statuses,
    /// Ends them.
    pub killer: PodKiller,
    /// Takes what happens to the node.
    pub events: NodeEvents,
    /// Is told that the machine is about to go.
    pub flag: ShutdownFlag,
    /// What is counted.
    pub metrics: ShutdownMetrics,
    /// Where the agent's own files are.
    pub root_dir: PathBuf,
}

/// Starts to watch for shutdowns.
pub fn start(ports: &Ports, parts: ShutdownParts) {
    let watch = watch(ports, parts, LOGIND_DROP_INS.into());
    ports.tasks.spawn_vital("shutdowns", watch.run());
}

fn watch(ports: &Ports, parts: ShutdownParts, drop_ins: PathBuf) -> ShutdownWatch {
    let fs: Arc<dyn Fs> = Arc::clone(&ports.fs);
    let clock = Arc::clone(&ports.clock);
    let record = Record::new(Arc::clone(&fs), &parts.root_dir, parts.metrics.clone());
    ShutdownWatch::new(parts, fs, clock, record, drop_ins)
}
