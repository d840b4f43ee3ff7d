//! Volume mounts and volume devices of one container.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSpec, VolumeMount};

use super::super::problem::{Field, Report, quote};
use super::containers::View;
use super::{given, names, one_of, unique};

pub(super) fn check(container: &View<'_>, spec: &PodSpec, field: &Field, report: &mut Report) {
    let volumes: BTreeMap<&str, bool> = spec
        .volumes
        .iter()
        .flatten()
        .map(|v| (v.name.as_str(), v.persistent_volume_claim.is_some() || v.ephemeral.is_some()))
        .collect();
    let devices: BTreeSet<&str> =
        container.volume_devices.iter().flatten().map(|device| device.name.as_str()).collect();
    let mut paths = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let field = field.key("volumeMounts").index(index);
        if !volumes.contains_key(mount.name.as_str()) {
            let message = format!("no volume is named {}", quote(&mount.name));
            report.add(&field.key("name"), message);
        }
        if devices.contains(mount.name.as_str()) {
            report.add(&field.key("name"), "the volume is already used in volumeDevices");
        }
        if mount.mount_path.is_empty() {
            report.add(&field.key("mountPath"), "missing");
        }
        unique(&mut paths, &mount.mount_path, &field.key("mountPath"), report);
        check_paths(mount, &field, report);
        check_modes(container, mount, &field, report);
    }
    for (index, device) in container.volume_devices.iter().flatten().enumerate() {
        let field = field.key("volumeDevices").index(index);
        if volumes.get(device.name.as_str()) != Some(&true) {
            let message = format!("{} is not a persistent volume claim", quote(&device.name));
            report.add(&field.key("name"), message);
        }
        if device.device_path.is_empty() {
            report.add(&field.key("devicePath"), "missing");
        }
        report.check(&field.key("devicePath"), names::no_backsteps(&device.device_path));
        unique(&mut paths, &device.device_path, &field.key("devicePath"), report);
    }
}

fn check_paths(mount: &VolumeMount, field: &Field, report: &mut Report) {
    let (path, expression) = (given(&mount.sub_path), given(&mount.sub_path_expr));
    if let Some(path) = path {
        report.check(&field.key("subPath"), names::descending_path(path));
    }
    if let Some(expression) = expression {
        report.check(&field.key("subPathExpr"), names::descending_path(expression));
    }
    if path.is_some() && expression.is_some() {
        report.add(&field.key("subPathExpr"), "cannot be set together with subPath");
    }
}

fn check_modes(container: &View<'_>, mount: &VolumeMount, field: &Field, report: &mut Report) {
    let propagation = field.key("mountPropagation");
    let allowed = ["None", "HostToContainer", "Bidirectional"];
    one_of(&mount.mount_propagation, &allowed, &propagation, report);
    let privileged = container.security_context.as_ref().and_then(|context| context.privileged);
    if mount.mount_propagation.as_deref() == Some("Bidirectional") && privileged != Some(true) {
        report.add(&propagation, "Bidirectional needs a privileged container");
    }
    let recursive = field.key("recursiveReadOnly");
    let allowed = ["Disabled", "IfPossible", "Enabled"];
    one_of(&mount.recursive_read_only, &allowed, &recursive, report);
    let wanted = matches!(mount.recursive_read_only.as_deref(), Some("IfPossible" | "Enabled"));
    if wanted && mount.read_only != Some(true) {
        report.add(&recursive, "needs readOnly: true");
    }
}
