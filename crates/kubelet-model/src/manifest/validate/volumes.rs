//! Volumes: names and sources.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSpec, Volume};

use super::super::problem::{Field, Report};
use super::super::volumes::source_names;
use super::network_volumes::{Iscsi, check_fc, check_nfs};
use super::{names, one_of, payload_volumes, resources, unique};

/// What a host path may be required to be.
const HOST_PATH_TYPES: &[&str] = &[
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
];

pub(super) fn check(spec: &PodSpec, field: &Field, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let field = field.index(index);
        let name = field.key("name");
        if volume.name.is_empty() {
            report.add(&name, "missing");
        } else {
            report.check(&name, names::dns_label(&volume.name));
            unique(&mut seen, &volume.name, &name, report);
        }
        let sources = source_names(volume);
        if sources.len() != 1 {
            let found = sources.join(", ");
            report.add(&field, format!("must have exactly one source, but has {found:?}"));
        }
        check_source(volume, &field, report);
        payload_volumes::check(volume, &field, report);
    }
}

fn check_source(volume: &Volume, field: &Field, report: &mut Report) {
    if let Some(host_path) = &volume.host_path {
        let field = field.key("hostPath");
        if host_path.path.is_empty() {
            report.add(&field.key("path"), "missing");
        }
        report.check(&field.key("path"), names::no_backsteps(&host_path.path));
        one_of(&host_path.type_, HOST_PATH_TYPES, &field.key("type"), report);
    }
    if let Some(image) = &volume.image {
        let policies = ["Always", "IfNotPresent", "Never"];
        one_of(&image.pull_policy, &policies, &field.key("image").key("pullPolicy"), report);
    }
    if let Some(limit) = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref()) {
        resources::check_quantity(&limit.0, &field.key("emptyDir").key("sizeLimit"), report);
    }
    if let Some(nfs) = &volume.nfs {
        check_nfs(nfs, &field.key("nfs"), report);
    }
    if let Some(iscsi) = &volume.iscsi {
        Iscsi::of_pod(iscsi).check(None, &field.key("iscsi"), report);
    }
    if let Some(fc) = &volume.fc {
        check_fc(fc, &field.key("fc"), report);
    }
    let missing = [
        ("csi.driver", volume.csi.as_ref().is_some_and(|v| v.driver.is_empty())),
        (
            "csi.nodePublishSecretRef.name",
            volume
                .csi
                .as_ref()
                .and_then(|v| v.node_publish_secret_ref.as_ref())
                .is_some_and(|secret| secret.name.is_empty()),
        ),
        (
            "persistentVolumeClaim.claimName",
            volume.persistent_volume_claim.as_ref().is_some_and(|v| v.claim_name.is_empty()),
        ),
        (
            "image.reference",
            volume.image.as_ref().is_some_and(|v| v.reference.as_deref().unwrap_or("").is_empty()),
        ),
    ];
    for (path, _) in missing.into_iter().filter(|(_, missing)| *missing) {
        let field = path.split('.').fold(field.clone(), |field, key| field.key(key));
        report.add(&field, "missing");
    }
}
