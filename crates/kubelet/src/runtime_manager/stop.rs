//! Stopping a container: its hook, its turn, then the signal.
//!
//! One grace period covers all three. Upstream: killContainer and
//! kuberuntime_termination_order.go in pkg/kubelet/kuberuntime.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerPort, LifecycleHandler};
use kubelet_model::{ContainerId, ContainerName, EventObject, EventType, Grace, Mono, StopReason};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::executor::{ActionError, Executor, unless_gone};
use crate::pleg::labels;
use crate::pod_plan::seconds_of_stop;

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

/// What a container does before it is told to stop.
#[derive(Debug, PartialEq)]
struct PreStop {
    hook: LifecycleHandler,
    ports: Vec<ContainerPort>,
    /// What the stop is meant to have. Where that is nothing the hook does not run.
    seconds: i64,
}

/// The hook that a container's annotations tell of.
fn annotated(annotations: &BTreeMap<String, String>) -> Option<PreStop> {
    let text = |label| annotations.get(label).filter(|text| text.len() <= HOOK_BYTES_MAX);
    let hook = serde_json::from_str(text(labels::PRE_STOP_HANDLER)?).ok()?;
    let ports = text(labels::PORTS).and_then(|text| serde_json::from_str(text).ok());
    let seconds = text(labels::POD_DELETION_GRACE).or_else(|| text(labels::POD_TERMINATION_GRACE));
    let seconds = seconds.and_then(|text| text.parse().ok());
    let seconds = seconds.unwrap_or_else(|| Grace::FLOOR.duration().as_secs().cast_signed());
    Some(PreStop { hook, ports: ports.unwrap_or_default(), seconds })
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
        if let Some(PreStop { hook, ports, seconds }) = self.pre_stop(id, name, why).await
            && let limit @ 1.. = seconds
        {
            let limit = grace.duration().min(Grace::from_secs(limit).duration());
            self.run_pre_stop(id, name, (&hook, &ports), limit).await;
        }
        if !after.is_empty() {
            let _call = self.calls.begin(format!("{name} waits for those that it outlives to end"));
            // Out of time is no reason to wait: it is stopped with what is left.
            let _ = timeout(left(self.ports.clock.mono()), self.ended.wait_for(after)).await;
        }
        let rest = grace.after(self.ports.clock.mono().since(began));
        let _call = self.calls.begin(format!(
            "StopContainer {name}, which kills after {} s",
            rest.duration().as_secs_f64().ceil()
        ));
        unless_gone(self.ports.runtime.stop_container(id.as_str(), rest.duration()).await)?;
        // One that could not be stopped may still need the sidecars that wait for it.
        self.ended.add(name);
        Ok(())
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

    /// The hook the spec names or, where the spec is gone, the container's annotations.
    async fn pre_stop(
        &self,
        id: &ContainerId,
        name: &ContainerName,
        why: StopReason,
    ) -> Option<PreStop> {
        if why == StopReason::RestartAll {
            // As upstream: it is stopped without any grace.
            return None;
        }
        if let Some(pod) = &self.pod {
            let (_, container) = pod.container(name.as_str())?;
            let hook = container.lifecycle.as_ref()?.pre_stop.clone()?;
            let seconds = match seconds_of_stop(pod, &container, why) {
                // As upstream: a pod that goes away always has a second.
                seconds if why == StopReason::PodTerminating => seconds.max(1),
                seconds => seconds,
            };
            return Some(PreStop {
                hook,
                ports: container.ports.clone().unwrap_or_default(),
                seconds,
            });
        }
        let call = self.calls.begin(format!("ContainerStatus {name}"));
        let status = self.ports.runtime.container_status(id.as_str()).await.ok()?;
        drop(call);
        annotated(&status.annotations)
    }

    async fn run_pre_stop(
        &self,
        id: &ContainerId,
        name: &ContainerName,
        (hook, ports): (&LifecycleHandler, &[ContainerPort]),
        limit: Duration,
    ) {
        let call = self.calls.begin(format!("preStop hook of {name}"));
        let outcome = tokio::select! { biased;
            outcome = self.run_hook(id, name, hook, ports) => outcome,
            () = sleep(limit) => Err(format!(
                "it did not end within the grace period of {} s", limit.as_secs()
            )),
        };
        drop(call);
        if let Err(error) = outcome {
            tracing::warn!(pod = %self.identity.uid, container = %name, error, "preStop hook failed");
            self.tell(name, EventType::Warning, "FailedPreStopHook", "PreStopHook failed");
        }
    }
}
