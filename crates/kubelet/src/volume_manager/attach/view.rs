//! What the cluster says of the node, and what follows for a volume. Pure.
//!
//! Upstream: GenerateVerifyControllerAttachedVolumeFunc of
//! volume/util/operationexecutor, pkg/volume/csi/csi_attacher.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelector;
use serde::Deserialize;

use kubelet_model::{ConfigObject, PodUid};

use super::affinity;
use crate::object_cache::KeptNode;

/// What the cluster says of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    /// There is a cluster.
    pub in_cluster: bool,
    /// Its controller attaches volumes.
    pub controller_attaches: bool,
    /// The node's labels, once they are known.
    pub labels: Option<BTreeMap<String, String>>,
    /// Volumes that it knows to be in use.
    pub reported: BTreeSet<String>,
    /// Volumes that are attached, and at which device; `None` until the Node is known.
    pub attached: Option<BTreeMap<String, String>>,
    /// What an earlier life of the agent left is known, so that it can be undone.
    pub settled: bool,
    /// Labels and attached volumes are those of an earlier life: there is no cluster to
    /// tell them, nor one that could be told what is in use.
    pub kept: bool,
    /// Pods of which it is not known: what they left cannot be read.
    pub unread: BTreeSet<PodUid>,
}

/// Why a volume cannot be mounted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unattached {
    /// The controller has not attached it.
    Waits(String),
    /// Nobody will.
    Unsupported(String),
}

impl NodeView {
    /// The same with what was kept of the node, until its cluster has spoken of it.
    pub fn or_kept(self: Arc<Self>, kept: Option<&KeptNode>) -> Arc<Self> {
        match kept.filter(|_| self.in_cluster && self.attached.is_none()) {
            None => self,
            Some(node) => Arc::new(Self {
                labels: node.labels.clone(),
                attached: Some(node.attached.clone()),
                kept: true,
                ..Self::clone(&self)
            }),
        }
    }

    /// Whether what is left of a pod's volumes of drivers may be undone.
    pub fn may_undo(&self, uid: &PodUid) -> bool {
        !self.in_cluster || (self.settled && !self.unread.contains(uid))
    }

    /// Whether the cluster attaches volumes to the node.
    pub fn attaches(&self) -> bool {
        self.in_cluster && self.controller_attaches
    }

    /// Is a volume of this name attached, as far as the Node tells? What is not known to
    /// be in use may be detached at any time; of what was kept, only that is attached
    /// which was known to be in use.
    pub fn check_attached(&self, volume: &str) -> Result<(), Unattached> {
        if !self.controller_attaches {
            let why = "attaching volumes from the kubelet is not supported";
            return Err(Unattached::Unsupported(why.to_owned()));
        }
        let attached = self.attached.as_ref().is_some_and(|all| all.contains_key(volume));
        match attached && (self.kept || self.reported.contains(volume)) {
            true => Ok(()),
            false => {
                let why = format!("volume {volume} is not yet in node's status");
                Err(Unattached::Waits(why))
            }
        }
    }

    /// May a PersistentVolume be used on this node? `None` while that is not known.
    ///
    /// # Errors
    /// Why not, in upstream's words.
    pub fn check_affinity(&self, wanted: &NodeSelector) -> Option<Result<(), String>> {
        let labels = self.labels.as_ref()?;
        Some(match affinity::matches(wanted, labels) {
            Ok(true) => Ok(()),
            Ok(false) => Err("no matching NodeSelectorTerms".to_owned()),
            Err(why) => Err(why),
        })
    }
}

/// What a VolumeAttachment says.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Attachment {
    attached: bool,
    attachment_metadata: BTreeMap<String, String>,
    attach_error: Option<AttachError>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachError {
    message: String,
    error_code: Option<i32>,
}

/// The code of gRPC by which a driver says that a node has as many volumes as it can.
const RESOURCE_EXHAUSTED: i32 = 8;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    deletion_timestamp: Option<String>,
}

impl Attachment {
    /// Could it not be attached because the node has as many as it can?
    pub fn is_exhausted(object: Option<&ConfigObject>) -> bool {
        let status = object.and_then(ConfigObject::status::<Self>);
        let error = status.and_then(|status| status.attach_error);
        error.is_some_and(|error| error.error_code == Some(RESOURCE_EXHAUSTED))
    }

    /// What the driver is told of a volume that is attached.
    ///
    /// # Errors
    /// Why it is not, in upstream's words.
    pub fn context(
        object: Option<&ConfigObject>,
        handle: &str,
        id: &str,
    ) -> Result<BTreeMap<String, String>, String> {
        let Some(object) = object else {
            return Err(format!(
                "volume {handle} has GET error for volume attachment {id}: \
                 volumeattachments.storage.k8s.io {id:?} not found"
            ));
        };
        let metadata = object.metadata::<Metadata>().unwrap_or_default();
        if metadata.deletion_timestamp.is_some() {
            return Err("volume attachment is being deleted".to_owned());
        }
        let status = object.status::<Self>().unwrap_or_default();
        match (status.attached, status.attach_error) {
            (true, _) => Ok(status.attachment_metadata),
            (false, Some(error)) => Err(error.message),
            (false, None) => {
                Err(format!("volume {handle} is not attached for volume attachment {id}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kubelet_model::{ObjectKey, ObjectKind};

    use super::*;

    #[test]
    fn a_volume_is_attached_once_it_is_known_to_be_in_use_and_in_the_status() {
        let name = "kubernetes.io/csi/d^h";
        let waits = || Err(Unattached::Waits(format!("volume {name} is not yet in node's status")));
        let mut view =
            NodeView { in_cluster: true, controller_attaches: true, ..NodeView::default() };
        assert_eq!(view.check_attached(name), waits());
        view.attached = Some(BTreeMap::from([(name.to_owned(), String::new())]));
        assert_eq!(view.check_attached(name), waits(), "not reported yet");
        view.reported.insert(name.to_owned());
        assert_eq!(view.check_attached(name), Ok(()));
        view.controller_attaches = false;
        assert!(matches!(view.check_attached(name), Err(Unattached::Unsupported(_))));
        let uid = PodUid::new("u");
        assert!(!view.may_undo(&uid) && NodeView::default().may_undo(&uid));
    }

    #[test]
    fn what_was_kept_counts_until_the_cluster_speaks() {
        let (name, other) = ("kubernetes.io/csi/d^h", "kubernetes.io/csi/d^o");
        let pairs = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let kept = KeptNode { labels: Some(pairs("zone", "a")), attached: pairs(name, "/dev/x") };
        let mut view =
            NodeView { in_cluster: true, controller_attaches: true, ..NodeView::default() };
        let seen = |view: &NodeView| Arc::new(view.clone()).or_kept(Some(&kept));
        assert_eq!(seen(&view).check_attached(name), Ok(()));
        assert!(matches!(seen(&view).check_attached(other), Err(Unattached::Waits(_))));
        assert_eq!(seen(&view).labels, kept.labels);
        assert!(!seen(&view).may_undo(&PodUid::new("a")), "nobody knows what else is in use");
        assert_eq!(*Arc::new(view.clone()).or_kept(None), view);
        view.attached = Some(BTreeMap::new());
        assert_eq!(*seen(&view), view, "its word counts");
        let alone = NodeView::default();
        assert_eq!(*seen(&alone), alone);
    }

    #[test]
    fn attachments_tell_what_drivers_need_or_what_went_wrong() {
        let object = |metadata: &str, status: &str| ConfigObject {
            key: ObjectKey::new(ObjectKind::VolumeAttachment, "", "csi-x"),
            uid: String::new(),
            secret_type: String::new(),
            data: BTreeMap::from([
                ("metadata".to_owned(), metadata.as_bytes().to_vec()),
                ("status".to_owned(), status.as_bytes().to_vec()),
            ]),
            binary: BTreeMap::new(),
        };
        let told =
            |metadata, status| Attachment::context(Some(&object(metadata, status)), "h", "csi-x");
        let good = told("{}", r#"{"attached":true,"attachmentMetadata":{"dev":"sdb"}}"#);
        assert_eq!(good, Ok(BTreeMap::from([("dev".to_owned(), "sdb".to_owned())])));
        assert_eq!(told("{}", r#"{"attached":true}"#), Ok(BTreeMap::new()));
        for (metadata, status, why) in [
            ("{}", "{}", "volume h is not attached for volume attachment csi-x"),
            ("{}", r#"{"attached":false,"attachError":{"message":"full"}}"#, "full"),
            (
                r#"{"deletionTimestamp":"2026-01-01T00:00:00Z"}"#,
                r#"{"attached":true}"#,
                "volume attachment is being deleted",
            ),
        ] {
            assert_eq!(told(metadata, status), Err(why.to_owned()));
        }
        for (status, full) in [
            ("{}", false),
            (r#"{"attachError":{"message":"full"}}"#, false),
            (r#"{"attachError":{"message":"full","errorCode":14}}"#, false),
            (r#"{"attachError":{"message":"full","errorCode":8}}"#, true),
        ] {
            assert_eq!(Attachment::is_exhausted(Some(&object("{}", status))), full, "{status}");
        }
        assert!(!Attachment::is_exhausted(None));
        let missing = Attachment::context(None, "h", "csi-x").unwrap_err();
        assert!(
            missing.contains("volume h has GET error for volume attachment csi-x"),
            "{missing}"
        );
    }
}
