//! The gRPC services of a driver: Identity, Node and Registration.
//!
//! Every call is recorded, meets its fault if one is queued, and else does
//! what it says through [`Volumes`].

use std::collections::BTreeMap;
use std::future::pending;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use plugin_apis::csi::identity_server::{Identity, IdentityServer};
use plugin_apis::csi::node_server::{Node, NodeServer};
use plugin_apis::csi::{self, NodeCapability, plugin_capability};
use plugin_apis::pluginregistration::registration_server::{Registration, RegistrationServer};
use plugin_apis::pluginregistration::{
    CSI_PLUGIN, InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use rustix::mount::MountFlags;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

use super::CsiOptions;
use super::script::{Asked, Ending, Entry, Outcome, Script, lock};
use super::serve::Stop;
use super::usage;
use super::volumes::Volumes;
use super::wanted;

/// What a driver knows, whether it is serving or not.
pub(super) struct Shared {
    pub(super) options: CsiOptions,
    pub(super) socket: PathBuf,
    pub(super) script: Script,
    pub(super) volumes: Volumes,
    /// Volumes that are ill, and of what.
    pub(super) conditions: Mutex<BTreeMap<String, String>>,
}

/// One run of a driver.
#[derive(Clone)]
struct Service {
    shared: Arc<Shared>,
    crash: Arc<Stop>,
}

/// The CSI services. They tell `crash` when they are to crash.
pub(super) fn driver(shared: &Arc<Shared>, crash: &Arc<Stop>) -> Routes {
    let service = Service { shared: Arc::clone(shared), crash: Arc::clone(crash) };
    Routes::new(IdentityServer::new(service.clone())).add_service(NodeServer::new(service))
}

/// The registration service, which real drivers leave to a program beside them.
pub(super) fn registrar(shared: &Arc<Shared>, crash: &Arc<Stop>) -> Routes {
    let service = Service { shared: Arc::clone(shared), crash: Arc::clone(crash) };
    Routes::new(RegistrationServer::new(service))
}

fn answer<R>(entry: Entry<'_>, reply: Result<R, Status>) -> Result<Response<R>, Status> {
    entry.end(Outcome::Answered(reply.as_ref().err().map_or(Code::Ok, Status::code)));
    reply.map(Response::new)
}

impl Service {
    /// Records the call and does `effect`, unless a fault is in the way.
    async fn act<T: Asked, R>(
        &self,
        request: Request<T>,
        effect: impl FnOnce(&T) -> Result<R, Status>,
    ) -> Result<Response<R>, Status> {
        let request = request.into_inner();
        let entry = self.shared.script.begin(&request);
        let Some(fault) = self.shared.script.next_fault(T::RPC) else {
            return answer(entry, effect(&request));
        };
        if fault.done
            && let Err(status) = effect(&request)
        {
            // What really failed is told in place of the fault.
            return answer(entry, Err(status));
        }
        match fault.ending {
            Ending::Fail(code) => answer(entry, Err(Status::new(code, "as the test wants it"))),
            Ending::Hang => pending().await,
            Ending::Crash => {
                entry.end(Outcome::Crashed);
                self.crash.tell();
                pending().await
            }
        }
    }

    fn offers(&self, capability: NodeCapability) -> bool {
        self.shared.options.capabilities.contains(&capability)
    }

    fn require(&self, capability: NodeCapability) -> Result<(), Status> {
        if self.offers(capability) {
            return Ok(());
        }
        Err(Status::unimplemented(format!("needs {}", capability.as_str_name())))
    }

    fn stage(&self, request: &csi::NodeStageVolumeRequest) -> Result<(), Status> {
        self.require(NodeCapability::StageUnstageVolume)?;
        let options = &self.shared.options;
        let wanted = wanted::parse(request.volume_capability.as_ref(), &options.capabilities)?;
        let (volume, staging) = (&request.volume_id, &request.staging_target_path);
        self.shared.volumes.stage(volume, staging, &wanted, &request.volume_context)
    }

    fn publish(&self, request: &csi::NodePublishVolumeRequest) -> Result<(), Status> {
        let options = &self.shared.options;
        let mut wanted = wanted::parse(request.volume_capability.as_ref(), &options.capabilities)?;
        if request.readonly {
            wanted.flags |= MountFlags::RDONLY;
        }
        let stages = self.offers(NodeCapability::StageUnstageVolume);
        let staging = stages.then_some(&*request.staging_target_path);
        let (volume, target) = (&request.volume_id, &request.target_path);
        self.shared.volumes.publish(volume, staging, target, &wanted, &request.volume_context)
    }

    fn stats(
        &self,
        request: &csi::NodeGetVolumeStatsRequest,
    ) -> Result<csi::NodeGetVolumeStatsResponse, Status> {
        self.require(NodeCapability::GetVolumeStats)?;
        let volumes = &self.shared.volumes;
        let path = volumes.mounted_at(&request.volume_id, &request.volume_path)?;
        let usage = match volumes.device_size(&request.volume_id) {
            Some(size) => Ok(usage::of_device(size)),
            None => usage::measure(&path, volumes.size(&request.volume_id)),
        };
        let usage = usage
            .map_err(|err| Status::internal(format!("cannot measure {}: {err}", path.display())))?;
        let condition = || {
            let ill = lock(&self.shared.conditions).get(&request.volume_id).cloned();
            let abnormal = ill.is_some();
            csi::VolumeCondition { abnormal, message: ill.unwrap_or_else(|| "well".to_owned()) }
        };
        let volume_condition = self.offers(NodeCapability::VolumeCondition).then(condition);
        Ok(csi::NodeGetVolumeStatsResponse { usage, volume_condition })
    }

    fn expand(&self, request: &csi::NodeExpandVolumeRequest) -> Result<i64, Status> {
        self.require(NodeCapability::ExpandVolume)?;
        let volumes = &self.shared.volumes;
        volumes.mounted_at(&request.volume_id, &request.volume_path)?;
        let range = request.capacity_range.unwrap_or_default();
        let wrong = || Status::out_of_range(format!("{range:?} is no range of sizes"));
        let required = u64::try_from(range.required_bytes).map_err(|_| wrong())?;
        let limit = u64::try_from(range.limit_bytes).map_err(|_| wrong())?;
        let device = volumes.device_size(&request.volume_id);
        // A volume never shrinks.
        let size = device.or_else(|| volumes.size(&request.volume_id)).unwrap_or(0).max(required);
        if limit != 0 && size > limit {
            return Err(wrong());
        }
        match device {
            Some(_) => volumes.grow_device(&request.volume_id, size)?,
            None => volumes.set_size(&request.volume_id, size)?,
        }
        i64::try_from(size).map_err(|_| wrong())
    }
}

#[tonic::async_trait]
impl Identity for Service {
    async fn get_plugin_info(
        &self,
        request: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        self.act(request, |_| {
            Ok(csi::GetPluginInfoResponse {
                name: self.shared.options.name.clone(),
                vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
                manifest: BTreeMap::new(),
            })
        })
        .await
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        use plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
        let mut kinds = Vec::new();
        if !self.shared.options.topology.is_empty() {
            let r#type = service::Type::VolumeAccessibilityConstraints as i32;
            kinds.push(Type::Service(Service { r#type }));
        }
        if self.offers(NodeCapability::ExpandVolume) {
            let r#type = volume_expansion::Type::Online as i32;
            kinds.push(Type::VolumeExpansion(VolumeExpansion { r#type }));
        }
        let capability = |kind| csi::PluginCapability { r#type: Some(kind) };
        let capabilities = kinds.into_iter().map(capability).collect();
        self.act(request, |_| Ok(csi::GetPluginCapabilitiesResponse { capabilities })).await
    }

    async fn probe(
        &self,
        request: Request<csi::ProbeRequest>,
    ) -> Result<Response<csi::ProbeResponse>, Status> {
        self.act(request, |_| Ok(csi::ProbeResponse { ready: Some(true) })).await
    }
}

#[tonic::async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        self.act(request, |asked| self.stage(asked).map(|()| csi::NodeStageVolumeResponse {})).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        self.act(request, |asked| {
            self.require(NodeCapability::StageUnstageVolume)?;
            self.shared.volumes.unstage(&asked.volume_id, &asked.staging_target_path)?;
            Ok(csi::NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        self.act(request, |asked| self.publish(asked).map(|()| csi::NodePublishVolumeResponse {}))
            .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        self.act(request, |asked| {
            self.shared.volumes.unpublish(&asked.volume_id, &asked.target_path)?;
            Ok(csi::NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        self.act(request, |asked| self.stats(asked)).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        self.act(request, |asked| {
            Ok(csi::NodeExpandVolumeResponse { capacity_bytes: self.expand(asked)? })
        })
        .await
    }

    async fn node_get_capabilities(
        &self,
        request: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        use csi::node_service_capability::{Rpc, Type};
        let capability = |kind: &NodeCapability| csi::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: *kind as i32 })),
        };
        let capabilities = self.shared.options.capabilities.iter().map(capability).collect();
        self.act(request, |_| Ok(csi::NodeGetCapabilitiesResponse { capabilities })).await
    }

    async fn node_get_info(
        &self,
        request: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        self.act(request, |_| {
            let options = &self.shared.options;
            let segments = options.topology.clone();
            Ok(csi::NodeGetInfoResponse {
                node_id: options.node_id.clone(),
                max_volumes_per_node: options.volumes_max,
                accessible_topology: (!segments.is_empty()).then_some(csi::Topology { segments }),
            })
        })
        .await
    }
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(
        &self,
        request: Request<InfoRequest>,
    ) -> Result<Response<PluginInfo>, Status> {
        self.act(request, |_| {
            Ok(PluginInfo {
                r#type: CSI_PLUGIN.to_owned(),
                name: self.shared.options.name.clone(),
                endpoint: self.shared.socket.display().to_string(),
                supported_versions: self.shared.options.versions.clone(),
            })
        })
        .await
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.act(request, |_| Ok(RegistrationStatusResponse {})).await
    }
}
