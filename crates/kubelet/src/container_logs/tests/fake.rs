//! A runtime with one container whose output goes to a real file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use cri::{CallError, CallErrorKind, EventStream, Runtime, v1};

use crate::pleg::labels;

#[derive(Clone)]
pub(super) struct FakeRuntime(Arc<Mutex<State>>);

pub(super) struct State {
    pub path: PathBuf,
    /// What the runtime writes to, wherever it has been moved.
    file: File,
    pub running: bool,
    pub reopened: usize,
    pub reopen_fails: bool,
    lines: usize,
}

impl FakeRuntime {
    pub(super) fn new(path: PathBuf) -> Self {
        let file = append_to(&path);
        let running = true;
        let state = State { path, file, running, reopened: 0, reopen_fails: false, lines: 0 };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Writes about so many bytes, as lines with numbers.
    pub(super) fn log(&self, bytes: usize) {
        let mut state = self.state();
        let mut text = String::new();
        while text.len() < bytes {
            let n = state.lines;
            state.lines += 1;
            text += &format!("2026-01-01T00:00:00Z stdout F line {n} {:x<40}\n", "");
        }
        state.file.write_all(text.as_bytes()).unwrap();
    }

    pub(super) fn lines(&self) -> usize {
        self.state().lines
    }

    fn labels() -> BTreeMap<String, String> {
        let pairs = [
            (labels::POD_UID, "u1"),
            (labels::POD_NAME, "web"),
            (labels::POD_NAMESPACE, "ns"),
            (labels::CONTAINER_NAME, "app"),
        ];
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }
}

fn append_to(path: &PathBuf) -> File {
    OpenOptions::new().append(true).create(true).open(path).unwrap()
}

fn refused<T>(call: &'static str) -> Result<T, CallError> {
    let kind = CallErrorKind::Unreachable("as the test wants".to_owned());
    Err(CallError { call, object: String::new(), kind })
}

fn state_of(running: bool) -> i32 {
    let state = if running {
        v1::ContainerState::ContainerRunning
    } else {
        v1::ContainerState::ContainerExited
    };
    state.into()
}

#[async_trait]
impl Runtime for FakeRuntime {
    async fn list_containers(
        &self,
        _: Option<v1::ContainerFilter>,
    ) -> Result<Vec<v1::Container>, CallError> {
        Ok(vec![v1::Container {
            id: "c1".to_owned(),
            metadata: Some(v1::ContainerMetadata { name: "app".to_owned(), attempt: 0 }),
            state: state_of(self.state().running),
            labels: Self::labels(),
            ..Default::default()
        }])
    }
    async fn list_pod_sandbox(
        &self,
        _: Option<v1::PodSandboxFilter>,
    ) -> Result<Vec<v1::PodSandbox>, CallError> {
        Ok(Vec::new())
    }
    async fn container_status(&self, _: &str) -> Result<v1::ContainerStatus, CallError> {
        let state = self.state();
        Ok(v1::ContainerStatus {
            state: state_of(state.running),
            log_path: state.path.display().to_string(),
            ..Default::default()
        })
    }
    async fn reopen_container_log(&self, _: &str) -> Result<(), CallError> {
        let mut state = self.state();
        state.reopened += 1;
        if state.reopen_fails || !state.running {
            return refused("ReopenContainerLog");
        }
        state.file = append_to(&state.path);
        Ok(())
    }

    async fn version(&self) -> Result<v1::VersionResponse, CallError> {
        refused("Version")
    }
    async fn status(&self) -> Result<v1::StatusResponse, CallError> {
        refused("Status")
    }
    async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, CallError> {
        refused("RuntimeConfig")
    }
    async fn run_pod_sandbox(&self, _: v1::PodSandboxConfig, _: &str) -> Result<String, CallError> {
        refused("RunPodSandbox")
    }
    async fn stop_pod_sandbox(&self, _: &str) -> Result<(), CallError> {
        refused("StopPodSandbox")
    }
    async fn remove_pod_sandbox(&self, _: &str) -> Result<(), CallError> {
        refused("RemovePodSandbox")
    }
    async fn pod_sandbox_status(&self, _: &str) -> Result<v1::PodSandboxStatus, CallError> {
        refused("PodSandboxStatus")
    }
    async fn create_container(
        &self,
        _: &str,
        _: v1::ContainerConfig,
        _: v1::PodSandboxConfig,
    ) -> Result<String, CallError> {
        refused("CreateContainer")
    }
    async fn start_container(&self, _: &str) -> Result<(), CallError> {
        refused("StartContainer")
    }
    async fn stop_container(&self, _: &str, _: Duration) -> Result<(), CallError> {
        refused("StopContainer")
    }
    async fn remove_container(&self, _: &str) -> Result<(), CallError> {
        refused("RemoveContainer")
    }
    async fn exec_sync(
        &self,
        _: &str,
        _: Vec<String>,
        _: Option<Duration>,
    ) -> Result<v1::ExecSyncResponse, CallError> {
        refused("ExecSync")
    }
    async fn exec(&self, _: v1::ExecRequest) -> Result<String, CallError> {
        refused("Exec")
    }
    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>, CallError> {
        refused("ListContainerStats")
    }
    async fn list_images(&self) -> Result<Vec<v1::Image>, CallError> {
        refused("ListImages")
    }
    async fn image_status(&self, _: v1::ImageSpec) -> Result<Option<v1::Image>, CallError> {
        refused("ImageStatus")
    }
    async fn pull_image(
        &self,
        _: v1::ImageSpec,
        _: Option<v1::AuthConfig>,
        _: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CallError> {
        refused("PullImage")
    }
    async fn events(&self) -> Result<EventStream, CallError> {
        refused("GetContainerEvents")
    }
}
