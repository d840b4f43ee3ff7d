//! Pods and containers as the node's API names them.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kubelet_model::PodUid;
use node_server::{Chunks, ContainerRef, LogOptions, LogStreams, ViewError};
use serde_json::{Value, json};

use super::view::NodeViewer;
use crate::container_logs::{self, LogStream};
use crate::server::containers::{runs, status_of};
use crate::status_manager::PodView;

/// A request that cannot be carried out as it is.
fn bad(message: String) -> ViewError {
    ViewError::new(400, message)
}

/// Is this the pod of that uid? A mirror's stands for the static pod of its name.
fn is_meant(view: &PodView, uid: Option<&str>, is_mirror: bool) -> bool {
    let Some(uid) = uid else { return true };
    let annotations = view.pod.metadata.annotations.as_ref();
    let is_static = annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.hash"));
    view.uid.as_str() == uid || is_mirror && is_static
}

impl NodeViewer {
    /// The pod of that name; of two, the one that does not end.
    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<PodView> {
        self.named(namespace, name).into_iter().min_by_key(|view| self.ends(view))
    }

    /// The pod that a path names; with a uid only the pod that has it, or whose mirror at
    /// the API server does.
    pub(super) fn find_meant(&self, of: &ContainerRef) -> Option<PodView> {
        let pods = self.named(&of.namespace, &of.pod).into_iter();
        let copies = self.local.view.copies.as_ref();
        let is_mirror = |uid: &str| {
            let copy = copies.and_then(|all| all.get(&PodUid::new(uid)));
            copy.is_some_and(|copy| {
                copy.mirror.is_some()
                    && (copy.name, copy.namespace) == (of.pod.clone(), of.namespace.clone())
            })
        };
        let mirror = of.uid.as_deref().is_some_and(is_mirror);
        pods.filter(|view| is_meant(view, of.uid.as_deref(), mirror))
            .min_by_key(|view| self.ends(view))
    }

    fn named(&self, namespace: &str, name: &str) -> Vec<PodView> {
        let is = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            meta.namespace.as_deref() == Some(namespace) && meta.name.as_deref() == Some(name)
        };
        let mut all = self.local.view.pods();
        all.retain(|view| is(&view.pod.metadata));
        all
    }

    fn ends(&self, view: &PodView) -> bool {
        let progress = self.local.view.progress.get(&view.uid);
        progress.is_some_and(|progress| progress.ending.is_some())
    }

    /// A container's log, from its beginning or as told.
    pub(super) fn open_log(
        &self,
        of: &ContainerRef,
        options: &LogOptions,
    ) -> Result<Chunks, ViewError> {
        let not_found = || format!("pod {}_{} does not exist", of.pod, of.namespace);
        let view = self.find(&of.namespace, &of.pod).ok_or_else(|| bad(not_found()))?;
        let missing =
            || format!("container {:?} in pod {:?} is not available", of.container, of.pod);
        let status = status_of(&view.status, &of.container).ok_or_else(|| bad(missing()))?;
        let number = instance(status, &of.pod, options.previous).map_err(bad)?;
        let path = self.local.log_path(&view, &of.container, number);
        let now = self.local.clock.wall();
        let age = options.since_seconds.map(SignedDuration::from_secs);
        let since = age.and_then(|age| now.checked_sub(age).ok()).or(options.since_time);
        let count = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
        let wanted = container_logs::LogOptions {
            tail: count(options.tail_lines),
            since,
            timestamps: options.timestamps,
            follow: options.follow,
            limit_bytes: count(options.limit_bytes),
            stream: match options.streams {
                LogStreams::All => None,
                LogStreams::Stdout => Some(LogStream::Stdout),
                LogStreams::Stderr => Some(LogStream::Stderr),
            },
        };
        let (statuses, uid) = (self.local.view.statuses.clone(), view.uid.clone());
        let container = of.container.clone();
        let running = move || {
            let now = statuses.get(&uid);
            let status = now.as_ref().and_then(|now| status_of(now, &container));
            status.is_some_and(|status| runs(status, number))
        };
        let fs = Arc::clone(&self.local.fs);
        let log = container_logs::read(fs, path, wanted, Arc::new(running));
        let log = log.map_err(|error| bad(error.to_string()))?;
        Ok(log.map_ok(|chunk| chunk.bytes.into()).map_err(std::io::Error::other).boxed())
    }

    /// A `PodList` of what the runtime runs.
    pub(super) fn running_pods(&self) -> Value {
        let observations = &self.local.view.observations;
        let mut items = Vec::new();
        for existing in observations.existing().into_iter().filter(|pod| pod.may_run) {
            let Some((name, namespace)) = existing.full_name.parts() else { continue };
            let seen = observations.follow(&existing.uid).current();
            let containers: Vec<Value> = seen
                .containers
                .iter()
                .filter(|container| container.state.may_run())
                .map(|c| json!({"name": c.name.as_str(), "image": c.image, "resources": {}}))
                .collect();
            items.push(json!({
                "metadata": {"name": name, "namespace": namespace, "uid": existing.uid.as_str()},
                "spec": {"containers": containers},
                "status": {},
            }));
        }
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
    }
}

/// The names of all containers of a pod.
pub(super) fn container_names(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.iter().flatten().map(|c| c.name.clone());
    let regular = spec.containers.iter().map(|c| c.name.clone());
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|c| c.name.clone());
    init.chain(regular).chain(ephemeral).collect()
}

/// The number of the instance whose log is meant, in upstream's words if there is none.
fn instance(status: &ContainerStatus, pod: &str, previous: bool) -> Result<u32, String> {
    let name = &status.name;
    let newest = u32::try_from(status.restart_count).unwrap_or(0);
    let state = status.state.clone().unwrap_or_default();
    let ended = status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
    if previous {
        let waits = state.waiting.is_some();
        return match (ended, waits) {
            (true, true) => Ok(newest),
            (true, false) => Ok(newest.saturating_sub(1)),
            _ => Err(format!("previous terminated container {name:?} in pod {pod:?} not found")),
        };
    }
    match state.waiting {
        Some(_) if ended => Ok(newest),
        Some(waiting) => {
            let reason = waiting.reason.unwrap_or_default();
            Err(format!("container {name:?} in pod {pod:?} is waiting to start: {reason}"))
        }
        None => Ok(newest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(state: Value, last: Value, previous: bool) -> Result<u32, String> {
        let status = json!({"name": "a", "image": "", "imageID": "", "ready": false,
            "restartCount": 2, "state": state, "lastState": last});
        instance(&serde_json::from_value(status).unwrap(), "p", previous)
    }

    #[test]
    fn which_log_is_meant() {
        let ended = json!({"terminated": {"exitCode": 1}});
        let waiting = json!({"waiting": {"reason": "ImagePullBackOff"}});
        let running = json!({"running": {}});
        assert_eq!(log(running.clone(), json!({}), false), Ok(2));
        assert_eq!(log(running.clone(), ended.clone(), true), Ok(1));
        assert_eq!(log(waiting.clone(), ended.clone(), true), Ok(2));
        assert_eq!(log(waiting.clone(), ended, false), Ok(2));
        let text = "container \"a\" in pod \"p\" is waiting to start: ImagePullBackOff";
        assert_eq!(log(waiting, json!({}), false).unwrap_err(), text);
        let text = "previous terminated container \"a\" in pod \"p\" not found";
        assert_eq!(log(running, json!({}), true).unwrap_err(), text);
    }
}
