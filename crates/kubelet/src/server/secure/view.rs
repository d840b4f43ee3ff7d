//! Answers what the node's API is asked, from what the agent knows.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cri::{CallError, v1};
use jiff::Timestamp;
use node_server::{
    Answer, Chunks, ContainerRef, Handlers, LogOptions, Metrics, NodeView, Page, PodFacts, Stdio,
    StreamAsk, ViewError,
};

use super::debug::{self, SetVerbosity};
use super::health::{self, Checks};
use super::pods::container_names;
use super::stats::NodeStats;
use super::zpages;
use crate::server::classic::{TEXT, classic};
use crate::server::containers::{running_id, status_of};
use crate::server::local::Local;
use crate::server::local::runtime::{is_local, place_of};
use crate::server::view::{metrics_text, pod_list};
use crate::status_manager::PodView;

/// How long a command may run that `/run` starts.
const RUN_LIMIT: Duration = Duration::from_secs(600);
/// Where checkpoints are, below the agent's own files.
const CHECKPOINTS: &str = "checkpoints";

/// Looks at the agent.
pub(super) struct NodeViewer {
    pub(super) local: Local,
    pub(super) configz: String,
    pub(super) flags: BTreeMap<&'static str, String>,
    pub(super) command: Vec<String>,
    pub(super) handlers: Handlers,
    pub(super) started: Timestamp,
    pub(super) verbosity: Option<SetVerbosity>,
    pub(super) stats: NodeStats,
    pub(super) checks: Checks,
}

#[async_trait]
impl NodeView for NodeViewer {
    fn health_checks(&self) -> Vec<&'static str> {
        health::NAMES.to_vec()
    }

    async fn health(&self, check: &str) -> Result<(), String> {
        self.checks.run(check)
    }

    async fn page(&self, page: Page, accept: &str) -> Result<Answer, ViewError> {
        let view = &self.local.view;
        let json = |value: serde_json::Result<Vec<u8>>| {
            let failed = |error: serde_json::Error| ViewError::new(500, error.to_string());
            value.map(Answer::json).map_err(failed)
        };
        match page {
            Page::Pods => json(serde_json::to_vec(&pod_list(view))),
            Page::RunningPods => json(serde_json::to_vec(&self.running_pods())),
            Page::Configz => Ok(Answer::json(self.configz.clone())),
            Page::Metrics(Metrics::Node) => Ok(Answer::text(TEXT, metrics_text(view).await)),
            Page::Metrics(Metrics::Probes) => {
                Ok(Answer::text(TEXT, classic(&view.probes.metrics())))
            }
            Page::Summary { only_cpu_and_memory } => self.stats.summary(only_cpu_and_memory).await,
            Page::Metrics(Metrics::Resource) => Ok(self.stats.resource().await),
            Page::Metrics(Metrics::Cadvisor) => Ok(self.stats.cadvisor().await),
            Page::Statusz => {
                let now = self.local.clock.wall();
                zpages::statusz(accept, self.started, now, &self.handlers)
            }
            Page::Flagz => zpages::flagz(accept, &self.flags),
        }
    }

    async fn pod(&self, namespace: &str, name: &str) -> Option<PodFacts> {
        let view = self.find(namespace, name)?;
        let uid = view.uid.as_str().to_owned();
        Some(PodFacts { uid, containers: container_names(&view.pod) })
    }

    async fn logs(&self, of: ContainerRef, options: LogOptions) -> Result<Chunks, ViewError> {
        self.open_log(&of, &options)
    }

    async fn stream_url(&self, ask: StreamAsk) -> Result<String, ViewError> {
        let url = match ask {
            StreamAsk::Exec { container, command, stdio } => {
                let Stdio { stdin, stdout, stderr, tty } = stdio;
                let (_, container_id) = self.running(&container)?;
                let request =
                    v1::ExecRequest { container_id, cmd: command, tty, stdin, stdout, stderr };
                self.local.runtime.exec(request).await
            }
            StreamAsk::Attach { container, stdio } => {
                let (view, container_id) = self.running(&container)?;
                let Stdio { stdin, stdout, stderr, .. } = stdio;
                let tty = has_terminal(&view, &container.container);
                // A terminal has one stream only.
                let stderr = stderr && !tty;
                let request = v1::AttachRequest { container_id, stdin, tty, stdout, stderr };
                self.local.runtime.attach(request).await
            }
            StreamAsk::PortForward { namespace, pod, uid, ports } => {
                let pod_sandbox_id = self.sandbox(&namespace, &pod, &uid)?;
                let port = ports.into_iter().map(i32::from).collect();
                let request = v1::PortForwardRequest { pod_sandbox_id, port };
                self.local.runtime.port_forward(request).await
            }
        };
        let url = url.map_err(|error| of_runtime(&error))?;
        let place = place_of(&url);
        match is_local(&url) {
            true => Ok(url),
            false => Err(ViewError::new(
                502,
                format!(
                    "the runtime streams at {place}, which is not this machine over plain HTTP; set \
                     its stream server to 127.0.0.1 (containerd: stream_server_address)"
                ),
            )),
        }
    }

    async fn run(&self, container: ContainerRef, command: Vec<String>) -> Result<Bytes, ViewError> {
        let (_, id) = self.running(&container)?;
        let done = self.local.runtime.exec_sync(&id, command, Some(RUN_LIMIT)).await;
        let done = done.map_err(|error| of_runtime(&error))?;
        let mut output = done.stdout;
        output.extend_from_slice(&done.stderr);
        match done.exit_code {
            0 => Ok(output.into()),
            code => {
                let output = String::from_utf8_lossy(&output).into_owned();
                Err(ViewError::new(500, format!("command exited with {code}: {output}")))
            }
        }
    }

    async fn checkpoint(
        &self,
        container: ContainerRef,
        timeout_seconds: Option<i64>,
    ) -> Result<String, ViewError> {
        let (_, container_id) = self.running(&container)?;
        let dir = self.local.place.root_dir.join(CHECKPOINTS);
        let made = self.local.fs.create_dir_all(&dir, 0o700);
        made.map_err(|error| ViewError::new(500, format!("{}: {error}", dir.display())))?;
        let ContainerRef { namespace, pod, container, .. } = container;
        let at = self.local.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ");
        let file = dir.join(format!("checkpoint-{pod}_{namespace}-{container}-{at}.tar"));
        let location = file.to_string_lossy().into_owned();
        let timeout = timeout_seconds.unwrap_or_default();
        let request =
            v1::CheckpointContainerRequest { container_id, location: location.clone(), timeout };
        let saved = self.local.runtime.checkpoint_container(request).await;
        saved.map(|()| location).map_err(|error| of_runtime(&error))
    }

    async fn set_verbosity(&self, level: &str) -> Result<String, ViewError> {
        debug::set_verbosity(self.verbosity.as_ref(), level)
    }

    async fn profile(&self, name: &str, _query: &str) -> Result<Answer, ViewError> {
        debug::profile(name, &self.command)
    }
}

impl NodeViewer {
    /// A pod, and the runtime's id of a container of it that runs.
    fn running(&self, of: &ContainerRef) -> Result<(PodView, String), ViewError> {
        let missing = || ViewError::new(500, format!("container not found ({:?})", of.container));
        let other = || ViewError::new(500, format!("pod {}_{} not found", of.pod, of.namespace));
        let view = self.find_meant(of).ok_or_else(other)?;
        let id = status_of(&view.status, &of.container).and_then(running_id).map(str::to_owned);
        let id = id.ok_or_else(missing)?;
        Ok((view, id))
    }

    /// The runtime's id of a pod's sandbox.
    fn sandbox(&self, namespace: &str, pod: &str, uid: &str) -> Result<String, ViewError> {
        let missing = || ViewError::new(500, format!("pod not found ({pod:?})"));
        let view = self.find(namespace, pod).filter(|view| view.uid.as_str() == uid);
        let view = view.ok_or_else(missing)?;
        let seen = self.local.view.observations.follow(&view.uid).current();
        let sandbox = seen.sandboxes.iter().find(|sandbox| sandbox.ready);
        sandbox.map(|sandbox| sandbox.id.as_str().to_owned()).ok_or_else(missing)
    }
}

fn has_terminal(view: &PodView, container: &str) -> bool {
    let Some(spec) = &view.pod.spec else { return false };
    let init = spec.init_containers.iter().flatten();
    let mut plain = spec.containers.iter().chain(init);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    plain.any(|c| c.name == container && c.tty == Some(true))
        || ephemeral.into_iter().any(|c| c.name == container && c.tty == Some(true))
}

fn of_runtime(error: &CallError) -> ViewError {
    // Unknown, for what the runtime did not say itself.
    let code = error.code().map_or(2, i32::from);
    ViewError::of_runtime(code, error.reason_text())
}
