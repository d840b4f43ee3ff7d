//! Reaching plugins: programs beside the agent that speak gRPC on sockets of
//! their own.
//!
//! Every call has a limit in time. Nothing is tried twice: the caller knows what
//! may be repeated. Upstream: pkg/kubelet/pluginmanager, pkg/volume/csi/csi_client.go.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use plugin_apis::csi::{
    NodeCapability, NodeExpandVolumeRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodeStageVolumeRequest,
};
use plugin_apis::pluginregistration::PluginInfo;
use plugin_apis::{CallError, CsiClient, EndpointError, RegistrationClient};

/// Opens connections to plugins.
pub trait Plugins: Send + Sync + 'static {
    /// Whoever wants to register behind a socket; connects on the first call.
    fn registrar(&self, socket: &Path) -> Result<Arc<dyn Registrar>, EndpointError>;
    /// A CSI driver by its name, at an endpoint; connects on the first call.
    fn csi(&self, driver: &str, endpoint: &str) -> Result<Arc<dyn CsiNode>, EndpointError>;
}

/// A plugin that wants to register.
#[async_trait]
pub trait Registrar: Send + Sync {
    /// Who is there.
    async fn info(&self) -> Result<PluginInfo, CallError>;
    /// Tells it that it is registered, or why not.
    async fn notify(&self, verdict: Result<(), String>) -> Result<(), CallError>;
}

/// What a CSI driver does on a node.
#[async_trait]
pub trait CsiNode: Send + Sync {
    /// How the driver knows this node.
    async fn info(&self) -> Result<NodeGetInfoResponse, CallError>;
    /// What it can do here.
    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CallError>;
    /// Mounts a volume once for the node.
    async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), CallError>;
    /// Undoes that.
    async fn unstage(&self, volume: &str, staging_path: &str) -> Result<(), CallError>;
    /// Mounts a volume for one pod.
    async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), CallError>;
    /// Undoes that.
    async fn unpublish(&self, volume: &str, target_path: &str) -> Result<(), CallError>;
    /// Has a volume that is mounted fill what it has become.
    async fn expand(&self, request: NodeExpandVolumeRequest) -> Result<(), CallError>;
    /// What a volume holds.
    async fn stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, CallError>;
}

/// Plugins on the machine's own sockets.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketPlugins;

impl Plugins for SocketPlugins {
    fn registrar(&self, socket: &Path) -> Result<Arc<dyn Registrar>, EndpointError> {
        Ok(Arc::new(RegistrationClient::new(&socket.to_string_lossy())?))
    }

    fn csi(&self, driver: &str, endpoint: &str) -> Result<Arc<dyn CsiNode>, EndpointError> {
        Ok(Arc::new(CsiClient::new(driver, endpoint)?))
    }
}

#[async_trait]
impl Registrar for RegistrationClient {
    async fn info(&self) -> Result<PluginInfo, CallError> {
        Self::info(self).await
    }

    async fn notify(&self, verdict: Result<(), String>) -> Result<(), CallError> {
        Self::notify(self, verdict.as_ref().copied().map_err(String::as_str)).await
    }
}

#[async_trait]
impl CsiNode for CsiClient {
    async fn info(&self) -> Result<NodeGetInfoResponse, CallError> {
        self.node_info().await
    }

    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CallError> {
        self.node_capabilities().await
    }

    async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), CallError> {
        Self::stage(self, request).await
    }

    async fn unstage(&self, volume: &str, staging_path: &str) -> Result<(), CallError> {
        Self::unstage(self, volume, staging_path).await
    }

    async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), CallError> {
        Self::publish(self, request).await
    }

    async fn unpublish(&self, volume: &str, target_path: &str) -> Result<(), CallError> {
        Self::unpublish(self, volume, target_path).await
    }

    async fn expand(&self, request: NodeExpandVolumeRequest) -> Result<(), CallError> {
        Self::expand(self, request).await.map(drop)
    }

    async fn stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, CallError> {
        self.volume_stats(request).await
    }
}
