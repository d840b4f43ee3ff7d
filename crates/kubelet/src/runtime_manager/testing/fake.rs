//! A runtime that does what a test says and remembers what it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use cri::{CallError, CallErrorKind, Download, EventStream, Runtime, v1};

use super::fake_images::{self, FakeImages};

/// What a test says and sees.
#[derive(Default)]
pub(crate) struct State {
    /// Every call, with what it was about.
    pub(crate) calls: Vec<String>,
    /// Calls that fail, and why.
    pub(crate) fails: BTreeMap<&'static str, String>,
    /// Calls that are never answered.
    pub(crate) hangs: BTreeSet<&'static str>,
    /// What commands end with.
    pub(crate) exit_code: i32,
    /// Annotations of every container.
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The runtime: one sandbox, `s1`, and one container, `c1`. It has any image at once,
/// unless a test wants to know more of them.
#[derive(Default)]
pub(crate) struct FakeRuntime {
    state: Mutex<State>,
    images: Option<Mutex<FakeImages>>,
}

impl FakeRuntime {
    /// One that has no images yet.
    pub(crate) fn with_images() -> Self {
        Self { images: Some(Mutex::default()), ..Self::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The images of one that was made with them.
    pub(crate) fn images(&self) -> MutexGuard<'_, FakeImages> {
        self.images.as_ref().expect("made with images").lock().unwrap()
    }

    async fn answer(&self, call: &'static str, object: impl std::fmt::Display) -> Answer<()> {
        let (hangs, fails) = {
            let mut state = self.lock();
            state.calls.push(format!("{call} {object}").trim_end().to_owned());
            (state.hangs.contains(call), state.fails.get(call).cloned())
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        match fails {
            Some(why) => Err(CallError {
                call,
                object: object.to_string(),
                kind: CallErrorKind::Unreachable(why),
            }),
            None => Ok(()),
        }
    }
}

type Answer<T> = Result<T, CallError>;

#[async_trait]
impl Runtime for FakeRuntime {
    async fn version(&self) -> Answer<v1::VersionResponse> {
        self.answer("Version", "").await.map(|()| Default::default())
    }
    async fn status(&self) -> Answer<v1::StatusResponse> {
        self.answer("Status", "").await.map(|()| Default::default())
    }
    async fn runtime_config(&self) -> Answer<v1::RuntimeConfigResponse> {
        self.answer("RuntimeConfig", "").await.map(|()| Default::default())
    }
    async fn run_pod_sandbox(&self, _: v1::PodSandboxConfig, _: &str) -> Answer<String> {
        self.answer("RunPodSandbox", "").await.map(|()| "s1".to_owned())
    }
    async fn stop_pod_sandbox(&self, id: &str) -> Answer<()> {
        self.answer("StopPodSandbox", id).await
    }
    async fn remove_pod_sandbox(&self, id: &str) -> Answer<()> {
        self.answer("RemovePodSandbox", id).await
    }
    async fn pod_sandbox_status(&self, id: &str) -> Answer<v1::PodSandboxStatus> {
        self.answer("PodSandboxStatus", id).await?;
        let network =
            v1::PodSandboxNetworkStatus { ip: "10.0.0.5".to_owned(), ..Default::default() };
        let id = id.to_owned();
        Ok(v1::PodSandboxStatus { id, network: Some(network), ..Default::default() })
    }
    async fn list_pod_sandbox(
        &self,
        _: Option<v1::PodSandboxFilter>,
    ) -> Answer<Vec<v1::PodSandbox>> {
        self.answer("ListPodSandbox", "").await.map(|()| Vec::new())
    }
    async fn create_container(
        &self,
        _: &str,
        _: v1::ContainerConfig,
        _: v1::PodSandboxConfig,
    ) -> Answer<String> {
        self.answer("CreateContainer", "").await.map(|()| "c1".to_owned())
    }
    async fn start_container(&self, id: &str) -> Answer<()> {
        self.answer("StartContainer", id).await
    }
    async fn stop_container(&self, id: &str, grace: Duration) -> Answer<()> {
        self.answer("StopContainer", format!("{id} {}s", grace.as_secs())).await
    }
    async fn remove_container(&self, id: &str) -> Answer<()> {
        self.answer("RemoveContainer", id).await
    }
    async fn list_containers(&self, _: Option<v1::ContainerFilter>) -> Answer<Vec<v1::Container>> {
        self.answer("ListContainers", "").await.map(|()| Vec::new())
    }
    async fn container_status(&self, id: &str) -> Answer<v1::ContainerStatus> {
        self.answer("ContainerStatus", id).await?;
        let annotations = self.lock().annotations.clone();
        Ok(v1::ContainerStatus { annotations, ..Default::default() })
    }
    async fn exec_sync(
        &self,
        _: &str,
        command: Vec<String>,
        _: Option<Duration>,
    ) -> Answer<v1::ExecSyncResponse> {
        self.answer("ExecSync", command.join(" ")).await?;
        let exit_code = self.lock().exit_code;
        Ok(v1::ExecSyncResponse { exit_code, ..Default::default() })
    }
    async fn exec(&self, _: v1::ExecRequest) -> Answer<String> {
        self.answer("Exec", "").await.map(|()| String::new())
    }
    async fn reopen_container_log(&self, id: &str) -> Answer<()> {
        self.answer("ReopenContainerLog", id).await
    }
    async fn list_container_stats(&self) -> Answer<Vec<v1::ContainerStats>> {
        self.answer("ListContainerStats", "").await.map(|()| Vec::new())
    }
    async fn list_images(&self) -> Answer<Vec<v1::Image>> {
        self.answer("ListImages", "").await?;
        Ok(self.images.as_ref().map(|images| images.lock().unwrap().list()).unwrap_or_default())
    }
    async fn image_status(&self, image: v1::ImageSpec) -> Answer<Option<v1::Image>> {
        self.answer("ImageStatus", &image.image).await?;
        if self.images.is_some() {
            return self.images().status(&image.image);
        }
        Ok(Some(v1::Image { id: "i1".to_owned(), ..Default::default() }))
    }
    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        _: Option<v1::PodSandboxConfig>,
    ) -> Answer<String> {
        self.answer("PullImage", &image.image).await?;
        match &self.images {
            Some(images) => fake_images::pull(images, image.image, auth).await,
            None => Ok("i1".to_owned()),
        }
    }
    async fn downloads(&self) -> Answer<Vec<Download>> {
        match &self.images {
            Some(images) => Ok(images.lock().unwrap().downloads.clone()),
            None => Err(CallError::unimplemented("downloads", "")),
        }
    }
    async fn events(&self) -> Answer<EventStream> {
        Err(CallError::unimplemented("GetContainerEvents", ""))
    }
}
