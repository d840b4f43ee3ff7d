//! Rules about volumes: there before anything starts, the same for as long as
//! the pod lives, gone with it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cri::v1;

use crate::checkers::ReportedPod;
use crate::manifest::PodTemplate;
use crate::runtime::Container;
use crate::world::State;

/// Where the agent keeps what it has of pods.
const PODS: &str = "/var/lib/kubelet/pods";

/// The directories and mounts that pods' containers wrote to, by path.
#[derive(Default)]
pub(crate) struct VolumeHistory(BTreeMap<PathBuf, Which>);

/// Directory and mount: another of either is another volume, and empty.
type Which = (Option<u64>, Option<u64>);

fn empty_dir(uid: &str, name: &str) -> PathBuf {
    Path::new(PODS).join(uid).join("volumes/kubernetes.io~empty-dir").join(name)
}

impl State {
    fn which(&self, path: &Path) -> Which {
        (self.files.inode(path), self.volumes.mounts.get(path).copied())
    }

    /// The agent asks for a sandbox of a pod: its volumes must be there.
    pub(crate) fn check_volumes_ready(&mut self, pod: &str, uid: &str, template: &PodTemplate) {
        let missing = template.empty_dirs().into_iter().find(|(name, memory)| {
            let (directory, mount) = self.which(&empty_dir(uid, name));
            directory.is_none() || (*memory && mount.is_none())
        });
        if let Some((name, _)) = missing {
            self.violate(pod, format!("sandbox asked for before volume {name} is there"));
        }
    }

    /// A container starts: what it mounts exists, and is what others of its pod
    /// wrote to before.
    pub(crate) fn check_volumes_kept(
        &mut self,
        name: &str,
        mounts: &[v1::Mount],
    ) -> Option<String> {
        for v1::Mount { host_path, .. } in mounts {
            let path = Path::new(host_path);
            let part = path.strip_prefix(PODS).ok().filter(|part| {
                part.iter()
                    .nth(1)
                    .is_some_and(|name| name == "volumes" || name == "volume-subpaths")
            });
            if part.is_none() {
                continue;
            }
            let which = self.which(path);
            if which.0.is_none() {
                return Some(format!("{name} mounts {host_path}, which is missing"));
            }
            let known = self.volume_history.0.insert(path.to_owned(), which);
            let same = host_path.contains("/volume-subpaths/") || known.is_none_or(|k| k == which);
            if !same {
                return Some(format!("{name} finds volume {host_path} emptied"));
            }
        }
        None
    }

    /// The last sandbox of a pod is removed: what it kept may go.
    pub(crate) fn forget_volumes(&mut self, uid: &str) {
        if !self.objects.sandboxes.values().any(|sandbox| sandbox.uid() == uid) {
            let dir = Path::new(PODS).join(uid);
            self.volume_history.0.retain(|path, _| !path.starts_with(&dir));
        }
    }

    /// The agent unmounts or removes something: no container may be using it.
    pub(crate) fn check_volume_undone(&mut self, path: &Path, how: &str) {
        let uses = |c: &&Container| {
            let mut mounts = c.config.mounts.iter();
            c.is_running() && mounts.any(|mount| Path::new(&mount.host_path).starts_with(path))
        };
        let user = self.objects.containers.values().find(uses);
        if let Some((pod, name)) = user.map(|c| (c.pod().to_owned(), c.name().to_owned())) {
            self.violate(&pod, format!("agent {how} {}, which {name} uses", path.display()));
        }
    }

    /// What is left of pods that are gone, or mounted for pods that have ended.
    pub(crate) fn stale_volume(
        &self,
        uids: &BTreeSet<String>,
        reported: &[ReportedPod],
    ) -> Option<String> {
        let ended = |uid: &str| {
            let mut ended = reported.iter().filter(|pod| pod.uid == uid);
            ended.any(|pod| pod.phase == "Succeeded" || pod.phase == "Failed")
        };
        for dir in self.files.names_in(Path::new(PODS)) {
            let uid = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mounts = self.volumes.at_or_below(&dir);
            match mounts.first() {
                _ if !uids.contains(&uid) => {
                    return Some(format!("directory of {uid} left behind"));
                }
                Some(mount) if ended(&uid) => {
                    return Some(format!("{} left mounted", mount.display()));
                }
                _ => {}
            }
        }
        let known = |point: &&PathBuf| {
            let part = point.strip_prefix(PODS).ok().and_then(|part| part.iter().next());
            part.and_then(|uid| uid.to_str()).is_some_and(|uid| uids.contains(uid))
        };
        let stray = self.volumes.mounts.keys().find(|point| !known(point));
        stray.map(|point| format!("{} left mounted", point.display()))
    }
}
