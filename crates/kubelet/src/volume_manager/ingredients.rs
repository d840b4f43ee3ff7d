//! What volumes are made of, what is done to make one, and what may be missing. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Step;
use super::claims::PlaceSpec;
use super::csi::CsiSpec;
use super::layout::VolumeName;
use super::network::{DiskSpec, ShareSpec};
use super::payload::Content;

/// What volumes are made of, where that changes without their pod; or what is
/// missing.
pub(super) type Contents = BTreeMap<VolumeName, Result<Ingredients, Lack>>;

/// What is missing, so that a volume cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lack {
    /// To do what; `None` if it is not even known what the volume is.
    pub to: Option<Doing>,
    /// Why it cannot be done.
    pub why: String,
    /// It is about to be known whether it can: nobody needs to be told.
    pub awaited: bool,
    /// The driver of which the node can have no more volumes, if it is that.
    pub full: Option<String>,
    /// The PersistentVolume that it is about.
    pub volume: Option<VolumeName>,
}

impl Lack {
    /// It is known what the volume is, but it cannot be mounted.
    pub(super) fn to_mount(why: String) -> Self {
        Self::new(Some(Doing::SetUp), why)
    }

    /// What keeps it from being made.
    pub(super) fn new(to: Option<Doing>, why: String) -> Self {
        Self { to, why, awaited: false, full: None, volume: None }
    }
}

/// What is done to make a volume, as upstream calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// A look at what is to be mounted.
    NewMounter,
    /// Whether it can be mounted with the options it has.
    MountOptions,
    /// A file system for one pod.
    SetUp,
    /// The file system that pods share.
    MountDevice,
    /// A device that pods share.
    SetUpDevice,
    /// A device for one pod.
    MapPodDevice,
    /// The bind of a device, and what keeps it open.
    MapDevice,
    /// The way to a disk, for its file system.
    Attach,
    /// The same, for the device.
    AttachDevice,
    /// Whether the volume may be used here.
    Affinity,
    /// The same, for a device.
    AffinityOfDevice,
    /// A look whether the cluster has attached it.
    VerifyAttached,
    /// The cluster's work, if it leaves that to the node.
    AttachSelf,
    /// A file system that has become larger.
    Expand,
    /// The same, for a device.
    ExpandDevice,
}

impl Doing {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NewMounter => "MountVolume.NewMounter initialization",
            Self::MountOptions => "MountVolume.MountOptionSupport check",
            Self::SetUp => "MountVolume.SetUp",
            Self::MountDevice => "MountVolume.MountDevice",
            Self::SetUpDevice => "MapVolume.SetUpDevice",
            Self::MapPodDevice => "MapVolume.MapPodDevice",
            Self::MapDevice => "MapVolume.MapBlockVolume",
            Self::Attach => "MountVolume.WaitForAttach",
            Self::AttachDevice => "MapVolume.WaitForAttach",
            Self::Affinity => "MountVolume.NodeAffinity check",
            Self::AffinityOfDevice => "MapVolume.NodeAffinity check",
            Self::VerifyAttached => "VerifyControllerAttachedVolume",
            Self::AttachSelf => "AttachVolume.Attach",
            Self::Expand => "MountVolume.Setup",
            Self::ExpandDevice => "MapVolume.MarkVolumeAsMounted",
        }
    }

    /// That it failed.
    pub(super) fn failed(self) -> String {
        let more = match self {
            Self::Expand | Self::ExpandDevice => " while expanding volume",
            _ => "",
        };
        format!("{} failed{more}", self.as_str())
    }

    pub(super) fn step(self) -> Step {
        match self {
            // As upstream, whatever the volume is used as.
            Self::Affinity | Self::AffinityOfDevice => Step::Mount,
            Self::VerifyAttached => Step::AwaitAttach,
            Self::AttachSelf => Step::Attach,
            Self::NewMounter | Self::MountOptions => Step::Mount,
            Self::SetUp | Self::MountDevice | Self::Attach | Self::Expand => Step::Mount,
            Self::SetUpDevice | Self::MapPodDevice | Self::MapDevice => Step::Map,
            Self::AttachDevice | Self::ExpandDevice => Step::Map,
        }
    }
}

/// What a volume is made of.
#[derive(Debug, Clone)]
pub(super) enum Ingredients {
    /// Files that the agent writes.
    Files(Content),
    /// What a driver is asked for.
    Driver(Arc<CsiSpec>),
    /// A place on this node.
    Place(Arc<PlaceSpec>),
    /// What a server shares.
    Share(Arc<ShareSpec>),
    /// A disk of another machine.
    Disk(Arc<DiskSpec>),
}

/// What a volume is called to users, as upstream does: by its PersistentVolume, if it is
/// one.
pub(super) fn shown<'a>(name: &'a VolumeName, contents: &'a Contents) -> &'a VolumeName {
    match contents.get(name) {
        Some(Ok(ingredients)) => ingredients.volume().unwrap_or(name),
        Some(Err(lack)) => lack.volume.as_ref().unwrap_or(name),
        None => name,
    }
}

impl Ingredients {
    /// Its PersistentVolume, or under which name it lies else.
    fn volume(&self) -> Option<&VolumeName> {
        match self {
            Self::Files(_) => None,
            Self::Driver(spec) => spec.persistent.as_ref().map(|own| &own.volume),
            Self::Place(spec) => Some(&spec.volume),
            Self::Share(spec) => Some(&spec.volume),
            Self::Disk(spec) => Some(&spec.volume),
        }
    }

    /// Whether its driver wants to be asked for it again and again.
    pub(super) fn republishes(&self) -> bool {
        matches!(self, Self::Driver(spec) if spec.policy.republish)
    }

    /// How large a driver has to make it.
    pub(super) fn wanted_bytes(&self) -> Option<i64> {
        match self {
            Self::Driver(spec) => spec.wanted_bytes(),
            _ => None,
        }
    }
}
