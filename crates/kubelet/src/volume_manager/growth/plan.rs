//! Whether a volume of a cluster grows on this node, and what a failure means. Pure.
//!
//! Controllers make the volume larger and say in the claim's status when it is the
//! node's turn; older ones say nothing, and then any volume that is larger than its
//! claim says is grown. Upstream: node_expander.go and operation_generator.go of
//! volume/util/operationexecutor.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::api::resource;
use kubelet_model::ConfigObject;
use kubelet_model::quantity::Quantity;
use serde::Deserialize;

const STORAGE: &str = "storage";
/// Says that controllers did all there was to do.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// So many bytes, as somebody wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Size {
    pub bytes: i64,
    pub text: String,
}

impl Size {
    /// What a list of resources says of storage, if it is anything at all.
    pub(in super::super) fn of(
        list: Option<&BTreeMap<String, resource::Quantity>>,
    ) -> Option<Self> {
        let text = &list?.get(STORAGE)?.0;
        let bytes = Quantity::parse(text)?.units();
        (bytes > 0).then(|| Self { bytes, text: text.clone() })
    }
}

/// What a cluster says of a claim's size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct ClaimSize {
    /// How large its volume is known to be.
    pub is: Option<Size>,
    /// How large users want it.
    pub asked: Option<Size>,
    /// How large controllers make it; older ones do not say.
    pub allocated: Option<Size>,
    /// Controllers say something of that, if only of other resources.
    pub allocates: bool,
    /// How far its growth has come; empty if it is not growing.
    pub state: String,
    /// Several nodes may have it.
    pub many: bool,
    /// Nodes have nothing to do.
    pub not_required: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    annotations: BTreeMap<String, String>,
}

impl ClaimSize {
    /// `None` for a claim of a manifest.
    pub(in super::super) fn of(claim: &ConfigObject) -> Option<Self> {
        let metadata = claim.metadata::<Metadata>()?;
        let spec = claim.spec::<PersistentVolumeClaimSpec>().unwrap_or_default();
        let status = claim.status::<PersistentVolumeClaimStatus>().unwrap_or_default();
        let requests = spec.resources.and_then(|resources| resources.requests);
        let mut states = status.allocated_resource_statuses.unwrap_or_default();
        Some(Self {
            is: Size::of(status.capacity.as_ref()),
            asked: Size::of(requests.as_ref()),
            allocated: Size::of(status.allocated_resources.as_ref()),
            allocates: status.allocated_resources.is_some_and(|all| !all.is_empty()),
            state: states.remove(STORAGE).unwrap_or_default(),
            many: spec.access_modes.iter().flatten().any(|mode| mode == "ReadWriteMany"),
            not_required: metadata.annotations.contains_key(NOT_REQUIRED),
        })
    }

    /// Is the volume larger than the claim says? A claim that says nothing is left alone.
    pub(in super::super) fn lags(&self, volume: &Size) -> bool {
        self.is.as_ref().is_some_and(|is| is.bytes < volume.bytes)
    }
}

/// What is to be done about a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// It has this size already.
    Settled(i64),
    /// It is not the node's turn.
    Wait,
    /// The driver is to be asked.
    Expand(Expand),
}

/// How a driver is asked, and what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expand {
    /// To make it this large.
    pub to: Size,
    /// The claim tells how far it is, so that controllers can give up.
    pub told: bool,
    /// The claim says so already, because of another node.
    pub updated: bool,
    /// A failure ends it: users want another size by now.
    pub ends_on_failure: bool,
}

/// Decides. `failed` if the driver has failed to do it before.
pub(super) fn decide(claim: &ClaimSize, volume: &Size, failed: bool) -> Decision {
    let is = claim.is.as_ref().map_or(0, |is| is.bytes);
    if claim.state.is_empty() && !claim.allocates {
        let (to, updated) = (volume.clone(), is >= volume.bytes);
        return Decision::Expand(Expand { to, told: false, updated, ends_on_failure: false });
    }
    let to = claim.allocated.clone().unwrap_or_default();
    let updated = is >= to.bytes && claim.state.is_empty();
    let everywhere = updated && claim.many && !claim.not_required;
    let turn = matches!(claim.state.as_str(), "NodeResizePending" | "NodeResizeInProgress");
    if everywhere || turn {
        let other = claim.asked.as_ref().is_none_or(|asked| asked.bytes != to.bytes);
        let ends_on_failure = failed && other;
        return Decision::Expand(Expand { to, told: true, updated, ends_on_failure });
    }
    if updated { Decision::Settled(to.bytes) } else { Decision::Wait }
}

/// How a driver failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Failure {
    /// It is away.
    Away,
    /// It never grows volumes.
    Unsupported,
    /// Not while the volume is in use.
    InUse,
    /// Not to this size.
    Infeasible,
    /// Anything else.
    Other,
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// What the claim is told.
    pub tell: Option<Tell>,
    /// The next failure may end it.
    pub remember: bool,
    /// What becomes of the volume.
    pub end: End,
}

/// What a claim is told of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tell {
    Failed,
    Infeasible,
}

/// What becomes of a volume that could not be grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It counts as grown.
    Grown,
    /// It is used as it is, and not grown while it is in use.
    AsItIs,
    /// It is tried again.
    Failed,
}

/// Judges a failure.
pub(super) fn judge(asked: &Expand, failure: Failure) -> Verdict {
    let end = match failure {
        Failure::Unsupported if asked.updated || !asked.told => End::Grown,
        Failure::InUse => End::AsItIs,
        _ => End::Failed,
    };
    if !asked.told || end == End::Grown || failure == Failure::Away {
        return Verdict { tell: None, remember: false, end };
    }
    let never = failure == Failure::Infeasible || asked.ends_on_failure;
    let tell = if never { Tell::Infeasible } else { Tell::Failed };
    Verdict { tell: Some(tell), remember: true, end }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kubelet_model::{ObjectKey, ObjectKind};

    use super::*;

    fn size(bytes: i64) -> Size {
        Size { bytes, text: bytes.to_string() }
    }

    /// `is/asked/allocated state`, zero for nothing.
    fn claim(text: &str) -> ClaimSize {
        let (sizes, state) = text.split_once(' ').unwrap_or((text, ""));
        let mut sizes = sizes.split('/').map(|number| number.parse().expect("a number"));
        let mut next = || sizes.next().filter(|bytes| *bytes > 0).map(size);
        let (is, asked, allocated) = (next(), next(), next());
        let allocates = allocated.is_some();
        let state = state.to_owned();
        ClaimSize { is, asked, allocated, allocates, state, many: false, not_required: false }
    }

    fn shown(decision: &Decision) -> String {
        match decision {
            Decision::Settled(bytes) => format!("settled {bytes}"),
            Decision::Wait => "wait".to_owned(),
            Decision::Expand(Expand { to, told, updated, ends_on_failure }) => {
                let mut text = format!("expand {}", to.bytes);
                for (said, word) in
                    [(told, " told"), (updated, " updated"), (ends_on_failure, " ends")]
                {
                    text.push_str(if *said { word } else { "" });
                }
                text
            }
        }
    }

    #[test]
    fn the_claim_says_when_it_is_the_nodes_turn() {
        for (text, volume, failed, expected) in [
            // Older controllers.
            ("1/2/0", 2, false, "expand 2"),
            ("1/2/0", 2, true, "expand 2"),
            ("2/2/0", 2, false, "expand 2 updated"),
            // Newer ones.
            ("1/2/2", 2, false, "wait"),
            ("1/2/2 ControllerResizeInProgress", 2, false, "wait"),
            ("1/2/2 ControllerResizeInfeasible", 2, false, "wait"),
            ("1/2/2 NodeResizePending", 2, false, "expand 2 told"),
            ("1/2/2 NodeResizeInProgress", 2, true, "expand 2 told"),
            ("1/2/2 NodeResizeInfeasible", 2, false, "wait"),
            ("2/2/2", 2, false, "settled 2"),
            // Users want less, or more, than what failed.
            ("1/3/2 NodeResizeInProgress", 2, false, "expand 2 told"),
            ("1/3/2 NodeResizeInProgress", 2, true, "expand 2 told ends"),
            // The volume is larger than what was allocated.
            ("2/2/2", 4, false, "settled 2"),
        ] {
            let decision = decide(&claim(text), &size(volume), failed);
            assert_eq!(shown(&decision), expected, "{text} of {volume}, failed: {failed}");
        }
    }

    #[test]
    fn every_node_that_shares_a_volume_has_its_turn() {
        let mut shared = ClaimSize { many: true, ..claim("2/2/2") };
        assert_eq!(shown(&decide(&shared, &size(2), false)), "expand 2 told updated");
        shared.not_required = true;
        assert_eq!(shown(&decide(&shared, &size(2), false)), "settled 2");
        let waits = ClaimSize { many: true, ..claim("1/2/2") };
        assert_eq!(shown(&decide(&waits, &size(2), false)), "wait");
    }

    #[test]
    fn a_claim_lags_if_it_says_less_than_the_volume() {
        for (text, expected) in
            [("1/2/2", true), ("2/2/2", false), ("3/2/2", false), ("0/2/2", false)]
        {
            assert_eq!(claim(text).lags(&size(2)), expected, "{text}");
        }
    }

    #[test]
    fn failures_are_told_where_controllers_listen() {
        let newer = Expand { to: size(2), told: true, updated: false, ends_on_failure: false };
        let older = Expand { told: false, ..newer.clone() };
        let updated = Expand { updated: true, ..newer.clone() };
        let last = Expand { ends_on_failure: true, ..newer.clone() };
        use Failure::{Away, InUse, Infeasible, Other, Unsupported};
        let (failed, never) = (Some(Tell::Failed), Some(Tell::Infeasible));
        for (asked, failure, tell, remember, end) in [
            (&newer, Other, failed, true, End::Failed),
            (&newer, Infeasible, never, true, End::Failed),
            (&newer, InUse, failed, true, End::AsItIs),
            (&newer, Unsupported, failed, true, End::Failed),
            (&newer, Away, None, false, End::Failed),
            (&last, Other, never, true, End::Failed),
            (&last, Away, None, false, End::Failed),
            (&updated, Unsupported, None, false, End::Grown),
            (&updated, Other, failed, true, End::Failed),
            (&older, Other, None, false, End::Failed),
            (&older, Infeasible, None, false, End::Failed),
            (&older, InUse, None, false, End::AsItIs),
            (&older, Unsupported, None, false, End::Grown),
        ] {
            let expected = Verdict { tell, remember, end };
            assert_eq!(judge(asked, failure), expected, "{asked:?} {failure:?}");
        }
    }

    #[test]
    fn a_claim_is_read_as_the_cluster_stores_it() {
        let object = |parts: &[(&str, &str)]| ConfigObject {
            key: ObjectKey::new(ObjectKind::PersistentVolumeClaim, "ns", "c"),
            uid: String::new(),
            secret_type: String::new(),
            data: parts.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect(),
            binary: BTreeMap::new(),
        };
        let spec =
            r#"{"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"2Gi"}}}"#;
        assert_eq!(ClaimSize::of(&object(&[("spec", spec)])), None, "of a manifest");
        let status = r#"{"capacity":{"storage":"1G"},"allocatedResources":{"storage":"2Gi"},
            "allocatedResourceStatuses":{"storage":"NodeResizePending"}}"#;
        let metadata =
            r#"{"annotations":{"volume.kubernetes.io/node-expansion-not-required":"true"}}"#;
        let all = [("metadata", metadata), ("spec", spec), ("status", status)];
        let sized = |bytes: i64, text: &str| Some(Size { bytes, text: text.to_owned() });
        let expected = ClaimSize {
            is: sized(1_000_000_000, "1G"),
            asked: sized(2 << 30, "2Gi"),
            allocated: sized(2 << 30, "2Gi"),
            allocates: true,
            state: "NodeResizePending".to_owned(),
            many: true,
            not_required: true,
        };
        assert_eq!(ClaimSize::of(&object(&all)), Some(expected));
        let empty = ClaimSize::of(&object(&[("metadata", "{}")])).expect("a claim");
        assert_eq!(empty, ClaimSize::default());
    }
}
