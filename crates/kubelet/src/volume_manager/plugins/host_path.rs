//! Paths of the host. Nothing is made below the pod's directory, and nothing is
//! the agent's to relabel or give away. Upstream: pkg/volume/hostpath.

use std::path::Path;

use mounts::host_path::{HostPathError, HostPathType};

use super::super::VolumeMountable;
use crate::ports::{VolumeError, VolumeHost};

/// Is it of this kind? Whether that could not be found out is another matter.
pub(super) async fn is(
    host: &dyn VolumeHost,
    path: &Path,
    kind: HostPathType,
) -> Result<bool, VolumeError> {
    match host.check_host_path(path, kind).await {
        Ok(()) => Ok(true),
        Err(VolumeError::HostPath(HostPathError::Mismatch { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) async fn set_up(
    host: &dyn VolumeHost,
    path: &Path,
    kind: HostPathType,
) -> Result<VolumeMountable, VolumeError> {
    host.check_host_path(path, kind).await?;
    Ok(VolumeMountable {
        host_path: path.to_owned(),
        read_only: false,
        managed: false,
        persistent: None,
        device: None,
        gid: None,
    })
}
