//! The CSI client: Identity and Node of one driver over its unix socket.
//!
//! Owns one connection, opened on first use and again after a break. Every
//! call has a limit in time and its own stream, so a hung one holds up no
//! other; dropping a call cancels it at the driver. Never retries: the caller
//! knows what is safe to repeat. Upstream: pkg/volume/csi/csi_client.go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tonic::transport::Channel;

use crate::call::{Call, MESSAGE_BYTES_MAX};
use crate::csi::identity_client::IdentityClient;
use crate::csi::node_client::NodeClient;
use crate::csi::node_service_capability::Type as CapabilityType;
use crate::csi::{self, NodeCapability};
use crate::error::CallError;
use crate::socket::{EndpointError, Socket};

/// Limit of one call, unless told otherwise.
pub const CALL_LIMIT: Duration = Duration::from_secs(120);
/// Longest limit: more would be no limit, and would overflow the clock.
const CALL_LIMIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A CSI driver behind a unix socket.
#[derive(Debug, Clone)]
pub struct CsiClient {
    driver: Arc<str>,
    identity: IdentityClient<Channel>,
    node: NodeClient<Channel>,
    limit: Duration,
}

impl CsiClient {
    /// Checks the endpoint, `unix:///path` or `/path`; connects on the first
    /// call. `driver` is only for errors. Must be called inside a tokio runtime.
    pub fn new(driver: &str, endpoint: &str) -> Result<Self, EndpointError> {
        let channel = Socket::parse(endpoint)?.channel();
        Ok(Self {
            driver: driver.into(),
            identity: IdentityClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
            node: NodeClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX),
            limit: CALL_LIMIT,
        })
    }

    /// The same connection with another limit per call, at most a day.
    pub fn within(&self, limit: Duration) -> Self {
        Self { limit: limit.min(CALL_LIMIT_MAX), ..self.clone() }
    }

    fn call(&self, name: &'static str, volume: &str) -> Call<'_> {
        Call { driver: &self.driver, name, volume: volume.to_owned(), limit: self.limit }
    }

    /// The driver's own name and version.
    pub async fn plugin_info(&self) -> Result<csi::GetPluginInfoResponse, CallError> {
        let mut identity = self.identity.clone();
        let call = self.call("GetPluginInfo", "");
        let request = csi::GetPluginInfoRequest {};
        call.send(request, |request| async move { identity.get_plugin_info(request).await }).await
    }

    /// What the driver as a whole can do.
    pub async fn plugin_capabilities(&self) -> Result<Vec<csi::PluginCapability>, CallError> {
        let mut identity = self.identity.clone();
        let call = self.call("GetPluginCapabilities", "");
        let request = csi::GetPluginCapabilitiesRequest {};
        let rpc = |request| async move { identity.get_plugin_capabilities(request).await };
        Ok(call.send(request, rpc).await?.capabilities)
    }

    /// Whether the driver is ready. One that does not say counts as ready.
    pub async fn probe(&self) -> Result<bool, CallError> {
        let mut identity = self.identity.clone();
        let call = self.call("Probe", "");
        let rpc = |request| async move { identity.probe(request).await };
        Ok(call.send(csi::ProbeRequest {}, rpc).await?.ready.unwrap_or(true))
    }

    /// How the driver knows this node. The node's id is never empty.
    pub async fn node_info(&self) -> Result<csi::NodeGetInfoResponse, CallError> {
        let mut node = self.node.clone();
        let call = self.call("NodeGetInfo", "");
        let rpc = |request| async move { node.node_get_info(request).await };
        let info = call.send(csi::NodeGetInfoRequest {}, rpc).await?;
        if info.node_id.is_empty() {
            return Err(call.nonsense("node_id is not set"));
        }
        Ok(info)
    }

    /// What the driver can do on the node. Capabilities nobody knows are left out.
    pub async fn node_capabilities(&self) -> Result<BTreeSet<NodeCapability>, CallError> {
        let mut node = self.node.clone();
        let call = self.call("NodeGetCapabilities", "");
        let rpc = |request| async move { node.node_get_capabilities(request).await };
        let reply = call.send(csi::NodeGetCapabilitiesRequest {}, rpc).await?;
        let types = reply.capabilities.into_iter().filter_map(|capability| capability.r#type);
        let known = |CapabilityType::Rpc(rpc)| NodeCapability::try_from(rpc.r#type).ok();
        Ok(types.filter_map(known).filter(|kind| *kind != NodeCapability::Unknown).collect())
    }

    /// Mounts a volume once for the node.
    pub async fn stage(&self, request: csi::NodeStageVolumeRequest) -> Result<(), CallError> {
        let mut node = self.node.clone();
        let call = self.call("NodeStageVolume", &request.volume_id);
        let rpc = |request| async move { node.node_stage_volume(request).await };
        call.send(request, rpc).await.map(|_| ())
    }

    /// Undoes [`stage`](Self::stage).
    pub async fn unstage(&self, volume: &str, staging_path: &str) -> Result<(), CallError> {
        let mut node = self.node.clone();
        let request = csi::NodeUnstageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: staging_path.to_owned(),
        };
        let rpc = |request| async move { node.node_unstage_volume(request).await };
        self.call("NodeUnstageVolume", volume).send(request, rpc).await.map(|_| ())
    }

    /// Mounts a volume for one pod.
    pub async fn publish(&self, request: csi::NodePublishVolumeRequest) -> Result<(), CallError> {
        let mut node = self.node.clone();
        let call = self.call("NodePublishVolume", &request.volume_id);
        let rpc = |request| async move { node.node_publish_volume(request).await };
        call.send(request, rpc).await.map(|_| ())
    }

    /// Undoes [`publish`](Self::publish); the driver removes the target too.
    pub async fn unpublish(&self, volume: &str, target_path: &str) -> Result<(), CallError> {
        let mut node = self.node.clone();
        let request = csi::NodeUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            target_path: target_path.to_owned(),
        };
        let rpc = |request| async move { node.node_unpublish_volume(request).await };
        self.call("NodeUnpublishVolume", volume).send(request, rpc).await.map(|_| ())
    }

    /// Size, use and health of a volume.
    pub async fn volume_stats(
        &self,
        request: csi::NodeGetVolumeStatsRequest,
    ) -> Result<csi::NodeGetVolumeStatsResponse, CallError> {
        let mut node = self.node.clone();
        let call = self.call("NodeGetVolumeStats", &request.volume_id);
        call.send(request, |request| async move { node.node_get_volume_stats(request).await }).await
    }

    /// Grows a volume's filesystem; returns its size in bytes, zero if untold.
    pub async fn expand(&self, request: csi::NodeExpandVolumeRequest) -> Result<i64, CallError> {
        let mut node = self.node.clone();
        let call = self.call("NodeExpandVolume", &request.volume_id);
        let rpc = |request| async move { node.node_expand_volume(request).await };
        Ok(call.send(request, rpc).await?.capacity_bytes)
    }
}
