//! A CSI driver beside the agent: it registers, mounts, fails and takes its time.
//!
//! Owns what the driver knows of its volumes; mounts are in the mount table. The
//! driver is a process of its own: what it has begun, it ends, whether the agent
//! waits, gives up or dies. As CSI has it, it takes no second call about a volume
//! while the first is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet::ports::{CsiNode, Plugins, Registrar};
use plugin_apis::csi::{
    NodeCapability, NodeExpandVolumeRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodeStageVolumeRequest,
};
use plugin_apis::pluginregistration::{CSI_PLUGIN, PluginInfo};
use plugin_apis::{CallError, CallErrorKind, EndpointError};
use rand::RngExt;
use tokio::time::sleep;
use tonic::Code;

use super::mount_table::Twist;
use crate::storage::{DRIVER, data_dir};
use crate::world::{Life, State, World};

/// How long a caller waits.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a driver answers when it fails: the last of them leaves open what it did.
const ERRORS: [Code; 3] = [Code::Internal, Code::InvalidArgument, Code::ResourceExhausted];

/// What the driver knows.
#[derive(Default)]
pub(crate) struct CsiVolumes {
    /// Volumes that a call is about.
    busy: BTreeSet<String>,
    /// Where volumes are mounted for the node.
    pub(crate) staged: BTreeMap<String, PathBuf>,
    /// Which volume is mounted where, for a pod.
    pub(crate) published: BTreeMap<PathBuf, String>,
    /// How large volumes have become.
    pub(crate) sizes: BTreeMap<String, i64>,
    /// How large they are to be, by what is written of them now.
    pub(crate) wanted: Option<i64>,
}

impl State {
    fn stage(&mut self, handle: &str, path: &Path) {
        if !self.files.has(path) {
            self.violate("", format!("driver is to stage at {}, which is missing", path.display()));
        }
        self.csi.staged.insert(handle.to_owned(), path.to_owned());
        self.mount_once(path);
    }

    fn unstage(&mut self, handle: &str, path: &Path) {
        if let Some((target, _)) = self.csi.published.iter().find(|(_, volume)| *volume == handle) {
            let text = format!("driver is to unstage {handle}, mounted at {}", target.display());
            self.violate("", text);
        }
        self.csi.staged.remove(handle);
        self.unmount_if_mounted(path);
    }

    fn publish_volume(&mut self, handle: &str, staging: &str, target: &Path) {
        if !self.is_noted(target) {
            self.violate("", format!("{} is mounted, and nothing notes it", target.display()));
        }
        let staged = self.csi.staged.get(handle).map(PathBuf::as_path);
        if !staging.is_empty() && staged != Some(Path::new(staging)) {
            self.violate("", format!("{handle} is published before it is staged"));
        }
        let now_ns = self.wall_ns();
        self.files.make_dir(target, now_ns);
        if !staging.is_empty() {
            let data = data_dir(handle);
            self.files.make_dir(&data, now_ns);
            self.bind(target, data);
        }
        self.csi.published.insert(target.to_owned(), handle.to_owned());
        self.mount_once(target);
    }

    /// A call may come late, when the volume is there no more: then nothing grows.
    fn expand_volume(&mut self, handle: &str, path: &Path, bytes: i64) {
        if self.csi.published.get(path).is_some_and(|there| there == handle) {
            let size = self.csi.sizes.entry(handle.to_owned()).or_default();
            *size = bytes.max(*size);
        }
    }

    fn unpublish_volume(&mut self, target: &Path) {
        self.csi.published.remove(target);
        self.unmount_if_mounted(target);
        self.files.remove_tree(target);
    }
}

/// Reaches the driver from one life of the agent.
#[derive(Clone)]
pub struct SimPlugins {
    world: Arc<World>,
    life: Life,
}

impl SimPlugins {
    /// A handle for one life.
    pub fn new(world: Arc<World>, life: Life) -> Self {
        Self { world, life }
    }

    async fn gate(&self) {
        if !self.life.is_alive() {
            std::future::pending::<()>().await;
        }
    }

    /// Asks something that changes nothing.
    async fn ask(&self, call: &'static str) -> Result<(), CallError> {
        self.gate().await;
        let (fails, delay) = {
            let mut state = self.world.lock();
            state.volumes.count(call, DRIVER);
            let rate = state.faults.volume_error;
            (state.chance(rate), state.delay())
        };
        sleep(delay).await;
        self.gate().await;
        if fails {
            self.world.lock().note("", format!("driver fails to answer {call}"));
            return Err(answer(call, "", Code::Unavailable));
        }
        Ok(())
    }

    /// Has the driver do something to a volume.
    async fn call(
        &self,
        call: &'static str,
        volume: &str,
        effect: impl FnOnce(&mut State) + Send + 'static,
    ) -> Result<(), CallError> {
        self.gate().await;
        let (twist, delay, busy) = {
            let mut state = self.world.lock();
            state.volumes.count(call, volume);
            let busy = state.csi.busy.contains(volume);
            (state.volume_twist(), state.delay(), busy)
        };
        sleep(delay).await;
        self.gate().await;
        if busy {
            return Err(answer(call, volume, Code::Aborted));
        }
        match twist {
            None => {
                self.world.drive(call, volume, effect);
                Ok(())
            }
            Some(Twist::Fail) => {
                let mut state = self.world.lock();
                state.note("", format!("{call} {volume} fails"));
                let code = ERRORS[state.rng.random_range(0..ERRORS.len())];
                Err(answer(call, volume, code))
            }
            Some(Twist::LoseAnswer) => {
                self.world.drive(call, volume, effect);
                self.world.lock().note("", format!("{call} {volume}: answer lost"));
                Err(answer(call, volume, Code::Unavailable))
            }
            Some(Twist::CrashBefore) => {
                self.world.request_crash(&self.life, "before a driver is asked");
                std::future::pending().await
            }
            Some(Twist::CrashAfter) => {
                self.world.drive(call, volume, effect);
                self.world.request_crash(&self.life, "after a driver was asked");
                std::future::pending().await
            }
            Some(Twist::Hang(long)) => self.hang(call, volume, long * 2, effect).await,
        }
    }

    /// The driver takes its time; the caller gives up before, or does not.
    async fn hang(
        &self,
        call: &'static str,
        volume: &str,
        long: Duration,
        effect: impl FnOnce(&mut State) + Send + 'static,
    ) -> Result<(), CallError> {
        {
            let mut state = self.world.lock();
            state.note("", format!("{call} {volume} takes {}s", long.as_secs()));
            state.csi.busy.insert(volume.to_owned());
        }
        let (world, handle) = (Arc::clone(&self.world), volume.to_owned());
        tokio::spawn(async move {
            sleep(long).await;
            world.drive(call, &handle, effect);
            world.lock().csi.busy.remove(&handle);
        });
        if long < PATIENCE {
            // The driver wakes at that very instant; its turn comes first.
            sleep(long + Duration::from_millis(1)).await;
            self.gate().await;
            return Ok(());
        }
        sleep(PATIENCE).await;
        Err(error(call, volume, CallErrorKind::TimedOut(PATIENCE)))
    }
}

impl World {
    fn drive(&self, call: &str, volume: &str, effect: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        state.note("", format!("{call} {volume}"));
        effect(&mut state);
    }
}

fn answer(call: &'static str, volume: &str, code: Code) -> CallError {
    let message = "simulated".to_owned();
    error(call, volume, CallErrorKind::Answered { code, message })
}

fn error(call: &'static str, volume: &str, kind: CallErrorKind) -> CallError {
    CallError { driver: DRIVER.to_owned(), call, volume: volume.to_owned(), kind }
}

impl Plugins for SimPlugins {
    fn registrar(&self, _: &Path) -> Result<Arc<dyn Registrar>, EndpointError> {
        Ok(Arc::new(self.clone()))
    }

    fn csi(&self, _: &str, _: &str) -> Result<Arc<dyn CsiNode>, EndpointError> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Registrar for SimPlugins {
    async fn info(&self) -> Result<PluginInfo, CallError> {
        self.ask("GetInfo").await?;
        Ok(PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            name: DRIVER.to_owned(),
            endpoint: String::new(),
            supported_versions: vec!["1.0.0".to_owned()],
        })
    }

    async fn notify(&self, _: Result<(), String>) -> Result<(), CallError> {
        self.ask("NotifyRegistrationStatus").await
    }
}

#[async_trait]
impl CsiNode for SimPlugins {
    async fn info(&self) -> Result<NodeGetInfoResponse, CallError> {
        self.ask("NodeGetInfo").await?;
        Ok(NodeGetInfoResponse { node_id: "node".to_owned(), ..Default::default() })
    }

    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CallError> {
        self.ask("NodeGetCapabilities").await?;
        Ok(BTreeSet::from([NodeCapability::StageUnstageVolume, NodeCapability::ExpandVolume]))
    }

    async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), CallError> {
        let (volume, path) = (request.volume_id, PathBuf::from(request.staging_target_path));
        let handle = volume.clone();
        self.call("NodeStageVolume", &volume, move |state| state.stage(&handle, &path)).await
    }

    async fn unstage(&self, volume: &str, staging_path: &str) -> Result<(), CallError> {
        let (handle, path) = (volume.to_owned(), PathBuf::from(staging_path));
        self.call("NodeUnstageVolume", volume, move |state| state.unstage(&handle, &path)).await
    }

    async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), CallError> {
        let (volume, target) = (request.volume_id, PathBuf::from(request.target_path));
        let (handle, staging) = (volume.clone(), request.staging_target_path);
        let effect = move |state: &mut State| state.publish_volume(&handle, &staging, &target);
        self.call("NodePublishVolume", &volume, effect).await
    }

    async fn unpublish(&self, volume: &str, target_path: &str) -> Result<(), CallError> {
        let target = PathBuf::from(target_path);
        let effect = move |state: &mut State| state.unpublish_volume(&target);
        self.call("NodeUnpublishVolume", volume, effect).await
    }

    async fn expand(&self, request: NodeExpandVolumeRequest) -> Result<(), CallError> {
        let (volume, path) = (request.volume_id, PathBuf::from(request.volume_path));
        let bytes = request.capacity_range.unwrap_or_default().required_bytes;
        let handle = volume.clone();
        let effect = move |state: &mut State| state.expand_volume(&handle, &path, bytes);
        self.call("NodeExpandVolume", &volume, effect).await
    }

    async fn stats(
        &self,
        _: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, CallError> {
        self.ask("NodeGetVolumeStats").await?;
        Ok(NodeGetVolumeStatsResponse::default())
    }
}
