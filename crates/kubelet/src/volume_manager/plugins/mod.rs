//! One file per kind of volume: how it is made. What is left of any kind is
//! undone in one way.
//!
//! Owns nothing; every effect goes through the port. Upstream: pkg/volume.

mod csi;
mod device;
mod empty_dir;
mod host_path;
mod nfs;
mod others;
mod payload;
mod place;
mod remote;
mod remote_device;
mod remote_place;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::VolumeMountable;
use super::claims::{ClaimSpec, PlaceKind, Resolved};
use super::csi::CsiSpec;
use super::desired::Wanted;
use super::devices::{Devices, Turn};
use super::layout::{PluginName, PodLayout, VolumeName};
use super::network::DiskSpec;
use super::plan::{Doing, Found, Ingredients, Lack};
use crate::object_cache::Objects;
use crate::plugin_manager::Drivers;
use crate::ports::{Fs, VolumeError, VolumeHost};

/// Kinds whose mount and files are made by the agent alone, so that it may undo
/// them, whichever agent made them.
const OWN_KINDS: [&str; 5] = [
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
}

impl Means<'_> {
    /// Waits for the turn at a volume, if it is one that pods share.
    async fn turn(&self, shared: bool, driver: &str, handle: &str) -> Option<Turn> {
        match shared {
            true => Some(self.devices.turn(driver, handle).await),
            false => None,
        }
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
        (Wanted::EmptyDir { medium, fs_group }, _) => {
            empty_dir::set_up(host, layout, name, *medium, *fs_group).await
        }
        (Wanted::HostPath { path, kind }, _) => host_path::set_up(host, path, *kind).await,
        (Wanted::Payload(spec), Some(Ingredients::Files(content))) => {
            payload::set_up(host, layout, name, spec, content, at).await
        }
        (Wanted::Csi(_) | Wanted::Claim(_), Some(Ingredients::Driver(spec))) => {
            let made = csi::set_up(means, name, spec).await;
            return made.map_err(|error| NotMade::by_driver(&error, spec.is_block()));
        }
        (Wanted::Claim(_), Some(Ingredients::Place(spec))) if spec.kind == PlaceKind::Device => {
            let made = device::set_up(means, spec).await;
            return made.map_err(|why| NotMade { doing: Doing::MapPodDevice, why });
        }
        (Wanted::Claim(_), Some(Ingredients::Place(spec))) => {
            return Ok(place::set_up(means, spec).await?);
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

/// What a driver is asked for, or what keeps it from being asked at all: it helps
/// nobody to ask again before that has changed, and whoever changes it is heard.
pub(super) fn for_driver(
    spec: &Arc<CsiSpec>,
    drivers: &Drivers,
    objects: &Objects,
) -> Result<Ingredients, Lack> {
    match csi::obstacle(spec, drivers, objects) {
        Some(error) => Err(Lack::new(Some(error.doing(spec.is_block())), error.to_string())),
        None => Ok(Ingredients::Driver(Arc::clone(spec))),
    }
}

/// The same for a claim, which may name nothing yet.
pub(super) fn for_claim(
    claim: &ClaimSpec,
    drivers: &Drivers,
    objects: &Objects,
) -> Result<Ingredients, Lack> {
    let resolved = claim.resolve(&|key| objects.get(key));
    match resolved.map_err(|error| Lack::new(None, error.to_string()))? {
        Resolved::Driver(spec) => for_driver(&spec, drivers, objects),
        Resolved::Place(spec) => Ok(Ingredients::Place(spec)),
        Resolved::Share(spec) => Ok(Ingredients::Share(spec)),
        Resolved::Disk(spec) => for_disk(&spec, objects),
    }
}

/// The same for a disk of another machine, which may need credentials.
pub(super) fn for_disk(spec: &Arc<DiskSpec>, objects: &Objects) -> Result<Ingredients, Lack> {
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
    } else if host.is_mount_point(&dir).await? || !host.mounts_below(&dir).await?.is_empty() {
        return Err(VolumeError::Foreign { plugin: plugin.plain(), path: dir });
    }
    host.remove_tree(&dir).await?;
    if plugin.as_dir() != PluginName::EMPTY_DIR {
        let wrapped = layout.meta_dir(&PluginName::empty_dir(), &found.name.wrapped());
        host.remove_tree(&wrapped).await?;
    }
    host.remove_tree(&layout.meta_dir(plugin, &found.name)).await
}
