//! Files of pods that nobody knows any more.
//!
//! A pod's worker removes its files; this clears what a crash in between left
//! behind. Only names that this agent could have given are touched. Upstream:
//! evictPodLogsDirectories in pkg/kubelet/kuberuntime.

use std::collections::BTreeSet;
use std::io;

use kubelet_model::PodUid;

use crate::ports::Fs;
use crate::runtime_manager::{pods_dir, remove_pod_dir};
use crate::settings::Settings;
use crate::volume_manager::{VolumeState, Volumes};

/// Removes directories of unknown pods, volumes first, then links that lead
/// nowhere. Volumes take their time: until they are gone the answer is
/// `WouldBlock`.
pub(super) fn sweep(
    fs: &dyn Fs,
    volumes: &Volumes,
    settings: &Settings,
    known: &BTreeSet<PodUid>,
) -> io::Result<()> {
    let mut outcome = Ok(());
    let pods = pods_dir(&settings.root_dir);
    let (mut orphans, mut failed) = (0, 0);
    for entry in absent_is_empty(fs.list(&pods))? {
        let uid = entry.name.to_str().map(PodUid::new);
        if let Some(uid) = uid.filter(|uid| entry.is_dir && !known.contains(uid)) {
            let removed =
                release(volumes, &uid).and_then(|()| remove_pod_dir(fs, &pods.join(&entry.name)));
            orphans += 1;
            let waits = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
            failed += usize::from(removed.as_ref().is_err_and(|error| !waits(error)));
            outcome = outcome.and(removed);
        }
    }
    volumes.metrics().set_orphans(orphans, failed);
    for entry in absent_is_empty(fs.list(&settings.pod_logs_dir))? {
        let uid = entry.name.to_str().and_then(uid_of_log_dir);
        if let Some(uid) = uid.filter(|uid| entry.is_dir && !known.contains(uid)) {
            tracing::info!(pod = %uid, "removing logs of a pod that is no more");
            // One that cannot be removed must not keep the others.
            outcome = outcome.and(fs.remove_dir_all(&settings.pod_logs_dir.join(&entry.name)));
        }
    }
    for link in absent_is_empty(fs.links(&settings.container_log_links_dir))? {
        let ours = fs.read_link(&link).is_ok_and(|to| to.starts_with(&settings.pod_logs_dir));
        let dangling = fs.stat(&link).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if ours && dangling {
            outcome = outcome.and(fs.remove_file(&link));
        }
    }
    outcome
}

/// Releases an unknown pod's volumes; an error until they are gone.
fn release(volumes: &Volumes, uid: &PodUid) -> io::Result<()> {
    volumes.release(uid);
    match volumes.state(uid) {
        Some(VolumeState::Waiting { problems, .. }) => match problems.into_iter().next() {
            Some(problem) => Err(io::Error::other(format!("pod {uid}: {}", problem.message))),
            None => Err(io::Error::from(io::ErrorKind::WouldBlock)),
        },
        _ => {
            volumes.forget(uid);
            Ok(())
        }
    }
}

/// The uid in `<namespace>_<name>_<uid>`.
fn uid_of_log_dir(name: &str) -> Option<PodUid> {
    let mut parts = name.split('_');
    let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let whole = parts.next().is_none() && ![namespace, pod, uid].contains(&"");
    whole.then(|| PodUid::new(uid))
}

fn absent_is_empty<T: Default>(listing: io::Result<T>) -> io::Result<T> {
    match listing {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::RealFs;

    #[test]
    fn what_lies_in_place_of_volumes_is_never_removed() {
        let temp = tempfile::tempdir().expect("a directory");
        let pod = temp.path().join("u1");
        std::fs::create_dir_all(pod.join("volumes/kind/empty")).expect("directories");
        std::fs::create_dir_all(pod.join("etc")).expect("directories");
        std::fs::write(pod.join("etc-hosts"), "").expect("a file");
        let data = pod.join("volumes/kind/precious");
        std::fs::write(&data, "data").expect("a file");
        let error = remove_pod_dir(&RealFs, &pod).expect_err("data is in the way");
        assert!(error.to_string().contains(data.to_str().unwrap()), "{error}");
        assert!(data.exists());
        std::fs::remove_file(&data).expect("removed");
        remove_pod_dir(&RealFs, &pod).expect("nothing is in the way");
        assert!(!pod.exists());
    }

    #[test]
    fn only_whole_names_tell_a_uid() {
        let uids: Vec<_> = ["ns_pod_u1", "ns_pod", "ns__u1", "_p_u", "a_b_c_d", "ns_pod_"]
            .map(|name| uid_of_log_dir(name).map(|uid| uid.to_string()))
            .into();
        assert_eq!(uids, [Some("u1".to_owned()), None, None, None, None, None]);
    }
}
