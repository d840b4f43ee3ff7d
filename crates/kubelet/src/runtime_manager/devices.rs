//! The pod's block volumes in a container: devices the runtime makes there. Pure.
//!
//! Upstream: makeBlockVolumes in pkg/kubelet/kubelet_pods.go.

use cri::v1;
use k8s_openapi::api::core::v1::VolumeDevice;

use crate::volume_manager::Mountables;

/// A device of a container, or upstream's words for the container's waiting message.
pub(super) fn of(
    device: &VolumeDevice,
    volumes: &Mountables,
    container: &str,
) -> Result<v1::Device, String> {
    let volume = volumes.get(&device.name).filter(|volume| volume.device.is_some());
    let volume = volume.ok_or_else(|| {
        format!(
            "cannot find volume {:?} to pass into container {container:?}: block volume cannot \
             be satisfied, because the volume is missing or the volume mapper is nil",
            device.name
        )
    })?;
    Ok(v1::Device {
        container_path: device.device_path.clone(),
        host_path: volume.host_path.to_string_lossy().into_owned(),
        permissions: if volume.read_only { "r" } else { "mrw" }.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::volume_manager::VolumeMountable;

    #[test]
    fn a_device_is_what_the_volume_is() {
        let made = |read_only, device: Option<&str>| VolumeMountable {
            host_path: "/link".into(),
            read_only,
            managed: false,
            persistent: None,
            device: device.map(Into::into),
            gid: None,
        };
        let volumes = Arc::new(BTreeMap::from([
            ("disk".to_owned(), made(false, Some("/global"))),
            ("read".to_owned(), made(true, Some("/global"))),
            ("files".to_owned(), made(false, None)),
        ]));
        let asked = |name: &str| {
            let device_path = "/dev/x".to_owned();
            of(&VolumeDevice { name: name.to_owned(), device_path }, &volumes, "app")
        };
        for (name, permissions) in [("disk", "mrw"), ("read", "r")] {
            let device = asked(name).expect("a device");
            assert_eq!((device.container_path.as_str(), &*device.host_path), ("/dev/x", "/link"));
            assert_eq!(device.permissions, permissions);
        }
        for name in ["files", "none"] {
            assert!(asked(name).unwrap_err().contains(&format!("{name:?}")), "{name}");
        }
    }
}
