//! The runtime's objects as CRI messages, and CRI's filters.

use std::collections::BTreeMap;

use cri::v1;
use tokio::time::Instant;

use super::model::{Container, Sandbox, image_id};
use crate::world::State;

impl Sandbox {
    fn state(&self) -> v1::PodSandboxState {
        if self.ready {
            v1::PodSandboxState::SandboxReady
        } else {
            v1::PodSandboxState::SandboxNotready
        }
    }

    fn matches(&self, filter: &v1::PodSandboxFilter) -> bool {
        (filter.id.is_empty() || self.id.starts_with(&filter.id))
            && filter.state.is_none_or(|value| value.state() == self.state())
            && selects(&filter.label_selector, &self.config.labels)
    }

    fn listed(&self) -> v1::PodSandbox {
        v1::PodSandbox {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: self.created_ns,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.handler.clone(),
        }
    }

    /// As `PodSandboxStatus` reports it.
    pub(crate) fn status(&self) -> v1::PodSandboxStatus {
        v1::PodSandboxStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: self.created_ns,
            network: Some(v1::PodSandboxNetworkStatus {
                // containerd reports no address once the sandbox has stopped.
                ip: if self.ready { self.ip.clone() } else { String::new() },
                additional_ips: Vec::new(),
            }),
            linux: self.linux(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.handler.clone(),
        }
    }

    fn linux(&self) -> Option<v1::LinuxPodSandboxStatus> {
        let context = self.config.linux.as_ref()?.security_context.as_ref()?;
        Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace { options: context.namespace_options.clone() }),
        })
    }
}

impl Container {
    fn matches(&self, filter: &v1::ContainerFilter) -> bool {
        (filter.id.is_empty() || self.id.starts_with(&filter.id))
            && (filter.pod_sandbox_id.is_empty() || self.sandbox == filter.pod_sandbox_id)
            && filter.state.is_none_or(|value| value.state() == self.told_state())
            && selects(&filter.label_selector, &self.config.labels)
    }

    fn listed(&self) -> v1::Container {
        v1::Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: image_id(&self.image),
            state: self.told_state().into(),
            created_at: self.created_ns,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id: image_id(&self.image),
        }
    }

    /// The state as the runtime's records have it, which follow the process.
    fn told_state(&self) -> v1::ContainerState {
        match self.recorded_at {
            Some(at) if Instant::now() < at => v1::ContainerState::ContainerRunning,
            _ => self.state,
        }
    }

    /// As `ContainerStatus` reports it.
    pub(crate) fn status(&self) -> v1::ContainerStatus {
        let state = self.told_state();
        let ended = state == v1::ContainerState::ContainerExited;
        v1::ContainerStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: state.into(),
            created_at: self.created_ns,
            started_at: self.started_ns,
            finished_at: if ended { self.finished_ns } else { 0 },
            exit_code: if ended { self.exit_code } else { 0 },
            image: Some(v1::ImageSpec { image: self.image.clone(), ..Default::default() }),
            image_ref: image_id(&self.image),
            image_id: image_id(&self.image),
            reason: if ended { self.reason.clone() } else { String::new() },
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self.log_path.clone(),
            resources: self.config.linux.as_ref().map(|linux| v1::ContainerResources {
                linux: linux.resources.clone(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

impl State {
    pub(crate) fn listed_sandboxes(
        &self,
        filter: Option<&v1::PodSandboxFilter>,
    ) -> Vec<v1::PodSandbox> {
        let all = self.objects.sandboxes.values();
        all.filter(|s| filter.is_none_or(|f| s.matches(f))).map(Sandbox::listed).collect()
    }

    pub(crate) fn listed_containers(
        &self,
        filter: Option<&v1::ContainerFilter>,
    ) -> Vec<v1::Container> {
        let all = self.objects.containers.values();
        all.filter(|c| filter.is_none_or(|f| c.matches(f))).map(Container::listed).collect()
    }

    pub(crate) fn image(&self, asked: &str) -> Option<v1::Image> {
        let mut present = self.objects.images.iter();
        let name = present.find(|name| name.as_str() == asked || image_id(name) == asked)?;
        Some(v1::Image {
            id: image_id(name),
            repo_tags: vec![name.clone()],
            size: 1 << 20,
            ..Default::default()
        })
    }
}

fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}
