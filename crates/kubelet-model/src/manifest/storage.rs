//! PersistentVolumes and PersistentVolumeClaims that lie beside pods: checked, and
//! kept as the JSON of their spec.
//!
//! Pure. Nobody binds claims here: a claim names its volume. What could only be
//! ignored is told. Upstream: ValidatePersistentVolume and
//! ValidatePersistentVolumeClaim in pkg/apis/core/validation.

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolumeClaimSpec, PersistentVolumeSpec,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::problem::{Field, Report};
use super::validate::names;
use super::validate::network_volumes::{Iscsi, check_fc, check_nfs};
use crate::object::{ObjectKey, ObjectKind};
use crate::typed;

/// What access to a volume can be.
const ACCESS_MODES: [&str; 4] =
    ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// Fields of a PersistentVolume that are acted on, or that say nothing to a node.
const VOLUME_FIELDS: [&str; 14] = [
    "accessModes",
    "capacity",
    "claimRef",
    "csi",
    "fc",
    "hostPath",
    "iscsi",
    "local",
    "mountOptions",
    "nfs",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeMode",
];

/// The same of its `csi`. Those of the controller are for a cluster.
const CSI_FIELDS: [&str; 10] = [
    "driver",
    "volumeHandle",
    "readOnly",
    "fsType",
    "volumeAttributes",
    "nodeStageSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
];

/// The same of its `hostPath`.
const HOST_PATH_FIELDS: [&str; 2] = ["path", "type"];

/// The same of its `local`.
const LOCAL_FIELDS: [&str; 2] = ["path", "fsType"];

/// The same of its `nfs`.
const NFS_FIELDS: [&str; 3] = ["path", "readOnly", "server"];

/// The same of its `fc`.
const FC_FIELDS: [&str; 5] = ["fsType", "lun", "readOnly", "targetWWNs", "wwids"];

/// The same of its `iscsi`.
const ISCSI_FIELDS: [&str; 11] = [
    "chapAuthDiscovery",
    "chapAuthSession",
    "fsType",
    "initiatorName",
    "iqn",
    "iscsiInterface",
    "lun",
    "portals",
    "readOnly",
    "secretRef",
    "targetPortal",
];

/// The same of a PersistentVolumeClaim.
const CLAIM_FIELDS: [&str; 5] =
    ["accessModes", "resources", "storageClassName", "volumeMode", "volumeName"];

/// Checks a spec. Returns it as JSON.
pub(super) fn check_spec(
    key: &ObjectKey,
    spec: &Value,
    field: &Field,
    problems: &mut Report,
    warnings: &mut Report,
) -> Vec<u8> {
    match key.kind {
        ObjectKind::PersistentVolume => {
            if let Some(spec) = read::<PersistentVolumeSpec>(spec, field, problems) {
                check_volume(&key.name, &spec, field, problems);
            }
            ignored(spec, &VOLUME_FIELDS, field, warnings);
            let sources: [(&str, &[&str]); 6] = [
                ("csi", &CSI_FIELDS),
                ("fc", &FC_FIELDS),
                ("hostPath", &HOST_PATH_FIELDS),
                ("iscsi", &ISCSI_FIELDS),
                ("local", &LOCAL_FIELDS),
                ("nfs", &NFS_FIELDS),
            ];
            for (source, fields) in sources {
                ignored(&spec[source], fields, &field.key(source), warnings);
            }
        }
        _ => {
            if let Some(spec) = read::<PersistentVolumeClaimSpec>(spec, field, problems) {
                check_claim(&spec, field, problems);
            }
            ignored(spec, &CLAIM_FIELDS, field, warnings);
        }
    }
    spec.to_string().into_bytes()
}

fn read<T: DeserializeOwned>(spec: &Value, field: &Field, problems: &mut Report) -> Option<T> {
    match typed::decode(spec.clone(), &mut |_| {}) {
        Ok(spec) => Some(spec),
        Err(error) => {
            problems.add(field, error.to_string());
            None
        }
    }
}

fn ignored(value: &Value, known: &[&str], field: &Field, warnings: &mut Report) {
    let entries = value.as_object().into_iter().flat_map(Map::keys);
    for name in entries.filter(|name| !known.contains(&name.as_str())) {
        warnings.add(&field.key(name), "ignored: this release does not act on it");
    }
}

fn check_volume(name: &str, spec: &PersistentVolumeSpec, field: &Field, problems: &mut Report) {
    check_modes(spec.access_modes.as_deref(), field, problems);
    check_volume_mode(spec.volume_mode.as_deref(), field, problems);
    let sources = [
        spec.csi.is_some(),
        spec.fc.is_some(),
        spec.host_path.is_some(),
        spec.iscsi.is_some(),
        spec.local.is_some(),
        spec.nfs.is_some(),
    ];
    match sources.into_iter().filter(|there| *there).count() {
        1 => {}
        0 => problems.add(
            field,
            "must have csi, fc, hostPath, iscsi, local or nfs; there are no other persistent \
             volumes without a cluster",
        ),
        _ => problems.add(field, "may not specify more than 1 volume type"),
    }
    if let Some(local) = &spec.local {
        check_path(&local.path, &field.key("local"), problems);
    }
    if let Some(host_path) = &spec.host_path {
        check_path(&host_path.path, &field.key("hostPath"), problems);
    }
    if let Some(nfs) = &spec.nfs {
        check_nfs(nfs, &field.key("nfs"), problems);
        if spec.volume_mode.as_deref() == Some("Block") {
            problems.add(&field.key("volumeMode"), "must be Filesystem: nfs has no devices");
        }
    }
    if let Some(iscsi) = &spec.iscsi {
        Iscsi::of_volume(iscsi).check(Some(name), &field.key("iscsi"), problems);
    }
    if let Some(fc) = &spec.fc {
        check_fc(fc, &field.key("fc"), problems);
    }
    if let Some(csi) = &spec.csi {
        check_csi(csi, &field.key("csi"), problems);
    }
}

fn check_path(path: &str, field: &Field, problems: &mut Report) {
    let field = field.key("path");
    if !path.starts_with('/') {
        problems.add(&field, "must be an absolute path");
    }
    if path.split('/').any(|part| part == "..") {
        problems.add(&field, "must not contain '..'");
    }
}

fn check_csi(csi: &CSIPersistentVolumeSource, field: &Field, problems: &mut Report) {
    if csi.driver.is_empty() {
        problems.add(&field.key("driver"), "missing");
    }
    if csi.volume_handle.is_empty() {
        problems.add(&field.key("volumeHandle"), "missing");
    }
    let secrets = [
        ("nodeStageSecretRef", &csi.node_stage_secret_ref),
        ("nodePublishSecretRef", &csi.node_publish_secret_ref),
    ];
    for (key, secret) in secrets {
        let Some(secret) = secret else { continue };
        let missing = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        if missing(&secret.name) || missing(&secret.namespace) {
            problems.add(&field.key(key), "must have a name and a namespace");
        }
    }
}

fn check_claim(spec: &PersistentVolumeClaimSpec, field: &Field, problems: &mut Report) {
    check_modes(spec.access_modes.as_deref(), field, problems);
    check_volume_mode(spec.volume_mode.as_deref(), field, problems);
    match spec.volume_name.as_deref().unwrap_or_default() {
        "" => problems.add(
            &field.key("volumeName"),
            "missing; without a cluster nobody binds claims, so name the PersistentVolume",
        ),
        name => problems.check(&field.key("volumeName"), names::dns_subdomain(name)),
    }
}

fn check_modes(modes: Option<&[String]>, field: &Field, problems: &mut Report) {
    let modes = modes.unwrap_or_default();
    let field = field.key("accessModes");
    if modes.is_empty() {
        problems.add(&field, "missing; at least 1 access mode is required");
    }
    for (index, mode) in modes.iter().enumerate() {
        if !ACCESS_MODES.contains(&mode.as_str()) {
            let message = format!("must be one of {}", ACCESS_MODES.join(", "));
            problems.add(&field.index(index), message);
        }
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        problems.add(&field, "may not use ReadWriteOncePod with other access modes");
    }
}

fn check_volume_mode(mode: Option<&str>, field: &Field, problems: &mut Report) {
    if !matches!(mode, None | Some("" | "Filesystem" | "Block")) {
        problems.add(&field.key("volumeMode"), "must be Filesystem or Block");
    }
}
