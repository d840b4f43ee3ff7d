//! Which SELinux label a volume is mounted with, if any. Pure.
//!
//! A volume that is mounted with the label of the containers that use it needs no
//! runtime to relabel every file in it. That takes a kind of volume that can be, a
//! PersistentVolume for one pod (`ReadWriteOncePod`; any with the gate SELinuxMount),
//! containers that agree on a label, and a pod that did not choose `Recursive`. All
//! others are relabelled. Upstream: pkg/volume/util/selinux.go.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, PodSpec, SELinuxOptions, SecurityContext, VolumeMount,
};

/// What the node has to do with labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeLabels<'a> {
    /// The label of containers' files, as the node's policy has it; none without SELinux.
    pub files: Option<&'a str>,
    /// Volumes of any access mode may be mounted with a label.
    pub all_modes: bool,
}

/// What a pod's containers say of the label of one volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels {
    /// Of their files; empty where a container names none that can be known.
    found: BTreeSet<String>,
    all_modes: bool,
}

impl Labels {
    /// Those of the containers that mount a volume. None if the node has no SELinux, or the
    /// pod wants files to be relabelled.
    pub(super) fn of(spec: &PodSpec, volume: &str, node: NodeLabels<'_>) -> Self {
        let of_pod = spec.security_context.as_ref();
        let policy = of_pod.and_then(|context| context.se_linux_change_policy.as_deref());
        let Some(files) = node.files.filter(|_| policy != Some("Recursive")) else {
            return Self::default();
        };
        let of_pod = of_pod.and_then(|context| context.se_linux_options.as_ref());
        let mut found = BTreeSet::new();
        let mut add = |mounts: &Option<Vec<VolumeMount>>, own: &Option<SecurityContext>| {
            let own = own.as_ref().and_then(|context| context.se_linux_options.as_ref());
            let uses = mounts.iter().flatten().any(|mount| mount.name == volume);
            if let Some(options) = own.or(of_pod).filter(|_| uses) {
                found.insert(label(files, options).unwrap_or_default());
            }
        };
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
            .for_each(|c: &Container| add(&c.volume_mounts, &c.security_context));
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        ephemeral.for_each(|c| add(&c.volume_mounts, &c.security_context));
        Self { found, all_modes: node.all_modes }
    }

    /// The label that a PersistentVolume of these access modes is mounted with. Whether it
    /// can be is asked of those alone that would be.
    ///
    /// # Errors
    /// The containers do not agree on one, or it is not known whether it can be.
    pub(super) fn for_mount(
        &self,
        is_supported: impl FnOnce() -> Result<bool, String>,
        modes: &[String],
    ) -> Result<Option<String>, String> {
        let once_pod = matches!(modes, [only] if only == "ReadWriteOncePod");
        if self.found.is_empty() || !(once_pod || self.all_modes) || !is_supported()? {
            return Ok(None);
        }
        let mut found = self.found.iter();
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(Some(one.clone()).filter(|label| !label.is_empty())),
            (None, _) => Ok(None),
            (Some(_), Some(_)) => {
                let all: Vec<&str> = self.found.iter().map(String::as_str).collect();
                Err(format!("multiple SELinux labels found: {}", all.join(",")))
            }
        }
    }
}

/// The label of files of a container with these options. As the container runtimes' own
/// library: type and role are the policy's, whatever the process's are. Without a level
/// it cannot be known: the runtime draws one.
fn label(files: &str, options: &SELinuxOptions) -> Option<String> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let level = given(&options.level)?;
    let mut parts = files.splitn(4, ':');
    let (user, role, kind) = (parts.next()?, parts.next()?, parts.next()?);
    let user = given(&options.user).unwrap_or_else(|| user.to_owned());
    Some(format!("{user}:{role}:{kind}:{level}"))
}

/// How a mount is told its label: it may hold commas.
pub(super) fn option(label: &str) -> String {
    format!("context=\"{label}\"")
}

/// May a pod use what is mounted for the node with this label, or with none? One that has
/// it already keeps it as it is.
///
/// # Errors
/// It has to wait until whoever has it with another label is gone.
pub(super) fn check(
    volume: &str,
    mounted: Option<&str>,
    wanted: Option<&str>,
    has_it: bool,
) -> Result<(), String> {
    if mounted == wanted || has_it {
        return Ok(());
    }
    Err(format!(
        "waiting for unmount of volume \"{volume}\", because it is already mounted to a \
         different pod with a different SELinux label"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const FILES: &str = "system_u:object_r:container_file_t:s0";
    const NODE: NodeLabels<'_> = NodeLabels { files: Some(FILES), all_modes: false };

    fn labels(containers: &[Value], of_pod: &Value, node: NodeLabels<'_>) -> Labels {
        let container = |(index, options): (usize, &Value)| {
            let mounts =
                json!([{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/w"}]);
            json!({"name": format!("c{index}"), "volumeMounts": mounts,
                "securityContext": {"seLinuxOptions": options}})
        };
        let containers: Vec<Value> = containers.iter().enumerate().map(container).collect();
        let spec = json!({"containers": containers, "securityContext": of_pod});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(Labels::of(&spec, "other", node).found, BTreeSet::new());
        Labels::of(&spec, "v", node)
    }

    #[test]
    fn a_label_takes_containers_that_agree_and_a_volume_for_one_pod() {
        let once = ["ReadWriteOncePod"].as_slice();
        let often = ["ReadWriteOnce"].as_slice();
        let two = ["ReadWriteOncePod", "ReadOnlyMany"].as_slice();
        let many = ["ReadWriteMany"].as_slice();
        let level = |level: &str| json!({"level": level});
        let of_pod = json!({"seLinuxOptions": {"level": "s0:c1,c2"}});
        let recursive = json!({"seLinuxOptions": {"level": "s0:c1,c2"},
            "seLinuxChangePolicy": "Recursive"});
        let mount = json!({"seLinuxOptions": {"level": "s0:c1,c2"},
            "seLinuxChangePolicy": "MountOption"});
        let (a, b) = (level("s0:c1,c2"), level("s0:c3"));
        let none = Value::Null;
        let full = json!({"user": "u", "role": "r", "type": "spc_t", "level": "s0:c1,c2"});
        let own = "system_u:object_r:container_file_t:s0:c1,c2";
        let all = NodeLabels { all_modes: true, ..NODE };
        let off = NodeLabels::default();
        let clash = "multiple SELinux labels found: \
                     system_u:object_r:container_file_t:s0:c1,c2,\
                     system_u:object_r:container_file_t:s0:c3";
        for (containers, pod, node, modes, is_supported, expected) in [
            (vec![&a], &none, NODE, once, true, Ok(Some(own))),
            (vec![&none], &of_pod, NODE, once, true, Ok(Some(own))),
            (vec![&none, &a], &of_pod, NODE, once, true, Ok(Some(own))),
            (vec![&none], &mount, NODE, once, true, Ok(Some(own))),
            (
                vec![&full],
                &none,
                NODE,
                once,
                true,
                Ok(Some("u:object_r:container_file_t:s0:c1,c2")),
            ),
            (
                vec![&b],
                &of_pod,
                NODE,
                once,
                true,
                Ok(Some("system_u:object_r:container_file_t:s0:c3")),
            ),
            // Containers without options of their own, or the pod's, do not count.
            (vec![&none, &a], &none, NODE, once, true, Ok(Some(own))),
            (vec![&none], &none, NODE, once, true, Ok(None)),
            (vec![&a, &b], &none, NODE, once, true, Err(clash)),
            // What cannot be known is no label.
            (vec![&json!({"type": "t"})], &none, NODE, once, true, Ok(None)),
            (vec![&a], &none, NODE, once, false, Ok(None)),
            (vec![&a, &b], &none, NODE, once, false, Ok(None)),
            (vec![&a], &recursive, NODE, once, true, Ok(None)),
            (vec![&a], &none, off, once, true, Ok(None)),
            (vec![&a], &none, NODE, often, true, Ok(None)),
            (vec![&a, &b], &none, NODE, often, true, Ok(None)),
            (vec![&a], &none, NODE, two, true, Ok(None)),
            (vec![&a], &none, all, many, true, Ok(Some(own))),
            (vec![&a, &b], &none, all, many, true, Err(clash)),
        ] {
            let containers: Vec<Value> = containers.into_iter().cloned().collect();
            let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
            let found = labels(&containers, pod, node).for_mount(|| Ok(is_supported), &modes);
            let expected = expected.map(|label| label.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(found, expected, "{containers:?} {pod} {modes:?}");
        }
    }

    #[test]
    fn who_has_another_label_is_waited_for() {
        for (mounted, wanted, has_it, is_good) in [
            (None, None, false, true),
            (Some("a"), Some("a"), false, true),
            (Some("a"), Some("b"), false, false),
            (Some("a"), None, false, false),
            (None, Some("a"), false, false),
            (None, Some("a"), true, true),
        ] {
            let found = check("pv", mounted, wanted, has_it);
            assert_eq!(found.is_ok(), is_good, "{mounted:?} {wanted:?} {has_it}");
            if let Err(why) = found {
                assert!(why.starts_with("waiting for unmount of volume \"pv\""), "{why}");
            }
        }
        assert_eq!(option("u:r:t:s0:c1,c2"), "context=\"u:r:t:s0:c1,c2\"");
    }
}
