//! What goes wrong with CSI volumes, in upstream's words where it has some.

use std::path::PathBuf;

use super::super::super::csi::CsiSpec;
use super::super::super::growth::Failure;
use super::super::super::plan::Doing;
use super::super::others::IN_USE;
use crate::plugin_manager::NoDriver;
use crate::ports::VolumeError;

/// Why a CSI volume could not be made or undone, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum CsiError {
    /// The driver is missing when a volume is made.
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {0}")]
    NoDriver(NoDriver),
    /// The same of a volume that pods share.
    #[error("kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: {0}")]
    NoDriverToShare(NoDriver),
    /// The same of a device.
    #[error("kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: {0}")]
    NoDriverOfDevice(NoDriver),
    /// The driver is missing when a volume is undone.
    #[error("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: {0}")]
    NoDriverLeft(NoDriver),
    /// The same of a device.
    #[error("kubernetes.io/csi: blockMapper.UnmapPodDevice failed to get CSI client: {0}")]
    NoDriverLeftOfDevice(NoDriver),
    /// The driver does not say what it can do.
    #[error(
        "kubernetes.io/csi: mounter.SetUpAt failed to determine if the node service has \
         VOLUME_MOUNT_GROUP capability: {0}"
    )]
    Capabilities(String),
    /// The driver's credentials are missing.
    #[error("{0}")]
    Secret(String),
    /// The driver could not mount.
    #[error("{0}")]
    Publish(String),
    /// The driver could not unmount.
    #[error("kubernetes.io/csi: Unmounter.TearDownAt failed: {0}")]
    Unpublish(String),
    /// The credentials for the shared mount are missing.
    #[error("{0}")]
    StageSecret(String),
    /// The driver could not make the shared mount; and nothing is left of it?
    #[error("{why}")]
    Stage { gone: bool, why: String },
    /// Others have it with another SELinux label.
    #[error("{0}")]
    OtherLabel(String),
    /// The driver could not undo the shared mount.
    #[error("kubernetes.io/csi: attacher.UnmountDevice failed: {0}")]
    Unstage(String),
    /// The shared mount is in somebody's use, of whom nothing is known.
    #[error(
        "the device mount path \"{}\" is still mounted by other references [{}]; unmount them, \
         then the volume is let go",
        .target.display(), paths(.others)
    )]
    Referenced { target: PathBuf, others: Vec<PathBuf> },
    /// The same of a device.
    #[error(
        "the device path \"{}\" is still referenced from other Pods [{}]; unmount and remove \
         these, then the volume is let go",
        .global.display(), paths(.others)
    )]
    ReferencedDevice { global: PathBuf, others: Vec<PathBuf> },
    /// The driver could not take a device away from a pod.
    #[error("kubernetes.io/csi: blockMapper.unpublishVolumeForBlock failed: {0}")]
    UnpublishDevice(String),
    /// The driver could not take a device away from the node.
    #[error("kubernetes.io/csi: blockMapper.unstageVolumeForBlock failed: {0}")]
    UnstageDevice(String),
    /// The driver says that it made a device, and did not.
    #[error(
        "driver {driver} left no block device at {}; look at the driver's log",
        .path.display()
    )]
    NoDevice { driver: String, path: PathBuf },
    /// The device could not be given to a pod.
    #[error("{0}")]
    Map(VolumeError),
    /// The driver does not say whether it can grow volumes.
    #[error("Expander.NodeExpand failed to check if node supports expansion : {0}")]
    Expandable(String),
    /// The credentials to grow it are missing.
    #[error("expander.NodeExpand failed to get {0}")]
    ExpandSecret(String),
    /// The driver could not grow it.
    #[error(
        "Expander.NodeExpand failed to expand the volume {}{why}",
        if *.failure == Failure::Infeasible { "" } else { ": " }
    )]
    Expand {
        /// How.
        failure: Failure,
        /// In the driver's words.
        why: String,
    },
    /// The driver grows no volumes.
    #[error("NodeExpand is not supported by the CSI driver {0}")]
    NoExpansion(String),
    /// Another pod has a volume that is for one.
    #[error("{IN_USE}")]
    InUse,
    /// The files could not be given to the group.
    #[error("applyFSGroup failed for vol {handle}: {error}")]
    Group { handle: String, error: VolumeError },
    /// Where the volume should lie is what is left of another.
    #[error(
        "{} is still the place of volume {handle} of {driver}; take the pod away, and put it there \
         again once it is gone",
        .dir.display()
    )]
    Taken { dir: PathBuf, driver: String, handle: String },
    /// The note cannot be written or read.
    #[error("kubernetes.io/csi: cannot {what} {}: {why}", .path.display())]
    Note { what: &'static str, path: PathBuf, why: String },
    /// Nobody knows whose mount this is.
    #[error(
        "{} is mounted, but nothing says by which driver ({why}); unmount it, then it is removed",
        .target.display()
    )]
    Unknown { target: PathBuf, why: String },
    /// The driver says that it unmounted, and did not.
    #[error(
        "kubernetes.io/csi: Unmounter.TearDownAt failed to clean mount dir [{}]: the driver left \
         it mounted; look at the driver's log",
        .target.display()
    )]
    StillMounted { target: PathBuf },
    /// A path that no driver can be told.
    #[error("the path {} is not UTF-8; give klet another root directory", .0.display())]
    NotUtf8(PathBuf),
    /// Files and mounts.
    #[error(transparent)]
    Host(#[from] VolumeError),
}

fn paths(all: &[PathBuf]) -> String {
    all.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
}

impl CsiError {
    /// The driver is missing that is to make a volume.
    pub(super) fn no_driver(spec: &CsiSpec, error: NoDriver) -> Self {
        match &spec.persistent {
            None => Self::NoDriver(error),
            Some(_) if spec.is_block() => Self::NoDriverOfDevice(error),
            Some(_) => Self::NoDriverToShare(error),
        }
    }

    /// What it means for a volume that could not be grown.
    pub(in super::super) fn growth_failure(&self) -> Failure {
        match self {
            Self::NoDriver(_) => Failure::Away,
            Self::NoExpansion(_) => Failure::Unsupported,
            Self::Expand { failure, .. } => *failure,
            _ => Failure::Other,
        }
    }

    /// What was being done, for a device or else a file system.
    pub(in super::super) fn doing(&self, block: bool) -> Doing {
        if matches!(self, Self::Map(_)) {
            return Doing::MapDevice;
        }
        let shared = matches!(
            self,
            Self::StageSecret(_)
                | Self::Stage { .. }
                | Self::OtherLabel(_)
                | Self::NoDriverToShare(_)
                | Self::NoDriverOfDevice(_)
        );
        // As upstream, before anything else is done about a device.
        let shared = shared || block && *self == Self::InUse;
        match (block, shared) {
            (false, false) => Doing::SetUp,
            (false, true) => Doing::MountDevice,
            (true, false) => Doing::MapPodDevice,
            (true, true) => Doing::SetUpDevice,
        }
    }
}
