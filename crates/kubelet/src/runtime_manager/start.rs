//! Making a container in a pod's sandbox, and starting it.
//!
//! Gathers what the configuration needs, makes the files it mounts, records
//! events. Upstream: startContainer in
//! pkg/kubelet/kuberuntime/kuberuntime_container.go.

use std::borrow::Cow;
use std::path::Path;

use cri::{CallError, v1};
use k8s_openapi::api::core::v1::Container;
use kubelet_model::{
    ContainerId, ContainerName, DesiredPod, EventType, SandboxId, WaitReason, Waiting,
};

use super::container_spec::{self, ContainerFacts};
use super::executor::{ActionError, Executor};
use super::images::{self, Ensured};
use super::mounts::MountFacts;
use super::security::{self, ImageUser};
use super::{env, log_paths, mounts};
use crate::image_manager::EnsuredImage;
use crate::pleg::labels;

impl Executor {
    pub(super) async fn start_container(
        &self,
        name: &ContainerName,
        restart_count: Option<u32>,
    ) -> Result<(), ActionError> {
        let pod = self.spec("StartContainer")?;
        let made = self.create_container(pod, name, restart_count).await;
        let (id, count) = made.inspect_err(|error| self.tell_failure(name, "", error))?;
        self.tell(name, EventType::Normal, "Created", "Container created");
        let call = self.calls.begin(format!("StartContainer {name}"));
        let started = self.ports.runtime.start_container(&id).await;
        drop(call);
        started
            .map_err(|error| not_started(name, WaitReason::RunContainerError, &error))
            .inspect_err(|error| self.tell_failure(name, &id, error))?;
        self.tell(name, EventType::Normal, "Started", "Container started");
        let id = ContainerId::new(id);
        // Here, too: one that ends at once is never seen to run.
        self.link_log(name, &id, count);
        let Some((_, container)) = pod.container(name.as_str()) else { return Ok(()) };
        self.run_post_start(&id, &container).await
    }

    /// A container of the pod, and the sandbox to make it in, with its attempt.
    pub(super) fn container_and_sandbox<'p>(
        &self,
        pod: &'p DesiredPod,
        name: &ContainerName,
    ) -> Result<(Cow<'p, Container>, &SandboxId, u32), ActionError> {
        let impossible =
            |why| ActionError::Impossible { action: format!("StartContainer {name}"), why };
        let (sandbox, attempt) =
            self.sandbox.as_ref().ok_or_else(|| impossible("there is no sandbox"))?;
        let (_, container) = pod
            .container(name.as_str())
            .ok_or_else(|| impossible("the pod has no such container"))?;
        Ok((container, sandbox, *attempt))
    }

    /// Makes the container, whose images are there; returns its id and its restart count.
    async fn create_container(
        &self,
        pod: &DesiredPod,
        name: &ContainerName,
        restart_count: Option<u32>,
    ) -> Result<(String, u32), ActionError> {
        let (container, sandbox, _) = self.container_and_sandbox(pod, name)?;
        let ensured = self.ensured.as_ref().filter(|ensured| ensured.container == *name);
        let ensured = ensured.ok_or_else(|| ActionError::Impossible {
            action: format!("StartContainer {name}"),
            why: "its images were not made sure of",
        })?;
        let log_dir =
            log_paths::pod_dir(&self.settings.pod_logs_dir, &self.identity).join(name.as_str());
        let restart_count = match restart_count {
            Some(count) => count,
            None => self.restart_count_from_logs(&log_dir),
        };
        self.make_dir(&log_dir)?;
        let pod_ips = self.pod_ips().await;
        let pod_ips = pod_ips.inspect_err(|error| self.tell_of_sandbox_status(pod, error))?;
        let config = self
            .container_config(pod, &container, ensured, &pod_ips, restart_count)
            .await
            .map_err(|waiting| ActionError::NotStarted {
                name: name.clone(),
                waiting,
                retry_after: None,
            })?;
        // Before it exists: one whose making is not answered has this size too.
        let given = container.resources.clone().unwrap_or_default();
        self.allocations.note_container(pod, name.as_str(), &given);
        let image_mounts = config.mounts.iter().filter(|mount| mount.image.is_some()).count();
        let sandbox_config = ensured.sandbox_config.clone();
        let call = self.calls.begin(format!("CreateContainer {name}"));
        let made =
            self.ports.runtime.create_container(sandbox.as_str(), config, sandbox_config).await;
        drop(call);
        let made = made.map_err(|error| error.reason_text());
        if image_mounts > 0 {
            self.count_volumes(ensured.volumes.len(), image_mounts, made.as_ref().err());
        }
        made.map(|id| (id, restart_count)).map_err(|error| {
            let message = if image_mounts > 0 { images::explain(error) } else { error };
            let waiting = Waiting { reason: WaitReason::CreateContainerError, message };
            ActionError::NotStarted { name: name.clone(), waiting, retry_after: None }
        })
    }

    /// Counts image volumes, whose mounts came to this.
    fn count_volumes(&self, volumes: usize, mounts: usize, error: Option<&String>) {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let metrics = self.images.metrics();
        metrics.volumes_requested.inc_by(count(volumes));
        let came_to = match error {
            None => &metrics.volumes_mounted,
            Some(error) if images::is_to_blame(error) => &metrics.volumes_failed,
            Some(_) => return,
        };
        came_to.inc_by(count(mounts));
    }

    /// The whole configuration of a container, with the files it mounts.
    async fn container_config(
        &self,
        pod: &DesiredPod,
        container: &Container,
        ensured: &Ensured,
        pod_ips: &[String],
        restart_count: u32,
    ) -> Result<v1::ContainerConfig, Waiting> {
        let wrong = |message| Waiting { reason: WaitReason::CreateContainerConfigError, message };
        let target = self.target(pod, &container.name).await.map_err(wrong)?;
        let image_user = self.image_user(pod, container, &ensured.image).await.map_err(wrong)?;
        let linux = ensured.sandbox_config.linux.as_ref();
        let context = linux.and_then(|linux| linux.security_context.as_ref());
        let namespaces = context.and_then(|context| context.namespace_options.clone());
        let namespaces = namespaces.unwrap_or_default();
        let users = namespaces.userns_options.clone();
        let files = self.env_files(container).await;
        let services = self.lists.service_variables(pod).await.map_err(wrong)?;
        let facts = ContainerFacts {
            settings: &self.settings,
            restart_count,
            image_ref: &ensured.image.id,
            image_user: &image_user,
            pod_ips,
            namespaces,
            target: target.as_deref(),
            sources: env::Sources { objects: &self.objects, files: &files, services: &services },
        };
        let mut config = container_spec::container_config(pod, container, facts).map_err(wrong)?;
        let hosts = match mounts::wants_hosts(container) {
            true => self.write_hosts(pod, pod_ips).map_err(wrong)?,
            false => None,
        };
        let log = match mounts::termination_path(container) {
            Some(_) => Some(self.make_termination_log(pod, &container.name).map_err(wrong)?),
            None => None,
        };
        let volumes = self.volume_mounts(pod, container, &ensured.volumes, &config.envs);
        config.mounts = volumes.await.map_err(wrong)?;
        config.devices = self.volume_devices(container).map_err(wrong)?;
        let facts = MountFacts {
            hosts: hosts.as_deref(),
            termination_log: log.as_deref(),
            selinux_relabel: self.settings.machine.selinux,
        };
        config.mounts.extend(mounts::of_container(container, &facts));
        mounts::map_users(&mut config.mounts, users.as_ref());
        Ok(config)
    }

    /// The user the image runs as; needed only where nobody named another.
    async fn image_user(
        &self,
        pod: &DesiredPod,
        container: &Container,
        ensured: &EnsuredImage,
    ) -> Result<ImageUser, String> {
        if security::run_as_user(pod, container).is_some() {
            return Ok(ImageUser::default());
        }
        let image = match &ensured.details {
            Some(image) => image.clone(),
            None => {
                let name = container.image.clone().unwrap_or_default();
                let spec = v1::ImageSpec {
                    image: name.clone(),
                    user_specified_image: name.clone(),
                    ..Default::default()
                };
                let _call = self.calls.begin(format!("ImageStatus {name}"));
                let image = self.ports.runtime.image_status(spec).await;
                let image = image.map_err(|error| error.reason_text())?;
                image.ok_or_else(|| format!("unable to find image {name:?}"))?
            }
        };
        Ok(match (image.uid, image.username) {
            // An image that names nobody runs as root.
            (None, name) if name.is_empty() => ImageUser { uid: Some(0), name },
            (None, name) => ImageUser { uid: None, name },
            (Some(uid), _) => ImageUser { uid: Some(uid.value), name: String::new() },
        })
    }

    /// The instance of the container whose processes an ephemeral one joins.
    async fn target(&self, pod: &DesiredPod, name: &str) -> Result<Option<String>, String> {
        let mut ephemeral = pod.spec().ephemeral_containers.iter().flatten();
        let target = ephemeral.find(|container| container.name == name);
        let target = target.and_then(|container| container.target_container_name.as_deref());
        let Some(target) = target.filter(|target| !target.is_empty()) else { return Ok(None) };
        let label_selector =
            [(labels::POD_UID, pod.uid().as_str()), (labels::CONTAINER_NAME, target)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        let filter = v1::ContainerFilter { label_selector, ..Default::default() };
        let _call = self.calls.begin("ListContainers");
        let found = self.ports.runtime.list_containers(Some(filter)).await;
        let found = found.map_err(|error| error.reason_text())?;
        let running = |c: &v1::Container| c.state() == v1::ContainerState::ContainerRunning;
        let newest = found.into_iter().max_by_key(|c| (running(c), c.created_at));
        let newest = newest.ok_or_else(|| format!("unable to find target container {target}"))?;
        Ok(Some(newest.id))
    }

    /// The count after the highest that left a log: an instance the runtime has forgotten.
    fn restart_count_from_logs(&self, log_dir: &Path) -> u32 {
        let Ok(entries) = self.ports.fs.list(log_dir) else { return 0 };
        let counts = entries.iter().filter_map(|e| log_paths::restart_count_of(e.name.to_str()?));
        counts.max().map_or(0, |highest| highest.saturating_add(1))
    }

    /// Records what kept a container from starting. Ids change with each
    /// attempt, so names stand for them.
    pub(super) fn tell_failure(&self, name: &ContainerName, id: &str, error: &ActionError) {
        let ActionError::NotStarted { waiting, .. } = error else { return };
        let why = match waiting.reason {
            WaitReason::CreateContainerConfigError
            | WaitReason::CreateContainerError
            | WaitReason::RunContainerError => &waiting.message,
            other => other.as_str(),
        };
        let why = if id.is_empty() { why.to_owned() } else { why.replace(id, name.as_str()) };
        self.tell(name, EventType::Warning, "Failed", format!("Error: {why}"));
    }
}

fn not_started(name: &ContainerName, reason: WaitReason, error: &CallError) -> ActionError {
    let waiting = Waiting { reason, message: error.reason_text() };
    ActionError::NotStarted { name: name.clone(), waiting, retry_after: None }
}
