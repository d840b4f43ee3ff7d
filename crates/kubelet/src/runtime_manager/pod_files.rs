//! Files that the agent keeps for a pod and shares with its containers.
//!
//! Owns the layout of `<root>/pods/<uid>`; `user_namespace` keeps its record
//! there too. Upstream: pkg/kubelet/kubelet_getters.go, makePodDataDirs and
//! makeHostsMount in pkg/kubelet/kubelet_pods.go.

use std::io;
use std::path::{Path, PathBuf};

use kubelet_model::{DesiredPod, PodUid};

use super::executor::{ActionError, Executor};
use super::{hostname, hosts};
use crate::ports::Fs;

/// The node's own hosts file.
const NODE_HOSTS: &str = "/etc/hosts";
/// A hosts file that blocks unwanted names may be long.
const NODE_HOSTS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Nobody but the agent and its group need look into a pod's directory.
const DIR_MODE: u32 = 0o750;

/// Where all pods' directories lie.
pub fn pods_dir(root_dir: &Path) -> PathBuf {
    root_dir.join("pods")
}

/// A pod's directory: everything the agent keeps for it but its logs.
pub fn pod_dir(root_dir: &Path, uid: &PodUid) -> PathBuf {
    pods_dir(root_dir).join(uid.as_str())
}

/// Removes a pod's directory, once nothing of its volumes is left. As upstream, what is
/// found in place of those is never removed: it may be somebody's data.
pub fn remove_pod_dir(fs: &dyn Fs, dir: &Path) -> io::Result<()> {
    fs.remove_dirs(&dir.join("volumes"))?;
    fs.remove_dir_all(dir)
}

impl Executor {
    /// Makes the pod's directories, as upstream lays them out.
    pub(super) fn make_pod_dirs(&self) -> Result<(), ActionError> {
        let dir = pod_dir(&self.settings.root_dir, &self.identity.uid);
        for dir in [dir.clone(), dir.join("volumes"), dir.join("plugins")] {
            self.ports.fs.create_dir_all(&dir, DIR_MODE).map_err(|error| {
                ActionError::PodDirectories { path: dir.clone(), why: error.to_string() }
            })?;
        }
        Ok(())
    }

    /// Writes the pod's hosts file; `None` if the pod has no address to put in it.
    pub(super) fn write_hosts(
        &self,
        pod: &DesiredPod,
        pod_ips: &[String],
    ) -> Result<Option<PathBuf>, String> {
        let spec = pod.spec();
        let on_host = spec.host_network.unwrap_or(false);
        if pod_ips.is_empty() && !on_host {
            return Ok(None);
        }
        let aliases = spec.host_aliases.as_deref().unwrap_or_default();
        let fs = &*self.ports.fs;
        let content = if on_host {
            let node_file = fs.read(Path::new(NODE_HOSTS), NODE_HOSTS_BYTES_MAX);
            let node_file =
                node_file.map_err(|error| format!("cannot read {NODE_HOSTS}: {error}"))?;
            hosts::of_node(&node_file, aliases)
        } else {
            let name = hostname::of_pod(pod, &self.settings.cluster_domain);
            hosts::managed(pod_ips, &name, aliases).into_bytes()
        };
        let path = pod_dir(&self.settings.root_dir, pod.uid()).join("etc-hosts");
        write(fs, &path, &content, 0o644)?;
        Ok(Some(path))
    }

    /// Makes the file that an instance of a container writes its last words to.
    pub(super) fn make_termination_log(
        &self,
        pod: &DesiredPod,
        container: &str,
    ) -> Result<PathBuf, String> {
        let dir = pod_dir(&self.settings.root_dir, pod.uid()).join("containers").join(container);
        let fs = &*self.ports.fs;
        let made = fs.create_dir_all(&dir, DIR_MODE);
        made.map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
        // Instances of a container share the directory.
        let path = dir.join(format!("{:08x}", self.ports.jitter.number()));
        // The container may run as anybody.
        write(fs, &path, b"", 0o666)?;
        Ok(path)
    }
}

fn write(fs: &dyn Fs, path: &Path, content: &[u8], mode: u32) -> Result<(), String> {
    let written = fs.write_in_place(path, content, mode);
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}
