//! What is mounted into a container besides its image.
//!
//! Pure: the files exist already. Upstream: makeMounts in
//! pkg/kubelet/kuberuntime/kuberuntime_container.go.

use std::path::Path;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, VolumeMount};

use super::images::ImageVolumes;

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

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// What the mounts of a container are made of.
#[derive(Default)]
pub(super) struct MountFacts<'a> {
    /// Where the hosts file lies.
    pub(super) hosts: Option<&'a Path>,
    /// Where its last words go.
    pub(super) termination_log: Option<&'a Path>,
    /// The image volumes it mounts.
    pub(super) volumes: ImageVolumes,
    /// The pod's users.
    pub(super) users: Option<&'a v1::UserNamespace>,
    /// The host's files are to be labelled.
    pub(super) selinux_relabel: bool,
}

/// The mounts of a container.
pub(super) fn of_container(container: &Container, facts: &MountFacts<'_>) -> Vec<v1::Mount> {
    let mount = |host: &Path, container_path: String| v1::Mount {
        container_path,
        host_path: host.to_string_lossy().into_owned(),
        selinux_relabel: facts.selinux_relabel,
        ..Default::default()
    };
    let volumes = container.volume_mounts.iter().flatten();
    let volumes =
        volumes.filter_map(|mount| Some(of_image(mount, facts.volumes.get(&mount.name)?)));
    let hosts = facts.hosts.map(|path| mount(path, ETC_HOSTS.to_owned()));
    let log = facts.termination_log.zip(termination_path(container));
    let log = log.map(|(path, to)| mount(path, to));
    let mut mounts: Vec<_> = volumes.chain(hosts).chain(log).collect();
    for mount in &mut mounts {
        mount.uid_mappings = facts.users.map(|users| users.uids.clone()).unwrap_or_default();
        mount.gid_mappings = facts.users.map(|users| users.gids.clone()).unwrap_or_default();
    }
    mounts
}

/// An image can only be read, whatever the pod asks for.
fn of_image(mount: &VolumeMount, image: &v1::ImageSpec) -> v1::Mount {
    v1::Mount {
        container_path: absolute(&mount.mount_path),
        readonly: true,
        image: Some(image.clone()),
        image_sub_path: mount.sub_path.clone().unwrap_or_default(),
        ..Default::default()
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
            users: Some(&users),
            selinux_relabel: true,
            ..MountFacts::default()
        };
        let mounts = of_container(&container, &facts);
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
    fn image_volumes_come_first_and_are_read_only() {
        let container: Container = serde_json::from_str(
            r#"{"name":"a","volumeMounts":[{"name":"v","mountPath":"data","subPath":"x/y"},
                {"name":"other","mountPath":"/o"},{"name":"v","mountPath":"/all","readOnly":false}]}"#,
        )
        .expect("a container");
        let image = v1::ImageSpec {
            image: "sha256:1".to_owned(),
            user_specified_image: "r.io/data:1".to_owned(),
            ..Default::default()
        };
        let facts = MountFacts {
            hosts: Some(Path::new("/p/etc-hosts")),
            volumes: [("v".to_owned(), image.clone())].into(),
            selinux_relabel: true,
            ..MountFacts::default()
        };
        let of_image = |path: &str, sub_path: &str| v1::Mount {
            container_path: path.to_owned(),
            readonly: true,
            image: Some(image.clone()),
            image_sub_path: sub_path.to_owned(),
            ..Default::default()
        };
        let mounts = of_container(&container, &facts);
        assert_eq!(mounts[..2], [of_image("/data", "x/y"), of_image("/all", "")]);
        assert_eq!((mounts.len(), mounts[2].container_path.as_str()), (3, "/etc/hosts"));
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
