//! Observed pods: what the runtime says exists.
//!
//! An observation is a value with the time its listing began. A worker plans
//! only from an observation that began after its last action ended.

use std::cmp::Reverse;

use jiff::Timestamp;

use crate::action::{Action, Grace};
use crate::ids::{ContainerId, ContainerName, PodUid, SandboxId};
use crate::resources::ObservedResources;
use crate::time::Mono;

/// Everything the runtime holds for one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedPod {
    /// The pod.
    pub uid: PodUid,
    /// Name and namespace from the runtime's labels; empty if nothing exists.
    pub name: String,
    /// See `name`.
    pub namespace: String,
    /// Sandboxes, newest first.
    pub sandboxes: Vec<ObservedSandbox>,
    /// Containers, newest first.
    pub containers: Vec<ObservedContainer>,
    /// When the listing behind this observation began.
    pub began: Mono,
}

/// One sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedSandbox {
    /// The runtime's id.
    pub id: SandboxId,
    /// How many sandboxes the pod had before.
    pub attempt: u32,
    /// Ready, as opposed to stopped.
    pub ready: bool,
    /// Creation time.
    pub created_at: Timestamp,
    /// Shares the node's network namespace.
    pub host_network: bool,
    /// Addresses, primary first.
    pub ips: Vec<String>,
}

/// One container instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedContainer {
    /// The runtime's id.
    pub id: ContainerId,
    /// Name inside the pod.
    pub name: ContainerName,
    /// The sandbox it lives in.
    pub sandbox: SandboxId,
    /// How many instances of this name there were before.
    pub restart_count: u32,
    /// Hash of the definition it was made from; `None` if another tool made it.
    pub hash: Option<u32>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Image as the pod names it.
    pub image: String,
    /// Image as the runtime resolved it.
    pub image_id: String,
    /// As whom its first process runs, where the runtime tells.
    pub user: Option<RunsAs>,
    /// The signal that tells it to stop, such as `SIGTERM`, where the runtime tells.
    pub stop_signal: Option<String>,
    /// The pod's grace period when it was made, by its annotations.
    pub grace: Option<Grace>,
    /// What it was given, where the runtime tells.
    pub resources: Option<ObservedResources>,
    /// Where the runtime writes its output; empty if nowhere.
    pub log_path: String,
    /// What it is doing.
    pub state: ContainerState,
}

/// User and groups of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunsAs {
    /// User.
    pub uid: i64,
    /// Primary group.
    pub gid: i64,
    /// Further groups.
    pub groups: Vec<i64>,
}

/// What a container is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    /// Created, never started.
    Created,
    /// Running.
    Running {
        /// Since when.
        started_at: Timestamp,
    },
    /// Ended.
    Exited(Exit),
    /// The runtime cannot tell.
    Unknown,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Exit code.
    pub code: i32,
    /// The runtime's reason, e.g. `Completed`, `Error`, `OOMKilled`.
    pub reason: String,
    /// The runtime's message.
    pub message: String,
    /// Start time; `None` if it never ran.
    pub started_at: Option<Timestamp>,
    /// End time.
    pub finished_at: Timestamp,
}

impl ObservedPod {
    /// A pod of which the runtime holds nothing.
    pub fn absent(uid: PodUid, began: Mono) -> Self {
        Self {
            uid,
            name: String::new(),
            namespace: String::new(),
            sandboxes: Vec::new(),
            containers: Vec::new(),
            began,
        }
    }

    /// Puts sandboxes and containers in the order that everyone relies on.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by(|a, b| {
            (Reverse(a.attempt), Reverse(a.created_at), &a.id).cmp(&(
                Reverse(b.attempt),
                Reverse(b.created_at),
                &b.id,
            ))
        });
        self.containers.sort_by(|a, b| {
            (Reverse(a.restart_count), Reverse(a.created_at), &a.id).cmp(&(
                Reverse(b.restart_count),
                Reverse(b.created_at),
                &b.id,
            ))
        });
    }

    /// Ids of everything the pod has in the runtime; sandboxes share the namespace.
    pub fn ids(&self) -> Vec<ContainerId> {
        let sandboxes = self.sandboxes.iter().map(|s| ContainerId::new(s.id.as_str()));
        sandboxes.chain(self.containers.iter().map(|c| c.id.clone())).collect()
    }

    /// Nothing of the pod is left in the runtime.
    pub fn is_gone(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Something of the pod may still be running.
    pub fn may_run(&self) -> bool {
        self.sandboxes.iter().any(|s| s.ready) || self.containers.iter().any(|c| c.state.may_run())
    }

    /// The grace period its containers were made with: what a pod gets whose
    /// spec is gone.
    pub fn annotated_grace(&self) -> Option<Grace> {
        self.containers.iter().filter(|c| c.state.may_run()).find_map(|c| c.grace)
    }

    /// Instances of a container, newest first.
    pub fn instances<'a>(
        &'a self,
        name: &'a ContainerName,
    ) -> impl Iterator<Item = &'a ObservedContainer> {
        self.containers.iter().filter(move |c| &c.name == name)
    }

    /// The instance that stands for a container: the one that may run, else the newest.
    /// After a crash of the agent a newer one, created late, may lie beside it.
    pub fn current(&self, name: &ContainerName) -> Option<&ObservedContainer> {
        let live = self.containers.iter().find(|c| &c.name == name && c.state.may_run());
        live.or_else(|| self.newest(name))
    }

    /// The newest instance of a container.
    pub fn newest(&self, name: &ContainerName) -> Option<&ObservedContainer> {
        self.containers.iter().find(|c| &c.name == name)
    }
}

impl ObservedContainer {
    /// The action that removes this instance, log and all.
    pub fn removal(&self) -> Action {
        Action::RemoveContainer {
            id: self.id.clone(),
            name: self.name.clone(),
            restart_count: self.restart_count,
            keep_log: false,
        }
    }
}

impl ContainerState {
    /// The state's name, as metrics label it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running { .. } => "running",
            Self::Exited(_) => "exited",
            Self::Unknown => "unknown",
        }
    }
    /// Running, or might be.
    pub fn may_run(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Unknown)
    }
}
