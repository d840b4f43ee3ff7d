//! The dispatcher's part in admission: has new pods judged, and acts on the verdicts.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_model::{
    ContainerState, DesiredPod, EventObject, EventType, ObservedPod, PodSet, PodUid,
};
use tokio::time::Instant;

use super::dispatcher::Dispatcher;
use super::events::resize_news;
use super::kill::Kill;
use crate::admission::{
    Circumstances, DISRUPTION, PREEMPTED, PREEMPTING, Recovered, Rejection, Wait,
};
use crate::allocation::{Judging, News};
use crate::container_manager::allocatable::Allocatable;
use crate::events::reason_named;
use crate::pleg::Existing;

impl Dispatcher {
    /// The desired pods with what they are given of what they ask for. New ones are
    /// judged once it is known what the runtime holds.
    pub(super) fn allocate(&self, existing: Option<&[Existing]>) -> Arc<PodSet> {
        let desired = self.desired.current();
        let shared = &self.shared;
        let is_active = |uid: &PodUid| {
            self.workers.get(uid).is_none_or(|worker| !worker.ended && !worker.finished)
        };
        let (inputs, mut runtime) = (&shared.admission, shared.runtime.clone());
        let (told, conditions) = (inputs.news(), inputs.conditions());
        let at = Circumstances {
            settings: &shared.settings,
            news: told.as_ref(),
            conditions: &conditions,
            shutting_down: inputs.is_shutting_down(),
            strict_groups: runtime.current_and_update().strict_groups,
            now: shared.ports.clock.mono(),
        };
        let runs = OnceCell::new();
        let recovered = |pod: &DesiredPod| {
            let existing = existing.unwrap_or_default().iter();
            let runs: &BTreeMap<&PodUid, (bool, bool)> = runs.get_or_init(|| {
                existing.map(|one| (&one.uid, (one.may_run, one.pending))).collect()
            });
            let ends = pod.spec().restart_policy.as_deref().is_some_and(|one| one != "Always");
            match runs.get(pod.uid()) {
                None => Recovered::New,
                Some((_, true)) if ends => Recovered::Unseen,
                Some((true, _)) => Recovered::Runs,
                Some((false, _)) => {
                    let seen = shared.observations.follow(pod.uid()).current();
                    if is_over(pod, &seen) { Recovered::Over } else { Recovered::New }
                }
            }
        };
        let judging = Judging { at, recovered: &recovered, ask_node: &|| inputs.ask() };
        let judging = existing.is_some().then_some(&judging);
        let node = shared.settings.allocatable;
        let node = Some(node).filter(|node| *node != Allocatable::default());
        let wall = shared.ports.clock.wall();
        let (given, news) = shared.allocations.review(&desired, is_active, judging, node, wall);
        news.iter().for_each(|one| self.tell_of(one));
        given
    }

    /// Users are told, and pods are made to go.
    fn tell_of(&self, news: &News) {
        let recorder = &self.shared.recorder;
        match news {
            News::Rejected { pod, rejection: Rejection { reason, message } } => {
                tracing::warn!(pod = %pod.full_name(), uid = %pod.uid(), reason, message, "pod refused");
                let object = EventObject::pod(pod);
                let named = reason_named(reason);
                recorder.record(&object, EventType::Warning, named, message.clone());
                self.shared.metrics.admission.count_rejection(reason);
            }
            News::Preempt { pod, victims, signal } => {
                for victim in victims {
                    self.preempt(victim, pod, signal);
                }
            }
            News::Started { pod, .. } | News::Pending { pod, .. } => {
                if let Some((kind, reason, text)) = resize_news(news) {
                    tracing::info!(pod = %pod.full_name(), uid = %pod.uid(), reason, "pod asks for another size");
                    recorder.record(&EventObject::pod(pod), kind, reason, text);
                }
            }
        }
    }

    /// Has a pod ended to make room for another. Its worker tells when nothing of it runs;
    /// that it takes too long is told, and does not keep the other pod from starting.
    fn preempt(&self, victim: &DesiredPod, critical: &DesiredPod, signal: &str) {
        let shared = &self.shared;
        let object = EventObject::pod(victim);
        shared.recorder.record(&object, EventType::Warning, PREEMPTING, PREEMPTED);
        tracing::warn!(
            pod = %victim.full_name(),
            uid = %victim.uid(),
            critical = %critical.full_name(),
            lacks = signal,
            "pod is ended to make room for a critical one"
        );
        let kill = Kill {
            reason: PREEMPTING.to_owned(),
            message: PREEMPTED.to_owned(),
            grace: None,
            disruption: Some(DISRUPTION.to_owned()),
            evict: true,
        };
        let (killer, metrics) = (self.killer.clone(), Arc::clone(&shared.metrics));
        let (victim, signal) = (victim.clone(), signal.to_owned());
        shared.ports.tasks.spawn(async move {
            match killer.kill_and_wait(&victim, kill).await.1 {
                Ok(()) => metrics.admission.count_preemption(&signal),
                Err(error) => {
                    tracing::warn!(pod = %victim.full_name(), %error, "pod makes no room")
                }
            }
        });
    }

    /// Some pod cannot be judged before the runtime has answered.
    pub(super) fn awaits_runtime(&self) -> bool {
        self.held_back.values().any(|wait| *wait == Some(Wait::Runtime))
    }

    /// When a pod waits no longer for others to make room.
    pub(super) fn room_at(&self, now: Instant) -> Option<Instant> {
        let at = self.shared.allocations.next_look()?;
        Some(now + at.since(self.shared.ports.clock.mono()))
    }
}

/// Everything of the pod has run, and by its restart policy nothing will again.
fn is_over(pod: &DesiredPod, seen: &ObservedPod) -> bool {
    let spec = pod.spec();
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    let ended = |name: &str| {
        let mut all = seen.containers.iter().filter(|one| one.name.as_str() == name);
        let state = all.next().map(|newest| &newest.state);
        matches!(state, Some(ContainerState::Exited(exit)) if policy == "Never" || exit.code == 0)
    };
    policy != "Always" && !seen.may_run() && spec.containers.iter().all(|one| ended(&one.name))
}

/// What a pod's status says while it waits.
pub(super) fn words(wait: &Wait) -> String {
    match wait {
        Wait::Node => "waiting for the API server to tell how the Node object is".to_owned(),
        Wait::Runtime => "waiting for the runtime to tell what it can do".to_owned(),
        Wait::Victims(victims) => {
            let uids: Vec<&str> = victims.iter().map(PodUid::as_str).collect();
            format!("waiting until pods have ended that make room: {}", uids.join(", "))
        }
    }
}
