//! Raw CRI: the calls a kubelet cannot do without, back to back, and nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use cri::{CallError, CriClient, Runtime, v1};
use testkit::{Containerd, image};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::load;

/// Pods worked on at a time.
pub const PARALLEL: usize = 16;

/// What was made for one pod.
#[derive(Debug, Clone)]
pub struct Made {
    sandbox: String,
    container: String,
}

/// Makes the pods.
pub async fn bring_up(containerd: &Containerd, pods: u32, volumes: bool) -> Result<Vec<Made>> {
    let client = client(containerd)?;
    let logs = containerd.dir().join("pod-logs");
    let mounts = match volumes {
        true => load::mounts(&containerd.dir().join("volumes"))?,
        false => Vec::new(),
    };
    in_parallel(0..pods, move |pod| {
        let (client, logs, mounts) = (client.clone(), logs.clone(), mounts.clone());
        async move { make(&client, &logs, mounts, pod).await }
    })
    .await
}

/// Takes them down.
pub async fn take_down(containerd: &Containerd, made: Vec<Made>) -> Result<()> {
    let client = client(containerd)?;
    let remove = move |pod: Made| {
        let client = client.clone();
        async move { remove(&client, &pod).await }
    };
    in_parallel(made, remove).await.map(drop)
}

fn client(containerd: &Containerd) -> Result<CriClient> {
    let config = cri::ClientConfig {
        runtime_endpoint: containerd.endpoint(),
        image_endpoint: None,
        request_timeout: Duration::from_secs(120),
    };
    CriClient::new(config).context("cannot connect to the runtime")
}

async fn in_parallel<In, Out, Work, Done>(
    items: impl IntoIterator<Item = In>,
    work: Work,
) -> Result<Vec<Out>>
where
    Work: Fn(In) -> Done,
    Done: Future<Output = Result<Out, CallError>> + Send + 'static,
    Out: Send + 'static,
{
    let turns = Arc::new(Semaphore::new(PARALLEL));
    let mut tasks = JoinSet::new();
    for item in items {
        let (turns, work) = (Arc::clone(&turns), work(item));
        tasks.spawn(async move {
            let _turn = turns.acquire_owned().await;
            work.await
        });
    }
    let mut done = Vec::new();
    while let Some(result) = tasks.join_next().await {
        done.push(result.context("a task of the baseline panicked")??);
    }
    Ok(done)
}

async fn make(
    client: &CriClient,
    logs: &Path,
    mounts: Vec<v1::Mount>,
    pod: u32,
) -> Result<Made, CallError> {
    let spec = v1::ImageSpec { image: image::PAUSE.to_owned(), ..Default::default() };
    let sandbox_config = sandbox_config(logs, pod);
    let sandbox = client.run_pod_sandbox(sandbox_config.clone(), "").await?;
    client.image_status(spec.clone()).await?;
    let config = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(spec),
        log_path: "main/0.log".to_owned(),
        mounts,
        linux: Some(v1::LinuxContainerConfig {
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(namespaces()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let container = client.create_container(&sandbox, config, sandbox_config).await?;
    client.start_container(&container).await?;
    Ok(Made { sandbox, container })
}

async fn remove(client: &CriClient, pod: &Made) -> Result<(), CallError> {
    client.stop_container(&pod.container, Duration::from_secs(2)).await?;
    client.remove_container(&pod.container).await?;
    client.stop_pod_sandbox(&pod.sandbox).await?;
    client.remove_pod_sandbox(&pod.sandbox).await
}

fn sandbox_config(logs: &Path, pod: u32) -> v1::PodSandboxConfig {
    let name = format!("bench-{pod}");
    let logs = logs.join(&name);
    // The runtime makes the log file, but not the container's directory.
    let _ = std::fs::create_dir_all(logs.join("main"));
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.clone(),
            namespace: "default".to_owned(),
            uid: format!("uid-{pod}"),
            attempt: 0,
        }),
        hostname: name,
        log_directory: logs.display().to_string(),
        linux: Some(v1::LinuxPodSandboxConfig {
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces()),
                seccomp: Some(v1::SecurityProfile {
                    profile_type: v1::security_profile::ProfileType::RuntimeDefault as i32,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn namespaces() -> v1::NamespaceOption {
    v1::NamespaceOption {
        network: v1::NamespaceMode::Pod as i32,
        pid: v1::NamespaceMode::Container as i32,
        ipc: v1::NamespaceMode::Pod as i32,
        ..Default::default()
    }
}
