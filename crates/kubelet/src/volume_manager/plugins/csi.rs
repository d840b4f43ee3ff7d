//! CSI: a driver mounts the volume, the agent notes how to undo that.
//!
//! The note is written before the driver is asked, and removed when nothing is
//! mounted any more, so that an agent killed at any time leaves nothing that
//! nobody can undo. Files in a volume are the driver's: no directory is removed
//! that has anything in it. Upstream: pkg/volume/csi/csi_mounter.go.

use std::path::{Path, PathBuf};

use mounts::ownership::FsGroup;

use super::super::VolumeMountable;
use super::super::csi::{
    BadVolData, CsiSpec, VOL_DATA_BYTES_MAX, VolData, attachment_id, rpc_error,
};
use super::super::layout::{PluginName, VolumeName};
use super::Means;
use crate::object_cache::Objects;
use crate::plugin_manager::{Drivers, NoDriver};
use crate::ports::VolumeError;

/// Mode of a volume's directory, as upstream's.
const MODE: u32 = 0o750;

/// Why a CSI volume could not be made or undone, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CsiError {
    /// The driver is missing when a volume is made.
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {0}")]
    NoDriver(NoDriver),
    /// The driver is missing when a volume is undone.
    #[error("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: {0}")]
    NoDriverLeft(NoDriver),
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
    /// The files could not be given to the group.
    #[error("applyFSGroup failed for vol {handle}: {error}")]
    Group { handle: String, error: VolumeError },
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

/// Where a volume and its note lie.
struct Paths {
    dir: PathBuf,
    target: PathBuf,
    note: PathBuf,
}

impl Paths {
    fn of(means: &Means<'_>, name: &VolumeName) -> Self {
        let dir = means.layout.volume_dir(&PluginName::csi(), name);
        Self { target: dir.join("mount"), note: dir.join("vol_data.json"), dir }
    }

    fn target_text(&self) -> Result<&str, CsiError> {
        self.target.to_str().ok_or_else(|| CsiError::NotUtf8(self.target.clone()))
    }
}

/// Why the driver cannot even be asked for a volume.
pub(super) fn obstacle(spec: &CsiSpec, drivers: &Drivers, objects: &Objects) -> Option<CsiError> {
    let driver = drivers.get(&spec.driver).map(drop).map_err(CsiError::NoDriver);
    let secret = || spec.secrets(|key| objects.get(key)).map(drop).map_err(CsiError::Secret);
    driver.and_then(|()| secret()).err()
}

/// Has the driver mount a volume. What is mounted already, it finds so.
pub(super) async fn set_up(
    means: &Means<'_>,
    name: &VolumeName,
    spec: &CsiSpec,
) -> Result<VolumeMountable, CsiError> {
    let driver = means.drivers.get(&spec.driver).map_err(CsiError::NoDriver)?;
    let secrets = spec.secrets(|key| means.objects.get(key)).map_err(CsiError::Secret)?;
    let asked = driver.node.capabilities().await;
    let capabilities = asked.map_err(|error| CsiError::Capabilities(rpc_error(&error)))?;
    let paths = Paths::of(means, name);
    means.host.make_dir(&paths.dir, MODE).await?;
    note(means, &paths.note, name, spec)?;
    let request = spec.publish_request(paths.target_text()?, secrets, &capabilities);
    if let Err(error) = driver.node.publish(request).await {
        // It has certainly not mounted anything now. An earlier life may have.
        if error.is_final()
            && let Err(error) = clean(means, &paths).await
        {
            let path = paths.dir.display();
            tracing::warn!(%path, %error, "cannot remove the directory of a volume that failed");
        }
        return Err(CsiError::Publish(rpc_error(&error)));
    }
    if let Some(gid) = spec.group_to_give(&capabilities) {
        let group = FsGroup { gid, read_only: false };
        let owned = means.host.own(&paths.target, group, spec.change_policy).await;
        let owned =
            owned.map_err(|error| CsiError::Group { handle: spec.handle.clone(), error })?;
        if let Some(error) = owned.first_failure {
            let path = paths.target.display();
            tracing::warn!(%path, gid, failed = owned.failed, %error, "not all given to the group");
        }
    }
    let (read_only, managed) = (spec.read_only, !spec.read_only);
    Ok(VolumeMountable { host_path: paths.target, read_only, managed })
}

fn note(
    means: &Means<'_>,
    path: &Path,
    name: &VolumeName,
    spec: &CsiSpec,
) -> Result<(), CsiError> {
    let data = VolData {
        spec_vol_id: name.as_str().to_owned(),
        volume_handle: spec.handle.clone(),
        driver_name: spec.driver.clone(),
        node_name: means.node_name.to_owned(),
        volume_lifecycle_mode: "Ephemeral".to_owned(),
        attachment_id: attachment_id(&spec.handle, &spec.driver, means.node_name),
    };
    let failed =
        |why: std::io::Error| CsiError::Note { what: "write", path: path.into(), why: why.to_string() };
    means.fs.write(path, &data.to_json()).map_err(failed)
}

/// Has the driver unmount what is left of a volume, and removes the rest.
pub(super) async fn tear_down(means: &Means<'_>, name: &VolumeName) -> Result<(), CsiError> {
    let paths = Paths::of(means, name);
    let data = match read_note(means, &paths.note)? {
        Some(Ok(data)) => data,
        unknown => {
            if means.host.is_mount_point(&paths.target).await? {
                let why = unknown.and_then(Result::err).map(|error| error.to_string());
                let why = why.unwrap_or_else(|| "vol_data.json is missing".to_owned());
                return Err(CsiError::Unknown { target: paths.target, why });
            }
            return clean(means, &paths).await;
        }
    };
    let driver = means.drivers.get(&data.driver_name).map_err(CsiError::NoDriverLeft)?;
    let asked = driver.node.unpublish(&data.volume_handle, paths.target_text()?).await;
    asked.map_err(|error| CsiError::Unpublish(rpc_error(&error)))?;
    if means.host.is_mount_point(&paths.target).await? {
        return Err(CsiError::StillMounted { target: paths.target });
    }
    clean(means, &paths).await
}

/// The note, if there is one.
fn read_note(
    means: &Means<'_>,
    path: &Path,
) -> Result<Option<Result<VolData, BadVolData>>, CsiError> {
    match means.fs.read(path, VOL_DATA_BYTES_MAX) {
        Ok(content) => Ok(Some(VolData::parse(&content))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let (path, why) = (path.to_owned(), error.to_string());
            Err(CsiError::Note { what: "read", path, why })
        }
    }
}

/// Removes a volume's directory and note, unless something is mounted there.
async fn clean(means: &Means<'_>, paths: &Paths) -> Result<(), CsiError> {
    if means.host.is_mount_point(&paths.target).await? {
        return Ok(());
    }
    // Drivers should have removed it; not all do.
    means.host.remove_empty_dir(&paths.target).await?;
    Ok(means.host.remove_tree(&paths.dir).await?)
}
