//! A close look at one pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cri::{CallError, ExitNote, Runtime, v1};
use kubelet_model::{
    ContainerId, ContainerState, Mono, ObservedContainer, ObservedPod, ObservedSandbox, PodUid,
    SandboxId,
};

use super::{diff, last_words, parse};
use crate::ports::Fs;

/// Exit code of what was killed, perhaps for lack of memory: only the runtime knows.
const KILLED: i32 = 137;

/// What a look found.
#[derive(Debug)]
pub(super) struct Look {
    /// The pod.
    pub(super) pod: ObservedPod,
    /// Containers whose end an event has told, but no record yet.
    pub(super) ahead: BTreeSet<ContainerId>,
}

/// Lists one pod's objects and asks for the details that `known` does not hold.
/// `told` is what events said of exits that no record has shown yet.
pub(super) async fn inspect(
    runtime: &dyn Runtime,
    fs: &dyn Fs,
    uid: &PodUid,
    known: Option<Arc<ObservedPod>>,
    told: &BTreeMap<ContainerId, ExitNote>,
    began: Mono,
) -> Result<Look, CallError> {
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
    let mut ahead = BTreeSet::new();
    for listed in &containers {
        let id = ContainerId::new(&listed.id);
        let old = known.as_ref().and_then(|pod| pod.containers.iter().find(|c| c.id == id));
        let exit = told.get(&id);
        let container = look_at_container(runtime, fs, listed, old, exit).await?;
        let ended = |c: &ObservedContainer| matches!(c.state, ContainerState::Exited(_));
        if container.as_ref().is_some_and(ended) && !is_recorded(listed) {
            ahead.insert(id);
        }
        pod.containers.extend(container);
    }
    pod.sort();
    Ok(Look { pod, ahead })
}

fn is_recorded(listed: &v1::Container) -> bool {
    listed.state() == v1::ContainerState::ContainerExited
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
    old: Option<&ObservedContainer>,
    exit: Option<&ExitNote>,
) -> Result<Option<ObservedContainer>, CallError> {
    let same = |old: &ObservedContainer| match exit {
        None => diff::same_kind(listed.state(), &old.state),
        // Known from the event; the record will say more.
        Some(_) => matches!(old.state, ContainerState::Exited(_)) && !is_recorded(listed),
    };
    if let Some(old) = old.filter(|old| same(old)) {
        return Ok(Some(old.clone()));
    }
    if listed.state() == v1::ContainerState::ContainerCreated {
        return Ok(parse::container(listed, None));
    }
    let Some(status) = unless_gone(runtime.container_status(&listed.id).await)? else {
        return Ok(None);
    };
    let status = with_exit(status, exit);
    let mut container = parse::container(listed, Some(&status));
    if let Some(ObservedContainer { state: ContainerState::Exited(exit), .. }) = &mut container {
        exit.message = last_words::message(fs, &status);
    }
    Ok(container)
}

/// A status as it will be once the runtime has recorded the end that an event told of.
/// It does that only after it has cleaned up, which takes longer than all else about a
/// restart.
fn with_exit(mut status: v1::ContainerStatus, exit: Option<&ExitNote>) -> v1::ContainerStatus {
    if let Some(exit) = exit.filter(|exit| tells_all(exit, &status)) {
        status.set_state(v1::ContainerState::ContainerExited);
        (status.exit_code, status.finished_at) = (exit.code, exit.finished_at);
        status.reason = if exit.code == 0 { "Completed" } else { "Error" }.to_owned();
    }
    status
}

/// Is all that matters about an end known without the record?
fn tells_all(exit: &ExitNote, status: &v1::ContainerStatus) -> bool {
    status.state() == v1::ContainerState::ContainerRunning
        // Lack of memory may have taken a child before.
        && status.reason.is_empty()
        && exit.code != KILLED
        && !last_words::needs_log(status, exit.code)
}

/// An object that vanished between listing and asking is simply not there.
fn unless_gone<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: v1::ContainerState, policy: &str) -> v1::ContainerStatus {
        let policy = (parse::labels::TERMINATION_MESSAGE_POLICY.to_owned(), policy.to_owned());
        let annotations = BTreeMap::from([policy]);
        v1::ContainerStatus { state: state.into(), annotations, ..Default::default() }
    }

    #[test]
    fn an_event_that_tells_all_is_believed_before_the_record() {
        use v1::ContainerState::{ContainerExited as Exited, ContainerRunning as Running};
        let cases = [
            (Running, "File", 0, Exited, "Completed"),
            (Running, "File", 1, Exited, "Error"),
            // Only the runtime knows whether memory was short.
            (Running, "File", 137, Running, ""),
            // The log is whole once the end is recorded.
            (Running, "FallbackToLogsOnError", 1, Running, ""),
            (Running, "FallbackToLogsOnError", 0, Exited, "Completed"),
            // The record says more than the event.
            (Exited, "File", 1, Exited, ""),
        ];
        for (before, policy, code, state, reason) in cases {
            let exit = ExitNote { code, finished_at: 7 };
            let after = with_exit(status(before, policy), Some(&exit));
            assert_eq!((after.state(), after.reason.as_str()), (state, reason), "{policy} {code}");
            let known = before == Running && state == Exited;
            assert_eq!(
                (after.finished_at, after.exit_code),
                if known { (7, code) } else { (0, 0) }
            );
        }
        let starved =
            v1::ContainerStatus { reason: "OOMKilled".to_owned(), ..status(Running, "File") };
        let exit = ExitNote { code: 0, finished_at: 7 };
        assert_eq!(with_exit(starved.clone(), Some(&exit)), starved);
        let without = with_exit(status(Running, "File"), None);
        assert_eq!(without, status(Running, "File"));
    }
}
