//! What the caller knows and this crate does not find out.

use std::path::PathBuf;

use jiff::Timestamp;
use kubelet_model::{ContainerId, ContainerName, PodUid, SandboxId};

use crate::samples::Fs;

/// A pod that the node runs.
#[derive(Debug, Clone)]
pub struct PodStatsInput {
    /// Its uid.
    pub uid: PodUid,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// When its sandbox was made.
    pub started: Option<Timestamp>,
    /// The runtime's id of its sandbox, if it has one.
    pub sandbox: Option<SandboxId>,
    /// Its running containers.
    pub containers: Vec<ContainerInput>,
    /// Its volumes, as they were measured.
    pub volumes: Vec<VolumeStats>,
    /// Path of its control group below the mounts, such as `/kubepods/pod<uid>`.
    pub cgroup: Option<String>,
    /// Where its containers' logs are, each in a directory of its name.
    pub log_dir: Option<PathBuf>,
    /// Its own `/etc/hosts`, if the node made one.
    pub etc_hosts: Option<PathBuf>,
}

/// A running container of a pod.
#[derive(Debug, Clone)]
pub struct ContainerInput {
    /// Its name.
    pub name: ContainerName,
    /// The runtime's id of it.
    pub id: ContainerId,
    /// The image it runs.
    pub image: String,
    /// When it was made.
    pub started: Option<Timestamp>,
}

/// What a volume holds.
#[derive(Debug, Clone)]
pub struct VolumeStats {
    /// Its name in the pod.
    pub name: String,
    /// What it takes up and what its file system could.
    pub fs: Fs,
    /// Namespace and name of the claim it is for.
    pub claim: Option<(String, String)>,
    /// Its driver calls it unfit for use; `None` where no driver says.
    pub abnormal: Option<bool>,
    /// It counts as the pod's use of the node's own storage.
    pub ephemeral: bool,
}

/// The node as a whole.
#[derive(Debug, Clone, Default)]
pub struct NodeStatsInput {
    /// Its name.
    pub name: String,
    /// Groups to tell apart: `kubelet`, `runtime`, `misc`, `pods`.
    pub system: Vec<SystemGroup>,
}

/// A control group of the system's.
#[derive(Debug, Clone)]
pub struct SystemGroup {
    /// What the summary calls it.
    pub name: String,
    /// Path of the group below the mounts.
    pub cgroup: String,
    /// Since when, where the caller knows better than the group's directory.
    pub started: Option<Timestamp>,
}

/// Where the machine tells about itself.
#[derive(Debug, Clone)]
pub struct Roots {
    /// Mount of the control groups, `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
    /// Mount of `proc`.
    pub proc: PathBuf,
    /// A directory on the node's own file system: that of the kubelet.
    pub node_fs: PathBuf,
}
