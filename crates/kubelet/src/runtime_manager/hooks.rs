//! Lifecycle hooks: what a container does after its start and before its stop.
//!
//! A hook is a command in the container, a request to it, or a pause. Upstream:
//! pkg/kubelet/lifecycle/handlers.go.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerPort, HTTPGetAction, LifecycleHandler};
use kubelet_model::containers::port_number;
use kubelet_model::{
    ContainerId, ContainerName, EventObject, EventType, Grace, StopReason, WaitReason, Waiting,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::time::sleep;

use super::executor::{ActionError, Executor};
use crate::ports::{HttpRequest, Scheme};

/// Longest output of a hook that is told.
const OUTPUT_BYTES_MAX: usize = 1024;

/// Longest a request may take; upstream's client has no limit of its own, but
/// a hook that waits for ever would hold its container for ever.
const REQUEST_LIMIT: Duration = Duration::from_secs(600);

/// Who asks.
const HOOK_USER_AGENT: &str = "kube-lifecycle/1.36";

/// What a TLS client says of a server that speaks plain HTTP.
const PLAIN_ANSWER: &str = "server gave HTTP response to HTTPS client";

/// What is counted of hooks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct HookMetrics {
    /// Requests meant to be encrypted that a server took only in the clear.
    pub(super) http_fallbacks: Counter,
    /// Pauses that were given up before their time was over.
    pub(super) pauses_cut_short: Counter,
}

/// A pause under way; dropped before its end, it was cut short.
struct Pause<'c> {
    cut_short: Option<&'c Counter>,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.cut_short {
            counter.inc();
        }
    }
}

impl HookMetrics {
    /// Makes them part of `/metrics`.
    pub fn register(&self, to: &mut Registry) {
        to.register(
            "kubelet_lifecycle_handler_http_fallbacks",
            "HTTPS hooks that succeeded over HTTP",
            self.http_fallbacks.clone(),
        );
        to.register(
            "kubelet_sleep_action_terminated_early",
            "Sleep hooks that were given up before their time was over",
            self.pauses_cut_short.clone(),
        );
    }
}

/// As a URL has them.
fn host_and_port(request: &HttpRequest) -> String {
    let HttpRequest { host, port, .. } = request;
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Executor {
    /// Runs the postStart hook of a container that has just started. A container
    /// whose hook fails is stopped.
    pub(super) async fn run_post_start(
        &self,
        id: &ContainerId,
        container: &Container,
    ) -> Result<(), ActionError> {
        let hook = container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref());
        let Some(hook) = hook else { return Ok(()) };
        let name = ContainerName::new(&container.name);
        let ports = container.ports.as_deref().unwrap_or_default();
        let call = self.calls.begin(format!("postStart hook of {name}"));
        let outcome = self.run_hook(id, &name, hook, ports).await;
        drop(call);
        let Err(message) = outcome else { return Ok(()) };
        tracing::warn!(
            pod = %self.identity.uid, container = %name, error = message, "postStart hook failed"
        );
        self.tell(&name, EventType::Warning, "FailedPostStartHook", "PostStartHook failed");
        let grace = Grace::from_secs(Grace::seconds_of(self.spec("StartContainer")?.spec()));
        let why = StopReason::PostStartFailed;
        if let Err(error) = self.stop_container(id, &name, grace, why, &[]).await {
            tracing::warn!(
                pod = %self.identity.uid, container = %name, %error,
                "container not stopped after its failed hook"
            );
        }
        let waiting = Waiting { reason: WaitReason::PostStartHookError, message };
        Err(ActionError::NotStarted { name, waiting, retry_after: None })
    }

    /// Runs a hook to its end.
    pub(super) async fn run_hook(
        &self,
        id: &ContainerId,
        name: &ContainerName,
        hook: &LifecycleHandler,
        ports: &[ContainerPort],
    ) -> Result<(), String> {
        if let Some(exec) = &hook.exec {
            let command = exec.command.clone().unwrap_or_default();
            return self.run_command(id, command).await;
        }
        if let Some(get) = &hook.http_get {
            return self.send_request(name, get, ports).await;
        }
        if let Some(pause) = &hook.sleep {
            let mut under_way = Pause { cut_short: Some(&self.hooks.pauses_cut_short) };
            sleep(Duration::from_secs(u64::try_from(pause.seconds).unwrap_or(0))).await;
            under_way.cut_short = None;
            return Ok(());
        }
        Err(format!("the hook of container {name} has no handler that can be run"))
    }

    async fn run_command(&self, id: &ContainerId, command: Vec<String>) -> Result<(), String> {
        let shown = command.join(" ");
        let answer = self.ports.runtime.exec_sync(id.as_str(), command, None).await;
        let answer = answer.map_err(|error| error.reason_text())?;
        if answer.exit_code == 0 {
            return Ok(());
        }
        let output = [answer.stdout, answer.stderr].concat();
        let output = &output[..output.len().min(OUTPUT_BYTES_MAX)];
        Err(format!(
            "command '{shown}' exited with {}: {}",
            answer.exit_code,
            String::from_utf8_lossy(output).trim_end()
        ))
    }

    /// Whatever the status of the answer: that there is one is enough.
    async fn send_request(
        &self,
        name: &ContainerName,
        get: &HTTPGetAction,
        ports: &[ContainerPort],
    ) -> Result<(), String> {
        let mut request = self.request(name, get, ports).await?;
        let Err(error) = self.ports.probe_net.http(&request).await else { return Ok(()) };
        if request.scheme != Scheme::Https || !error.contains(PLAIN_ANSWER) {
            return Err(error);
        }
        // Never a secret in the clear.
        request.headers.retain(|(key, _)| !key.eq_ignore_ascii_case("authorization"));
        request.scheme = Scheme::Http;
        if self.ports.probe_net.http(&request).await.is_err() {
            return Err(error);
        }
        self.hooks.http_fallbacks.inc();
        if let Some(pod) = &self.pod {
            let text = format!(
                "request to HTTPS lifecycle hook {} got HTTP response, retry with HTTP succeeded",
                host_and_port(&request)
            );
            let object = EventObject::pod(pod);
            self.recorder.record(&object, EventType::Warning, "LifecycleHTTPFallback", text);
        }
        Ok(())
    }

    async fn request(
        &self,
        name: &ContainerName,
        get: &HTTPGetAction,
        ports: &[ContainerPort],
    ) -> Result<HttpRequest, String> {
        let host = match get.host.as_ref().filter(|host| !host.is_empty()) {
            Some(host) => host.clone(),
            None => {
                let ips = self.pod_ips().await.map_err(|error| error.to_string())?;
                let first = ips.into_iter().next();
                first.ok_or_else(|| format!("the pod of container {name} has no address yet"))?
            }
        };
        let headers = get.http_headers.iter().flatten();
        Ok(HttpRequest {
            scheme: match get.scheme.as_deref() {
                Some("HTTPS") => Scheme::Https,
                _ => Scheme::Http,
            },
            host,
            port: port_number(&get.port, ports).map_err(|e| format!("container {name}: {e}"))?,
            path: get.path.clone().unwrap_or_default(),
            headers: headers.map(|h| (h.name.clone(), h.value.clone())).collect(),
            user_agent: HOOK_USER_AGENT.to_owned(),
            timeout: REQUEST_LIMIT,
        })
    }
}
