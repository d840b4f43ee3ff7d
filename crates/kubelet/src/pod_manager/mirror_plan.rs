//! Which mirrors to make and to delete. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubelet_model::pod::{CONFIG_HASH, CONFIG_MIRROR};
use kubelet_model::{DesiredPod, FullName, PodUid};

use super::ApiCopy;

/// What to do about a mirror.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Make the mirror of this static pod.
    Create(FullName),
    /// Delete this one.
    Delete {
        /// Of this name.
        full_name: FullName,
        /// And this uid, lest a newer one of the name be hit.
        uid: PodUid,
    },
}

impl Step {
    /// The pod that it is about.
    pub(super) fn full_name(&self) -> &FullName {
        match self {
            Self::Create(full_name) | Self::Delete { full_name, .. } => full_name,
        }
    }
}

/// Each static pod has exactly one mirror with its hash; a mirror of no static pod
/// goes. `ending` says whether a static pod of that name is still being removed.
pub(super) fn plan(
    statics: &BTreeMap<FullName, &DesiredPod>,
    mirrors: &[ApiCopy],
    ending: &dyn Fn(&FullName) -> bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut found: Vec<FullName> = Vec::new();
    for mirror in mirrors {
        let full_name = mirror.full_name();
        let wanted = statics.get(&full_name);
        let fits = wanted.is_some_and(|pod| hash(pod) == mirror.mirror.as_deref());
        if wanted.is_none() && ending(&full_name) {
            continue;
        }
        found.push(full_name.clone());
        if !fits || mirror.deleted {
            steps.push(Step::Delete { full_name, uid: mirror.uid.clone() });
        }
    }
    let missing = statics.keys().filter(|name| !found.contains(name));
    steps.extend(missing.map(|name| Step::Create(name.clone())));
    steps
}

/// What tells versions of a static pod apart.
pub(super) fn hash(pod: &DesiredPod) -> Option<&str> {
    pod.pod().metadata.annotations.as_ref()?.get(CONFIG_HASH).map(String::as_str)
}

/// The object to create: the pod as its source has it, owned by the node.
pub(super) fn mirror_of(pod: &DesiredPod, node_name: &str, node_uid: &str) -> Pod {
    let mut object = Pod::clone(pod.asked());
    let hash = hash(pod).unwrap_or_default().to_owned();
    let meta = &mut object.metadata;
    meta.annotations.get_or_insert_default().insert(CONFIG_MIRROR.to_owned(), hash);
    meta.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node_name.to_owned(),
        uid: node_uid.to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    // The server gives these.
    (meta.uid, meta.resource_version, meta.generation) = (None, None, None);
    object.status = None;
    object
}
