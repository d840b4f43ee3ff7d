//! The worker and its pod's volumes: wanted while the pod lives, waited for
//! before anything starts, released once nothing of it runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{Action, DesiredPod, EventType, Mono, ObjectKey, ObservedPod, Steps};

use super::worker::{Decision, Worker};
use crate::object_cache::{ObjectWatch, pod_objects};
use crate::progress::Obstacle;
use crate::runtime_manager::refusal;
use crate::status_manager::Ended;
use crate::status_manager::Stage;
use crate::volume_manager::{Mountables, VolumeState, attach_limit, has_volumes, why_waiting};

/// Why a pod may not stay on a node that can have no more volumes.
const ATTACH_LIMIT: &str = "VolumeAttachmentLimitExceeded";

/// The objects that a pod's variables and images need.
pub(super) struct FollowedObjects {
    /// Of this version of the pod.
    of: Arc<Pod>,
    keys: BTreeSet<ObjectKey>,
    pub(super) watch: ObjectWatch,
}

/// Returns once one of them has changed.
pub(super) async fn objects_changed(objects: &mut Option<FollowedObjects>) {
    match objects {
        Some(followed) => followed.watch.changed().await,
        None => std::future::pending().await,
    }
}

impl Worker {
    /// Has an API server's objects fetched before they are needed, and kept while they
    /// are.
    pub(super) fn follow_objects(&mut self, pod: &DesiredPod) {
        let known = self.objects.as_ref().is_some_and(|known| Arc::ptr_eq(&known.of, pod.pod()));
        if self.ended_itself {
            self.objects = None;
        } else if !known && !pod.is_static() {
            let keys = pod_objects(pod);
            let watch = self.shared.objects.follow(keys.clone());
            self.objects = Some(FollowedObjects { of: Arc::clone(pod.pod()), keys, watch });
        }
    }

    /// Something is to start, and the API server has yet to answer for what it needs.
    pub(super) fn awaits_objects(&self, steps: &Steps) -> bool {
        let Some(followed) = &self.objects else { return false };
        let mut actions = steps.iter().flatten();
        actions.any(|action| matches!(action, Action::StartContainer { .. }))
            && followed.keys.iter().any(|key| self.shared.objects.is_awaited(key))
    }

    /// A pod that lives needs its volumes.
    pub(super) fn want_volumes(&mut self, pod: &DesiredPod) {
        if has_volumes(pod) {
            self.shared.volumes.want(pod);
            // Before their state is read, so that no change goes unnoticed.
            self.volume_watch = self.shared.volumes.follow(&self.uid);
        }
    }

    /// A pod that waits for a volume of which the node can have no more may not stay: it
    /// can run elsewhere. Upstream: SyncPod in pkg/kubelet/kubelet.go.
    pub(super) fn note_attach_limit(&mut self, pod: &DesiredPod, seen: &ObservedPod) {
        let Some(VolumeState::Waiting { volumes, problems, .. }) =
            self.shared.volumes.state(&self.uid)
        else {
            return;
        };
        let Some(why) = attach_limit(&volumes, &problems) else { return };
        tracing::warn!(pod = %pod.full_name(), uid = %self.uid, message = why, "pod refused");
        self.record(pod, EventType::Warning, ATTACH_LIMIT, why.clone());
        self.shared.metrics.admission.count_rejection(ATTACH_LIMIT);
        let rejected = Ended::rejected(ATTACH_LIMIT, &why);
        self.ended = Some(Ended { before_anything: seen.is_gone(), ..rejected });
    }

    /// Nothing of the pod needs its volumes any more; true once they are gone.
    pub(super) fn release_volumes(&mut self, pod: Option<&DesiredPod>) -> bool {
        if !self.may_have_volumes(pod) {
            return true;
        }
        self.shared.volumes.release(&self.uid);
        self.volume_watch = self.shared.volumes.follow(&self.uid);
        // Nothing is known of a uid that can have no files.
        self.shared.volumes.state(&self.uid).is_none_or(|state| state == VolumeState::Gone)
    }

    /// Of a pod that ends: true once its files may go.
    pub(super) fn volumes_gone(&mut self, pod: Option<&DesiredPod>, seen: &ObservedPod) -> bool {
        if !self.may_have_volumes(pod) {
            return true;
        }
        if !seen.is_gone() {
            self.shared.volumes.keep(&self.uid);
            return false;
        }
        self.release_volumes(pod)
    }

    /// Only a spec without volumes tells that there are none, unless their mounts
    /// are in the way of the pod's files.
    fn may_have_volumes(&self, pod: Option<&DesiredPod>) -> bool {
        let files_in_use = self.told.contains_key(super::perform::REMOVE_FILES);
        pod.is_none_or(has_volumes)
            || files_in_use
            || self.shared.volumes.state(&self.uid).is_some()
    }

    /// What a plan that starts something waits for.
    pub(super) fn awaits_volumes(&self, steps: &Steps) -> bool {
        let starts = |action: &Action| {
            matches!(action, Action::CreateSandbox { .. } | Action::StartContainer { .. })
        };
        steps.iter().flatten().any(starts)
            && self
                .shared
                .volumes
                .state(&self.uid)
                .is_some_and(|state| !matches!(state, VolumeState::Ready(_)))
    }

    /// The volumes that containers can mount.
    pub(super) fn mountables(&self) -> Mountables {
        match self.shared.volumes.state(&self.uid) {
            Some(VolumeState::Ready(volumes)) => volumes,
            _ => Mountables::default(),
        }
    }

    /// Can the pod's runtime make a mount read-only all the way down?
    pub(super) fn can_read_only(&self, pod: &DesiredPod) -> bool {
        let handler = self.shared.lists.known_handler(refusal::class_name(pod));
        handler.is_some_and(|handler| self.runtime.recursive_read_only.contains(&handler))
    }

    /// What the pod's condition says about volumes that are not there yet.
    pub(super) fn volume_problem(&self, decision: &Decision) -> Option<String> {
        if decision.stage != Stage::Live {
            return None;
        }
        let state = self.shared.volumes.state(&self.uid)?;
        let VolumeState::Waiting { volumes, problems, .. } = state else { return None };
        let merely = || format!("waiting for the volumes to be mounted: {}", volumes.join(" "));
        Some(why_waiting(&volumes, &problems).unwrap_or_else(merely))
    }

    /// The volumes that the worker rests for, and when they are tried again.
    pub(super) fn volume_obstacle(&self, decision: &Decision) -> Option<(Obstacle, Option<Mono>)> {
        let leaving = decision.stage != Stage::Live;
        if !leaving && !self.awaits_volumes(&decision.steps) {
            return None;
        }
        let state = self.shared.volumes.state(&self.uid)?;
        let VolumeState::Waiting { volumes, problems, retry_at } = state else { return None };
        let problems = problems.into_iter().map(|problem| problem.message).collect();
        Some((Obstacle::Volumes { volumes, problems, leaving }, retry_at))
    }
}
