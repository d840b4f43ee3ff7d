//! What a pod needs to start, and what is remembered of its status. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kubelet_model::pod::{CONFIG_SEEN, CONFIG_SOURCE};
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind};

use super::format::KINDS;
use crate::object_cache::{KeptNode, pod_objects};
use crate::settings::Settings;
use crate::status_manager::{is_owned_condition, is_terminal};
use crate::volume_manager::attach::NodeView;
use crate::volume_manager::desired::{self, NodeFacts};

/// Every object that the pod uses, tokens included, as far as those are known that
/// name others.
pub(super) fn keys(
    pod: &DesiredPod,
    settings: &Settings,
    get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    node: &NodeView,
) -> BTreeSet<ObjectKey> {
    let mut keys = pod_objects(pod);
    if let Some(volumes) = desired::of_pod(pod, NodeFacts::of(settings)) {
        keys.extend(volumes.objects(get, node, &settings.node_name));
    }
    keys
}

/// What its volumes need to know of the node; `None` while that is not known.
pub(super) fn of_node(
    pod: &DesiredPod,
    settings: &Settings,
    get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    node: &NodeView,
) -> Option<KeptNode> {
    match desired::of_pod(pod, NodeFacts::of(settings)) {
        Some(volumes) => volumes.of_node(get, node),
        None => Some(KeptNode::default()),
    }
}

/// Only one that may run again needs its objects.
pub(super) fn may_start(pod: &Pod, own: Option<&PodStatus>) -> bool {
    let ended = |status: Option<&PodStatus>| status.is_some_and(is_terminal);
    pod.metadata.deletion_timestamp.is_none() && !ended(own) && !ended(pod.status.as_ref())
}

/// A pod starts without it, and gets it when the server is back.
pub(super) fn is_token(key: &ObjectKey) -> bool {
    key.kind == ObjectKind::ServiceAccountToken
}

/// What proves who a pod is never lies on the disk; volumes with a certificate wait for
/// the server.
pub(super) fn is_kept(key: &ObjectKey) -> bool {
    KINDS.contains(&key.kind)
}

/// The pod as it is kept: without what each life of the agent says anew.
pub(super) fn stripped(pod: &Pod, own: Option<&PodStatus>) -> Pod {
    let mut kept = pod.clone();
    let meta = &mut kept.metadata;
    (meta.resource_version, meta.managed_fields) = (None, None);
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(CONFIG_SOURCE);
        annotations.remove(CONFIG_SEEN);
    }
    if meta.annotations.as_ref().is_some_and(|all| all.is_empty()) {
        meta.annotations = None;
    }
    kept.status = Some(status(pod.status.as_ref().unwrap_or(&PodStatus::default()), own));
    kept
}

/// How the pod ended, if it did: it must not run again. Else when it began, and what
/// others say of it. The rest is found in the runtime, and changes too often to be
/// written down.
fn status(server: &PodStatus, own: Option<&PodStatus>) -> PodStatus {
    let ended = own.filter(|own| is_terminal(own));
    if let Some(ended) = ended.or_else(|| is_terminal(server).then_some(server)) {
        return ended.clone();
    }
    let began = || own.and_then(|own| own.start_time.clone());
    let others = |condition: &&PodCondition| !is_owned_condition(&condition.type_);
    let conditions = server.conditions.iter().flatten().filter(others).cloned();
    let conditions: Vec<PodCondition> = conditions.collect();
    PodStatus {
        phase: Some("Pending".to_owned()),
        start_time: server.start_time.clone().or_else(began),
        conditions: (!conditions.is_empty()).then_some(conditions),
        resource_claim_statuses: server.resource_claim_statuses.clone(),
        ..PodStatus::default()
    }
}
