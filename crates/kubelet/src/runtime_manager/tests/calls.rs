//! Each call is told of while it lasts.

use std::time::Duration;

use kubelet_model::{Action, ContainerId, ContainerName, Grace, SandboxId, StopReason};

use crate::runtime_manager::Executor;
use crate::runtime_manager::testing::{Bench, pod, pod_with};

const HOOKS: &str = r#","imagePullPolicy":"IfNotPresent","lifecycle":{
    "postStart":{"exec":{"command":["after"]}},"preStop":{"exec":{"command":["before"]}}}"#;

fn start() -> Action {
    Action::StartContainer { name: ContainerName::new("app"), restart_count: Some(0) }
}

fn stop() -> Action {
    Action::StopContainer {
        id: ContainerId::new("c1"),
        name: ContainerName::new("app"),
        grace: Grace::from_secs(30),
        why: StopReason::PodTerminating,
        after: Vec::new(),
    }
}

/// What is told to be under way while a call of the runtime hangs.
async fn hung(call: &'static str, policy: &str, action: &Action) -> Vec<String> {
    let bench = Bench::new(|_, _| {});
    bench.runtime.lock().hangs.insert(call);
    let container = HOOKS.replace("IfNotPresent", policy);
    let pod = pod_with("", &container, "");
    let mut executor = bench.executor(Some(&pod));
    let perform = async {
        if let Action::StartContainer { name, .. } = action {
            executor.ensure_images(name, &|| {}).await?;
        }
        executor.perform(action).await
    };
    let given_up = tokio::time::timeout(Duration::from_millis(100), perform);
    let look = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let progress = bench.board.get(pod.uid()).unwrap_or_default();
        progress.under_way().map(|one| one.what.clone()).collect()
    };
    let (outcome, told) = tokio::join!(given_up, look);
    assert!(outcome.is_err(), "{call} does not hang");
    let left = bench.board.get(pod.uid()).unwrap_or_default();
    assert!(left.calls.is_empty(), "{call}: what was given up is not under way");
    told
}

#[tokio::test(start_paused = true)]
async fn whatever_hangs_is_named() {
    let sandbox = || SandboxId::new("s1");
    let remove = Action::RemoveContainer {
        id: ContainerId::new("c1"),
        name: ContainerName::new("app"),
        restart_count: 0,
        keep_log: true,
    };
    let table = [
        ("RunPodSandbox", Action::CreateSandbox { attempt: 0 }, "RunPodSandbox"),
        ("StopPodSandbox", Action::StopSandbox { id: sandbox() }, "StopPodSandbox"),
        ("RemovePodSandbox", Action::RemoveSandbox { id: sandbox() }, "RemovePodSandbox"),
        ("RemoveContainer", remove, "RemoveContainer app"),
        ("ImageStatus", start(), "ImageStatus i"),
        ("PodSandboxStatus", start(), "PodSandboxStatus"),
        ("CreateContainer", start(), "CreateContainer app"),
        ("StartContainer", start(), "StartContainer app"),
        ("ExecSync", start(), "postStart hook of app"),
        ("ExecSync", stop(), "preStop hook of app"),
        ("StopContainer", stop(), "StopContainer app, which kills after 30 s"),
    ];
    for (call, action, expected) in table {
        assert_eq!(hung(call, "IfNotPresent", &action).await, [expected], "{action:?}");
    }
    let pulling = hung("PullImage", "Always", &start()).await;
    assert_eq!(pulling, ["PullImage i:latest: under way"]);
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_tells_that_it_waits_for_others() {
    let bench = Bench::new(|_, _| {});
    let pod = pod("");
    let mut executor = bench.executor(Some(&pod));
    let Action::StopContainer { id, name, grace, why, .. } = stop() else { unreachable!() };
    let after = vec![ContainerName::new("main")];
    let action = Action::StopContainer { id, name, grace, why, after };
    let look = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.board.get(pod.uid()).unwrap_or_default()
    };
    let (outcome, told) = tokio::join!(executor.perform(&action), look);
    outcome.unwrap();
    let told: Vec<_> = told.under_way().map(|one| one.what.as_str()).collect();
    assert_eq!(told, ["app waits for those that it outlives to end"]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_asked_for_its_addresses_once() {
    let bench = Bench::new(|_, _| {});
    let pod = pod_with("", HOOKS, "");
    let mut executor = bench.executor(Some(&pod));
    let asked = || {
        let calls = bench.runtime.lock().calls.clone();
        calls.iter().filter(|call| call.starts_with("PodSandboxStatus")).count()
    };
    let start_one = async |executor: &mut Executor| {
        executor.ensure_images(&ContainerName::new("app"), &|| {}).await.unwrap();
        executor.perform(&start()).await.unwrap();
    };
    start_one(&mut executor).await;
    start_one(&mut executor).await;
    assert_eq!(asked(), 1);
    assert_eq!(executor.sandbox_seen().unwrap().ips, ["10.0.0.5"]);
    // Another sandbox has other addresses.
    executor.perform(&Action::CreateSandbox { attempt: 1 }).await.unwrap();
    assert_eq!(executor.sandbox_seen(), None);
    start_one(&mut executor).await;
    assert_eq!((asked(), executor.sandbox_seen().unwrap().attempt), (2, 1));
}
