//! Making a sandbox, and making a container in it.
//!
//! Upstream: startContainer and createPodSandbox in pkg/kubelet/kuberuntime.

use std::path::Path;

use cri::CallError;
use kubelet_model::{ContainerId, ContainerName, SandboxId, WaitReason, Waiting};

use super::executor::{ActionError, Executor};
use super::{container_spec, log_paths, sandbox_spec};

impl Executor {
    pub(super) async fn create_sandbox(&mut self, attempt: u32) -> Result<(), ActionError> {
        let pod = self.spec("CreateSandbox")?;
        let dir = log_paths::pod_dir(&self.settings.pod_logs_dir, &self.identity);
        self.make_dir(&dir)?;
        let config = sandbox_spec::sandbox_config(pod, attempt, &self.settings.pod_logs_dir);
        let id = self.ports.runtime.run_pod_sandbox(config, "").await?;
        self.sandbox = Some((SandboxId::new(id), attempt));
        Ok(())
    }

    pub(super) async fn start_container(
        &self,
        name: &ContainerName,
        restart_count: Option<u32>,
    ) -> Result<(), ActionError> {
        let impossible =
            |why| ActionError::Impossible { action: format!("StartContainer {name}"), why };
        let pod = self.spec("StartContainer")?;
        let (sandbox, attempt) =
            self.sandbox.as_ref().ok_or_else(|| impossible("there is no sandbox"))?;
        let mut containers = pod.spec().containers.iter();
        let container = containers
            .find(|c| c.name == name.as_str())
            .ok_or_else(|| impossible("the pod has no such container"))?;
        let not_started = |reason| {
            let name = name.clone();
            move |error: CallError| ActionError::NotStarted {
                name,
                waiting: Waiting { reason, message: error.reason_text() },
            }
        };
        let runtime = &*self.ports.runtime;
        let sandbox_config =
            sandbox_spec::sandbox_config(pod, *attempt, &self.settings.pod_logs_dir);
        let image =
            self.images.ensure(pod, container, &sandbox_config).await.map_err(|problem| {
                ActionError::NotStarted { name: name.clone(), waiting: problem.waiting }
            })?;

        let log_dir =
            log_paths::pod_dir(&self.settings.pod_logs_dir, &self.identity).join(name.as_str());
        let restart_count = match restart_count {
            Some(count) => count,
            None => self.restart_count_from_logs(&log_dir),
        };
        self.make_dir(&log_dir)?;
        let config = container_spec::container_config(
            pod,
            container,
            restart_count,
            &image.id,
            &self.settings,
        );
        let id = runtime
            .create_container(sandbox.as_str(), config, sandbox_config)
            .await
            .map_err(not_started(WaitReason::CreateContainerError))?;
        runtime.start_container(&id).await.map_err(not_started(WaitReason::RunContainerError))?;
        self.run_post_start(&ContainerId::new(id), container).await
    }

    /// The count after the highest that left a log: an instance the runtime has forgotten.
    fn restart_count_from_logs(&self, log_dir: &Path) -> u32 {
        let Ok(entries) = self.ports.fs.list(log_dir) else { return 0 };
        let counts = entries.iter().filter_map(|e| log_paths::restart_count_of(e.name.to_str()?));
        counts.max().map_or(0, |highest| highest.saturating_add(1))
    }
}
