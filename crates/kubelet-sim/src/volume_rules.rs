//! Rules about volumes: there before anything starts, the same for as long as
//! the pod lives, gone with it. What the host lends stays, with all that is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cri::v1;

use crate::checkers::ReportedPod;
use crate::claimed_disks::is_device_of;
use crate::manifest::PodTemplate;
use crate::runtime::{Container, short};
use crate::world::State;

/// Where the agent keeps what it has of pods.
pub(crate) const PODS: &str = "/var/lib/kubelet/pods";

/// Where the directories lie that the host lends to pods.
const HOST: &str = "/srv";

/// What pods' containers wrote to.
#[derive(Default)]
pub(crate) struct VolumeHistory {
    /// The directories and mounts, by path.
    known: BTreeMap<PathBuf, Which>,
    /// The files: every container writes one into each of its volumes.
    written: BTreeSet<PathBuf>,
}

/// Directory and mount: another of either is another volume, and empty.
type Which = (Option<u64>, Option<u64>);

fn empty_dir(uid: &str, name: &str) -> PathBuf {
    Path::new(PODS).join(uid).join("volumes/kubernetes.io~empty-dir").join(name)
}

/// Is this a volume of a pod or a part of one?
fn is_volume(path: &Path) -> bool {
    let kind = path.strip_prefix(PODS).ok().and_then(|part| part.iter().nth(1));
    let of_pod = kind.is_some_and(|kind| kind == "volumes" || kind == "volume-subpaths");
    of_pod || path.starts_with(HOST)
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
        let dir = Path::new(PODS).join(uid);
        let missing = self.missing_csi_volume(&dir, template);
        let missing = missing.or_else(|| self.missing_network_volume(&dir, template));
        if let Some(name) = missing.or_else(|| self.missing_claimed_disk(&dir, template)) {
            self.violate(pod, format!("sandbox asked for before volume {name} is mounted"));
        }
        if let Some(name) = self.missing_object(&dir, template) {
            self.violate(pod, format!("sandbox asked for before the files of {name} are there"));
        }
    }

    /// A container starts: what it mounts exists, and is what others of its pod
    /// wrote to before. It writes, too.
    pub(crate) fn check_volumes_kept(
        &mut self,
        id: &str,
        name: &str,
        mounts: &[v1::Mount],
    ) -> Option<String> {
        for mount in mounts.iter().filter(|mount| is_volume(Path::new(&mount.host_path))) {
            let host_path = &mount.host_path;
            let path = Path::new(host_path);
            let which = self.which(path);
            if which.0.is_none() {
                return Some(format!("{name} mounts {host_path}, which is missing"));
            }
            let known = self.volume_history.known.insert(path.to_owned(), which);
            let same = host_path.contains("/volume-subpaths/") || known.is_none_or(|k| k == which);
            if !same {
                return Some(format!("{name} finds volume {host_path} emptied"));
            }
            if mount.readonly {
                continue;
            }
            let place = self.volumes.source_of(path).to_owned();
            if let Some(lost) = self.lost_below(&place) {
                return Some(format!("{name} misses {}, written before", lost.display()));
            }
            let file = place.join(format!("by-{}", short(id)));
            self.write_file(&file, Vec::new());
            self.volume_history.written.insert(file);
        }
        None
    }

    /// Something below a path that was written and is there no more.
    fn lost_below(&self, path: &Path) -> Option<&Path> {
        let written = self.volume_history.written.range(path.to_owned()..);
        let mut below = written.take_while(|file| file.starts_with(path));
        below.find(|file| !self.files.has(file)).map(PathBuf::as_path)
    }

    /// What the host lends is nobody's to delete.
    pub(crate) fn lost_host_file(&self) -> Option<String> {
        self.lost_below(Path::new(HOST)).map(|lost| format!("{} was deleted", lost.display()))
    }

    /// The last sandbox of a pod is removed: what it kept may go.
    pub(crate) fn forget_volumes(&mut self, uid: &str) {
        if !self.objects.sandboxes.values().any(|sandbox| sandbox.uid() == uid) {
            let dir = Path::new(PODS).join(uid);
            self.volume_history.known.retain(|path, _| !path.starts_with(&dir));
            self.volume_history.written.retain(|path| !path.starts_with(&dir));
        }
    }

    /// The last container of a pod without a ready sandbox is removed, as of an orphan whose
    /// manifest could not be read: volumes that were undone before are not missed. A later
    /// life of the agent may read the manifest, and run it anew (seed 398).
    pub(crate) fn forget_undone_volumes(&mut self, uid: &str) {
        let lasts = self.objects.containers.values().any(|container| container.uid() == uid)
            || self.objects.sandboxes.values().any(|s| s.uid() == uid && s.ready);
        if lasts {
            return;
        }
        let dir = Path::new(PODS).join(uid);
        let known = std::mem::take(&mut self.volume_history.known);
        let stays = |path: &Path, which| !path.starts_with(&dir) || self.which(path) == which;
        let known = known.into_iter().filter(|(path, which)| stays(path, *which)).collect();
        self.volume_history.known = known;
    }

    /// A pod whose time is up gives its volumes back. Another life of the agent may find
    /// that it has time left, by a clock that was set back or by the sandboxes that are
    /// left, and run it anew with empty volumes. Upstream counts from its own start then,
    /// and forgets, too, what was removed with a sandbox and never to be started again.
    fn release_of_ended(&mut self, path: &Path) {
        let part = path.strip_prefix(PODS).ok().and_then(|part| part.iter().next());
        let Some(uid) = part.and_then(|uid| uid.to_str()) else { return };
        let mut sandboxes = self.objects.sandboxes.values().filter(|s| s.uid() == uid);
        let ended = sandboxes.clone().all(|s| !s.ready)
            && sandboxes.next().is_some_and(|s| {
                let revision = s.revision();
                self.deadline_explains_stop(revision)
                    || self.oracle.kin_templates(revision).any(PodTemplate::may_end_unseen)
            });
        let mut all = self.objects.containers.values();
        if ended && !all.any(|c| c.uid() == uid && c.is_running()) {
            self.volume_history.known.retain(|known, _| !known.starts_with(path));
            self.volume_history.written.retain(|file| !file.starts_with(path));
        }
    }

    /// The agent unmounts or removes something: no container may be using it.
    pub(crate) fn check_volume_undone(&mut self, path: &Path, how: &str) {
        if path.starts_with(HOST) {
            self.violate("", format!("agent {how} {}, which is the host's", path.display()));
        }
        self.release_of_ended(path);
        let uses = |c: &&Container| {
            let mounts = c.config.mounts.iter().map(|mount| &mount.host_path);
            let mut all = mounts.chain(c.config.devices.iter().map(|device| &device.host_path));
            let has_device = !c.config.devices.is_empty() && is_device_of(c.uid(), path);
            let is_used = has_device || all.any(|used| Path::new(used).starts_with(path));
            c.is_running() && is_used
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
        if let Some(stale) = self.stale_config(Path::new(PODS)) {
            return Some(stale);
        }
        let known = |point: &&PathBuf| {
            let part = point.strip_prefix(PODS).ok().and_then(|part| part.iter().next());
            let of_pod = part.and_then(|uid| uid.to_str()).is_some_and(|uid| uids.contains(uid));
            let shared = self.is_shared_mount(point) || self.is_disk_in_use(point);
            let mut lasting = uids.iter().filter(|uid| !ended(uid));
            of_pod || shared || lasting.any(|uid| is_device_of(uid, point))
        };
        let stray = self.volumes.mounts.keys().find(|point| !known(point));
        let stray = stray.map(|point| format!("{} left mounted", point.display()));
        let waiting = reported.iter().filter(|pod| pod.phase == "Pending");
        let waiting: Vec<&str> = waiting.map(|pod| pod.uid.as_str()).collect();
        let stale = stray.or_else(|| self.stale_staging()).or_else(|| self.stale_disk(&waiting));
        stale.or_else(|| self.stale_node_disk()).or_else(|| self.small_volume())
    }
}
