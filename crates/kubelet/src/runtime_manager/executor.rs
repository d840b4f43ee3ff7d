//! One pod's actions, one by one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cgroups::CgroupError;
use cri::{CallError, v1};
use kubelet_model::{
    Action, ContainerId, ContainerName, DesiredPod, ObservedPod, ObservedSandbox, PodUid,
    SandboxId, Waiting,
};

use super::hooks::HookMetrics;
use super::images::Ensured;
use super::log_paths;
use super::pod_files::{pod_dir, remove_pod_dir};
use super::stop::Ended;
use crate::allocation::Allocations;
use crate::cluster_lists::ClusterLists;
use crate::container_manager::PodContainers;
use crate::events::Recorder;
use crate::image_manager::Images;
use crate::object_cache::Objects;
use crate::pleg;
use crate::ports::{DirEntry, Ports};
use crate::progress::Calls;
use crate::settings::Settings;
use crate::volume_manager::Mountables;

/// Who a pod is; enough to find its files when its spec is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIdentity {
    /// Uid.
    pub uid: PodUid,
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
}

impl PodIdentity {
    /// The identity of a desired pod.
    pub fn of(pod: &DesiredPod) -> Self {
        Self {
            uid: pod.uid().clone(),
            name: pod.name().to_owned(),
            namespace: pod.namespace().to_owned(),
        }
    }
}

/// Why an action failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ActionError {
    /// A container could not be started; its status says why.
    #[error("container {name} did not start: {}: {}", .waiting.reason, .waiting.message)]
    NotStarted {
        /// Which container.
        name: ContainerName,
        /// What its status says.
        waiting: Waiting,
        /// Not to be tried again before, if the failure tells.
        retry_after: Option<Duration>,
    },
    /// The runtime refused or did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A control group could not be made or removed.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A file operation failed.
    #[error("cannot {what} {}: {why}", .path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The pod's own directories cannot be made.
    #[error("error making pod data directories: cannot create {}: {why}", .path.display())]
    PodDirectories {
        /// Which one.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The pod asks for what this node cannot give.
    #[error("{reason}: {message}")]
    Refused {
        /// Upstream's reason.
        reason: &'static str,
        /// What is wrong.
        message: String,
    },
    /// The pod could not be resized; it runs on as it was.
    #[error("cannot resize the pod: {message}")]
    NotResized {
        /// In the words of the condition.
        message: String,
    },
    /// The plan asked for something that its facts do not allow: a bug.
    #[error("cannot perform {action}: {why}")]
    Impossible {
        /// The action.
        action: String,
        /// What is missing.
        why: &'static str,
    },
}

/// What every executor works with, whichever pod it is for.
#[derive(Clone)]
pub struct Means {
    /// Everything outside.
    pub ports: Ports,
    /// What the agent was told.
    pub settings: Arc<Settings>,
    /// What users are told of.
    pub recorder: Recorder,
    /// Images.
    pub images: Images,
    /// What pods are given.
    pub allocations: Allocations,
    /// What is counted of hooks.
    pub hooks: HookMetrics,
}

/// Performs actions for one pod.
#[derive(Clone)]
pub struct Executor {
    pub(super) ports: Ports,
    pub(super) settings: Arc<Settings>,
    pub(super) recorder: Recorder,
    pub(super) images: Images,
    pub(super) allocations: Allocations,
    pub(super) hooks: HookMetrics,
    /// Where calls are told of while they last.
    pub(super) calls: Calls,
    pub(super) identity: PodIdentity,
    pub(super) pod: Option<DesiredPod>,
    pub(super) sandbox: Option<(SandboxId, u32)>,
    /// What the sandbox was made from, if it was made here.
    pub(super) sandbox_config: Option<v1::PodSandboxConfig>,
    /// The sandbox as it was seen, once somebody has looked.
    pub(super) sandbox_seen: OnceLock<ObservedSandbox>,
    pub(super) ended: Ended,
    /// Of the container that is started next.
    pub(super) ensured: Option<Ensured>,
    pub(super) volumes: Mountables,
    pub(super) recursive_read_only: bool,
    pub(super) objects: Objects,
    pub(super) lists: ClusterLists,
}

impl Executor {
    /// An executor for a pod as it was observed. `pod` is its spec, if known.
    pub fn new(
        means: Means,
        calls: Calls,
        identity: PodIdentity,
        pod: Option<DesiredPod>,
        seen: &ObservedPod,
    ) -> Self {
        let Means { ports, settings, recorder, images, allocations, hooks } = means;
        let newest = seen.sandboxes.first();
        let sandbox = newest.map(|s| (s.id.clone(), s.attempt));
        let looked_at = newest.filter(|s| s.ready && !s.ips.is_empty()).cloned();
        let ended = Ended::default();
        Self {
            ports,
            settings,
            recorder,
            images,
            allocations,
            hooks,
            calls,
            identity,
            pod,
            sandbox,
            sandbox_config: None,
            sandbox_seen: looked_at.map_or_else(OnceLock::new, OnceLock::from),
            ended,
            ensured: None,
            volumes: Mountables::default(),
            recursive_read_only: false,
            objects: Objects::default(),
            lists: ClusterLists::default(),
        }
    }

    /// The sandbox with its addresses, if they were asked for here or known before.
    pub fn sandbox_seen(&self) -> Option<&ObservedSandbox> {
        self.sandbox_seen.get()
    }

    /// The same with volumes for its containers, and whether the runtime can make
    /// a mount read-only all the way down.
    pub fn with_volumes(mut self, volumes: Mountables, recursive_read_only: bool) -> Self {
        (self.volumes, self.recursive_read_only) = (volumes, recursive_read_only);
        self
    }

    /// The same with objects that its containers' variables come from.
    pub fn with_objects(mut self, objects: Objects, lists: ClusterLists) -> Self {
        (self.objects, self.lists) = (objects, lists);
        self
    }

    /// Performs one action.
    pub async fn perform(&mut self, action: &Action) -> Result<(), ActionError> {
        let runtime = &self.ports.runtime;
        match action {
            Action::CreateSandbox { attempt } => return self.create_sandbox(*attempt).await,
            Action::StartContainer { name, restart_count } => {
                return self.start_container(name, *restart_count).await;
            }
            Action::StopContainer { id, name, grace, why, after } => {
                return self.stop_container(id, name, *grace, *why, after).await;
            }
            Action::StopSandbox { id } => {
                let _call = self.calls.begin("StopPodSandbox");
                unless_gone(runtime.stop_pod_sandbox(id.as_str()).await)?;
            }
            Action::RemoveContainer { id, name, restart_count, keep_log } => {
                // The link first: once the container is gone nobody knows its link.
                self.remove_link(name, id)?;
                if !keep_log {
                    self.remove_log(name, *restart_count)?;
                }
                let _call = self.calls.begin(format!("RemoveContainer {name}"));
                unless_gone(runtime.remove_container(id.as_str()).await)?;
            }
            Action::RemoveSandbox { id } => {
                let _call = self.calls.begin("RemovePodSandbox");
                unless_gone(runtime.remove_pod_sandbox(id.as_str()).await)?;
            }
            Action::LinkLog { id, name, restart_count } => self.link_log(name, id, *restart_count),
            Action::Resize { memory, cpu, pod } => return self.resize(memory, cpu, *pod).await,
            Action::RemovePodCgroup => self.pod_containers().remove(&self.identity.uid)?,
            Action::RemovePodFiles => {
                self.pod_containers().remove(&self.identity.uid)?;
                self.remove_files()?;
            }
        }
        Ok(())
    }

    /// The pod's addresses, primary first; the node's where it shares its network.
    pub(super) async fn pod_ips(&self) -> Result<Vec<String>, CallError> {
        let spec = self.pod.as_ref().map(DesiredPod::spec);
        if spec.is_some_and(|spec| spec.host_network == Some(true)) {
            return Ok(self.settings.node_ips.clone());
        }
        let Some((sandbox, attempt)) = &self.sandbox else { return Ok(Vec::new()) };
        if let Some(seen) = self.sandbox_seen.get() {
            return Ok(seen.ips.clone());
        }
        let _call = self.calls.begin("PodSandboxStatus");
        let status = self.ports.runtime.pod_sandbox_status(sandbox.as_str()).await?;
        let seen = pleg::sandbox_of(&status, *attempt);
        let ips = seen.ips.clone();
        if seen.ready && !ips.is_empty() && seen.id == *sandbox {
            // Whoever was first has seen the same.
            let _ = self.sandbox_seen.set(seen);
        }
        Ok(ips)
    }

    /// Links a container's log, or says why not: log shippers miss a link, the
    /// container does not.
    pub(super) fn link_log(&self, name: &ContainerName, id: &ContainerId, count: u32) {
        if let Err(error) = self.make_link(name, id, count) {
            tracing::warn!(pod = %self.identity.uid, container = %name, %error, "log not linked");
        }
    }

    fn make_link(
        &self,
        name: &ContainerName,
        id: &ContainerId,
        count: u32,
    ) -> Result<(), ActionError> {
        let log = log_paths::pod_dir(&self.settings.pod_logs_dir, &self.identity)
            .join(log_paths::container_log(name, count));
        let links = &self.settings.container_log_links_dir;
        let link = links.join(log_paths::link_name(&self.identity, name, id));
        if self.ports.fs.read_link(&link).is_ok_and(|to| to == log) {
            return Ok(());
        }
        if self.ports.fs.stat(&log).is_err() {
            // The runtime keeps no log for this container, so there is nothing to link to.
            return Ok(());
        }
        let made = match self.ports.fs.symlink(&log, &link) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.ports.fs.create_dir_all(links, 0o755).map_err(file_error("create", links))?;
                self.ports.fs.symlink(&log, &link)
            }
            made => made,
        };
        made.map_err(file_error("link", &link))
    }

    fn remove_link(&self, name: &ContainerName, id: &ContainerId) -> Result<(), ActionError> {
        let link_name = log_paths::link_name(&self.identity, name, id);
        let link = self.settings.container_log_links_dir.join(link_name);
        self.ports.fs.remove_file(&link).map_err(file_error("remove", &link))
    }

    /// Removes a log and what was rotated out of it.
    fn remove_log(&self, name: &ContainerName, count: u32) -> Result<(), ActionError> {
        let dir =
            log_paths::pod_dir(&self.settings.pod_logs_dir, &self.identity).join(name.as_str());
        let entries = match self.ports.fs.list(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            listed => listed.map_err(file_error("list", &dir))?,
        };
        let prefix = format!("{count}.log");
        let of_log = |e: &&DirEntry| e.name.to_str().is_some_and(|n| n.starts_with(&prefix));
        for entry in entries.iter().filter(of_log) {
            let path = dir.join(&entry.name);
            self.ports.fs.remove_file(&path).map_err(file_error("remove", &path))?;
        }
        Ok(())
    }

    fn remove_files(&self) -> Result<(), ActionError> {
        if self.identity.name.is_empty() {
            // Its labels tell no name, so no agent gave it files.
            return Ok(());
        }
        let logs = log_paths::pod_dir(&self.settings.pod_logs_dir, &self.identity);
        let own = pod_dir(&self.settings.root_dir, &self.identity.uid);
        let fs = &*self.ports.fs;
        fs.remove_dir_all(&logs).map_err(file_error("remove", &logs))?;
        remove_pod_dir(fs, &own).map_err(file_error("remove", &own))
    }

    /// The pods' control groups.
    pub(super) fn pod_containers(&self) -> PodContainers {
        let rules = self.settings.resources.clone();
        PodContainers::new(Arc::clone(&self.ports.cgroups), rules)
    }

    pub(super) fn make_dir(&self, path: &Path) -> Result<(), ActionError> {
        self.ports.fs.create_dir_all(path, 0o755).map_err(file_error("create", path))
    }

    pub(super) fn spec(&self, action: &str) -> Result<&DesiredPod, ActionError> {
        self.pod.as_ref().ok_or_else(|| ActionError::Impossible {
            action: action.to_owned(),
            why: "only the runtime knows this pod",
        })
    }
}

pub(super) fn file_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ActionError {
    let path = path.to_owned();
    move |error| ActionError::File { what, path, why: error.to_string() }
}

/// What is gone needs no stopping or removing.
pub(super) fn unless_gone(answer: Result<(), CallError>) -> Result<(), CallError> {
    match answer {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
