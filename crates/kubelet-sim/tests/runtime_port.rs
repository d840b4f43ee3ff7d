//! The simulated runtime keeps CRI's promises, faults or not.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // tests own time

use std::sync::Arc;
use std::time::Duration;

use cri::{Runtime, v1};
use futures_util::StreamExt;
use kubelet_sim::{Faults, Life, Program, SimRuntime, World};

fn sandbox(attempt: u32) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web-node".into(),
            uid: "u1".into(),
            namespace: "sim".into(),
            attempt,
        }),
        log_directory: "/var/log/pods/web".into(),
        labels: [("io.kubernetes.pod.uid", "u1"), ("io.kubernetes.pod.name", "web-node")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        ..Default::default()
    }
}

fn container(program: Program, attempt: u32) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt }),
        image: Some(image(program)),
        labels: [
            ("io.kubernetes.pod.uid", "u1"),
            ("io.kubernetes.pod.name", "web-node"),
            ("io.kubernetes.container.name", "app"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into(),
        log_path: "app/0.log".into(),
        ..Default::default()
    }
}

fn image(program: Program) -> v1::ImageSpec {
    v1::ImageSpec { image: program.image(), ..Default::default() }
}

fn runtime(faults: Faults) -> (Arc<World>, SimRuntime, Life) {
    let world = World::new(3, faults, false);
    let life = Life::new(1);
    (Arc::clone(&world), SimRuntime::new(world, life.clone()), life)
}

async fn started(runtime: &SimRuntime, program: Program) -> (String, String) {
    let pod = runtime.run_pod_sandbox(sandbox(0), "").await.expect("sandbox");
    runtime.pull_image(image(program), None, None).await.expect("pull");
    let id =
        runtime.create_container(&pod, container(program, 0), sandbox(0)).await.expect("create");
    runtime.start_container(&id).await.expect("start");
    (pod, id)
}

async fn state(runtime: &SimRuntime, id: &str) -> v1::ContainerState {
    runtime.container_status(id).await.expect("status").state()
}

#[tokio::test(start_paused = true)]
async fn names_are_reserved_until_removal() {
    let (_world, runtime, _) = runtime(Faults::none());
    let id = runtime.run_pod_sandbox(sandbox(0), "").await.expect("first");
    let again = runtime.run_pod_sandbox(sandbox(0), "").await.expect_err("name taken");
    assert!(again.to_string().contains("reserved"), "{again}");
    runtime.remove_pod_sandbox(&id).await.expect("remove");
    runtime.remove_pod_sandbox(&id).await.expect("remove again");
    runtime.run_pod_sandbox(sandbox(0), "").await.expect("name free");
}

#[tokio::test(start_paused = true)]
async fn programs_end_as_they_say() {
    let (_world, runtime, _) = runtime(Faults::none());
    let program = Program::Exit { code: 7, after_ms: 5_000 };
    let (_, id) = started(&runtime, program).await;
    assert_eq!(state(&runtime, &id).await, v1::ContainerState::ContainerRunning);
    tokio::time::sleep(Duration::from_secs(6)).await;
    let status = runtime.container_status(&id).await.expect("status");
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 7));
    let ran = status.finished_at - status.started_at;
    assert_eq!(ran / 1_000_000_000, 5);
    assert!(runtime.start_container(&id).await.is_err(), "no second start");
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_the_grace_period() {
    let (_world, runtime, _) = runtime(Faults::none());
    let (_, id) = started(&runtime, Program::Deaf).await;
    let before = tokio::time::Instant::now();
    runtime.stop_container(&id, Duration::from_secs(9)).await.expect("stop");
    assert_eq!(before.elapsed().as_secs(), 9);
    assert_eq!(runtime.container_status(&id).await.expect("status").exit_code, 137);
    runtime.stop_container(&id, Duration::from_secs(9)).await.expect("stop again");
}

#[tokio::test(start_paused = true)]
async fn stopping_a_sandbox_ends_its_containers() {
    let (_world, runtime, _) = runtime(Faults::none());
    let (pod, id) = started(&runtime, Program::Deaf).await;
    runtime.stop_pod_sandbox(&pod).await.expect("stop");
    assert_eq!(state(&runtime, &id).await, v1::ContainerState::ContainerExited);
    let status = runtime.pod_sandbox_status(&pod).await.expect("status");
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    let late = runtime.create_container(&pod, container(Program::Deaf, 1), sandbox(0)).await;
    assert!(late.is_err(), "no container in a dead sandbox");
    runtime.remove_pod_sandbox(&pod).await.expect("remove");
    let gone = runtime.container_status(&id).await.expect_err("removed");
    assert!(gone.is_not_found());
}

#[tokio::test(start_paused = true)]
async fn an_effect_outlives_a_caller_that_gives_up() {
    // Seven of ten effects outlive their caller: enough seeds show both.
    let mut survived = 0;
    for seed in 0..20 {
        let mut faults = Faults::none();
        faults.latency_max = Duration::from_millis(100);
        let world = World::new(seed, faults, false);
        let runtime = SimRuntime::new(Arc::clone(&world), Life::new(1));
        let call = runtime.run_pod_sandbox(sandbox(0), "");
        assert!(tokio::time::timeout(Duration::from_micros(1), call).await.is_err());
        tokio::time::sleep(Duration::from_secs(2)).await;
        survived += runtime.list_pod_sandbox(None).await.expect("list").len();
    }
    assert!((8..20).contains(&survived), "{survived}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_agent_has_no_effect_and_gets_no_answer() {
    let (world, runtime, life) = runtime(Faults::none());
    life.end();
    let call = runtime.run_pod_sandbox(sandbox(0), "");
    let answer = tokio::time::timeout(Duration::from_secs(3_600), call).await;
    assert!(answer.is_err());
    let heir = SimRuntime::new(world, Life::new(2));
    assert!(heir.list_pod_sandbox(None).await.expect("list").is_empty());
}

#[tokio::test(start_paused = true)]
async fn filters_select() {
    let (_world, runtime, _) = runtime(Faults::none());
    let (pod, id) = started(&runtime, Program::Deaf).await;
    let by_state = |state: v1::ContainerState| v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: state.into() }),
        pod_sandbox_id: pod.clone(),
        ..Default::default()
    };
    let running = runtime
        .list_containers(Some(by_state(v1::ContainerState::ContainerRunning)))
        .await
        .expect("list");
    assert_eq!(running.len(), 1);
    assert_eq!(running[0].id, id);
    let exited = runtime
        .list_containers(Some(by_state(v1::ContainerState::ContainerExited)))
        .await
        .expect("list");
    assert!(exited.is_empty());
    let other = v1::PodSandboxFilter {
        label_selector: [("io.kubernetes.pod.uid".to_owned(), "u2".to_owned())].into(),
        ..Default::default()
    };
    assert!(runtime.list_pod_sandbox(Some(other)).await.expect("list").is_empty());
}

#[tokio::test(start_paused = true)]
async fn events_follow_a_container() {
    let (_world, runtime, _) = runtime(Faults::none());
    let events = runtime.events().await.expect("stream");
    let (pod, id) = started(&runtime, Program::Deaf).await;
    runtime.remove_pod_sandbox(&pod).await.expect("remove");
    let kinds: Vec<cri::RuntimeEventKind> = events
        .take(8)
        .filter_map(|event| {
            let event = event.expect("event");
            std::future::ready((event.container_id == id).then_some(event.kind))
        })
        .collect()
        .await;
    use cri::RuntimeEventKind::{Created, Deleted, Started, Stopped};
    assert_eq!(kinds, [Created, Started, Stopped, Deleted]);
}
