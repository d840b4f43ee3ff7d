//! The driver, proven through the client that the kubelet uses.

mod faults;
mod identity;
mod volumes;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use plugin_apis::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use plugin_apis::csi::{self, VolumeCapability};
use plugin_apis::{CallError, CsiClient};
use tempfile::TempDir;

use super::{CsiDriver, CsiOptions, NodeCapability};

/// A driver, a client and the kubelet's directory. The driver goes first:
/// nothing may be mounted when the directory is removed.
struct Bed {
    driver: CsiDriver,
    client: CsiClient,
    dir: TempDir,
}

impl Bed {
    /// With a driver that stages and has these capabilities too.
    fn new(more: &[NodeCapability]) -> Self {
        let mut options = CsiOptions::default();
        options.capabilities.extend(more);
        Self::with(options)
    }

    fn with(options: CsiOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let driver = CsiDriver::start(&dir.path().canonicalize().unwrap(), options).unwrap();
        let client = CsiClient::new(driver.name(), driver.socket().to_str().unwrap()).unwrap();
        Self { driver, client, dir }
    }

    /// A path in the kubelet's directory; its parent is made.
    fn path(&self, name: &str) -> PathBuf {
        let path = self.dir.path().canonicalize().unwrap().join("pods").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn stage_request(&self, volume: &str) -> csi::NodeStageVolumeRequest {
        csi::NodeStageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: self.text(&format!("staged-{volume}")),
            volume_capability: writer(""),
            ..Default::default()
        }
    }

    /// Stages as the kubelet does, which makes the directory.
    async fn stage(&self, volume: &str) -> Result<(), CallError> {
        let request = self.stage_request(volume);
        fs::create_dir_all(&request.staging_target_path).unwrap();
        self.client.stage(request).await
    }

    fn publish_request(&self, volume: &str, target: &str) -> csi::NodePublishVolumeRequest {
        csi::NodePublishVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: self.text(&format!("staged-{volume}")),
            target_path: self.text(target),
            volume_capability: writer(""),
            ..Default::default()
        }
    }

    async fn publish(&self, volume: &str, target: &str) -> Result<(), CallError> {
        self.client.publish(self.publish_request(volume, target)).await
    }

    async fn unpublish(&self, volume: &str, target: &str) -> Result<(), CallError> {
        self.client.unpublish(volume, &self.text(target)).await
    }

    async fn unstage(&self, volume: &str) -> Result<(), CallError> {
        self.client.unstage(volume, &self.text(&format!("staged-{volume}"))).await
    }

    /// Where the volume is mounted, by the names given to [`path`](Self::path).
    fn mounts_of(&self, volume: &str) -> BTreeSet<String> {
        let mounts = self.driver.mounts_of(volume).unwrap();
        mounts.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }
}

/// A mounted volume with one writer, for a group or none.
fn writer(group: &str) -> Option<VolumeCapability> {
    let mount = MountVolume { volume_mount_group: group.to_owned(), ..Default::default() };
    let mode = csi::AccessMode::SingleNodeWriter as i32;
    Some(VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        access_mode: Some(AccessMode { mode }),
    })
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}
