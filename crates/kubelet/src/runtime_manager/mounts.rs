//! What is mounted into a container besides its image.
//!
//! Pure: the files exist already. Upstream: makeMounts in
//! pkg/kubelet/kuberuntime/kuberuntime_container.go.

use std::path::Path;

use cri::v1;
use k8s_openapi::api::core::v1::Container;

/// Where the hosts file goes.
const ETC_HOSTS: &str = "/etc/hosts";

/// The container does not mount something of its own over /etc/hosts.
pub(super) fn wants_hosts(container: &Container) -> bool {
    let mut own = container.volume_mounts.iter().flatten();
    !own.any(|mount| mount.mount_path == ETC_HOSTS)
}

/// Where the container writes its last words, if anywhere.
pub(super) fn termination_path(container: &Container) -> Option<String> {
    let path = container.termination_message_path.as_deref().filter(|path| !path.is_empty())?;
    Some(absolute(path))
}

/// A container's path, from its root.
pub(super) fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// What the mounts of a container are made of.
#[derive(Default)]
pub(super) struct MountFacts<'a> {
    /// Where the hosts file lies.
    pub(super) hosts: Option<&'a Path>,
    /// Where its last words go.
    pub(super) termination_log: Option<&'a Path>,
    /// The host's files are to be labelled.
    pub(super) selinux_relabel: bool,
}

/// The mounts that the agent adds to a container's own.
pub(super) fn of_container(container: &Container, facts: &MountFacts<'_>) -> Vec<v1::Mount> {
    let mount = |host: &Path, container_path: String| v1::Mount {
        container_path,
        host_path: host.to_string_lossy().into_owned(),
        selinux_relabel: facts.selinux_relabel,
        ..Default::default()
    };
    let hosts = facts.hosts.map(|path| mount(path, ETC_HOSTS.to_owned()));
    let log = facts.termination_log.zip(termination_path(container));
    let log = log.map(|(path, to)| mount(path, to));
    hosts.into_iter().chain(log).collect()
}

/// Gives mounts the pod's users.
pub(super) fn map_users(mounts: &mut [v1::Mount], users: Option<&v1::UserNamespace>) {
    for mount in mounts {
        mount.uid_mappings = users.map(|users| users.uids.clone()).unwrap_or_default();
        mount.gid_mappings = users.map(|users| users.gids.clone()).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_carry_the_pods_users() {
        let container = Container {
            termination_message_path: Some("dev/log".to_owned()),
            ..Default::default()
        };
        let mapping = v1::IdMapping { host_id: 65_536, container_id: 0, length: 65_536 };
        let users = v1::UserNamespace {
            mode: v1::NamespaceMode::Pod.into(),
            uids: vec![mapping],
            gids: vec![mapping],
        };
        let facts = MountFacts {
            hosts: Some(Path::new("/p/etc-hosts")),
            termination_log: Some(Path::new("/p/containers/app/1")),
            selinux_relabel: true,
        };
        let mut mounts = of_container(&container, &facts);
        map_users(&mut mounts, Some(&users));
        let paths: Vec<_> =
            mounts.iter().map(|m| format!("{} {}", m.host_path, m.container_path)).collect();
        assert_eq!(paths, ["/p/etc-hosts /etc/hosts", "/p/containers/app/1 /dev/log"]);
        for mount in mounts {
            assert!(mount.selinux_relabel && !mount.readonly);
            assert_eq!((mount.uid_mappings, mount.gid_mappings), (vec![mapping], vec![mapping]));
        }
        assert_eq!(of_container(&container, &MountFacts::default()), []);
    }

    #[test]
    fn a_mount_of_its_own_wins() {
        let own: Container = serde_json::from_str(
            r#"{"name":"a","volumeMounts":[{"name":"v","mountPath":"/etc/hosts"}]}"#,
        )
        .expect("a container");
        assert!(!wants_hosts(&own) && wants_hosts(&Container::default()));
        assert_eq!(termination_path(&Container::default()), None);
    }
}
