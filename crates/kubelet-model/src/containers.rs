//! The containers of a pod, of whatever kind, under one roof.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, ContainerPort, EphemeralContainer, PodSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::pod::DesiredPod;

/// What part a container plays in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKind {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container that is kept running: `restartPolicy: Always`.
    Sidecar,
    /// One of `spec.containers`.
    Regular,
    /// Added to look into a running pod.
    Ephemeral,
}

impl ContainerKind {
    /// The kind of one of `spec.initContainers`.
    pub fn of_init(container: &Container) -> Self {
        match container.restart_policy.as_deref() {
            Some("Always") => Self::Sidecar,
            _ => Self::Init,
        }
    }
}

impl DesiredPod {
    /// The container of this name, with its kind.
    pub fn container(&self, name: &str) -> Option<(ContainerKind, Cow<'_, Container>)> {
        find(self.spec(), name)
    }
}

/// The container of this name in a spec, with its kind.
pub fn find<'s>(spec: &'s PodSpec, name: &str) -> Option<(ContainerKind, Cow<'s, Container>)> {
    let mut init = spec.init_containers.iter().flatten();
    if let Some(found) = init.find(|c| c.name == name) {
        return Some((ContainerKind::of_init(found), Cow::Borrowed(found)));
    }
    if let Some(found) = spec.containers.iter().find(|c| c.name == name) {
        return Some((ContainerKind::Regular, Cow::Borrowed(found)));
    }
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    let found = ephemeral.find(|c| c.name == name)?;
    Some((ContainerKind::Ephemeral, Cow::Owned(as_container(found))))
}

/// A port by its number, by the container's name for it, or by a number in quotes.
///
/// # Errors
/// No such port, in a sentence.
pub fn port_number(given: &IntOrString, ports: &[ContainerPort]) -> Result<u16, String> {
    let number = match given {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(name) => {
            match ports.iter().find(|port| port.name.as_ref() == Some(name)) {
                Some(found) => i64::from(found.container_port),
                None => name.parse().map_err(|_| format!("port {name} not found"))?,
            }
        }
    };
    valid_port(number)
}

/// A number that can be a port.
///
/// # Errors
/// It cannot, in a sentence.
pub fn valid_port(number: i64) -> Result<u16, String> {
    let valid = u16::try_from(number).ok().filter(|port| *port > 0);
    valid.ok_or_else(|| format!("invalid port number: {number}"))
}

/// An ephemeral container as an ordinary one. It has no ports, probes, hooks or
/// resources of its own.
fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let e = ephemeral.clone();
    Container {
        name: e.name,
        image: e.image,
        command: e.command,
        args: e.args,
        working_dir: e.working_dir,
        env: e.env,
        env_from: e.env_from,
        volume_mounts: e.volume_mounts,
        volume_devices: e.volume_devices,
        termination_message_path: e.termination_message_path,
        termination_message_policy: e.termination_message_policy,
        image_pull_policy: e.image_pull_policy,
        security_context: e.security_context,
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        tty: e.tty,
        ..Container::default()
    }
}
