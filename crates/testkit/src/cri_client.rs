//! CRI, for tests: blocking calls on a connection of its own.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cri::v1::runtime_service_client::RuntimeServiceClient;
use cri::{CallError, Runtime, v1};
use serde_json::Value;
use tonic::transport::Endpoint;

/// How long one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// A blocking CRI client. Not for use inside an async task.
pub struct Cri {
    runtime: tokio::runtime::Runtime,
    socket: PathBuf,
    client: Arc<dyn Runtime>,
}

impl Cri {
    /// Connects, lazily, to the runtime's socket.
    pub fn connect(socket: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start an async runtime for CRI")?;
        let guard = runtime.enter();
        let client = cri::CriClient::new(cri::ClientConfig {
            runtime_endpoint: format!("unix://{}", socket.display()),
            image_endpoint: None,
            request_timeout: CALL_LIMIT,
        })
        .with_context(|| format!("cannot connect to {}", socket.display()))?;
        drop(guard);
        Ok(Self { runtime, socket: socket.to_owned(), client: Arc::new(client) })
    }

    /// The connection itself, for what is not offered here.
    pub fn block_on<T>(
        &self,
        call: impl AsyncFnOnce(Arc<dyn Runtime>) -> Result<T, CallError>,
    ) -> Result<T> {
        self.wait(call(Arc::clone(&self.client)))
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T, CallError>>) -> Result<T> {
        Ok(self.runtime.block_on(call)?)
    }

    /// Fails unless the runtime and its network are ready.
    pub fn require_ready(&self) -> Result<()> {
        let answer = self.wait(self.client.status())?;
        let conditions = answer.status.map(|status| status.conditions).unwrap_or_default();
        for wanted in ["RuntimeReady", "NetworkReady"] {
            let found = conditions.iter().find(|condition| condition.r#type == wanted);
            let found = found.with_context(|| format!("the runtime does not report {wanted}"))?;
            ensure!(found.status, "not {wanted}: {} {}", found.reason, found.message);
        }
        Ok(())
    }

    /// All sandboxes, ready or not.
    pub fn sandboxes(&self) -> Result<Vec<v1::PodSandbox>> {
        self.wait(self.client.list_pod_sandbox(None))
    }

    /// All containers, in any state.
    pub fn containers(&self) -> Result<Vec<v1::Container>> {
        self.wait(self.client.list_containers(None))
    }

    /// Details of one container.
    pub fn container_status(&self, id: &str) -> Result<v1::ContainerStatus> {
        self.wait(self.client.container_status(id))
    }

    /// What the runtime was sent to make a container of, as it tells itself.
    pub fn sent_config(&self, id: &str) -> Result<Value> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let answer = self.runtime.block_on(async {
            let mut client = RuntimeServiceClient::new(self.endpoint()?.connect().await?);
            anyhow::Ok(client.container_status(request).await?.into_inner())
        })?;
        let info = answer.info.get("info").context("the runtime tells no more of a container")?;
        let mut info: Value = serde_json::from_str(info).context("not JSON")?;
        Ok(info["config"].take())
    }

    /// Runs a shell script in a running container and returns what it printed.
    pub fn run_in(&self, id: &str, script: &str) -> Result<String> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let answer = self.wait(self.client.exec_sync(id, command, Some(CALL_LIMIT)))?;
        let error = String::from_utf8_lossy(&answer.stderr);
        ensure!(answer.exit_code == 0, "{script:?} ended with {}: {error}", answer.exit_code);
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
    }

    /// The process that holds a sandbox's namespaces.
    pub fn sandbox_pid(&self, id: &str) -> Result<i32> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let answer = self.runtime.block_on(async {
            let mut client = RuntimeServiceClient::new(self.endpoint()?.connect().await?);
            anyhow::Ok(client.pod_sandbox_status(request).await?.into_inner())
        })?;
        let info = answer.info.get("info").context("the runtime tells no more of a sandbox")?;
        let info: Value = serde_json::from_str(info).context("not JSON")?;
        let pid = info["pid"].as_i64().filter(|pid| *pid > 1);
        let pid = pid.with_context(|| format!("no process of sandbox {id}"))?;
        Ok(i32::try_from(pid)?)
    }

    fn endpoint(&self) -> Result<Endpoint> {
        Ok(Endpoint::from_shared(format!("unix://{}", self.socket.display()))?)
    }

    /// Details of one sandbox.
    pub fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus> {
        self.wait(self.client.pod_sandbox_status(id))
    }
}

impl std::fmt::Debug for Cri {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cri")
    }
}
