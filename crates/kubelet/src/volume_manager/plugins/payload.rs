//! Files that the agent writes: configMap, secret, downwardAPI and projected.
//!
//! They lie in an empty directory of the agent's own, marked as upstream marks
//! it, and change all at once. Containers can only read them. Upstream:
//! pkg/volume/{configmap,secret,downwardapi,projected}.

use std::path::Path;
use std::time::SystemTime;

use mounts::ownership::FsGroup;
use mounts::publish::Published;

use super::super::VolumeMountable;
use super::super::desired::Medium;
use super::super::layout::{PluginName, PodLayout, VolumeName};
use super::super::payload::{Content, PayloadSpec};
use super::empty_dir;
use crate::ports::{Publication, VolumeError, VolumeHost};

/// Mode of directories that other volumes are mounted on.
const NESTED_MODE: u32 = 0o755;

pub(super) async fn set_up(
    host: &dyn VolumeHost,
    layout: &PodLayout,
    name: &VolumeName,
    spec: &PayloadSpec,
    content: &Content,
    at: SystemTime,
) -> Result<VolumeMountable, VolumeError> {
    let dir = layout.volume_dir(&spec.kind.plugin(), name);
    let medium = match spec.kind.in_memory() {
        true => Medium::Memory(spec.memory),
        false => Medium::Disk,
    };
    let ready = layout.ready_marker(&PluginName::empty_dir(), &name.wrapped());
    empty_dir::ensure(host, &dir, &ready, medium, None).await?;
    for nested in &spec.nested {
        host.make_inside(&dir, Path::new(nested), NESTED_MODE).await?;
    }
    let group = spec.fs_group.map(|gid| FsGroup { gid, read_only: true });
    let (payload, digest) = (content.payload.clone(), content.digest.clone());
    let published = host.publish(&dir, &Publication { payload, digest, group, at }).await?;
    if let Published::Written { owned: Some(owned) } = published
        && let Some(error) = owned.first_failure
    {
        let path = dir.display();
        tracing::warn!(%path, failed = owned.failed, %error, "not all given to the group");
    }
    Ok(VolumeMountable {
        host_path: dir,
        read_only: true,
        managed: true,
        persistent: None,
        device: None,
        gid: None,
    })
}
