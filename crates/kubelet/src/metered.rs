//! Counts and times every call to the runtime.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri::{CallError, Download, EventStream, Runtime, v1};
use tokio::time::Instant;

use crate::metrics::{Metrics, Operation};

/// A runtime whose calls show up in the metrics.
pub struct Metered {
    inner: Arc<dyn Runtime>,
    metrics: Arc<Metrics>,
}

impl Metered {
    /// Wraps a runtime.
    pub fn new(inner: Arc<dyn Runtime>, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics }
    }

    async fn count<T>(
        &self,
        operation_type: &'static str,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let label = Operation { operation_type };
        self.metrics.operations.get_or_create(&label).inc();
        let began = Instant::now();
        let answer = call.await;
        let took = began.elapsed().as_secs_f64();
        self.metrics.operation_seconds.get_or_create(&label).observe(took);
        if answer.is_err() {
            self.metrics.operation_errors.get_or_create(&label).inc();
        }
        answer
    }
}

#[async_trait]
impl Runtime for Metered {
    async fn version(&self) -> Result<v1::VersionResponse, CallError> {
        self.count("version", self.inner.version()).await
    }
    async fn status(&self) -> Result<v1::StatusResponse, CallError> {
        self.count("status", self.inner.status()).await
    }
    async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, CallError> {
        self.count("runtime_config", self.inner.runtime_config()).await
    }
    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        handler: &str,
    ) -> Result<String, CallError> {
        self.count("run_podsandbox", self.inner.run_pod_sandbox(config, handler)).await
    }
    async fn stop_pod_sandbox(&self, id: &str) -> Result<(), CallError> {
        self.count("stop_podsandbox", self.inner.stop_pod_sandbox(id)).await
    }
    async fn remove_pod_sandbox(&self, id: &str) -> Result<(), CallError> {
        self.count("remove_podsandbox", self.inner.remove_pod_sandbox(id)).await
    }
    async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, CallError> {
        self.count("podsandbox_status", self.inner.pod_sandbox_status(id)).await
    }
    async fn list_pod_sandbox(
        &self,
        filter: Option<v1::PodSandboxFilter>,
    ) -> Result<Vec<v1::PodSandbox>, CallError> {
        self.count("list_podsandbox", self.inner.list_pod_sandbox(filter)).await
    }
    async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, CallError> {
        self.count(
            "create_container",
            self.inner.create_container(sandbox_id, config, sandbox_config),
        )
        .await
    }
    async fn start_container(&self, id: &str) -> Result<(), CallError> {
        self.count("start_container", self.inner.start_container(id)).await
    }
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CallError> {
        self.count("stop_container", self.inner.stop_container(id, grace)).await
    }
    async fn remove_container(&self, id: &str) -> Result<(), CallError> {
        self.count("remove_container", self.inner.remove_container(id)).await
    }
    async fn list_containers(
        &self,
        filter: Option<v1::ContainerFilter>,
    ) -> Result<Vec<v1::Container>, CallError> {
        self.count("list_containers", self.inner.list_containers(filter)).await
    }
    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, CallError> {
        self.count("container_status", self.inner.container_status(id)).await
    }
    async fn update_container_resources(
        &self,
        id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), CallError> {
        let update = self.inner.update_container_resources(id, resources);
        self.count("update_container", update).await
    }
    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: v1::LinuxContainerResources,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), CallError> {
        let update = self.inner.update_pod_sandbox_resources(id, overhead, resources);
        self.count("update_podsandbox_resources", update).await
    }
    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        limit: Option<Duration>,
    ) -> Result<v1::ExecSyncResponse, CallError> {
        self.count("exec_sync", self.inner.exec_sync(id, command, limit)).await
    }
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, CallError> {
        self.count("exec", self.inner.exec(request)).await
    }
    async fn attach(&self, request: v1::AttachRequest) -> Result<String, CallError> {
        self.count("attach", self.inner.attach(request)).await
    }
    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, CallError> {
        self.count("port_forward", self.inner.port_forward(request)).await
    }
    async fn update_runtime_config(&self, networks: &str) -> Result<(), CallError> {
        self.count("update_runtime_config", self.inner.update_runtime_config(networks)).await
    }
    async fn checkpoint_container(
        &self,
        request: v1::CheckpointContainerRequest,
    ) -> Result<(), CallError> {
        self.count("checkpoint_container", self.inner.checkpoint_container(request)).await
    }
    async fn reopen_container_log(&self, id: &str) -> Result<(), CallError> {
        self.count("reopen_container_log", self.inner.reopen_container_log(id)).await
    }
    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>, CallError> {
        self.count("list_container_stats", self.inner.list_container_stats()).await
    }
    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<v1::PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>, CallError> {
        self.count("list_podsandbox_stats", self.inner.list_pod_sandbox_stats(filter)).await
    }
    async fn list_images(&self) -> Result<Vec<v1::Image>, CallError> {
        self.count("list_images", self.inner.list_images()).await
    }
    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, CallError> {
        self.count("image_status", self.inner.image_status(image)).await
    }
    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, CallError> {
        self.count("image_fs_info", self.inner.image_fs_info()).await
    }
    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CallError> {
        self.count("pull_image", self.inner.pull_image(image, auth, sandbox_config)).await
    }
    async fn downloads(&self) -> Result<Vec<Download>, CallError> {
        self.count("list_downloads", self.inner.downloads()).await
    }
    async fn events(&self) -> Result<EventStream, CallError> {
        self.count("get_container_events", self.inner.events()).await
    }
}
