//! Stopping a container: its hook, its turn, then the signal.
//!
//! One grace period covers all three. Upstream: killContainer and
//! kuberuntime_termination_order.go in pkg/kubelet/kuberuntime.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{ContainerPort, LifecycleHandler};
use kubelet_model::{
    ContainerId, ContainerName, DesiredPod, EventObject, EventType, Grace, Mono, StopReason,
};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::executor::{ActionError, Executor, unless_gone};
use crate::pleg::labels;

/// Longest hook that a container's annotations may carry.
const HOOK_BYTES_MAX: usize = 64 * 1024;

/// Which containers of the pod have ended, for those that wait for them.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    names: Mutex<BTreeSet<ContainerName>>,
    changed: Notify,
}

impl Ended {
    fn add(&self, name: &ContainerName) {
        let mut names = self.0.names.lock().expect("no code panics while holding it");
        names.insert(name.clone());
        drop(names);
        self.0.changed.notify_waiters();
    }

    fn has_all(&self, wanted: &[ContainerName]) -> bool {
        let names = self.0.names.lock().expect("no code panics while holding it");
        wanted.iter().all(|name| names.contains(name))
    }

    async fn wait_for(&self, wanted: &[ContainerName]) {
        loop {
            let changed = self.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Enlisted before looking, so that no end goes unnoticed.
            changed.as_mut().enable();
            if self.has_all(wanted) {
                return;
            }
            changed.await;
        }
    }
}

impl Executor {
    /// Stops one container within `grace`, its hook and its wait included.
    pub(super) async fn stop_container(
        &self,
        id: &ContainerId,
        name: &ContainerName,
        grace: Grace,
        why: StopReason,
        after: &[ContainerName],
    ) -> Result<(), ActionError> {
        let grace_s = grace.duration().as_secs();
        tracing::info!(
            pod = %self.identity.uid, container = %name, ?why, grace_s, "stopping container"
        );
        self.tell_of_stop(name, why);
        let began = self.ports.clock.mono();
        let left = |now: Mono| grace.duration().saturating_sub(now.since(began));
        if self.may_run_hook(why)
            && let Some((hook, ports)) = self.pre_stop_hook(id, name).await
        {
            self.run_pre_stop(id, name, (&hook, &ports), grace).await;
        }
        // Out of time is no reason to wait: it is stopped with what is left.
        let _ = timeout(left(self.ports.clock.mono()), self.ended.wait_for(after)).await;
        let rest = grace.after(self.ports.clock.mono().since(began));
        unless_gone(self.ports.runtime.stop_container(id.as_str(), rest.duration()).await)?;
        // One that could not be stopped may still need the sidecars that wait for it.
        self.ended.add(name);
        Ok(())
    }

    /// What gets no time to end gets none for its hook either.
    fn may_run_hook(&self, why: StopReason) -> bool {
        let spec = self.pod.as_ref().map(DesiredPod::spec);
        let hurried = spec.is_some_and(|spec| spec.termination_grace_period_seconds == Some(0));
        why != StopReason::RestartAll && !hurried
    }

    fn tell_of_stop(&self, name: &ContainerName, why: StopReason) {
        let text = match why {
            StopReason::DefinitionChanged => {
                format!("Container {name} definition changed, will be restarted")
            }
            StopReason::LivenessFailed => {
                format!("Container {name} failed liveness probe, will be restarted")
            }
            StopReason::StartupFailed => {
                format!("Container {name} failed startup probe, will be restarted")
            }
            StopReason::Resized => format!("Container {name} resize requires restart"),
            StopReason::RestartAll => {
                format!("Container {name} is removed: a container's exit restarts the whole pod")
            }
            StopReason::PostStartFailed => "FailedPostStartHook".to_owned(),
            StopReason::PodTerminating
            | StopReason::SandboxChanged
            | StopReason::StateUnknown
            | StopReason::Superseded => format!("Stopping container {name}"),
        };
        self.tell(name, EventType::Normal, "Killing", text);
    }

    /// Records an event about a container of the spec.
    pub(super) fn tell(
        &self,
        name: &ContainerName,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let pod = self.pod.as_ref();
        if let Some(object) = pod.and_then(|pod| EventObject::container(pod, name.as_str())) {
            self.recorder.record(&object, kind, reason, message);
        }
    }

    /// The hook the spec names or, where the spec is gone, the container's annotation.
    async fn pre_stop_hook(
        &self,
        id: &ContainerId,
        name: &ContainerName,
    ) -> Option<(LifecycleHandler, Vec<ContainerPort>)> {
        if let Some(pod) = &self.pod {
            let (_, container) = pod.container(name.as_str())?;
            let hook = container.lifecycle.as_ref()?.pre_stop.clone()?;
            return Some((hook, container.ports.clone().unwrap_or_default()));
        }
        let status = self.ports.runtime.container_status(id.as_str()).await.ok()?;
        let text = |label| status.annotations.get(label).filter(|t| t.len() <= HOOK_BYTES_MAX);
        let hook = serde_json::from_str(text(labels::PRE_STOP_HANDLER)?).ok()?;
        let ports = text(labels::PORTS).and_then(|text| serde_json::from_str(text).ok());
        Some((hook, ports.unwrap_or_default()))
    }

    async fn run_pre_stop(
        &self,
        id: &ContainerId,
        name: &ContainerName,
        (hook, ports): (&LifecycleHandler, &[ContainerPort]),
        grace: Grace,
    ) {
        let outcome = tokio::select! { biased;
            outcome = self.run_hook(id, name, hook, ports) => outcome,
            () = sleep(grace.duration()) => Err(format!(
                "it did not end within the grace period of {} s", grace.duration().as_secs()
            )),
        };
        if let Err(error) = outcome {
            tracing::warn!(pod = %self.identity.uid, container = %name, error, "preStop hook failed");
            self.tell(name, EventType::Warning, "FailedPreStopHook", "PreStopHook failed");
        }
    }
}
