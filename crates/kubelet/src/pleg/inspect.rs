//! A close look at one pod.

use std::sync::Arc;

use cri::{CallError, Runtime, v1};
use kubelet_model::{
    ContainerId, ContainerState, Mono, ObservedContainer, ObservedPod, ObservedSandbox, PodUid,
    SandboxId,
};

use super::{diff, last_words, parse};
use crate::ports::Fs;

/// Lists one pod's objects and asks for the details that `known` does not hold.
pub(super) async fn inspect(
    runtime: &dyn Runtime,
    fs: &dyn Fs,
    uid: &PodUid,
    known: Option<Arc<ObservedPod>>,
    began: Mono,
) -> Result<ObservedPod, CallError> {
    let sandbox_filter =
        v1::PodSandboxFilter { label_selector: parse::of_pod(uid), ..Default::default() };
    let container_filter =
        v1::ContainerFilter { label_selector: parse::of_pod(uid), ..Default::default() };
    let (sandboxes, containers) = futures_util::future::try_join(
        runtime.list_pod_sandbox(Some(sandbox_filter)),
        runtime.list_containers(Some(container_filter)),
    )
    .await?;

    let mut pod = ObservedPod::absent(uid.clone(), began);
    let labels = sandboxes.iter().map(|s| &s.labels).chain(containers.iter().map(|c| &c.labels));
    if let Some((name, namespace)) = labels.filter_map(parse::pod_name).next() {
        (pod.name, pod.namespace) = (name, namespace);
    }
    for listed in &sandboxes {
        pod.sandboxes.extend(look_at_sandbox(runtime, listed, known.as_deref()).await?);
    }
    for listed in &containers {
        pod.containers.extend(look_at_container(runtime, fs, listed, known.as_deref()).await?);
    }
    pod.sort();
    Ok(pod)
}

/// A ready sandbox's details never change, and a stopped one keeps those it had.
async fn look_at_sandbox(
    runtime: &dyn Runtime,
    listed: &v1::PodSandbox,
    known: Option<&ObservedPod>,
) -> Result<Option<ObservedSandbox>, CallError> {
    let id = SandboxId::new(&listed.id);
    let old = known.and_then(|pod| pod.sandboxes.iter().find(|s| s.id == id));
    if let Some(old) = old.filter(|old| old.ready || !parse::is_ready(listed)) {
        return Ok(Some(ObservedSandbox { ready: parse::is_ready(listed), ..old.clone() }));
    }
    if !parse::is_ready(listed) {
        return Ok(parse::sandbox(listed, None));
    }
    let status = unless_gone(runtime.pod_sandbox_status(&listed.id).await)?;
    Ok(status.and_then(|status| parse::sandbox(listed, Some(&status))))
}

/// An exited container's message is read with its details: once, and then kept.
async fn look_at_container(
    runtime: &dyn Runtime,
    fs: &dyn Fs,
    listed: &v1::Container,
    known: Option<&ObservedPod>,
) -> Result<Option<ObservedContainer>, CallError> {
    let id = ContainerId::new(&listed.id);
    let old = known.and_then(|pod| pod.containers.iter().find(|c| c.id == id));
    if let Some(old) = old.filter(|old| diff::same_kind(listed.state(), &old.state)) {
        return Ok(Some(old.clone()));
    }
    if listed.state() == v1::ContainerState::ContainerCreated {
        return Ok(parse::container(listed, None));
    }
    let Some(status) = unless_gone(runtime.container_status(&listed.id).await)? else {
        return Ok(None);
    };
    let mut container = parse::container(listed, Some(&status));
    if let Some(ObservedContainer { state: ContainerState::Exited(exit), .. }) = &mut container {
        exit.message = last_words::message(fs, &status);
    }
    Ok(container)
}

/// An object that vanished between listing and asking is simply not there.
fn unless_gone<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
