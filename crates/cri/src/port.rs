//! The port through which the kubelet reaches any runtime.
//!
//! Owns nothing. The gRPC client implements it over a socket; simulation
//! implements it over a model. Every call is bounded in time by the
//! implementation, and every error says which call failed, on what, and why.
//! Upstream: staging/src/k8s.io/cri-api/pkg/apis/services.go.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::error::CallError;
use crate::v1;

/// What the kubelet asks of a CRI runtime and its image service.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// Name and version of the runtime.
    async fn version(&self) -> Result<v1::VersionResponse, CallError>;
    /// Runtime and network readiness.
    async fn status(&self) -> Result<v1::StatusResponse, CallError>;
    /// The runtime's own configuration: its cgroup driver.
    async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, CallError>;

    /// Creates and starts a sandbox; returns its id.
    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, CallError>;
    /// Stops a sandbox and everything in it. Idempotent.
    async fn stop_pod_sandbox(&self, id: &str) -> Result<(), CallError>;
    /// Removes a sandbox and everything in it. Idempotent.
    async fn remove_pod_sandbox(&self, id: &str) -> Result<(), CallError>;
    /// Details of one sandbox.
    async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, CallError>;
    /// Sandboxes that match, ready or not.
    async fn list_pod_sandbox(
        &self,
        filter: Option<v1::PodSandboxFilter>,
    ) -> Result<Vec<v1::PodSandbox>, CallError>;

    /// Creates a container in a sandbox; returns its id.
    async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, CallError>;
    /// Starts a created container.
    async fn start_container(&self, id: &str) -> Result<(), CallError>;
    /// Stops a container: signal, wait `grace`, kill. Idempotent.
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CallError>;
    /// Removes a container, killing it if need be. Idempotent.
    async fn remove_container(&self, id: &str) -> Result<(), CallError>;
    /// Containers that match, in any state.
    async fn list_containers(
        &self,
        filter: Option<v1::ContainerFilter>,
    ) -> Result<Vec<v1::Container>, CallError>;
    /// Details of one container.
    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, CallError>;

    /// Changes what a running container may use.
    async fn update_container_resources(
        &self,
        id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), CallError> {
        let _ = resources;
        Err(CallError::unimplemented("UpdateContainerResources", id))
    }
    /// Tells the runtime what a pod as a whole may use from now on. Many runtimes
    /// answer [`CallError::is_unimplemented`].
    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: v1::LinuxContainerResources,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), CallError> {
        let _ = (overhead, resources);
        Err(CallError::unimplemented("UpdatePodSandboxResources", id))
    }

    /// Runs a command in a container and waits for its end, `limit` at the longest.
    /// A command that takes longer is [`CallError::is_deadline`].
    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        limit: Option<Duration>,
    ) -> Result<v1::ExecSyncResponse, CallError>;
    /// Prepares a streamed command; returns the URL to stream it over.
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, CallError>;
    /// Prepares streams to what a container runs; returns the URL to stream over.
    async fn attach(&self, request: v1::AttachRequest) -> Result<String, CallError> {
        Err(CallError::unimplemented("Attach", &request.container_id))
    }
    /// Prepares connections to ports of a pod; returns the URL to stream over.
    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, CallError> {
        Err(CallError::unimplemented("PortForward", &request.pod_sandbox_id))
    }
    /// Tells the runtime the pods' networks, joined by commas.
    async fn update_runtime_config(&self, networks: &str) -> Result<(), CallError> {
        Err(CallError::unimplemented("UpdateRuntimeConfig", networks))
    }
    /// Saves the state of a container to a file.
    async fn checkpoint_container(
        &self,
        request: v1::CheckpointContainerRequest,
    ) -> Result<(), CallError> {
        Err(CallError::unimplemented("CheckpointContainer", &request.container_id))
    }
    /// Opens the container's log anew after the old file was moved away.
    async fn reopen_container_log(&self, id: &str) -> Result<(), CallError>;
    /// What running containers use.
    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>, CallError>;
    /// What pods use as a whole, as far as the runtime knows it.
    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<v1::PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>, CallError> {
        let id = filter.map(|filter| filter.id).unwrap_or_default();
        Err(CallError::unimplemented("ListPodSandboxStats", &id))
    }

    /// Every image the runtime has.
    async fn list_images(&self) -> Result<Vec<v1::Image>, CallError>;
    /// The image if the runtime has it.
    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, CallError>;
    /// Where images and writable layers are kept, and what they take up there.
    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, CallError> {
        Err(CallError::unimplemented("ImageFsInfo", ""))
    }
    /// Pulls an image; returns its reference.
    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CallError>;

    /// Downloads under way, of whichever pull. CRI has no such call; a runtime
    /// that cannot tell answers [`CallError::is_unimplemented`].
    async fn downloads(&self) -> Result<Vec<Download>, CallError> {
        Err(CallError::unimplemented("downloads", ""))
    }

    /// Follows container life-cycle events. A runtime that cannot stream them
    /// answers [`CallError::is_unimplemented`]. The stream may end or fail at
    /// any time; events may be lost, doubled or reordered.
    async fn events(&self) -> Result<EventStream, CallError>;
}

/// Something the runtime is downloading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// The runtime's name for it.
    pub name: String,
    /// Bytes that are here.
    pub done: u64,
    /// Bytes in all; 0 if that is not known.
    pub total: u64,
}

/// A live stream of runtime events.
pub type EventStream = BoxStream<'static, Result<RuntimeEvent, CallError>>;

/// Something happened to a container or sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// Container id, or sandbox id for sandbox events.
    pub container_id: String,
    /// Uid of the pod, where the runtime's event carries it.
    pub pod_uid: Option<String>,
    /// What happened.
    pub kind: RuntimeEventKind,
    /// How a container ended, where the runtime's event says so.
    pub exit: Option<ExitNote>,
}

/// How a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitNote {
    /// Its exit code.
    pub code: i32,
    /// When, in nanoseconds since the epoch.
    pub finished_at: i64,
}

/// The kinds of life-cycle event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeEventKind {
    /// Created, not yet running.
    Created,
    /// Running.
    Started,
    /// Exited.
    Stopped,
    /// Removed.
    Deleted,
}
