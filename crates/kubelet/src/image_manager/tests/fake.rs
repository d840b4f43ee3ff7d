//! A runtime that has images and nothing else.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use cri::{CallError, CallErrorKind, Download, EventStream, Runtime, v1};
use tokio::time::sleep;

/// What a test says and sees.
#[derive(Default)]
pub struct State {
    /// Images that are there.
    pub images: BTreeSet<String>,
    /// How the next pulls fail, and with which code.
    pub pull_errors: VecDeque<CallErrorKind>,
    /// Fails every look at an image.
    pub inspect_error: Option<CallErrorKind>,
    /// `image user` of every pull begun.
    pub pulls: Vec<String>,
    /// What is being downloaded.
    pub downloads: Vec<Download>,
    /// Pulls under way, and the most there were.
    pub now: usize,
    /// The most pulls there ever were at once.
    pub most: usize,
}

/// The runtime. A pull takes five seconds.
#[derive(Default)]
pub struct FakeRuntime(Mutex<State>);

impl FakeRuntime {
    /// The state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn failed(kind: CallErrorKind) -> CallError {
    CallError { call: "a call", object: String::new(), kind }
}

fn unused<T>() -> Result<T, CallError> {
    Err(failed(CallErrorKind::Nonsense("the image manager has no business with it".to_owned())))
}

type Answer<T> = Result<T, CallError>;

#[async_trait]
impl Runtime for FakeRuntime {
    async fn list_images(&self) -> Answer<Vec<v1::Image>> {
        let images = self.lock().images.clone();
        let image = |name: String| v1::Image {
            id: format!("id-{name}"),
            repo_tags: vec![name],
            ..Default::default()
        };
        Ok(images.into_iter().map(image).collect())
    }
    async fn image_status(&self, spec: v1::ImageSpec) -> Answer<Option<v1::Image>> {
        let state = self.lock();
        if let Some(kind) = state.inspect_error.clone() {
            return Err(failed(kind));
        }
        let id = format!("id-{}", spec.image);
        let present = state.images.contains(&spec.image);
        Ok(present.then(|| v1::Image { id, size: 123, ..Default::default() }))
    }
    async fn pull_image(
        &self,
        spec: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        _: Option<v1::PodSandboxConfig>,
    ) -> Answer<String> {
        let error = {
            let mut state = self.lock();
            let user = auth.map_or("-".to_owned(), |auth| auth.username);
            state.pulls.push(format!("{} {user}", spec.image));
            state.now += 1;
            state.most = state.most.max(state.now);
            state.pull_errors.pop_front()
        };
        sleep(Duration::from_secs(5)).await;
        let mut state = self.lock();
        state.now -= 1;
        match error {
            Some(kind) => Err(failed(kind)),
            None => {
                state.images.insert(spec.image.clone());
                Ok(format!("id-{}", spec.image))
            }
        }
    }
    async fn downloads(&self) -> Answer<Vec<Download>> {
        Ok(self.lock().downloads.clone())
    }

    async fn version(&self) -> Answer<v1::VersionResponse> {
        unused()
    }
    async fn status(&self) -> Answer<v1::StatusResponse> {
        unused()
    }
    async fn runtime_config(&self) -> Answer<v1::RuntimeConfigResponse> {
        unused()
    }
    async fn run_pod_sandbox(&self, _: v1::PodSandboxConfig, _: &str) -> Answer<String> {
        unused()
    }
    async fn stop_pod_sandbox(&self, _: &str) -> Answer<()> {
        unused()
    }
    async fn remove_pod_sandbox(&self, _: &str) -> Answer<()> {
        unused()
    }
    async fn pod_sandbox_status(&self, _: &str) -> Answer<v1::PodSandboxStatus> {
        unused()
    }
    async fn list_pod_sandbox(
        &self,
        _: Option<v1::PodSandboxFilter>,
    ) -> Answer<Vec<v1::PodSandbox>> {
        unused()
    }
    async fn create_container(
        &self,
        _: &str,
        _: v1::ContainerConfig,
        _: v1::PodSandboxConfig,
    ) -> Answer<String> {
        unused()
    }
    async fn start_container(&self, _: &str) -> Answer<()> {
        unused()
    }
    async fn stop_container(&self, _: &str, _: Duration) -> Answer<()> {
        unused()
    }
    async fn remove_container(&self, _: &str) -> Answer<()> {
        unused()
    }
    async fn list_containers(&self, _: Option<v1::ContainerFilter>) -> Answer<Vec<v1::Container>> {
        unused()
    }
    async fn container_status(&self, _: &str) -> Answer<v1::ContainerStatus> {
        unused()
    }
    async fn exec_sync(
        &self,
        _: &str,
        _: Vec<String>,
        _: Option<Duration>,
    ) -> Answer<v1::ExecSyncResponse> {
        unused()
    }
    async fn exec(&self, _: v1::ExecRequest) -> Answer<String> {
        unused()
    }
    async fn reopen_container_log(&self, _: &str) -> Answer<()> {
        unused()
    }
    async fn list_container_stats(&self) -> Answer<Vec<v1::ContainerStats>> {
        unused()
    }
    async fn events(&self) -> Answer<EventStream> {
        unused()
    }
}
