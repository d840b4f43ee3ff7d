//! Why a claim or its volume cannot be used.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use kubelet_model::manifest::{foreign_kinds, instead_of, is_migrated};

/// Why a claim stands for no volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is no such claim.
    #[error("failed to fetch PVC{at}: {kind} {name:?} not found")]
    NoClaim {
        /// Where it was looked for.
        at: &'static str,
        /// Its kind, as it is called there.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// There is no such volume.
    #[error("failed to fetch PV {name}{at}: {kind} {name:?} not found")]
    NoVolume {
        /// Where it was looked for.
        at: &'static str,
        /// Its kind, as it is called there.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The claim goes, and nothing keeps it.
    #[error("PVC is being deleted")]
    Deleted,
    /// The cluster has found no volume for it yet.
    #[error("PVC is not bound")]
    Unbound,
    /// It is said to be bound, to nothing.
    #[error("PVC has empty pvc.Spec.VolumeName")]
    Nameless,
    /// The volume knows nothing of the claim.
    #[error(
        "found PV object {0} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to \
         the claim"
    )]
    NoReference(String),
    /// The volume is bound to another claim, perhaps an earlier one of the name.
    #[error(
        "found PV object {volume} but its pv.Spec.ClaimRef.UID {bound} does not point to \
         claim.UID {claim}"
    )]
    OtherReference {
        /// The volume.
        volume: String,
        /// The claim it is bound to.
        bound: String,
        /// The one that is meant.
        claim: String,
    },
    /// The volume is not for this claim.
    #[error(
        "PVC is not bound: volume {volume:?} is for claim {claim:?}; correct claimRef of the one \
         or volumeName of the other"
    )]
    ForAnother {
        /// The volume.
        volume: String,
        /// Whom it is for.
        claim: String,
    },
    /// The volume cannot be used as the claim wants.
    #[error("PVC is not bound: volume {volume:?} has no access mode {mode}")]
    NoMode {
        /// The volume.
        volume: String,
        /// What it lacks.
        mode: String,
    },
    /// The claim is for a device and the volume is none, or the reverse.
    #[error("PVC is not bound: volume {volume:?} has another volumeMode than the claim")]
    OtherMode {
        /// The volume.
        volume: String,
    },
    /// The volume is a path of the host, which is never a device.
    #[error(
        "volume {0:?} is a hostPath, which cannot have volumeMode Block; name the device in \
         `local` instead"
    )]
    NotBlock(String),
    /// The volume's path is of a type that does not exist.
    #[error("{0}")]
    Type(String),
    /// Nobody here can mount the volume.
    #[error("volume {volume:?} is of no kind that this release has{}", instead(.kind))]
    Kind {
        /// The volume.
        volume: String,
        /// Its kind, as manifests name it; empty if that is not known.
        kind: &'static str,
    },
}

fn instead(kind: &str) -> String {
    match kind.is_empty() {
        true => String::new(),
        false if is_migrated(kind) => format!(
            ": {kind}{}; klet does not translate in-tree cloud volumes to CSI",
            instead_of(kind)
        ),
        false => format!(": {kind}{}", instead_of(kind)),
    }
}

/// The kind of a volume that nobody here can mount; empty if it is none of these.
pub(super) fn foreign_kind(spec: &PersistentVolumeSpec) -> &'static str {
    let set = serde_json::to_value(spec).unwrap_or_default();
    foreign_kinds().find(|kind| set.get(kind).is_some()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_gone_tells_what_to_have_instead() {
        for (spec, expected) in [
            (r#"{"rbd":{"image":"i","monitors":[]}}"#, ": rbd; removed from Kubernetes: use a CSI"),
            (
                r#"{"cinder":{"volumeID":"i"}}"#,
                ": cinder; Kubernetes has it only by migration to CSI: claim a PersistentVolume \
                 with csi; klet does not translate in-tree cloud volumes to CSI",
            ),
            (r#"{"flexVolume":{"driver":"d/e"}}"#, ": flexVolume; deprecated in Kubernetes"),
            ("{}", ""),
        ] {
            let spec: PersistentVolumeSpec = serde_json::from_str(spec).expect("a volume");
            let kind = foreign_kind(&spec);
            let said = Unusable::Kind { volume: "pv".to_owned(), kind }.to_string();
            let wanted = format!("volume \"pv\" is of no kind that this release has{expected}");
            assert!(said.starts_with(&wanted), "{said}");
            let whole = expected.is_empty() || kind == "cinder";
            assert_eq!(said == wanted, whole, "{said}");
        }
    }
}
