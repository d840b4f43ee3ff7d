//! What is left of a pod's volumes on the disk.
//!
//! Asked for one pod at a time, when nobody wants its volumes any more: an agent
//! that starts need know nothing of volumes before it knows its pods, and finds
//! those that another life made. Only what a cluster attaches is looked for in all pods
//! at the start, so that the node goes on telling what it uses. Upstream:
//! volumemanager/reconciler, reconstruct.go.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet_model::PodUid;
use mounts::MountsError;
use rustix::io::Errno;
use tokio::time::sleep;

use super::attach::{Attachments, Held};
use super::csi::{Life, VOL_DATA_BYTES_MAX, VolData, unique_name};
use super::layout::{PluginName, PodLayout, VolumeName};
use super::plan::Found;
use super::plugins::{NAME_NOTE, OWN_KINDS};
use crate::ports::{Fs, VolumeError, VolumeHost};
use crate::runtime_manager::pods_dir;

/// Bytes of the name of a disk.
const NAME_BYTES_MAX: usize = 64 << 10;
/// Pause before the disk is looked at again after a failure.
const RETRY: Duration = Duration::from_secs(10);

/// Finds what an earlier life of the agent left of volumes that may be attached, and
/// tells it. Until that has worked nothing of it is undone; a pod whose notes cannot be
/// read keeps only its own volumes waiting.
pub(super) async fn find_attachable(
    host: Arc<dyn VolumeHost>,
    fs: Arc<dyn Fs>,
    root_dir: PathBuf,
    attachments: Attachments,
) {
    let pods = loop {
        match host.dirs_in(&pods_dir(&root_dir)).await {
            Ok(pods) => break pods,
            Err(error) => {
                tracing::warn!(%error, "cannot see whose volumes are left; looking again in a while");
                sleep(RETRY).await;
            }
        }
    };
    let (mut found, mut unread) = (BTreeMap::new(), BTreeMap::new());
    for uid in pods.into_iter().map(PodUid::new) {
        match attachable(&*host, &*fs, &root_dir, &uid).await {
            Ok(held) if held.is_empty() => {}
            Ok(held) => {
                found.insert(uid, held);
            }
            Err(error) => {
                tell_unread(&uid, &error);
                unread.insert(uid, error);
            }
        }
    }
    attachments.found(found, unread.keys().cloned().collect());
    while !unread.is_empty() {
        sleep(RETRY).await;
        for (uid, before) in std::mem::take(&mut unread) {
            match attachable(&*host, &*fs, &root_dir, &uid).await {
                Ok(held) => attachments.read(&uid, held),
                Err(error) => {
                    if error != before {
                        tell_unread(&uid, &error);
                    }
                    unread.insert(uid, error);
                }
            }
        }
    }
}

fn tell_unread(uid: &PodUid, error: &VolumeError) {
    tracing::warn!(
        pod = %uid,
        %error,
        "cannot see which volumes the pod has left; none of its CSI, iSCSI and FC volumes is \
         undone before that can be read, or is removed by hand"
    );
}

/// What a pod has left of volumes that may be attached.
async fn attachable(
    host: &dyn VolumeHost,
    fs: &dyn Fs,
    root_dir: &Path,
    uid: &PodUid,
) -> Result<Held, VolumeError> {
    let mut held = Held::new();
    let Some(layout) = PodLayout::new(root_dir, uid) else { return Ok(held) };
    let csi = PluginName::csi();
    for found in look(host, &layout).await? {
        if found.plugin.as_ref() != Some(&csi) {
            if let Some(name) = disk_name(fs, &layout, &found)? {
                held.insert(found.name, name);
            }
            continue;
        }
        // What has no note is told of when it is undone.
        let Some(data) = noted(fs, &layout, root_dir, &found)? else { continue };
        if found.device || data.volume_lifecycle_mode == Life::Persistent.as_str() {
            held.insert(found.name, unique_name(&data.driver_name, &data.volume_handle));
        }
    }
    Ok(held)
}

/// What is noted of a driver's volume. A note that says nothing is none.
fn noted(
    fs: &dyn Fs,
    layout: &PodLayout,
    root_dir: &Path,
    found: &Found,
) -> Result<Option<VolData>, VolumeError> {
    let note = match found.device {
        false => layout.volume_dir(&PluginName::csi(), &found.name).join("vol_data.json"),
        true => {
            let devices = root_dir.join("plugins/kubernetes.io/csi/volumeDevices");
            devices.join(found.name.as_str()).join("data/vol_data.json")
        }
    };
    let content = read(fs, &note, VOL_DATA_BYTES_MAX)?;
    Ok(content.and_then(|content| VolData::parse(&content).ok()))
}

/// The driver of a volume that was found, if it has one and that was noted.
pub(super) fn driver_of(
    fs: &dyn Fs,
    layout: &PodLayout,
    root_dir: &Path,
    found: &Found,
) -> Option<String> {
    let is_csi = found.plugin.as_ref().is_some_and(|plugin| plugin.as_dir() == PluginName::CSI);
    let data = if is_csi { noted(fs, layout, root_dir, found) } else { Ok(None) };
    data.ok().flatten().map(|data| data.driver_name)
}

/// A note, if there is one. One that cannot be read may be about anything.
fn read(fs: &dyn Fs, note: &Path, limit: usize) -> Result<Option<Vec<u8>>, VolumeError> {
    match fs.read(note, limit) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Err(MountsError::Call { operation: "read", path: note.to_owned(), source }.into())
        }
    }
}

/// Is it known what a volume is that was found?
pub(super) fn is_known(fs: &dyn Fs, layout: &PodLayout, root_dir: &Path, found: &Found) -> bool {
    let Some(plugin) = &found.plugin else { return false };
    match plugin.as_dir() {
        PluginName::CSI => matches!(noted(fs, layout, root_dir, found), Ok(Some(_))),
        PluginName::LOCAL | PluginName::NFS | PluginName::ISCSI | PluginName::FC => true,
        kind => !found.device && OWN_KINDS.contains(&kind),
    }
}

/// What the cluster calls a disk of another machine, if it is one and that was noted.
fn disk_name(
    fs: &dyn Fs,
    layout: &PodLayout,
    found: &Found,
) -> Result<Option<String>, VolumeError> {
    let Some(plugin) = found.plugin.as_ref().filter(|_| found.is_disk()) else { return Ok(None) };
    let note = layout.meta_dir(plugin, &found.name).join(NAME_NOTE);
    let content = read(fs, &note, NAME_BYTES_MAX)?;
    let name = content.and_then(|content| String::from_utf8(content).ok());
    Ok(name.filter(|name| !name.is_empty()))
}

/// Every volume with a directory, every block device with a link, and every volume with
/// parts bound elsewhere.
pub(super) async fn look(
    host: &dyn VolumeHost,
    layout: &PodLayout,
) -> Result<BTreeSet<Found>, VolumeError> {
    let mut found = BTreeSet::new();
    for plugin in host.dirs_in(&layout.volumes_dir()).await? {
        let Some(plugin) = PluginName::of_dir(&plugin) else { continue };
        for name in host.dirs_in(&layout.plugin_dir(&plugin)).await? {
            let name = VolumeName::new(&name);
            let plugin = Some(plugin.clone());
            found.extend(name.map(|name| Found { name, plugin, device: false }));
        }
    }
    for plugin in host.dirs_in(&layout.devices_dir()).await? {
        let Some(plugin) = PluginName::of_dir(&plugin) else { continue };
        for name in host.files_in(&layout.devices_dir().join(plugin.as_dir())).await? {
            let name = VolumeName::new(&name);
            let plugin = Some(plugin.clone());
            found.extend(name.map(|name| Found { name, plugin, device: true }));
        }
    }
    for name in host.dirs_in(&layout.sub_paths_dir()).await? {
        found.extend(VolumeName::new(&name).map(|name| Found {
            name,
            plugin: None,
            device: false,
        }));
    }
    Ok(found)
}
