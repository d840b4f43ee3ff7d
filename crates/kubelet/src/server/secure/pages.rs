//! What the ports of the node's API have in common: the view, and how it is served.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use node_server::{ConnectionLimits, Doors, Handlers, NodeServer, Requests, ServerOptions};

use super::config::Shown;
use super::debug::SetVerbosity;
use super::health::Checks;
use super::stats::NodeStats;
use super::view::NodeViewer;
use crate::metrics::Metrics;
use crate::ports::{PodCgroups, Tasks};
use crate::server::local::Local;

/// Where the node's logs are.
const LOG_DIR: &str = "/var/log";
/// Where machines mount control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What is shown.
pub struct Pages {
    viewer: Arc<NodeViewer>,
    handlers: Handlers,
    stream_idle: std::time::Duration,
    started: Timestamp,
}

impl Pages {
    /// Of what the agent knows. `verbosity` changes how much is logged.
    pub fn new(
        tasks: &Tasks,
        shown: Shown,
        local: Local,
        cgroups: Arc<dyn PodCgroups>,
        verbosity: Option<SetVerbosity>,
    ) -> Self {
        let started = local.clock.wall();
        let stats =
            NodeStats::new(&local, cgroups, Path::new(CGROUPS), shown.runtime_group.as_deref());
        let checks = Checks::start(tasks, local.view.pulse.clone(), shown.sync_frequency);
        let Shown { configz, flags, command, handlers, stream_idle, .. } = shown;
        let viewer = NodeViewer {
            local,
            configz,
            flags,
            command,
            handlers,
            started,
            verbosity,
            stats,
            checks,
        };
        Self { viewer: Arc::new(viewer), handlers, stream_idle, started }
    }

    pub(super) fn local(&self) -> &Local {
        &self.viewer.local
    }

    pub(in crate::server) fn metrics(&self) -> &Metrics {
        &self.viewer.local.view.metrics
    }

    /// How a server of it is, with those doors.
    pub(in crate::server) fn options(
        &self,
        tasks: &Tasks,
        doors: Doors,
        requests: Arc<dyn Requests>,
    ) -> ServerOptions {
        let (clock, spawner) = (Arc::clone(&self.viewer.local.clock), tasks.clone());
        ServerOptions {
            doors,
            handlers: self.handlers,
            log_dir: Path::new(LOG_DIR).to_owned(),
            stream_idle: self.stream_idle,
            connections: ConnectionLimits::default(),
            requests,
            started: Some(self.started),
            clock: Arc::new(move || clock.wall()),
            spawn: Arc::new(move |work| drop(spawner.spawn(work))),
        }
    }

    /// A server of it.
    pub(in crate::server) fn server(&self, options: ServerOptions) -> NodeServer {
        let viewer: Arc<NodeViewer> = Arc::clone(&self.viewer);
        NodeServer::new(options, viewer)
    }
}
