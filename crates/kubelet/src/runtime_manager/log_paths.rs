//! Where logs lie. Tools outside rely on every letter.

use std::path::{Path, PathBuf};

use kubelet_model::{ContainerId, ContainerName};

use super::executor::PodIdentity;

/// Longest link name before the suffix.
const LINK_NAME_MAX: usize = 251;

/// `<logs>/<namespace>_<name>_<uid>`.
pub(crate) fn pod_dir(logs: &Path, pod: &PodIdentity) -> PathBuf {
    logs.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
}

/// `<container>/<restart count>.log`, relative to the pod's directory.
pub(crate) fn container_log(name: &ContainerName, restart_count: u32) -> String {
    format!("{name}/{restart_count}.log")
}

/// `<pod>_<namespace>_<container>-<id>.log`, cut to what file systems take.
pub(super) fn link_name(pod: &PodIdentity, container: &ContainerName, id: &ContainerId) -> String {
    let mut name = format!("{}_{}_{container}-{id}", pod.name, pod.namespace);
    let cut = (0..=LINK_NAME_MAX.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    name.truncate(cut.unwrap_or(0));
    name.push_str(".log");
    name
}

/// The restart count a log file's name tells, e.g. 3 for `3.log` and `3.log.20260101-000000.gz`.
pub(super) fn restart_count_of(file_name: &str) -> Option<u32> {
    let (count, rest) = file_name.split_once('.')?;
    (rest == "log" || rest.starts_with("log.")).then(|| count.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubelet_model::PodUid;

    fn pod(name: &str) -> PodIdentity {
        PodIdentity { uid: PodUid::new("u1"), name: name.into(), namespace: "ns".into() }
    }

    #[test]
    fn paths_are_upstreams() {
        assert_eq!(
            pod_dir(Path::new("/var/log/pods"), &pod("web")),
            Path::new("/var/log/pods/ns_web_u1")
        );
        assert_eq!(container_log(&"app".into(), 2), "app/2.log");
        assert_eq!(link_name(&pod("web"), &"app".into(), &"abc".into()), "web_ns_app-abc.log");
    }

    #[test]
    fn long_links_are_cut_before_the_suffix() {
        let link = link_name(&pod(&"x".repeat(300)), &"app".into(), &"abc".into());
        assert_eq!(link.len(), 255);
        assert!(link.ends_with("x.log"));
    }

    #[test]
    fn restart_count_comes_from_plain_and_rotated_logs() {
        let counts: Vec<_> =
            ["0.log", "12.log", "3.log.20260101-000000.gz", "x.log", "4.logs", "5"]
                .map(restart_count_of)
                .into();
        assert_eq!(counts, [Some(0), Some(12), Some(3), None, None, None]);
    }
}
