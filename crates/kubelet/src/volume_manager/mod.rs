//! Volumes: made before a pod's sandbox, undone after everything of it is gone.
//!
//! Owns one task per pod that has volumes, and what it tells. Reads pods' specs,
//! the objects they name, which CSI drivers there are and, of a pod that ends, what
//! lies below its directory. Writes mounts and files through the port, and has
//! drivers mount and unmount. Never decides when a pod starts or ends, and does
//! nothing for pods without volumes. Upstream: pkg/kubelet/volumemanager,
//! pkg/volume.

pub mod attach;
pub mod claims;
mod clean;
pub mod csi;
pub mod desired;
mod devices;
mod growth;
mod ingredients;
pub mod inventory;
pub mod layout;
pub mod measure;
mod metrics;
pub mod network;
pub mod payload;
mod plan;
mod plugins;
mod pod;
mod pod_event;
mod reconstruct;
pub mod selinux;
mod timed;
#[cfg(test)]
mod tests;

pub use metrics::{TotalVolumes, VolumeMetrics};
pub(crate) use pod_event::{attach_limit, why_waiting};

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cluster::claims::Claims;
use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, Mono, PodUid};
use tokio::sync::{Notify, Semaphore, watch};

use crate::events::Recorder;
use crate::object_cache::Objects;
use crate::plugin_manager::Drivers;
use crate::pod_sources::PodSetReader;
use crate::ports::Ports;
use crate::progress::{Calls, ProgressBoard};
use crate::settings::Settings;
use attach::Attachments;
use clean::Place;
use desired::NodeFacts;
use devices::Devices;
use layout::{PodLayout, VolumeName};
use plan::Goal;
use pod::PodTask;

/// Pods whose volumes are made at once. The first have theirs, and start, while those of
/// the others are made; all at once, they would all wait for the last.
const MAKERS_MAX: usize = 6;

/// Pause before a task that panicked starts again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// A volume that containers can mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMountable {
    /// Where it lies on the host.
    pub host_path: PathBuf,
    /// It can only be read, whatever the pod asks for.
    pub read_only: bool,
    /// It is the agent's, which may relabel it.
    pub managed: bool,
    /// Which PersistentVolume it is; parts of one are bound under its name.
    pub persistent: Option<VolumeName>,
    /// Of a block device, which the path leads to: where the node has it.
    pub device: Option<PathBuf>,
    /// A group that its users need to be in.
    pub gid: Option<i64>,
}

/// Volumes by name.
pub type Mountables = Arc<BTreeMap<String, VolumeMountable>>;

/// What keeps a volume from being made or undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Which; empty if it is about all.
    pub volume: String,
    /// What cannot be done.
    pub step: Step,
    /// In upstream's words.
    pub message: String,
    /// How often it was tried; none if it cannot even be tried.
    pub tries: u32,
}

/// How far a volume came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Not so far that it is known what it is.
    Process,
    /// The cluster has to attach it.
    AwaitAttach,
    /// The cluster cannot attach it: the node has as many as it can.
    AttachLimit,
    /// The node would have to attach it.
    Attach,
    /// To be mounted, or unmounted.
    Mount,
    /// To be given to containers as a device.
    Map,
    /// There, and to become larger.
    Grow,
}

/// How a pod's volumes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeState {
    /// On their way, in or out.
    Waiting {
        /// Those that are not there yet, or not gone yet.
        volumes: Vec<String>,
        /// What is wrong.
        problems: Vec<Problem>,
        /// When something that failed is tried again.
        retry_at: Option<Mono>,
    },
    /// All are there.
    Ready(Mountables),
    /// Nothing of them is left.
    Gone,
}

/// Everybody's volumes. Cheap to clone.
#[derive(Clone)]
pub struct Volumes(Arc<Shared>);

struct Shared {
    ports: Ports,
    settings: Arc<Settings>,
    recorder: Recorder,
    progress: ProgressBoard,
    objects: Objects,
    desired: PodSetReader,
    drivers: Drivers,
    devices: Devices,
    attachments: Attachments,
    metrics: VolumeMetrics,
    makers: Arc<Semaphore>,
    pods: Mutex<BTreeMap<PodUid, Entry>>,
}

struct Entry {
    /// The version last asked for.
    pod: Option<Arc<Pod>>,
    goal: watch::Sender<Goal>,
    state: watch::Receiver<VolumeState>,
    /// What failed is to be tried again at once.
    hurry: Arc<Notify>,
    /// Who has it may make, or end, what the pod has.
    place: Place,
}

/// Follows one pod's volumes.
#[derive(Default)]
pub struct VolumeWatch(Option<watch::Receiver<VolumeState>>);

impl VolumeWatch {
    /// Returns once something has changed; never for a pod without volumes.
    pub async fn changed(&mut self) {
        if let Some(state) = &mut self.0
            && state.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Volumes {
    /// No volumes yet.
    pub fn new(
        ports: &Ports,
        settings: &Arc<Settings>,
        recorder: &Recorder,
        progress: &ProgressBoard,
        objects: &Objects,
        desired: &PodSetReader,
        drivers: &Drivers,
    ) -> Self {
        let attachments = match ports.api.is_some() {
            true => Attachments::in_cluster(settings.controller_attaches),
            false => Attachments::alone(settings.node_labels.clone()),
        };
        if ports.api.is_some() {
            let (host, fs) = (Arc::clone(&ports.volumes), Arc::clone(&ports.fs));
            let (root_dir, table) = (settings.root_dir.clone(), attachments.clone());
            ports.tasks.spawn(reconstruct::find_attachable(host, fs, root_dir, table));
        }
        Self(Arc::new(Shared {
            attachments,
            progress: progress.clone(),
            ports: ports.clone(),
            settings: Arc::clone(settings),
            recorder: recorder.clone(),
            objects: objects.clone(),
            desired: desired.clone(),
            drivers: drivers.clone(),
            devices: Devices::default(),
            metrics: VolumeMetrics::default(),
            makers: Arc::new(Semaphore::new(MAKERS_MAX)),
            pods: Mutex::default(),
        }))
    }

    /// A pod needs its volumes. May be said again at any time.
    pub fn want(&self, pod: &DesiredPod) {
        if !has_volumes(pod) {
            return;
        }
        let mut pods = self.lock();
        if let Some(entry) = pods.get_mut(pod.uid()) {
            if entry.pod.as_ref().is_some_and(|known| Arc::ptr_eq(known, pod.pod())) {
                return;
            }
            let releasing = *entry.goal.borrow() == Goal::Release;
            if releasing && *entry.state.borrow() != VolumeState::Gone {
                // What ends, ends; it is asked for again then.
                return;
            }
            if releasing {
                pods.remove(pod.uid());
            }
        }
        let facts = NodeFacts::of(&self.0.settings);
        let Some(volumes) = desired::of_pod(pod, facts) else { return };
        let goal = Goal::Mount(Arc::new(volumes));
        match pods.get_mut(pod.uid()) {
            Some(entry) => {
                entry.pod = Some(Arc::clone(pod.pod()));
                entry.goal.send_if_modified(|old| {
                    let news = *old != goal;
                    *old = goal;
                    news
                });
            }
            None => {
                if let Some(entry) = self.start(pod.uid(), Some(Arc::clone(pod.pod())), goal) {
                    pods.insert(pod.uid().clone(), entry);
                }
            }
        }
    }

    /// A pod ends: what it has of its volumes stays as it is until it is gone, and
    /// what it lacks matters no more. May be said again at any time.
    pub fn keep(&self, uid: &PodUid) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.pod = None;
            entry.goal.send_if_modified(|goal| {
                let Goal::Mount(pod) = goal else { return false };
                *goal = Goal::Keep(Arc::clone(pod));
                true
            });
        }
    }

    /// Nobody needs a pod's volumes any more. What other lives of the agent left
    /// of them is found. May be said again at any time.
    pub fn release(&self, uid: &PodUid) {
        let mut pods = self.lock();
        match pods.get_mut(uid) {
            Some(entry) => {
                entry.pod = None;
                entry.goal.send_if_modified(|goal| {
                    let news = *goal != Goal::Release;
                    *goal = Goal::Release;
                    news
                });
            }
            None => {
                if let Some(entry) = self.start(uid, None, Goal::Release) {
                    pods.insert(uid.clone(), entry);
                }
            }
        }
    }

    /// Which volumes are in use, for the cluster, and what it says of them.
    pub fn attachments(&self) -> Attachments {
        self.0.attachments.clone()
    }

    /// What is counted of volumes.
    pub fn metrics(&self) -> &VolumeMetrics {
        &self.0.metrics
    }

    /// How a pod's volumes are; `None` if it was never said to have any.
    pub fn state(&self, uid: &PodUid) -> Option<VolumeState> {
        self.lock().get(uid).map(|entry| entry.state.borrow().clone())
    }

    /// Follows a pod's volumes from now on.
    pub fn follow(&self, uid: &PodUid) -> VolumeWatch {
        VolumeWatch(self.lock().get(uid).map(|entry| {
            let mut state = entry.state.clone();
            state.mark_unchanged();
            state
        }))
    }

    /// Forgets a pod whose volumes are gone.
    pub fn forget(&self, uid: &PodUid) {
        let mut pods = self.lock();
        if pods.get(uid).is_some_and(|entry| *entry.state.borrow() == VolumeState::Gone) {
            pods.remove(uid);
        }
    }

    /// Starts a pod's task; `None` for a uid that can have no files.
    fn start(&self, uid: &PodUid, pod: Option<Arc<Pod>>, goal: Goal) -> Option<Entry> {
        let Shared { ports, settings, recorder, progress, objects, .. } = &*self.0;
        let Shared { desired, drivers, devices, attachments, metrics, makers, .. } = &*self.0;
        let layout = PodLayout::new(&settings.root_dir, uid)?;
        let (goal, goals) = watch::channel(goal);
        let waiting = VolumeState::Waiting { volumes: vec![], problems: vec![], retry_at: None };
        let (sender, state) = watch::channel(waiting);
        let (hurry, place) = (Arc::new(Notify::new()), Place::default());
        let task = PodTask {
            uid: uid.clone(),
            layout,
            root_dir: settings.root_dir.clone(),
            node_name: settings.node_name.clone(),
            host: Arc::clone(&ports.volumes),
            fs: Arc::clone(&ports.fs),
            drivers: drivers.clone(),
            devices: devices.clone(),
            attachments: attachments.clone(),
            claims: ports.api.clone().map(Claims::new),
            metrics: metrics.clone(),
            republish_every: settings.sync_frequency,
            clock: Arc::clone(&ports.clock),
            jitter: ports.jitter.clone(),
            recorder: recorder.clone(),
            calls: Calls::new(progress.clone(), Arc::clone(&ports.clock), uid.clone()),
            objects: objects.clone(),
            desired: desired.clone(),
            goal: goals,
            state: sender,
            hurry: Arc::clone(&hurry),
            place: Arc::clone(&place),
            makers: Arc::clone(makers),
        };
        ports.tasks.spawn(supervise(task));
        Some(Entry { pod, goal, state, hurry, place })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, Entry>> {
        self.0.pods.lock().expect("volumes lock: no code panics while holding it")
    }
}

/// Does the pod's spec name any volume?
pub fn has_volumes(pod: &DesiredPod) -> bool {
    pod.spec().volumes.as_ref().is_some_and(|volumes| !volumes.is_empty())
}

/// Runs a pod's task to its end, starting it again after a panic.
async fn supervise(task: PodTask) {
    while AssertUnwindSafe(task.clone().run()).catch_unwind().await.is_err() {
        tracing::error!(pod = %task.uid, "the task of a pod's volumes panicked; starting it again");
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}
