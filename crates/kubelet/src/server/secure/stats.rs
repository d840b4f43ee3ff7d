//! What pods and the node use, as the node's API tells it.
//!
//! Gathers what the agent knows of pods; the crate node-stats measures. Measures when
//! asked, never by itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use node_server::{Answer, ViewError};
use node_stats::{MachineIds, NodeStatsInput, Roots, Stats, SystemGroup};

use crate::join::machine_ids;
use crate::pod_usage::PodUsage;
use crate::ports::PodCgroups;
use crate::server::classic::TEXT;
use crate::server::local::Local;

/// How long one volume may take to measure.
const VOLUME_LIMIT: Duration = Duration::from_secs(5);

/// Measures what pods and the node use.
pub(super) struct NodeStats {
    node_name: String,
    pods: PodUsage,
    stats: Stats,
    ids: MachineIds,
}

impl NodeStats {
    pub(super) fn new(local: &Local, cgroups: Arc<dyn PodCgroups>, mount: &Path) -> Self {
        let roots = Roots {
            cgroup: mount.to_owned(),
            proc: "/proc".into(),
            node_fs: local.place.root_dir.clone(),
        };
        let clock = Arc::clone(&local.clock);
        let stats = Stats::new(Arc::clone(&local.runtime), roots, Arc::new(move || clock.wall()));
        let ids = machine_ids(&*local.fs);
        let pods = PodUsage {
            statuses: local.view.statuses.clone(),
            observations: local.view.observations.clone(),
            volumes: local.view.volumes.clone(),
            clock: Arc::clone(&local.clock),
            fs: Arc::clone(&local.fs),
            cgroups,
            root_dir: local.place.root_dir.clone(),
            pod_logs_dir: local.place.pod_logs_dir.clone(),
        };
        Self { node_name: local.place.node_name.clone(), pods, stats, ids }
    }

    /// `/stats/summary`
    pub(super) async fn summary(&self, only_cpu_and_memory: bool) -> Result<Answer, ViewError> {
        let mut pods = self.pods.pods();
        if !only_cpu_and_memory {
            self.pods.measure_volumes(&mut pods, VOLUME_LIMIT, |_| true).await;
        }
        let summary = self.stats.summary(&pods, &self.node(), only_cpu_and_memory).await;
        let summary = summary.map_err(|error| ViewError::new(500, error.to_string()))?;
        Ok(Answer::json(summary.to_string()))
    }

    /// `/metrics/resource`
    pub(super) async fn resource(&self) -> Answer {
        Answer::text(TEXT, self.stats.resource_metrics(&self.pods.pods(), &self.node()).await)
    }

    /// `/metrics/cadvisor`
    pub(super) async fn cadvisor(&self) -> Answer {
        let (pods, node) = (self.pods.pods(), self.node());
        Answer::text(TEXT, self.stats.cadvisor_metrics(&pods, &node, &self.ids).await)
    }

    fn node(&self) -> NodeStatsInput {
        let pods = self.pods.cgroups.pods_path().map(|cgroup| SystemGroup {
            name: "pods".to_owned(),
            cgroup,
            started: None,
        });
        NodeStatsInput { name: self.node_name.clone(), system: pods.into_iter().collect() }
    }
}
