//! What a cluster says of a claim: whether it is bound, to what, and whose it is. Pure.
//!
//! Upstream: getPVCExtractPV and getPVSpec of desired_state_of_world_populator.go,
//! component-helpers/storage/ephemeral.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaimSpec};
use kubelet_model::ConfigObject;
use serde::Deserialize;

use super::Unusable;

/// Keeps a claim that pods use.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Names the group of a volume's users.
const GID: &str = "pv.beta.kubernetes.io/gid";
/// Mount options from before they had a field.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// What a cluster says of a claim.
#[derive(Debug, Default)]
pub(super) struct ClaimState {
    metadata: Metadata,
    phase: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    deletion_timestamp: Option<String>,
    finalizers: Vec<String>,
    owner_references: Vec<Owner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotated {
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    uid: String,
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

impl ClaimState {
    /// `None` for a claim of a manifest.
    pub(super) fn of(claim: &ConfigObject) -> Option<Self> {
        let metadata = claim.metadata::<Metadata>()?;
        Some(Self { metadata, phase: claim.status::<Status>().unwrap_or_default().phase })
    }

    /// May pods use it?
    pub(super) fn check(&self, asked: &PersistentVolumeClaimSpec) -> Result<(), Unusable> {
        let kept = self.metadata.finalizers.iter().any(|keeper| keeper == PROTECTION);
        if self.metadata.deletion_timestamp.is_some() && !kept {
            return Err(Unusable::Deleted);
        }
        if self.phase != "Bound" {
            return Err(Unusable::Unbound);
        }
        match asked.volume_name.as_deref().unwrap_or_default() {
            "" => Err(Unusable::Nameless),
            _ => Ok(()),
        }
    }

    /// Was it made for the pod of this uid?
    pub(super) fn is_controlled_by(&self, uid: &str) -> bool {
        let owners = &self.metadata.owner_references;
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        controller.is_some_and(|owner| owner.uid == uid)
    }
}

/// The group that a volume of a cluster says its users need to be in.
pub(super) fn gid(volume: &ConfigObject) -> Option<i64> {
    let annotations = volume.metadata::<Annotated>()?.annotations;
    annotations.get(GID)?.parse().ok()
}

/// The mount options of a volume that has them in an annotation.
pub(super) fn mount_options(volume: &ConfigObject) -> Option<Vec<String>> {
    let annotations = volume.metadata::<Annotated>()?.annotations;
    Some(annotations.get(MOUNT_OPTIONS)?.split(',').map(str::to_owned).collect())
}

/// Is the volume bound to the claim of this uid?
pub(super) fn check_reference(
    volume: &str,
    bound: Option<&ObjectReference>,
    claim: &str,
) -> Result<(), Unusable> {
    let Some(bound) = bound else { return Err(Unusable::NoReference(volume.to_owned())) };
    let bound = bound.uid.as_deref().unwrap_or_default();
    match bound == claim {
        true => Ok(()),
        false => Err(Unusable::OtherReference {
            volume: volume.to_owned(),
            bound: bound.to_owned(),
            claim: claim.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use kubelet_model::{ObjectKey, ObjectKind};

    use super::*;

    #[test]
    fn an_annotation_may_have_the_mount_options() {
        let volume = |metadata: &str| ConfigObject {
            key: ObjectKey::new(ObjectKind::PersistentVolume, "", "pv"),
            uid: String::new(),
            secret_type: String::new(),
            data: BTreeMap::from([("metadata".to_owned(), metadata.as_bytes().to_vec())]),
            binary: BTreeMap::new(),
        };
        let annotated =
            r#"{"annotations":{"volume.beta.kubernetes.io/mount-options":"noexec,ro"}}"#;
        let expected = ["noexec", "ro"].map(str::to_owned).to_vec();
        assert_eq!(mount_options(&volume(annotated)), Some(expected));
        assert_eq!(mount_options(&volume("{}")), None);
    }

    #[test]
    fn a_volume_may_name_the_group_of_its_users() {
        for (metadata, expected) in [
            (None, None),
            (Some("{}"), None),
            (Some(r#"{"annotations":{"pv.beta.kubernetes.io/gid":"4711"}}"#), Some(4711)),
            (Some(r#"{"annotations":{"pv.beta.kubernetes.io/gid":"staff"}}"#), None),
        ] {
            let value = |text: &str| ("metadata".to_owned(), text.as_bytes().to_vec());
            let volume = ConfigObject {
                key: ObjectKey::new(ObjectKind::PersistentVolume, "", "pv"),
                uid: String::new(),
                secret_type: String::new(),
                data: metadata.map(value).into_iter().collect(),
                binary: BTreeMap::new(),
            };
            assert_eq!(gid(&volume), expected, "{metadata:?}");
        }
    }
}
