//! Where a pod's volumes lie.
//!
//! Pure. Names become parts of paths only through types that cannot leave the
//! pod's directory. Upstream: pkg/kubelet/kubelet_getters.go, pkg/volume/util.

use std::fmt;
use std::path::{Path, PathBuf};

use kubelet_model::PodUid;

use crate::runtime_manager::pod_dir;

/// A name that is one part of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeName(String);

impl VolumeName {
    /// `None` if the name could lead elsewhere, or is longer than a file system allows.
    pub fn new(name: &str) -> Option<Self> {
        is_part(name).then(|| Self(name.to_owned()))
    }

    /// Under which name a volume is told of whose own could lead elsewhere.
    pub fn stand_in(name: &str) -> Self {
        let plain = name.chars().map(|one| if matches!(one, '/' | '\0') { '_' } else { one });
        // Room enough for letters of several bytes.
        let plain: String = plain.take(60).collect();
        Self::new(&plain).unwrap_or_else(|| Self("_".to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name under which the empty directory below a volume is noted.
    pub fn wrapped(&self) -> Self {
        // The part before is short, and a volume's name a quarter of what is allowed.
        Self(format!("wrapped_{self}"))
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_part(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(['/', '\0'])
}

/// A kind of volume by upstream's name, such as `kubernetes.io/empty-dir`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginName(VolumeName);

impl PluginName {
    /// Plain directories, memory and huge pages.
    pub const EMPTY_DIR: &'static str = "kubernetes.io~empty-dir";
    /// Files of ConfigMaps.
    pub const CONFIG_MAP: &'static str = "kubernetes.io~configmap";
    /// Files of Secrets.
    pub const SECRET: &'static str = "kubernetes.io~secret";
    /// Files about the pod.
    pub const DOWNWARD_API: &'static str = "kubernetes.io~downward-api";
    /// Directories of the node that are persistent volumes.
    pub const LOCAL: &'static str = "kubernetes.io~local-volume";
    /// What NFS servers export.
    pub const NFS: &'static str = "kubernetes.io~nfs";
    /// Disks of iSCSI targets.
    pub const ISCSI: &'static str = "kubernetes.io~iscsi";
    /// Disks of Fibre Channel networks.
    pub const FC: &'static str = "kubernetes.io~fc";
    /// Files of several sources.
    pub const PROJECTED: &'static str = "kubernetes.io~projected";
    /// What CSI drivers mount.
    pub const CSI: &'static str = "kubernetes.io~csi";

    /// That of what CSI drivers mount.
    pub fn csi() -> Self {
        Self(VolumeName(Self::CSI.to_owned()))
    }

    /// That of empty directories.
    pub fn empty_dir() -> Self {
        Self(VolumeName(Self::EMPTY_DIR.to_owned()))
    }

    /// That of files of ConfigMaps.
    pub fn config_map() -> Self {
        Self(VolumeName(Self::CONFIG_MAP.to_owned()))
    }

    /// That of files of Secrets.
    pub fn secret() -> Self {
        Self(VolumeName(Self::SECRET.to_owned()))
    }

    /// That of files about the pod.
    pub fn downward_api() -> Self {
        Self(VolumeName(Self::DOWNWARD_API.to_owned()))
    }

    /// That of files of several sources.
    pub fn projected() -> Self {
        Self(VolumeName(Self::PROJECTED.to_owned()))
    }

    /// That of directories of the node that are persistent volumes.
    pub fn local() -> Self {
        Self(VolumeName(Self::LOCAL.to_owned()))
    }

    /// That of what NFS servers export.
    pub fn nfs() -> Self {
        Self(VolumeName(Self::NFS.to_owned()))
    }

    /// That of disks of iSCSI targets.
    pub fn iscsi() -> Self {
        Self(VolumeName(Self::ISCSI.to_owned()))
    }

    /// That of disks of Fibre Channel networks.
    pub fn fc() -> Self {
        Self(VolumeName(Self::FC.to_owned()))
    }

    /// From the name of its directory.
    pub fn of_dir(dir: &str) -> Option<Self> {
        VolumeName::new(dir).map(Self)
    }

    /// The name of its directory, where `~` stands for `/`.
    pub fn as_dir(&self) -> &str {
        self.0.as_str()
    }

    /// Its last part, such as `empty-dir`.
    pub fn short(&self) -> &str {
        self.as_dir().rsplit('~').next().unwrap_or_default()
    }

    /// As users know it.
    pub fn plain(&self) -> String {
        self.as_dir().replace('~', "/")
    }
}

/// One pod's directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodLayout {
    dir: PathBuf,
}

impl PodLayout {
    /// `None` for a uid that is no name of a directory.
    pub fn new(root_dir: &Path, uid: &PodUid) -> Option<Self> {
        is_part(uid.as_str()).then(|| Self { dir: pod_dir(root_dir, uid) })
    }

    /// The pod's uid.
    pub fn uid(&self) -> &str {
        // It is one part of a path, and text.
        self.dir.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Where everything of the pod lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where all volumes lie, by kind.
    pub fn volumes_dir(&self) -> PathBuf {
        self.dir.join("volumes")
    }

    /// Where the volumes of one kind lie.
    pub fn plugin_dir(&self, plugin: &PluginName) -> PathBuf {
        self.volumes_dir().join(plugin.as_dir())
    }

    /// Where a volume lies.
    pub fn volume_dir(&self, plugin: &PluginName, name: &VolumeName) -> PathBuf {
        self.plugin_dir(plugin).join(name.as_str())
    }

    /// Where the links to block devices lie, by kind.
    pub fn devices_dir(&self) -> PathBuf {
        self.dir.join("volumeDevices")
    }

    /// The link to the device of a block volume.
    pub fn device_link(&self, plugin: &PluginName, name: &VolumeName) -> PathBuf {
        self.devices_dir().join(plugin.as_dir()).join(name.as_str())
    }

    /// What is noted about a volume.
    pub fn meta_dir(&self, plugin: &PluginName, name: &VolumeName) -> PathBuf {
        self.dir.join("plugins").join(plugin.as_dir()).join(name.as_str())
    }

    /// The mark of a volume that is ready.
    pub fn ready_marker(&self, plugin: &PluginName, name: &VolumeName) -> PathBuf {
        self.meta_dir(plugin, name).join("ready")
    }

    /// Where parts of volumes are bound.
    pub fn sub_paths_dir(&self) -> PathBuf {
        self.dir.join("volume-subpaths")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_upstreams() {
        let layout = PodLayout::new(Path::new("/r"), &PodUid::new("u1")).unwrap();
        let plugin = PluginName::empty_dir();
        let name = VolumeName::new("data").unwrap();
        let shown = [
            layout.volume_dir(&plugin, &name),
            layout.ready_marker(&plugin, &name),
            layout.sub_paths_dir(),
            layout.device_link(&PluginName::csi(), &name),
        ]
        .map(|path| path.display().to_string());
        assert_eq!(
            shown,
            [
                "/r/pods/u1/volumes/kubernetes.io~empty-dir/data",
                "/r/pods/u1/plugins/kubernetes.io~empty-dir/data/ready",
                "/r/pods/u1/volume-subpaths",
                "/r/pods/u1/volumeDevices/kubernetes.io~csi/data",
            ]
        );
        assert_eq!(layout.uid(), "u1");
        assert_eq!(plugin.plain(), "kubernetes.io/empty-dir");
    }

    #[test]
    fn no_name_leads_out_of_the_pods_directory() {
        let long = "x".repeat(256);
        for name in ["", ".", "..", "a/b", "../x", "/", "a\0b", long.as_str()] {
            assert_eq!(VolumeName::new(name), None, "{name:?}");
            assert_eq!(PluginName::of_dir(name), None, "{name:?}");
            assert_eq!(PodLayout::new(Path::new("/r"), &PodUid::new(name)), None, "{name:?}");
        }
        assert!(VolumeName::new("..data").is_some());
    }
}
