//! What the local endpoint and its client say to each other.
//!
//! Plain data, JSON on the wire. Both ends are the same binary, but an older
//! client may meet a newer agent: fields are only ever added.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::why::{InFlight, stamp};

/// Every pod of the node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PodsAnswer {
    /// The node's name: static pods carry it at the end of theirs.
    pub node: String,
    /// The agent's time, which ages are counted by.
    #[serde(with = "stamp")]
    pub now: Timestamp,
    /// The pods, by namespace and name.
    pub items: Vec<PodItem>,
}

/// One pod.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PodItem {
    /// The pod with its status, as the API shows it.
    pub pod: Pod,
    /// Steps under way for it, in plain words, oldest first.
    pub doing: Vec<String>,
    /// Calls under way for it, oldest first; the steps where no call is.
    #[serde(default)]
    pub in_flight: Vec<InFlight>,
    /// How far the pull of its image is, if one is under way and that is known.
    #[serde(default)]
    pub pull: Option<String>,
    /// It is being removed; another one of its name may wait for that.
    #[serde(default)]
    pub ending: bool,
}

/// Events, the newest last.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventsAnswer {
    /// The agent's time.
    #[serde(with = "stamp")]
    pub now: Timestamp,
    /// The events.
    pub items: Vec<EventItem>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventItem {
    /// `Pod` or `Node`.
    pub kind: String,
    /// Namespace; empty for a node.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Container's place in the spec, e.g. `spec.containers{app}`; may be empty.
    pub field_path: String,
    /// `Normal` or `Warning`.
    pub severity: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// How often.
    pub count: u32,
    /// The first time.
    #[serde(with = "stamp")]
    pub first: Timestamp,
    /// The last time.
    #[serde(with = "stamp")]
    pub last: Timestamp,
}

/// What running containers use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StatsAnswer {
    /// One sample per running container.
    pub items: Vec<StatsItem>,
}

/// A sample of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsItem {
    /// Namespace.
    pub namespace: String,
    /// Pod.
    pub pod: String,
    /// Container.
    pub container: String,
    /// The runtime's id: two samples of different ids are not comparable.
    pub id: String,
    /// When the processor time was read, in nanoseconds since 1970.
    pub cpu_at: i64,
    /// Processor time used since its start, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Memory that cannot be given back, in bytes.
    pub memory: Option<u64>,
}

/// A command to run in a container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecQuestion {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Send it input.
    pub stdin: bool,
    /// Give it a terminal.
    pub tty: bool,
}

/// Where to reach a command about to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecAnswer {
    /// The runtime's address for it, on this machine. It works once, for a minute.
    pub url: String,
}

/// Where a pod's manifest lies, and whether it may be removed with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveAnswer {
    /// The manifest.
    pub file: String,
    /// Uid of the pod that ends with it.
    pub uid: String,
    /// Seconds the pod has for its end.
    pub grace_seconds: i64,
    /// It is gone; otherwise nothing was touched.
    pub removed: bool,
}

/// Every volume of the node's pods.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumesAnswer {
    /// The node's name, which static pods carry in theirs.
    pub node: String,
    /// The volumes, by pod and name.
    pub items: Vec<VolumeItem>,
}

/// One volume of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeItem {
    /// Namespace; empty if the pod is forgotten.
    pub namespace: String,
    /// Pod; empty if it is forgotten.
    pub pod: String,
    /// Uid of the pod.
    pub uid: String,
    /// Name of the volume in the pod.
    pub name: String,
    /// Kind, as manifests name it; empty if only the name is left.
    pub kind: String,
    /// `Ready`, `Waiting` or `Leaving`.
    pub state: String,
    /// What is wrong.
    pub problem: Option<String>,
    /// Where it lies, once it is there.
    pub path: Option<String>,
    /// What it holds, where that is measured.
    pub usage: Option<VolumeUseItem>,
}

/// What a volume holds, and what its file system could.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeUseItem {
    /// Bytes in use by the volume.
    pub used_bytes: u64,
    /// Bytes of the file system.
    pub capacity_bytes: u64,
    /// Bytes left on it.
    pub available_bytes: u64,
    /// Files and directories of the volume.
    pub inodes_used: u64,
    /// Files that the file system could hold; 0 where it has no such limit.
    pub inodes: u64,
    /// Those left.
    pub inodes_free: u64,
}

/// What kept the volumes of a pod that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanAnswer {
    /// What is, or was, mounted below the pod's directory, deepest first.
    pub mounts: Vec<String>,
    /// It was unmounted; otherwise nothing was touched.
    pub unmounted: bool,
}

/// Why a request was refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refusal {
    /// In a sentence for people.
    pub error: String,
}
