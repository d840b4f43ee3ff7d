//! What pods and the node use, as the node's API tells it.
//!
//! Gathers what the agent knows of pods; the crate node-stats measures. Measures when
//! asked, never by itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use node_server::{Answer, ViewError};
use node_stats::{MachineIds, NodeStatsInput, Roots, Stats, SystemGroup};

use crate::container_manager::machine;
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
    /// The agent's own group, and the runtime's where the user says which that is.
    system: Vec<SystemGroup>,
}

impl NodeStats {
    /// `runtime_group`: that of the container runtime, `--runtime-cgroups`.
    pub(super) fn new(
        local: &Local,
        cgroups: Arc<dyn PodCgroups>,
        mount: &Path,
        runtime_group: Option<&str>,
    ) -> Self {
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
        let own = machine::own_group(Path::new("/"));
        let system = system_groups(own, local.clock.wall(), runtime_group);
        Self { node_name: local.place.node_name.clone(), pods, stats, ids, system }
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
        let system = self.system.iter().cloned().chain(pods).collect();
        NodeStatsInput { name: self.node_name.clone(), system }
    }
}

/// As upstream names them. `misc` is not among them: processes are not moved there.
fn system_groups(own: String, started: Timestamp, runtime: Option<&str>) -> Vec<SystemGroup> {
    let group =
        |name: &str, cgroup, started| SystemGroup { name: name.to_owned(), cgroup, started };
    let runtime = runtime.filter(|path| !path.is_empty());
    let runtime = runtime.map(|path| group("runtime", path.to_owned(), None));
    // The root's figures are everybody's.
    let own = Some(own).filter(|own| own != "/");
    let own = own.map(|own| group("kubelet", own, Some(started)));
    own.into_iter().chain(runtime).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_the_system_are_those_that_are_known() {
        let told = |runtime: Option<&str>| -> Vec<String> {
            let own = "/system.slice/a".to_owned();
            let groups = system_groups(own, Timestamp::UNIX_EPOCH, runtime);
            let line = |group: SystemGroup| {
                format!("{} {} {}", group.name, group.cgroup, group.started.is_some())
            };
            groups.into_iter().map(line).collect()
        };
        let own = "kubelet /system.slice/a true";
        assert_eq!(told(None), [own]);
        assert_eq!(told(Some("")), [own]);
        assert!(system_groups("/".to_owned(), Timestamp::UNIX_EPOCH, None).is_empty());
        assert_eq!(told(Some("/system.slice/b")), [own, "runtime /system.slice/b false"]);
    }
}
