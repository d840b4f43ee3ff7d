//! Pods that the node refuses, and pods about which it has not decided. Pure.

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::PodUid;

use super::advice::full_name;
use super::{Finding, Rank};
use crate::admission::Wait;

/// A pod that was refused.
pub(super) fn answer(reason: &str, message: &str, pod: &Pod) -> Finding {
    let headline = format!("The node refused the pod: {reason}. Nothing of it runs.");
    let finding = Finding::new(Rank::Blocked, headline).error(message);
    let finding = match reason {
        "OutOfpods" => finding
            .advise("The node runs as many pods as it may: remove one, or raise maxPods (or podsPerCore) in klet's configuration.")
            .advise("`klet pods -A` shows them all."),
        "OutOfcpu" | "OutOfmemory" | "OutOfephemeral-storage" => finding
            .advise(format!(
                "Lower resources.requests.{} of the pod, or of others: what counts is what pods request, not what they use.",
                reason.trim_start_matches("OutOf")
            ))
            .advise("What is reserved for the system (systemReserved, kubeReserved, evictionHard) is kept from pods; `klet check` shows it."),
        reason if reason.starts_with("OutOf") => finding
            .advise("Other pods hold what the node has of this resource, or it has less than the pod asks for: status.allocatable of its Node object tells how much."),
        "NodeAffinity" => finding
            .advise("The node has not the labels that spec.nodeSelector or spec.affinity.nodeAffinity asks for: change the pod, or label the node (--node-labels, `kubectl label node`)."),
        "NodeName" => finding.advise("spec.nodeName names another node than this one: change or remove it."),
        "NodePorts" => finding
            .advise(format!("Another pod has one of its host ports ({}): change hostPort, or remove the other pod.", host_ports(pod)))
            .advise("With hostNetwork: true every containerPort is a host port."),
        "TaintToleration" => finding
            .advise("The node has a taint with effect NoExecute that the pod does not tolerate: add a toleration, or remove the taint (`kubectl taint node … <key>-`)."),
        "SysctlForbidden" => finding
            .advise("Remove the sysctl from spec.securityContext.sysctls, or allow it on this node: allowedUnsafeSysctls in klet's configuration.")
            .advise("Sysctls of a namespace that the pod shares with the host cannot be set by a pod at all."),
        "AppArmor" => finding
            .advise("Enable AppArmor on the host and start klet again, or remove the profile from the pod (securityContext.appArmorProfile)."),
        "PodOSNotSupported" | "PodOSSelectorNodeLabelDoesNotMatch" => {
            finding.advise("This node runs Linux: spec.os.name and the label kubernetes.io/os must say linux, or nothing.")
        }
        "SupplementalGroupsPolicyNotSupported" => finding
            .advise("The container runtime cannot keep a process to the groups that its pod names: containerd can from 2.0 on. Or remove supplementalGroupsPolicy: Strict."),
        "PodLevelResourcesNotSupported" => {
            finding.advise("Switch the feature gate PodLevelResources on, or name resources per container instead of spec.resources.")
        }
        "PodFeatureUnsupported" => finding.advise("Switch the named feature gates on, if this release has them, or change the pod so that it needs none of them."),
        "NodeShutdown" => finding.advise("The machine is shutting down. Make the pod anew when it is back, or on another node."),
        "Evicted" => finding.advise("The node is short of what the message names: free some of it. Pods are taken again a few minutes after (evictionPressureTransitionPeriod)."),
        "InvalidNodeInfo" => finding.advise("The machine does not tell its processors or its memory: look at /proc and /sys, and at klet's log."),
        "UnexpectedAdmissionError" => finding.advise("A critical pod found no room, and the pods that are less important hold too little to make any: lower its requests, or remove pods."),
        _ => finding.advise("The message says what this node lacks: change the pod, or the node."),
    };
    finding.advise(format!(
        "A pod once refused stays so: make {} anew when this is mended (a manifest: change it, or start klet again).",
        full_name(pod)
    ))
}

fn host_ports(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let ports = containers.iter().flat_map(|one| one.ports.iter().flatten());
    let ports = ports.filter_map(|port| port.host_port.filter(|port| *port > 0));
    ports.map(|port| port.to_string()).collect::<Vec<_>>().join(", ")
}

/// A pod about which nothing is decided yet, or for which others have to go first.
pub(super) fn undecided(wait: &Wait) -> Finding {
    match wait {
        Wait::Node => Finding::new(Rank::Underway, "Whether the pod may run here is not decided: the Node object is to be read first.")
            .waits_for("the API server, to tell the labels of the Node object")
            .advise("Nothing, if the API server answers: `klet why node` tells. What runs of the pod goes on meanwhile."),
        Wait::Runtime => Finding::new(Rank::Underway, "Whether the pod may run here is not decided: the runtime has not answered yet.")
            .waits_for("the container runtime, to tell what it can do")
            .advise("This takes moments. If it lasts, look at the runtime: `systemctl status containerd`."),
        Wait::Victims(victims) => {
            let uids: Vec<&str> = victims.iter().map(PodUid::as_str).collect();
            Finding::new(Rank::Underway, "Other pods are being ended to make room.")
                .waits_for(format!("the end of the pods with uid {}", uids.join(", ")))
                .advise("Nothing: it starts when they have ended, or when their time is up.")
        }
    }
}
