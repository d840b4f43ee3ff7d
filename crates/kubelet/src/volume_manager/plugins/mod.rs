//! One file per kind of volume: how it is made. What is left of any kind is
//! undone in one way.
//!
//! Owns nothing; every effect goes through the port. Upstream: pkg/volume.

mod csi;
mod device;
mod empty_dir;
mod group;
mod host_path;
mod mapped;
mod nfs;
mod others;
mod payload;
mod place;
mod remote;
mod remote_device;
mod remote_place;
mod tells;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use kubelet_model::{ObjectKey, ObjectKind};
use tokio::time::Instant;

use super::VolumeMountable;
use super::attach::{Attachment, NodeView, Unattached};
use super::claims::{ClaimSpec, PlaceKind, PlaceSpec, Resolved};
use super::csi::{CsiSpec, Life, PodTokens, Policy, attachment_id, driver_key};
use super::desired::Wanted;
use super::devices::{Devices, Turn};
use super::growth::Failure;
use super::layout::{PluginName, PodLayout, VolumeName};
use super::metrics::{Operation, VolumeMetrics, of_driver};
use super::network::DiskSpec;
use super::plan::{Doing, Found, Ingredients, Lack};
use crate::object_cache::Objects;
use crate::plugin_manager::Drivers;
use crate::ports::{Fs, VolumeError, VolumeHost};
pub(super) use remote_place::NAME_NOTE;
pub(super) use tells::Tells;

/// Kinds whose mount and files are made by the agent alone, so that it may undo
/// them, whichever agent made them.
pub(super) const OWN_KINDS: [&str; 5] = [
    PluginName::EMPTY_DIR,
    PluginName::CONFIG_MAP,
    PluginName::DOWNWARD_API,
    PluginName::PROJECTED,
    PluginName::SECRET,
];

/// What volumes are made with.
pub(super) struct Means<'a> {
    /// Files and mounts of volumes.
    pub host: &'a dyn VolumeHost,
    /// Files of the agent's own.
    pub fs: &'a dyn Fs,
    /// The pod's directories.
    pub layout: &'a PodLayout,
    /// The CSI drivers.
    pub drivers: &'a Drivers,
    /// What pods and volumes name.
    pub objects: &'a Objects,
    /// Turns at volumes that pods share.
    pub devices: &'a Devices,
    /// The agent's state directory.
    pub root_dir: &'a Path,
    /// This node.
    pub node_name: &'a str,
    /// What is counted.
    pub metrics: &'a VolumeMetrics,
    /// Who hears of what happens meanwhile.
    pub tells: Tells<'a>,
}

impl Means<'_> {
    /// Waits for the turn at a volume, if it is one that pods share.
    async fn turn(&self, shared: bool, driver: &str, handle: &str) -> Option<Turn> {
        match shared {
            true => Some(self.devices.turn(driver, handle).await),
            false => None,
        }
    }

    /// A part of the work that upstream counts as work of its own.
    async fn timed<T, E>(
        &self,
        plugin: &str,
        what: Operation,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let done = work.await;
        self.metrics.time(plugin, what, began, done.is_ok());
        done
    }
}

/// Why a volume is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotMade {
    /// What was being done.
    pub doing: Doing,
    /// In upstream's words.
    pub why: String,
}

impl From<String> for NotMade {
    fn from(why: String) -> Self {
        Self { doing: Doing::SetUp, why }
    }
}

impl NotMade {
    fn by_driver(error: &csi::CsiError, block: bool) -> Self {
        Self { doing: error.doing(block), why: error.to_string() }
    }
}

/// Makes a volume, or finds that it is made already.
pub(super) async fn set_up(
    means: &Means<'_>,
    name: &VolumeName,
    wanted: &Wanted,
    ingredients: Option<&Ingredients>,
    at: SystemTime,
) -> Result<VolumeMountable, NotMade> {
    let Means { host, layout, .. } = *means;
    let made = match (wanted, ingredients) {
        (Wanted::EmptyDir { medium, fs_group, quota }, _) => {
            empty_dir::set_up(host, layout, name, *medium, *fs_group, *quota).await
        }
        (Wanted::HostPath { path, kind }, _) => host_path::set_up(host, path, *kind).await,
        (Wanted::Payload(spec), Some(Ingredients::Files(content))) => {
            payload::set_up(host, layout, name, spec, content, at).await
        }
        (Wanted::Csi(_) | Wanted::Claim(_), Some(Ingredients::Driver(spec))) => {
            let made = csi::set_up(means, name, spec).await;
            return made.map_err(|error| NotMade::by_driver(&error, spec.is_block()));
        }
        (Wanted::Claim(_), Some(Ingredients::Place(spec))) => {
            return place::set_up(means, spec).await;
        }
        (Wanted::Share(spec), _) | (Wanted::Claim(_), Some(Ingredients::Share(spec))) => {
            return Ok(nfs::set_up(means, spec).await?);
        }
        (Wanted::Disk(_) | Wanted::Claim(_), Some(Ingredients::Disk(spec))) => {
            return match spec.block {
                true => remote_device::set_up(means, spec).await,
                false => remote::set_up(means, spec).await,
            };
        }
        // No plan asks for a volume before it is known what it is made of.
        (Wanted::Payload(_) | Wanted::Csi(_) | Wanted::Claim(_) | Wanted::Disk(_), _) => {
            return Err("it is not known yet what it is made of".to_owned().into());
        }
        (Wanted::Refused(why), _) => return Err(why.clone().into()),
    };
    made.map_err(|error| error.to_string().into())
}

/// Has a driver make a volume that is there larger.
pub(super) async fn grow(
    means: &Means<'_>,
    name: &VolumeName,
    spec: &CsiSpec,
) -> Result<(), String> {
    csi::grow(means, name, spec).await.map_err(|error| error.to_string())
}

/// The same of a volume of a cluster, whose turn the caller has; to this size.
pub(super) async fn expand(
    means: &Means<'_>,
    name: &VolumeName,
    spec: &CsiSpec,
    bytes: i64,
) -> Result<(), (Failure, String)> {
    let asked = csi::expand(means, name, spec, bytes).await;
    asked.map_err(|error| (error.growth_failure(), error.to_string()))
}

/// What it depends on what a volume is made of.
pub(super) struct World<'a> {
    /// The CSI drivers.
    pub drivers: &'a Drivers,
    /// What pods and volumes name.
    pub objects: &'a Objects,
    /// What the cluster says of the node.
    pub node: &'a NodeView,
    /// This node.
    pub node_name: &'a str,
}

impl World<'_> {
    /// What a driver wants.
    ///
    /// # Errors
    /// Why that is not known.
    fn policy(&self, driver: &str) -> Result<Policy, String> {
        match self.node.in_cluster {
            true => Policy::read(self.objects.find(&driver_key(driver))?.as_deref()),
            false => Ok(Policy::default()),
        }
    }
}

/// What a driver is asked for, or what keeps it from being asked at all: it helps
/// nobody to ask again before that has changed, and whoever changes it is heard.
pub(super) fn for_driver(spec: &CsiSpec, world: &World<'_>) -> Result<Ingredients, Lack> {
    let set_up = if spec.is_block() { Doing::MapPodDevice } else { Doing::SetUp };
    let life = |why| {
        let why = format!(
            "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: {why}"
        );
        Lack::new(Some(set_up), why)
    };
    let mut spec = spec.clone();
    spec.policy = world.policy(&spec.driver).map_err(life)?;
    spec.policy.check(&spec.driver, spec.life()).map_err(life)?;
    if spec.life() == Life::Persistent && spec.policy.attach {
        spec.publish_context = publish_context(&spec, world)?;
    }
    spec.tokens = tokens(&spec, world.objects).map_err(|why| Lack::new(Some(set_up), why))?;
    match csi::obstacle(&spec, world.drivers, world.objects) {
        Some(error) => Err(Lack::new(Some(error.doing(spec.is_block())), error.to_string())),
        None => Ok(Ingredients::Driver(Arc::new(spec))),
    }
}

/// What the driver is told of how a volume is attached, once it is.
fn publish_context(spec: &CsiSpec, world: &World<'_>) -> Result<BTreeMap<String, String>, Lack> {
    let id = attachment_id(&spec.handle, &spec.driver, world.node_name);
    let key = ObjectKey::new(ObjectKind::VolumeAttachment, "", &id);
    world.node.check_attached(&spec.unique_name()).map_err(|unattached| match unattached {
        Unattached::Waits(why) => {
            let full =
                spec.policy.limits && Attachment::is_exhausted(world.objects.get(&key).as_deref());
            let full = full.then(|| spec.driver.clone());
            Lack { full, ..Lack::new(Some(Doing::VerifyAttached), why) }
        }
        Unattached::Unsupported(why) => Lack::new(Some(Doing::AttachSelf), why),
    })?;
    let doing = if spec.is_block() { Doing::AttachDevice } else { Doing::Attach };
    let found = world.objects.find(&key);
    let told = match found {
        Ok(object) => Attachment::context(object.as_deref(), &spec.handle, &id),
        Err(why) => {
            Err(format!("volume {} has GET error for volume attachment {id}: {why}", spec.handle))
        }
    };
    told.map_err(|why| Lack::new(Some(doing), why))
}

/// The tokens that a driver wants.
fn tokens(spec: &CsiSpec, objects: &Objects) -> Result<PodTokens, String> {
    let mut found = Vec::new();
    for (audience, key) in spec.pod.token_keys(&spec.policy) {
        let token = objects.find(&key).and_then(|token| {
            // What stands for a token is none that a driver could use.
            let token = token.filter(|token| !token.data.is_empty());
            token.ok_or_else(|| "there is no API server that gives any".to_owned())
        });
        // Upstream's spelling.
        let token = token.map_err(|why| {
            format!(
                "kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token \
                 attributes: {why}"
            )
        })?;
        found.push((audience, token));
    }
    Ok(PodTokens::of(&found))
}

/// Under which name a volume lies that the cluster has to attach, and what it calls it.
pub(super) fn attachable(wanted: &Wanted, world: &World<'_>) -> Option<(VolumeName, String)> {
    if !world.node.attaches() {
        return None;
    }
    let resolved = match wanted {
        Wanted::Claim(claim) => claim.resolve(&|key| world.objects.get(key)).ok()?,
        Wanted::Disk(spec) => Resolved::Disk(Arc::clone(spec)),
        _ => return None,
    };
    match resolved {
        Resolved::Driver(spec) => {
            let attach = world.policy(&spec.driver).is_ok_and(|policy| policy.attach);
            let place = spec.persistent.as_ref().filter(|_| attach)?.volume.clone();
            Some((place, spec.unique_name()))
        }
        Resolved::Disk(spec) => Some((spec.volume.clone(), spec.unique_name.clone())),
        Resolved::Place(_) | Resolved::Share(_) => None,
    }
}

/// The same for a claim, which may name nothing yet.
pub(super) fn for_claim(claim: &ClaimSpec, world: &World<'_>) -> Result<Ingredients, Lack> {
    let get = |key: &ObjectKey| world.objects.get(key);
    let resolved = claim.resolve(&get).map_err(|error| Lack::new(None, error.to_string()))?;
    let volume = resolved.volume().cloned();
    for_resolved(claim, resolved, world).map_err(|lack| Lack { volume, ..lack })
}

fn for_resolved(
    claim: &ClaimSpec,
    resolved: Resolved,
    world: &World<'_>,
) -> Result<Ingredients, Lack> {
    let World { objects, node, .. } = *world;
    let get = |key: &ObjectKey| objects.get(key);
    if let Some(wanted) = claim.affinity(&get) {
        let doing = match claim.uses.mapped {
            true => Doing::AffinityOfDevice,
            false => Doing::Affinity,
        };
        match node.check_affinity(&wanted) {
            Some(Ok(())) => {}
            Some(Err(why)) => return Err(Lack::new(Some(doing), why)),
            None => {
                let why = "the node's labels are not known yet".to_owned();
                return Err(Lack { awaited: true, ..Lack::new(Some(doing), why) });
            }
        }
    }
    match resolved {
        Resolved::Driver(spec) => for_driver(&spec, world),
        Resolved::Place(spec) => for_place(spec),
        Resolved::Share(spec) => Ok(Ingredients::Share(spec)),
        Resolved::Disk(spec) => for_disk(&spec, world),
    }
}

/// The same for a place on this node. As upstream, paths of the host are mounted by nobody.
fn for_place(spec: Arc<PlaceSpec>) -> Result<Ingredients, Lack> {
    if matches!(spec.kind, PlaceKind::HostPath(_)) && !spec.mount_options.is_empty() {
        let why = "mount options are not supported for this volume type".to_owned();
        return Err(Lack::new(Some(Doing::MountOptions), why));
    }
    Ok(Ingredients::Place(spec))
}

/// The same for a disk of another machine, which may need credentials. The cluster says
/// when its turn is on this node.
pub(super) fn for_disk(spec: &Arc<DiskSpec>, world: &World<'_>) -> Result<Ingredients, Lack> {
    let World { objects, node, .. } = *world;
    if node.attaches()
        && let Err(Unattached::Waits(why)) = node.check_attached(&spec.unique_name)
    {
        return Err(Lack::new(Some(Doing::VerifyAttached), why));
    }
    let doing = if spec.block { Doing::AttachDevice } else { Doing::Attach };
    match spec.with_secret(|key| objects.get(key)) {
        Ok(_) => Ok(Ingredients::Disk(Arc::clone(spec))),
        Err(why) => Err(Lack::new(Some(doing), why)),
    }
}

/// Undoes what is left of a volume: the parts bound elsewhere, its mount, its
/// files, what was noted about it. Stops at anything it did not make.
pub(super) async fn tear_down(means: &Means<'_>, found: &Found) -> Result<(), String> {
    let said = |error: VolumeError| error.to_string();
    let root = means.layout.sub_paths_dir();
    means.host.clean_sub_paths(&root, found.name.as_str()).await.map_err(said)?;
    match &found.plugin {
        None => Ok(()),
        Some(plugin) if found.device => tear_down_device(means, found, plugin).await,
        Some(plugin) if plugin.as_dir() == PluginName::CSI => {
            csi::tear_down(means, &found.name).await.map_err(|error| error.to_string())
        }
        Some(plugin) if plugin.as_dir() == PluginName::LOCAL => {
            place::tear_down(means, &found.name).await.map_err(said)
        }
        Some(plugin) if plugin.as_dir() == PluginName::NFS => {
            nfs::tear_down(means.host, means.layout, &found.name).await.map_err(said)
        }
        Some(plugin) if matches!(plugin.as_dir(), PluginName::ISCSI | PluginName::FC) => {
            remote::tear_down(means, plugin, &found.name).await.map_err(said)
        }
        Some(plugin) => tear_down_own(means, found, plugin).await.map_err(said),
    }
}

async fn tear_down_device(
    means: &Means<'_>,
    found: &Found,
    plugin: &PluginName,
) -> Result<(), String> {
    match plugin.as_dir() {
        PluginName::CSI => {
            csi::tear_down_device(means, &found.name).await.map_err(|e| e.to_string())
        }
        PluginName::LOCAL => device::tear_down(means, &found.name).await.map_err(|e| e.to_string()),
        PluginName::ISCSI | PluginName::FC => {
            let undone = remote_device::tear_down(means, plugin, &found.name).await;
            undone.map_err(|e| e.to_string())
        }
        _ => {
            let path = means.layout.device_link(plugin, &found.name);
            Err(VolumeError::Foreign { plugin: plugin.plain(), path }.to_string())
        }
    }
}

async fn tear_down_own(
    means: &Means<'_>,
    found: &Found,
    plugin: &PluginName,
) -> Result<(), VolumeError> {
    let Means { host, layout, .. } = *means;
    let dir = layout.volume_dir(plugin, &found.name);
    if OWN_KINDS.contains(&plugin.as_dir()) {
        host.unmount_all(&dir).await?;
        empty_dir::forget_count(host, &dir).await;
    } else if host.is_mount_point(&dir).await? || !host.mounts_below(&dir).await?.is_empty() {
        return Err(VolumeError::Foreign { plugin: plugin.plain(), path: dir });
    } else if !host.dirs_in(&dir).await?.is_empty() || !host.files_in(&dir).await?.is_empty() {
        return Err(VolumeError::Leftover { plugin: plugin.plain(), path: dir });
    } else {
        // What is in it by now is somebody's, and keeps it.
        return host.remove_empty_dir(&dir).await;
    }
    host.remove_tree(&dir).await?;
    if plugin.as_dir() != PluginName::EMPTY_DIR {
        let wrapped = layout.meta_dir(&PluginName::empty_dir(), &found.name.wrapped());
        host.remove_tree(&wrapped).await?;
    }
    host.remove_tree(&layout.meta_dir(plugin, &found.name)).await
}
