//! What pods and the node use, as the node's API tells it.
//!
//! Gathers what the agent knows of pods; the crate node-stats measures. Measures when
//! asked, never by itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kubelet_model::{ContainerState, PodUid};
use node_server::{Answer, ViewError};
use node_stats::{
    ContainerInput, Fs, MachineIds, NodeStatsInput, PodStatsInput, Roots, Stats, SystemGroup,
    VolumeStats,
};
use tokio::time::timeout;

use crate::container_manager::qos_class;
use crate::join::machine_ids;
use crate::ports::PodCgroups;
use crate::runtime_manager::{PodIdentity, log_paths};
use crate::server::local::Local;
use crate::status_manager::PodView;
use crate::volume_manager::inventory::VolumeFacts;

/// How long one volume may take to measure, and how many are measured at once.
const VOLUME_LIMIT: Duration = Duration::from_secs(5);
const VOLUMES_AT_ONCE: usize = 8;
/// What Prometheus calls the format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Measures what pods and the node use.
pub(super) struct NodeStats {
    local: Local,
    cgroups: Arc<dyn PodCgroups>,
    stats: Stats,
    ids: MachineIds,
}

impl NodeStats {
    pub(super) fn new(local: Local, cgroups: Arc<dyn PodCgroups>, mount: &Path) -> Self {
        let roots = Roots {
            cgroup: mount.to_owned(),
            proc: "/proc".into(),
            node_fs: local.place.root_dir.clone(),
        };
        let clock = Arc::clone(&local.clock);
        let stats = Stats::new(Arc::clone(&local.runtime), roots, Arc::new(move || clock.wall()));
        let ids = machine_ids(&*local.fs);
        Self { local, cgroups, stats, ids }
    }

    /// `/stats/summary`
    pub(super) async fn summary(&self, only_cpu_and_memory: bool) -> Result<Answer, ViewError> {
        let mut pods = self.pods();
        if !only_cpu_and_memory {
            self.measure_volumes(&mut pods).await;
        }
        let summary = self.stats.summary(&pods, &self.node(), only_cpu_and_memory).await;
        let summary = summary.map_err(|error| ViewError::new(500, error.to_string()))?;
        Ok(Answer::json(summary.to_string()))
    }

    /// `/metrics/resource`
    pub(super) async fn resource(&self) -> Answer {
        Answer::text(TEXT, self.stats.resource_metrics(&self.pods(), &self.node()).await)
    }

    /// `/metrics/cadvisor`
    pub(super) async fn cadvisor(&self) -> Answer {
        let (pods, node) = (self.pods(), self.node());
        Answer::text(TEXT, self.stats.cadvisor_metrics(&pods, &node, &self.ids).await)
    }

    fn node(&self) -> NodeStatsInput {
        let pods = self.cgroups.pods_path().map(|cgroup| SystemGroup {
            name: "pods".to_owned(),
            cgroup,
            started: None,
        });
        NodeStatsInput {
            name: self.local.place.node_name.clone(),
            system: pods.into_iter().collect(),
        }
    }

    /// The pods that run.
    fn pods(&self) -> Vec<PodStatsInput> {
        let pods = self.local.view.statuses.all();
        pods.iter().filter_map(|view| self.pod(view)).collect()
    }

    fn pod(&self, view: &PodView) -> Option<PodStatsInput> {
        let seen = self.local.view.observations.follow(&view.uid).current();
        if !seen.may_run() {
            return None;
        }
        let meta = &view.pod.metadata;
        let (name, namespace) = (meta.name.clone()?, meta.namespace.clone()?);
        let sandbox = seen.sandboxes.iter().find(|sandbox| sandbox.ready);
        let mut containers = Vec::new();
        for container in &seen.containers {
            if let ContainerState::Running { started_at } = &container.state {
                containers.push(ContainerInput {
                    name: container.name.clone(),
                    id: container.id.clone(),
                    image: container.image.clone(),
                    started: Some(*started_at),
                });
            }
        }
        let uid = view.uid.clone();
        let identity =
            PodIdentity { uid: uid.clone(), name: name.clone(), namespace: namespace.clone() };
        let place = &self.local.place;
        let class = view.pod.spec.as_ref().map(qos_class);
        let hosts = place.root_dir.join("pods").join(uid.as_str()).join("etc-hosts");
        Some(PodStatsInput {
            started: sandbox.map(|sandbox| sandbox.created_at),
            sandbox: sandbox.map(|sandbox| sandbox.id.clone()),
            containers,
            volumes: Vec::new(),
            cgroup: class.and_then(|class| self.cgroups.pod_path(&uid, class)),
            log_dir: Some(log_paths::pod_dir(&place.pod_logs_dir, &identity)),
            etc_hosts: self.local.fs.stat(&hosts).is_ok().then_some(hosts),
            uid,
            name,
            namespace,
        })
    }

    async fn measure_volumes(&self, pods: &mut [PodStatsInput]) {
        let all = self.local.view.volumes.inventory().into_iter();
        let all: Vec<VolumeFacts> = all.filter(|of| pods.iter().any(|p| p.uid == of.uid)).collect();
        let measured: Vec<Option<(PodUid, VolumeStats)>> =
            stream::iter(all).map(|of| self.measure(of)).buffered(VOLUMES_AT_ONCE).collect().await;
        for (uid, volume) in measured.into_iter().flatten() {
            if let Some(pod) = pods.iter_mut().find(|pod| pod.uid == uid) {
                pod.volumes.push(volume);
            }
        }
    }

    /// A volume that cannot be measured in time is left out.
    async fn measure(&self, of: VolumeFacts) -> Option<(PodUid, VolumeStats)> {
        let measured = timeout(VOLUME_LIMIT, self.local.view.volumes.measure(&of)).await;
        let found = measured.ok()?.ok()??;
        let fs = Fs {
            time: Some(self.local.clock.wall()),
            available: Some(found.space.available),
            capacity: Some(found.space.capacity),
            used: Some(found.used.bytes),
            inodes_free: Some(found.space.inodes_free),
            inodes: Some(found.space.inodes),
            inodes_used: Some(found.used.inodes),
        };
        // What lies on the node's own disk goes with the pod.
        let ephemeral = matches!(of.kind, "emptyDir" | "configMap");
        let claim = of.claim.map(|claim| (claim.namespace, claim.name));
        Some((of.uid, VolumeStats { name: of.name, fs, claim, abnormal: None, ephemeral }))
    }
}
