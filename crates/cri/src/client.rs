//! The gRPC client: the [`Runtime`] port over unix sockets.
//!
//! Owns one connection per endpoint, opened on first use and again after a
//! break. Every call has its own limit in time and its own stream, so a hung
//! one holds up no other; dropping a call cancels it at the runtime. Never
//! retries: the caller knows what is safe to repeat. Upstream:
//! staging/src/k8s.io/cri-client/pkg.

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::answers;
use crate::containerd::content;
use crate::containerd::content::content_client::ContentClient;
use crate::containerd::events_client::EventsClient;
use crate::endpoint::{EndpointError, Socket};
use crate::error::{CallError, CallErrorKind};
use crate::events;
use crate::port::{Download, EventStream, Runtime};
use crate::v1;
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;

/// Largest reply taken, as upstream: room for a big node's listing, a bound
/// against a runtime gone wild.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// Where the runtime is and how long to wait for it.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// `unix:///path` or `/path`.
    pub runtime_endpoint: String,
    /// The image service, if it lives elsewhere.
    pub image_endpoint: Option<String>,
    /// Limit of one call. Some get more, see [`CriClient`].
    pub request_timeout: Duration,
}

/// A CRI runtime behind unix sockets.
///
/// Calls end within `request_timeout`, except: RunPodSandbox has twice that,
/// StopContainer has the grace on top, PullImage and the event stream have no
/// limit. Dropping a call's future cancels the call.
#[derive(Debug, Clone)]
pub struct CriClient {
    runtime: RuntimeServiceClient<Channel>,
    image: ImageServiceClient<Channel>,
    containerd_events: EventsClient<Channel>,
    containerd_content: ContentClient<Channel>,
    request_timeout: Duration,
}

impl CriClient {
    /// Checks the endpoints; connects on the first call, so the runtime may
    /// come up later. Must be called inside a tokio runtime.
    pub fn new(config: ClientConfig) -> Result<Self, EndpointError> {
        let runtime_socket = Socket::parse(&config.runtime_endpoint)?;
        let image_socket = match &config.image_endpoint {
            Some(endpoint) => Socket::parse(endpoint)?,
            None => runtime_socket.clone(),
        };
        let channel = runtime_socket.channel();
        let image_channel =
            if image_socket == runtime_socket { channel.clone() } else { image_socket.channel() };
        Ok(Self {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(REPLY_BYTES_MAX),
            containerd_content: ContentClient::new(image_channel.clone())
                .max_decoding_message_size(REPLY_BYTES_MAX),
            image: ImageServiceClient::new(image_channel)
                .max_decoding_message_size(REPLY_BYTES_MAX),
            containerd_events: EventsClient::new(channel)
                .max_decoding_message_size(REPLY_BYTES_MAX),
            request_timeout: config.request_timeout,
        })
    }

    fn call(&self, name: &'static str, object: impl Into<String>) -> Call {
        Call { name, object: object.into(), limit: Some(self.request_timeout) }
    }
}

/// One call under way: its name for errors and its limit.
struct Call {
    name: &'static str,
    object: String,
    limit: Option<Duration>,
}

impl Call {
    fn within(self, limit: Option<Duration>) -> Self {
        Self { limit, ..self }
    }

    /// Sends the call, waits for the reply, checks it.
    async fn send<R, T>(
        self,
        reply: impl Future<Output = Result<Response<R>, Status>>,
        check: impl FnOnce(R) -> Result<T, String>,
    ) -> Result<T, CallError> {
        let outcome = match self.limit {
            None => Ok(reply.await),
            Some(limit) => {
                tokio::time::timeout(limit, reply).await.map_err(|_| CallErrorKind::TimedOut(limit))
            }
        };
        let kind = match outcome {
            Err(kind) => kind,
            Ok(Err(status)) => status.into(),
            Ok(Ok(response)) => match check(response.into_inner()) {
                Ok(answer) => return Ok(answer),
                Err(why) => CallErrorKind::Nonsense(why),
            },
        };
        Err(CallError { call: self.name, object: self.object, kind })
    }
}

/// The check of calls whose reply is empty.
fn nothing<R>(_: R) -> Result<(), String> {
    Ok(())
}

/// CRI counts grace in seconds; a started second is granted in full.
fn whole_seconds(grace: Duration) -> i64 {
    let seconds = grace.as_secs().saturating_add(u64::from(grace.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// The pod a sandbox is for, as errors name it.
fn pod_name(config: &v1::PodSandboxConfig) -> String {
    config.metadata.as_ref().map(|m| format!("{}/{}", m.namespace, m.name)).unwrap_or_default()
}

#[async_trait]
impl Runtime for CriClient {
    async fn version(&self) -> Result<v1::VersionResponse, CallError> {
        let call = self.call("Version", "");
        let request = v1::VersionRequest { version: answers::API_VERSION.to_owned() };
        call.send(self.runtime.clone().version(request), answers::version).await
    }
    async fn status(&self) -> Result<v1::StatusResponse, CallError> {
        let call = self.call("Status", "");
        let request = v1::StatusRequest { verbose: false };
        call.send(self.runtime.clone().status(request), answers::status).await
    }
    async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, CallError> {
        let call = self.call("RuntimeConfig", "");
        let request = v1::RuntimeConfigRequest {};
        call.send(self.runtime.clone().runtime_config(request), Ok).await
    }

    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, CallError> {
        let call = self
            .call("RunPodSandbox", pod_name(&config))
            .within(Some(self.request_timeout.saturating_mul(2)));
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: runtime_handler.to_owned(),
        };
        call.send(self.runtime.clone().run_pod_sandbox(request), |reply| {
            answers::text("pod_sandbox_id", reply.pod_sandbox_id)
        })
        .await
    }
    async fn stop_pod_sandbox(&self, id: &str) -> Result<(), CallError> {
        let call = self.call("StopPodSandbox", id);
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        call.send(self.runtime.clone().stop_pod_sandbox(request), nothing).await
    }
    async fn remove_pod_sandbox(&self, id: &str) -> Result<(), CallError> {
        let call = self.call("RemovePodSandbox", id);
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        call.send(self.runtime.clone().remove_pod_sandbox(request), nothing).await
    }
    async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, CallError> {
        let call = self.call("PodSandboxStatus", id);
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        call.send(self.runtime.clone().pod_sandbox_status(request), answers::sandbox_status).await
    }
    async fn list_pod_sandbox(
        &self,
        filter: Option<v1::PodSandboxFilter>,
    ) -> Result<Vec<v1::PodSandbox>, CallError> {
        let call = self.call("ListPodSandbox", "");
        let request = v1::ListPodSandboxRequest { filter };
        call.send(self.runtime.clone().list_pod_sandbox(request), |reply| Ok(reply.items)).await
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, CallError> {
        let name = config.metadata.as_ref().map_or("", |metadata| &metadata.name);
        let call = self.call("CreateContainer", format!("{name} in sandbox {sandbox_id}"));
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        call.send(self.runtime.clone().create_container(request), |reply| {
            answers::text("container_id", reply.container_id)
        })
        .await
    }
    async fn start_container(&self, id: &str) -> Result<(), CallError> {
        let call = self.call("StartContainer", id);
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        call.send(self.runtime.clone().start_container(request), nothing).await
    }
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CallError> {
        let call =
            self.call("StopContainer", id).within(Some(self.request_timeout.saturating_add(grace)));
        let request =
            v1::StopContainerRequest { container_id: id.to_owned(), timeout: whole_seconds(grace) };
        call.send(self.runtime.clone().stop_container(request), nothing).await
    }
    async fn remove_container(&self, id: &str) -> Result<(), CallError> {
        let call = self.call("RemoveContainer", id);
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        call.send(self.runtime.clone().remove_container(request), nothing).await
    }
    async fn list_containers(
        &self,
        filter: Option<v1::ContainerFilter>,
    ) -> Result<Vec<v1::Container>, CallError> {
        let call = self.call("ListContainers", "");
        let request = v1::ListContainersRequest { filter };
        call.send(self.runtime.clone().list_containers(request), |reply| Ok(reply.containers)).await
    }
    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, CallError> {
        let call = self.call("ContainerStatus", id);
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        call.send(self.runtime.clone().container_status(request), answers::container_status).await
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), CallError> {
        let call = self.call("UpdateContainerResources", id);
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(resources),
            ..Default::default()
        };
        call.send(self.runtime.clone().update_container_resources(request), nothing).await
    }
    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: v1::LinuxContainerResources,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), CallError> {
        let call = self.call("UpdatePodSandboxResources", id);
        let request = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.to_owned(),
            overhead: Some(overhead),
            resources: Some(resources),
        };
        call.send(self.runtime.clone().update_pod_sandbox_resources(request), nothing).await
    }

    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        limit: Option<Duration>,
    ) -> Result<v1::ExecSyncResponse, CallError> {
        // The runtime enforces the limit; it gets the usual time to say so.
        let patience = limit.map(|limit| self.request_timeout.saturating_add(limit));
        let call = self.call("ExecSync", id).within(patience);
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command,
            timeout: limit.map_or(0, whole_seconds),
        };
        call.send(self.runtime.clone().exec_sync(request), Ok).await
    }
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, CallError> {
        let call = self.call("Exec", &request.container_id);
        call.send(self.runtime.clone().exec(request), |reply| answers::text("url", reply.url)).await
    }
    async fn attach(&self, request: v1::AttachRequest) -> Result<String, CallError> {
        let call = self.call("Attach", &request.container_id);
        let mut runtime = self.runtime.clone();
        call.send(runtime.attach(request), |reply| answers::text("url", reply.url)).await
    }
    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, CallError> {
        let call = self.call("PortForward", &request.pod_sandbox_id);
        let mut runtime = self.runtime.clone();
        call.send(runtime.port_forward(request), |reply| answers::text("url", reply.url)).await
    }
    async fn update_runtime_config(&self, networks: &str) -> Result<(), CallError> {
        let network = v1::NetworkConfig { pod_cidr: networks.to_owned() };
        let config = v1::RuntimeConfig { network_config: Some(network) };
        let request = v1::UpdateRuntimeConfigRequest { runtime_config: Some(config) };
        let call = self.call("UpdateRuntimeConfig", networks);
        call.send(self.runtime.clone().update_runtime_config(request), nothing).await
    }
    async fn checkpoint_container(
        &self,
        request: v1::CheckpointContainerRequest,
    ) -> Result<(), CallError> {
        let seconds = u64::try_from(request.timeout).unwrap_or_default();
        // The runtime keeps the time it is given; it may need a moment to answer.
        let limit = self.request_timeout.saturating_add(Duration::from_secs(seconds));
        let call = self.call("CheckpointContainer", &request.container_id).within(Some(limit));
        call.send(self.runtime.clone().checkpoint_container(request), nothing).await
    }
    async fn reopen_container_log(&self, id: &str) -> Result<(), CallError> {
        let call = self.call("ReopenContainerLog", id);
        let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
        call.send(self.runtime.clone().reopen_container_log(request), nothing).await
    }
    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>, CallError> {
        let call = self.call("ListContainerStats", "");
        let request = v1::ListContainerStatsRequest { filter: None };
        call.send(self.runtime.clone().list_container_stats(request), |reply| Ok(reply.stats)).await
    }
    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<v1::PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>, CallError> {
        let id = filter.as_ref().map_or("", |filter| &filter.id);
        let call = self.call("ListPodSandboxStats", id);
        let request = v1::ListPodSandboxStatsRequest { filter };
        let mut runtime = self.runtime.clone();
        call.send(runtime.list_pod_sandbox_stats(request), |reply| Ok(reply.stats)).await
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>, CallError> {
        let call = self.call("ListImages", "");
        let request = v1::ListImagesRequest { filter: None };
        call.send(self.image.clone().list_images(request), |reply| Ok(reply.images)).await
    }
    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, CallError> {
        let call = self.call("ImageStatus", &image.image);
        let request = v1::ImageStatusRequest { image: Some(image), verbose: false };
        call.send(self.image.clone().image_status(request), answers::image_status).await
    }
    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, CallError> {
        let call = self.call("ImageFsInfo", "");
        call.send(self.image.clone().image_fs_info(v1::ImageFsInfoRequest {}), Ok).await
    }
    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CallError> {
        let call = self.call("PullImage", &image.image).within(None);
        let request = v1::PullImageRequest { image: Some(image), auth, sandbox_config };
        call.send(self.image.clone().pull_image(request), |reply| {
            answers::text("image_ref", reply.image_ref)
        })
        .await
    }

    async fn downloads(&self) -> Result<Vec<Download>, CallError> {
        let call = self.call("containerd ListStatuses", "");
        let request = answers::in_namespace(content::ListStatusesRequest::default());
        call.send(self.containerd_content.clone().list_statuses(request), answers::downloads).await
    }

    async fn events(&self) -> Result<EventStream, CallError> {
        events::follow(self.runtime.clone(), self.containerd_events.clone()).await
    }
}
