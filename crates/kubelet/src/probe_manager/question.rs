//! What a probe asks, and of whom, read from the manifest. Pure.
//!
//! Upstream: pkg/kubelet/prober/prober.go, pkg/probe/util.go.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar, HTTPGetAction, Probe};
use kubelet_model::containers::{port_number, valid_port};

use crate::ports::{HttpRequest, PROBE_USER_AGENT, Scheme};
use crate::runtime_manager::env::expand;

/// What to do to find out how a container is. An empty host is the pod's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    Exec { command: Vec<String> },
    Http(HttpRequest),
    Tcp { host: String, port: u16 },
    Grpc { port: u16, service: String },
}

/// Reads a probe. An error is not the container's fault, but every try shows it.
pub(super) fn question(
    probe: &Probe,
    container: &Container,
    pod: &str,
) -> Result<Question, String> {
    if let Some(exec) = &probe.exec {
        let command = exec.command.iter().flatten();
        let values = literal_env(container.env.as_deref().unwrap_or_default());
        return Ok(Question::Exec { command: command.map(|arg| expand(arg, &values)).collect() });
    }
    if let Some(get) = &probe.http_get {
        return http(get, container, timeout(probe)).map(Question::Http);
    }
    if let Some(socket) = &probe.tcp_socket {
        let host = socket.host.clone().unwrap_or_default();
        return Ok(Question::Tcp {
            host,
            port: port_number(&socket.port, named_ports(container))?,
        });
    }
    if let Some(grpc) = &probe.grpc {
        let service = grpc.service.clone().unwrap_or_default();
        return Ok(Question::Grpc { port: valid_port(grpc.port.into())?, service });
    }
    Err(format!("missing probe handler for {pod}:{}", container.name))
}

/// How long one try may take.
pub(super) fn timeout(probe: &Probe) -> Duration {
    seconds(probe.timeout_seconds, 1)
}

/// How long from one try to the next.
pub(super) fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds, 10)
}

fn seconds(given: Option<i32>, default: u64) -> Duration {
    let given = given.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    Duration::from_secs(given.unwrap_or(default))
}

fn http(
    get: &HTTPGetAction,
    container: &Container,
    timeout: Duration,
) -> Result<HttpRequest, String> {
    let scheme = match get.scheme.as_deref().unwrap_or_default().to_lowercase().as_str() {
        "" | "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => return Err(format!("unsupported protocol scheme {other:?}")),
    };
    let headers = get.http_headers.iter().flatten();
    Ok(HttpRequest {
        scheme,
        host: get.host.clone().unwrap_or_default(),
        port: port_number(&get.port, named_ports(container))?,
        path: get.path.clone().unwrap_or_default(),
        headers: headers.map(|header| (header.name.clone(), header.value.clone())).collect(),
        user_agent: PROBE_USER_AGENT.to_owned(),
        timeout,
    })
}

fn named_ports(container: &Container) -> &[ContainerPort] {
    container.ports.as_deref().unwrap_or_default()
}

/// Only what the manifest spells out: a value from elsewhere counts as empty.
fn literal_env(env: &[EnvVar]) -> BTreeMap<String, String> {
    env.iter().map(|var| (var.name.clone(), var.value.clone().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests;
