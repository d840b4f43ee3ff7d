//! The pod's volumes in a container: which, where, and how.
//!
//! The volumes are made already; parts of them are bound to places of their own
//! here. Errors are upstream's words for the container's waiting message.
//! Upstream: makeMounts in pkg/kubelet/kubelet_pods.go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use cri::v1;
use k8s_openapi::api::core::v1::{Container, VolumeDevice, VolumeMount};
use kubelet_model::DesiredPod;

use super::executor::Executor;
use super::images::ImageVolumes;
use super::mounts::absolute;
use super::{devices, env};
use crate::ports::SubPathBind;
use crate::volume_manager::VolumeMountable;
use crate::volume_manager::layout::{PodLayout, VolumeName};

impl Executor {
    /// The container's volumes, in its order; images are the runtime's to mount.
    pub(super) async fn volume_mounts(
        &self,
        pod: &DesiredPod,
        container: &Container,
        images: &ImageVolumes,
        variables: &[v1::KeyValue],
    ) -> Result<Vec<v1::Mount>, String> {
        let mut made = Vec::new();
        for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let part = sub_path(mount, variables)?;
            let mut new = how(mount, self.recursive_read_only)?;
            if let Some(image) = images.get(&mount.name) {
                of_image(&mut new, image, part);
            } else {
                let volume = self.volumes.get(&mount.name).ok_or_else(|| {
                    let (volume, container) = (&mount.name, &container.name);
                    format!("cannot find volume {volume:?} to mount into container {container:?}")
                })?;
                let host_path = match part {
                    None => volume.host_path.clone(),
                    Some(part) => {
                        self.bind_part(pod, container, (index, mount), volume, part).await?
                    }
                };
                new.host_path = host_path.to_string_lossy().into_owned();
                new.readonly |= volume.read_only;
                new.selinux_relabel = volume.managed && self.settings.machine.selinux;
            }
            made.push(new);
        }
        Ok(made)
    }

    /// The container's block devices, in its order.
    pub(super) fn volume_devices(&self, container: &Container) -> Result<Vec<v1::Device>, String> {
        let of = |device: &VolumeDevice| devices::of(device, &self.volumes, &container.name);
        container.volume_devices.iter().flatten().map(of).collect()
    }

    /// Binds a part of a volume. Why that fails is the node's affair: it would
    /// tell a pod's author about files of the host.
    async fn bind_part(
        &self,
        pod: &DesiredPod,
        container: &Container,
        (index, mount): (usize, &VolumeMount),
        volume: &VolumeMountable,
        path: PathBuf,
    ) -> Result<PathBuf, String> {
        let failed = || {
            let (volume, container) = (&mount.name, &container.name);
            format!(
                "failed to prepare subPath for volumeMount {volume:?} of container {container:?}"
            )
        };
        let layout = PodLayout::new(&self.settings.root_dir, pod.uid()).ok_or_else(failed)?;
        let bind = SubPathBind {
            volume_path: volume.host_path.clone(),
            path,
            root: layout.sub_paths_dir(),
            volume: volume.persistent.as_ref().map_or(&*mount.name, VolumeName::as_str).to_owned(),
            container: container.name.clone(),
            index,
        };
        self.ports.volumes.bind_sub_path(&bind).await.map_err(|error| {
            let container = &container.name;
            tracing::warn!(pod = %pod.uid(), container, volume = mount.name, %error, "sub path not bound");
            failed()
        })
    }
}

/// Where and how a volume is mounted, whatever it is.
fn how(mount: &VolumeMount, able: bool) -> Result<v1::Mount, String> {
    Ok(v1::Mount {
        container_path: absolute(&mount.mount_path),
        readonly: mount.read_only.unwrap_or(false),
        recursive_read_only: recursive_read_only(mount, able)?,
        propagation: propagation(mount.mount_propagation.as_deref())?.into(),
        ..Default::default()
    })
}

/// An image can only be read, whatever the pod asks for.
fn of_image(mount: &mut v1::Mount, image: &v1::ImageSpec, part: Option<PathBuf>) {
    mount.readonly = true;
    mount.image = Some(image.clone());
    mount.image_sub_path = part.unwrap_or_default().to_string_lossy().into_owned();
}

/// The part of the volume that is wanted, if not all of it.
fn sub_path(mount: &VolumeMount, variables: &[v1::KeyValue]) -> Result<Option<PathBuf>, String> {
    let text = match mount.sub_path_expr.as_deref().filter(|text| !text.is_empty()) {
        Some(expression) => expand(expression, variables)?,
        None => mount.sub_path.clone().unwrap_or_default(),
    };
    if text.is_empty() {
        return Ok(None);
    }
    let path = Path::new(&text);
    if path.is_absolute() {
        return Err(format!("error SubPath `{text}` must not be an absolute path"));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("unable to provision SubPath `{text}`: must not contain '..'"));
    }
    Ok(Some(path.to_owned()))
}

/// Every name in the expression must stand for something.
fn expand(expression: &str, variables: &[v1::KeyValue]) -> Result<String, String> {
    let text = |v: &v1::KeyValue| String::from_utf8_lossy(&v.value).into_owned();
    let values: BTreeMap<String, String> =
        variables.iter().map(|v| (v.key.clone(), text(v))).collect();
    let mut missing = BTreeSet::new();
    let expanded = env::expand_by(expression, |name| {
        let value = values.get(name).filter(|value| !value.is_empty());
        if value.is_none() {
            missing.insert(name.to_owned());
        }
        value.map(String::as_str)
    });
    if missing.is_empty() {
        return Ok(expanded);
    }
    let missing: Vec<_> = missing.into_iter().collect();
    Err(format!("missing value for {}", missing.join(", ")))
}

fn propagation(mode: Option<&str>) -> Result<v1::MountPropagation, String> {
    match mode {
        None | Some("None") => Ok(v1::MountPropagation::PropagationPrivate),
        Some("HostToContainer") => Ok(v1::MountPropagation::PropagationHostToContainer),
        Some("Bidirectional") => Ok(v1::MountPropagation::PropagationBidirectional),
        Some(other) => Err(format!("invalid MountPropagation mode: {other:?}")),
    }
}

fn recursive_read_only(mount: &VolumeMount, able: bool) -> Result<bool, String> {
    let failed = |why: String| format!("failed to resolve recursive read-only mode: {why}");
    let asked = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(asked) => asked,
    };
    let name = &mount.name;
    if mount.read_only != Some(true) {
        let why =
            format!("volume {name:?} requested recursive read-only mode, but it is not read-only");
        return Err(failed(why));
    }
    if let Some(mode) = mount.mount_propagation.as_deref().filter(|mode| *mode != "None") {
        return Err(failed(format!(
            "volume {name:?} requested recursive read-only mode, but it is not compatible with \
             propagation {mode:?}"
        )));
    }
    match asked {
        "IfPossible" => Ok(able),
        "Enabled" if able => Ok(true),
        "Enabled" => Err(failed(format!(
            "volume {name:?} requested recursive read-only mode, but it is not supported by the \
             runtime"
        ))),
        other => Err(failed(format!("unknown recursive read-only mode {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(json: &str) -> VolumeMount {
        let json = format!(r#"{{"name":"v","mountPath":"/m"{json}}}"#);
        serde_json::from_str(&json).expect("a mount")
    }

    #[test]
    fn parts_of_volumes_are_relative_and_whole() {
        let variables = [("POD", "web"), ("EMPTY", ""), ("UP", "../x")]
            .map(|(key, value)| v1::KeyValue { key: key.into(), value: value.into() });
        for (json, expected) in [
            ("", Ok("")),
            (r#","subPath":"a/b""#, Ok("a/b")),
            (r#","subPathExpr":"logs/$(POD)""#, Ok("logs/web")),
            (r#","subPathExpr":"$$(POD)""#, Ok("$(POD)")),
            (r#","subPath":"/a""#, Err("error SubPath `/a` must not be an absolute path")),
            (
                r#","subPath":"a/../b""#,
                Err("unable to provision SubPath `a/../b`: must not contain '..'"),
            ),
            (
                r#","subPathExpr":"$(UP)""#,
                Err("unable to provision SubPath `../x`: must not contain '..'"),
            ),
            (r#","subPathExpr":"$(NO)/$(EMPTY)""#, Err("missing value for EMPTY, NO")),
        ] {
            let got = sub_path(&mount(json), &variables);
            let got = got.map(|path| path.unwrap_or_default().display().to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{json}");
        }
    }

    #[test]
    fn images_are_read_only() {
        let image = v1::ImageSpec { image: "sha256:1".to_owned(), ..Default::default() };
        let mount: VolumeMount =
            serde_json::from_str(r#"{"name":"v","mountPath":"data","readOnly":false}"#).unwrap();
        let mut made = how(&mount, false).expect("a mount");
        of_image(&mut made, &image, Some("x/y".into()));
        let expected = v1::Mount {
            container_path: "/data".to_owned(),
            readonly: true,
            image: Some(image),
            image_sub_path: "x/y".to_owned(),
            ..Default::default()
        };
        assert_eq!(made, expected);
    }

    #[test]
    fn read_only_all_the_way_down() {
        let ro = |mode: &str, more: &str| {
            mount(&format!(r#","readOnly":true,"recursiveReadOnly":"{mode}"{more}"#))
        };
        assert_eq!(recursive_read_only(&mount(""), true), Ok(false));
        assert_eq!(recursive_read_only(&ro("Disabled", ""), true), Ok(false));
        assert_eq!(recursive_read_only(&ro("IfPossible", ""), true), Ok(true));
        assert_eq!(recursive_read_only(&ro("IfPossible", ""), false), Ok(false));
        assert_eq!(recursive_read_only(&ro("Enabled", ""), true), Ok(true));
        for (mount, wanted) in [
            (ro("Enabled", ""), "it is not supported by the runtime"),
            (mount(r#","recursiveReadOnly":"IfPossible""#), "it is not read-only"),
            (
                ro("Enabled", r#","mountPropagation":"HostToContainer""#),
                "it is not compatible with propagation \"HostToContainer\"",
            ),
        ] {
            let error = recursive_read_only(&mount, false).unwrap_err();
            let wanted = format!(
                "failed to resolve recursive read-only mode: volume \"v\" requested recursive \
                 read-only mode, but {wanted}"
            );
            assert_eq!(error, wanted);
        }
    }

    #[test]
    fn propagation_is_private_unless_asked_for() {
        let names = [None, Some("None"), Some("HostToContainer"), Some("Bidirectional")]
            .map(|mode| propagation(mode).expect("a mode").as_str_name());
        let [none, private, slave, shared] = names;
        assert_eq!((none, private), ("PROPAGATION_PRIVATE", "PROPAGATION_PRIVATE"));
        assert_eq!((slave, shared), ("PROPAGATION_HOST_TO_CONTAINER", "PROPAGATION_BIDIRECTIONAL"));
        assert_eq!(propagation(Some("X")).unwrap_err(), "invalid MountPropagation mode: \"X\"");
    }
}
