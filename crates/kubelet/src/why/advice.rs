//! Small texts that several answers share. Pure.

use k8s_openapi::api::core::v1::{
    Container, ExecAction, HTTPGetAction, LifecycleHandler, Pod, Probe,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubelet_model::EventObject;

use crate::events::Event;

/// `namespace/name`, the way every command takes it.
pub(super) fn full_name(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    format!("{namespace}/{}", meta.name.as_deref().unwrap_or_default())
}

/// Is an event about this container?
pub(super) fn is_of(event: &Event, container: &str) -> bool {
    let EventObject::Pod { field_path, .. } = &event.object else { return false };
    let place = field_path.strip_suffix('}').and_then(|place| place.split_once('{'));
    place.is_some_and(|(_, name)| name == container)
}

/// The command that shows a container's output.
pub(super) fn logs_command(pod: &Pod, container: &str, previous: bool) -> String {
    let previous = if previous { "--previous " } else { "" };
    format!("`klet logs {previous}-c {container} {}`.", full_name(pod))
}

/// A container's memory limit as the manifest has it.
pub(super) fn memory_limit(container: &Container) -> Option<String> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    Some(limits.get("memory")?.0.clone())
}

/// What a probe does, in a few words.
pub(super) fn probe_text(probe: &Probe) -> String {
    if let Some(exec) = &probe.exec {
        exec_text(exec)
    } else if let Some(get) = &probe.http_get {
        http_text(get)
    } else if let Some(tcp) = &probe.tcp_socket {
        format!("connects to port {}", port_text(&tcp.port))
    } else if let Some(grpc) = &probe.grpc {
        format!("asks the gRPC health service on port {}", grpc.port)
    } else {
        "does nothing known".to_owned()
    }
}

/// What a hook does, in a few words.
pub(super) fn hook_text(hook: &LifecycleHandler) -> String {
    if let Some(exec) = &hook.exec {
        exec_text(exec)
    } else if let Some(get) = &hook.http_get {
        http_text(get)
    } else if let Some(sleep) = &hook.sleep {
        format!("pauses for {} s", sleep.seconds)
    } else {
        "does nothing that klet knows".to_owned()
    }
}

/// What running a command looks like.
fn exec_text(exec: &ExecAction) -> String {
    format!("runs `{}`", exec.command.iter().flatten().cloned().collect::<Vec<_>>().join(" "))
}

/// What asking over HTTP looks like.
fn http_text(get: &HTTPGetAction) -> String {
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let host = get.host.as_deref().filter(|host| !host.is_empty()).unwrap_or("<pod IP>");
    let path = get.path.as_deref().unwrap_or("/");
    format!("asks {scheme}://{host}:{}{path}", port_text(&get.port))
}

fn port_text(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(port) => port.to_string(),
        IntOrString::String(name) => name.clone(),
    }
}
