//! What the agent knows of pods whose use is measured: their containers, logs, groups
//! and volumes.
//!
//! Reads statuses, observations and the inventory of volumes; measures volumes through
//! their manager. The crate node-stats measures the rest. Measures when asked, never by
//! itself. Upstream: pkg/kubelet/server/stats/volume_stat_calculator.go.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kubelet_model::{ContainerState, PodUid};
use node_stats::{ContainerInput, Fs as FsSample, PodStatsInput, VolumeStats};
use tokio::time::timeout;

use crate::container_manager::qos_class;
use crate::pleg::Observations;
use crate::ports::{Clock, Fs, PodCgroups};
use crate::runtime_manager::{PodIdentity, log_paths};
use crate::status_manager::{PodView, Statuses};
use crate::volume_manager::Volumes;
use crate::volume_manager::inventory::VolumeFacts;

/// How many volumes are measured at once.
const VOLUMES_AT_ONCE: usize = 8;

/// A volume that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmeasured {
    /// Whose.
    pub uid: PodUid,
    /// Its name in the pod.
    pub volume: String,
    /// Why not.
    pub why: String,
}

/// What a volume holds, if anyone measures such ones.
type Measured = Result<(PodUid, Option<VolumeStats>), Unmeasured>;

/// Gathers. Cheap to clone.
#[derive(Clone)]
pub struct PodUsage {
    /// Which pods there are.
    pub statuses: Statuses,
    /// What of them runs.
    pub observations: Observations,
    /// Their volumes.
    pub volumes: Volumes,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// The file system.
    pub fs: Arc<dyn Fs>,
    /// Their control groups.
    pub cgroups: Arc<dyn PodCgroups>,
    /// Where the agent's own files are.
    pub root_dir: PathBuf,
    /// Root of the pods' log directories.
    pub pod_logs_dir: PathBuf,
}

impl PodUsage {
    /// The pods that run, without their volumes.
    pub fn pods(&self) -> Vec<PodStatsInput> {
        self.statuses.all().iter().filter_map(|view| self.pod(view)).collect()
    }

    fn pod(&self, view: &PodView) -> Option<PodStatsInput> {
        let seen = self.observations.follow(&view.uid).current();
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
        let class = view.pod.spec.as_ref().map(qos_class);
        let hosts = self.root_dir.join("pods").join(uid.as_str()).join("etc-hosts");
        Some(PodStatsInput {
            started: sandbox.map(|sandbox| sandbox.created_at),
            sandbox: sandbox.map(|sandbox| sandbox.id.clone()),
            containers,
            volumes: Vec::new(),
            cgroup: class.and_then(|class| self.cgroups.pod_path(&uid, class)),
            log_dir: Some(log_paths::pod_dir(&self.pod_logs_dir, &identity)),
            etc_hosts: self.fs.stat(&hosts).is_ok().then_some(hosts),
            uid,
            name,
            namespace,
        })
    }

    /// Measures those volumes of the pods that are of interest. One that cannot be
    /// measured within `limit` is left out; which, and why, is told.
    pub async fn measure_volumes(
        &self,
        pods: &mut [PodStatsInput],
        limit: Duration,
        of_interest: impl Fn(&VolumeFacts) -> bool,
    ) -> Vec<Unmeasured> {
        let all = self.volumes.inventory().into_iter();
        let all: Vec<VolumeFacts> =
            all.filter(|of| of_interest(of) && pods.iter().any(|p| p.uid == of.uid)).collect();
        let measured: Vec<Measured> = stream::iter(all)
            .map(|of| self.measure(of, limit))
            .buffered(VOLUMES_AT_ONCE)
            .collect()
            .await;
        let mut unmeasured = Vec::new();
        for volume in measured {
            match volume {
                Ok((uid, Some(volume))) => {
                    if let Some(pod) = pods.iter_mut().find(|pod| pod.uid == uid) {
                        pod.volumes.push(volume);
                    }
                }
                // Nobody measures volumes of its kind.
                Ok((_, None)) => {}
                Err(volume) => unmeasured.push(volume),
            }
        }
        unmeasured
    }

    async fn measure(&self, of: VolumeFacts, limit: Duration) -> Measured {
        let failed = |of: VolumeFacts, why| Unmeasured { uid: of.uid, volume: of.name, why };
        let found = match timeout(limit, self.volumes.measure(&of)).await {
            Ok(Ok(Some(found))) => found,
            Ok(Ok(None)) => return Ok((of.uid, None)),
            Ok(Err(why)) => return Err(failed(of, why)),
            Err(_) => {
                let why = format!("it takes longer than {} s", limit.as_secs());
                return Err(failed(of, why));
            }
        };
        let fs = FsSample {
            time: Some(self.clock.wall()),
            available: Some(found.space.available),
            capacity: Some(found.space.capacity),
            used: Some(found.used.bytes),
            inodes_free: Some(found.space.inodes_free),
            inodes: Some(found.space.inodes),
            inodes_used: Some(found.used.inodes),
        };
        let claim = of.claim.map(|claim| (claim.namespace, claim.name));
        let ephemeral = of.ephemeral;
        let stats = VolumeStats { name: of.name, fs, claim, abnormal: None, ephemeral };
        Ok((of.uid, Some(stats)))
    }
}
