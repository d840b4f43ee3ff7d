//! Paths of the host. Nothing is made below the pod's directory, and nothing is
//! the agent's to relabel or give away. Upstream: pkg/volume/hostpath.

use std::path::Path;

use mounts::host_path::HostPathType;

use super::super::VolumeMountable;
use crate::ports::{VolumeError, VolumeHost};

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
