//! Fields this release does not act on. A pod that sets one is refused, because
//! running it without would be running something else.
//!
//! Walks the pod as JSON along an allow-list, so a field that nobody thought of
//! is refused and not ignored.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::problem::{Field, Problem, Report};
use crate::pod::CONFIG_MIRROR;

const UNSUPPORTED: &str = "not supported by this release";

/// Fields of every kind of container that are acted on.
macro_rules! container_fields {
    ($list:literal) => {
        &[
            concat!("spec.", $list, ".*.args"),
            concat!("spec.", $list, ".*.command"),
            concat!("spec.", $list, ".*.env.*.name"),
            concat!("spec.", $list, ".*.env.*.value"),
            concat!("spec.", $list, ".*.env.*.valueFrom.configMapKeyRef"),
            concat!("spec.", $list, ".*.env.*.valueFrom.fieldRef"),
            concat!("spec.", $list, ".*.env.*.valueFrom.fileKeyRef"),
            concat!("spec.", $list, ".*.env.*.valueFrom.resourceFieldRef"),
            concat!("spec.", $list, ".*.env.*.valueFrom.secretKeyRef"),
            concat!("spec.", $list, ".*.envFrom"),
            concat!("spec.", $list, ".*.image"),
            concat!("spec.", $list, ".*.imagePullPolicy"),
            concat!("spec.", $list, ".*.lifecycle"),
            concat!("spec.", $list, ".*.livenessProbe"),
            concat!("spec.", $list, ".*.name"),
            concat!("spec.", $list, ".*.ports"),
            concat!("spec.", $list, ".*.readinessProbe"),
            concat!("spec.", $list, ".*.resizePolicy"),
            concat!("spec.", $list, ".*.resources.limits.cpu"),
            concat!("spec.", $list, ".*.resources.limits.ephemeral-storage"),
            concat!("spec.", $list, ".*.resources.limits.hugepages-*"),
            concat!("spec.", $list, ".*.resources.limits.memory"),
            concat!("spec.", $list, ".*.resources.requests.cpu"),
            concat!("spec.", $list, ".*.resources.requests.ephemeral-storage"),
            concat!("spec.", $list, ".*.resources.requests.hugepages-*"),
            concat!("spec.", $list, ".*.resources.requests.memory"),
            concat!("spec.", $list, ".*.restartPolicy"),
            concat!("spec.", $list, ".*.restartPolicyRules"),
            concat!("spec.", $list, ".*.securityContext.allowPrivilegeEscalation"),
            concat!("spec.", $list, ".*.securityContext.appArmorProfile"),
            concat!("spec.", $list, ".*.securityContext.capabilities"),
            concat!("spec.", $list, ".*.securityContext.privileged"),
            concat!("spec.", $list, ".*.securityContext.procMount"),
            concat!("spec.", $list, ".*.securityContext.readOnlyRootFilesystem"),
            concat!("spec.", $list, ".*.securityContext.runAsGroup"),
            concat!("spec.", $list, ".*.securityContext.runAsNonRoot"),
            concat!("spec.", $list, ".*.securityContext.runAsUser"),
            concat!("spec.", $list, ".*.securityContext.seLinuxOptions"),
            concat!("spec.", $list, ".*.securityContext.seccompProfile"),
            concat!("spec.", $list, ".*.startupProbe"),
            concat!("spec.", $list, ".*.stdin"),
            concat!("spec.", $list, ".*.stdinOnce"),
            concat!("spec.", $list, ".*.targetContainerName"),
            concat!("spec.", $list, ".*.terminationMessagePath"),
            concat!("spec.", $list, ".*.terminationMessagePolicy"),
            concat!("spec.", $list, ".*.tty"),
            concat!("spec.", $list, ".*.volumeDevices"),
            concat!("spec.", $list, ".*.volumeMounts"),
            concat!("spec.", $list, ".*.workingDir"),
        ]
    };
}

/// Fields acted on, whatever their value. `*` alone stands for every item, at
/// the end of a word for whatever follows. A path covers everything below it.
const SUPPORTED: &[&[&str]] = &[
    POD_FIELDS,
    container_fields!("containers"),
    container_fields!("initContainers"),
    container_fields!("ephemeralContainers"),
];

const POD_FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata.annotations",
    "metadata.creationTimestamp",
    "metadata.generation",
    "metadata.labels",
    "metadata.managedFields",
    "metadata.name",
    "metadata.namespace",
    "metadata.resourceVersion",
    "metadata.selfLink",
    "metadata.uid",
    "spec.activeDeadlineSeconds",
    "spec.affinity",
    "spec.automountServiceAccountToken",
    "spec.dnsConfig",
    "spec.dnsPolicy",
    "spec.enableServiceLinks",
    "spec.hostAliases",
    "spec.hostIPC",
    "spec.hostNetwork",
    "spec.hostPID",
    "spec.hostUsers",
    "spec.hostname",
    "spec.hostnameOverride",
    "spec.imagePullSecrets",
    "spec.nodeName",
    "spec.nodeSelector",
    "spec.overhead",
    "spec.preemptionPolicy",
    "spec.priority",
    "spec.priorityClassName",
    "spec.readinessGates",
    "spec.resources.limits.cpu",
    "spec.resources.limits.hugepages-*",
    "spec.resources.limits.memory",
    "spec.resources.requests.cpu",
    "spec.resources.requests.hugepages-*",
    "spec.resources.requests.memory",
    "spec.restartPolicy",
    "spec.runtimeClassName",
    "spec.schedulerName",
    "spec.securityContext.appArmorProfile",
    "spec.securityContext.fsGroup",
    // Both say how volumes with a file system of their own are prepared.
    "spec.securityContext.fsGroupChangePolicy",
    "spec.securityContext.seLinuxChangePolicy",
    "spec.securityContext.runAsGroup",
    "spec.securityContext.runAsNonRoot",
    "spec.securityContext.runAsUser",
    "spec.securityContext.seLinuxOptions",
    "spec.securityContext.seccompProfile",
    "spec.securityContext.supplementalGroups",
    "spec.securityContext.supplementalGroupsPolicy",
    "spec.securityContext.sysctls",
    "spec.setHostnameAsFQDN",
    "spec.shareProcessNamespace",
    "spec.subdomain",
    "spec.terminationGracePeriodSeconds",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "spec.volumes.*.configMap",
    "spec.volumes.*.csi",
    "spec.volumes.*.downwardAPI",
    "spec.volumes.*.emptyDir",
    "spec.volumes.*.ephemeral",
    "spec.volumes.*.fc",
    "spec.volumes.*.hostPath",
    "spec.volumes.*.image",
    "spec.volumes.*.iscsi",
    "spec.volumes.*.name",
    "spec.volumes.*.nfs",
    "spec.volumes.*.persistentVolumeClaim",
    "spec.volumes.*.projected",
    "spec.volumes.*.secret",
    // Written here, never read from a manifest.
    "status",
];

/// Fields that mean nothing at this one value.
const SUPPORTED_AT: &[(&str, &str)] = &[("spec.os.name", "linux")];

/// Every field that is set and not acted on by this release.
pub fn unsupported(pod: &Pod) -> Vec<Problem> {
    let mut report = Report::default();
    // A Pod holds only strings, numbers, lists and maps with string keys.
    let value = serde_json::to_value(pod).expect("a decoded pod can be written as JSON");
    walk(&value, &Known::all(), &Field::root(), &mut report);
    if pod.metadata.annotations.iter().flatten().any(|(key, _)| key == CONFIG_MIRROR) {
        let field = Field::root().key("metadata").key("annotations").key(CONFIG_MIRROR);
        report.add(&field, "marks a mirror pod, which only an API server holds; remove it");
    }
    report.finish()
}

/// Parts of a pod of an API server that are others' business.
const OF_OTHERS: &[&str] =
    &["metadata.", "spec.schedulingGates", "spec.schedulingGroup", "spec.serviceAccount"];
/// Admission refuses a pod of another system.
const OF_ADMISSION: &[&str] = &["spec.os"];
/// Written into pods that may run on either system; it means nothing on this one.
const OF_WINDOWS: &str = ".securityContext.windowsOptions";

/// The same of a pod that an API server gives: it has been scheduled, and has a
/// service account.
pub fn unsupported_from_api(pod: &Pod) -> Vec<Problem> {
    let mut problems = unsupported(pod);
    problems.retain(|problem| {
        let others = OF_OTHERS.iter().chain(OF_ADMISSION);
        !others.into_iter().any(|of| problem.field.starts_with(of))
            && !is_extended_resource(&problem.field)
            && !problem.field.ends_with(OF_WINDOWS)
    });
    problems
}

/// An amount of something that the node's object advertises, or that others count:
/// admission sees to it that there is enough. No program needs to be told of it.
fn is_extended_resource(field: &str) -> bool {
    let lists = [".resources.requests[", ".resources.limits["];
    let names = lists.iter().filter_map(|list| field.split_once(list)).map(|(_, name)| name);
    let mut names = names.filter_map(|name| name.strip_suffix(']'));
    names.any(|name| name.contains('/') && !name.contains("kubernetes.io/"))
}

/// A field acted on, seen from one of its parents.
struct Known {
    /// The steps that are left.
    rest: &'static str,
    /// The one value that is meant, if not any.
    at: Option<&'static str>,
}

impl Known {
    fn all() -> Vec<Self> {
        let any = SUPPORTED.iter().copied().flatten().map(|rest| Self { rest, at: None });
        any.chain(SUPPORTED_AT.iter().map(|(rest, at)| Self { rest, at: Some(at) })).collect()
    }

    fn covers(&self, value: &Value) -> bool {
        self.rest.is_empty() && self.at.is_none_or(|at| value.as_str() == Some(at))
    }

    fn below(&self, step: &str) -> Option<Self> {
        let (head, rest) = self.rest.split_once('.').unwrap_or((self.rest, ""));
        let prefix = head.strip_suffix('*').filter(|prefix| !prefix.is_empty());
        let same = head == step || prefix.is_some_and(|prefix| step.starts_with(prefix));
        same.then_some(Self { rest, at: self.at })
    }
}

/// Kinds of volumes that are disks of clouds: upstream, too, hands them to CSI drivers,
/// as an API server tells it.
const MIGRATED: [&str; 7] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cinder",
    "gcePersistentDisk",
    "portworxVolume",
    "vsphereVolume",
];

/// Kinds of volumes that no kubelet has any more.
const REMOVED: [&str; 9] = [
    "cephfs",
    "flocker",
    "gitRepo",
    "glusterfs",
    "photonPersistentDisk",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
];

/// Why a field is not acted on.
fn reason(field: &Field) -> String {
    let volume = field.as_str().strip_prefix("spec.volumes[");
    let kind = volume.and_then(|rest| rest.split_once("].")).map_or("", |(_, kind)| kind);
    format!("{UNSUPPORTED}{}", instead_of(kind))
}

/// Kinds of volumes that Kubernetes names and this release has none of.
pub fn foreign_kinds() -> impl Iterator<Item = &'static str> {
    MIGRATED.into_iter().chain(REMOVED).chain(["flexVolume"])
}

/// Does Kubernetes have drivers serve volumes of a kind as if they were CSI volumes?
pub fn is_migrated(kind: &str) -> bool {
    MIGRATED.contains(&kind)
}

/// Why there are no volumes of a kind, and what to have instead; empty if nothing is known.
pub fn instead_of(kind: &str) -> &'static str {
    match kind {
        "gitRepo" => "; removed from Kubernetes: clone in an init container instead",
        "flexVolume" => "; deprecated in Kubernetes: use a CSI driver instead",
        kind if is_migrated(kind) => {
            "; Kubernetes has it only by migration to CSI: claim a PersistentVolume with csi"
        }
        kind if REMOVED.contains(&kind) => "; removed from Kubernetes: use a CSI driver instead",
        _ => "",
    }
}

/// `known` shrinks on the way down: a list may hold ten thousand pods.
fn walk(value: &Value, known: &[Known], field: &Field, report: &mut Report) {
    let unset = is_unset(value) && !is_volume_source(value, field);
    if unset || known.iter().any(|known| known.covers(value)) {
        return;
    }
    // Descend only where something further down is acted on: the message then
    // names the highest field that is not.
    if known.iter().all(|known| known.rest.is_empty()) {
        report.add(field, reason(field));
        return;
    }
    let below = |step: &str| known.iter().filter_map(|known| known.below(step)).collect::<Vec<_>>();
    match value {
        Value::Object(entries) => {
            for (key, entry) in entries {
                walk(entry, &below(key), &field.key(key), report);
            }
        }
        Value::Array(items) => {
            let known = below("*");
            for (index, item) in items.iter().enumerate() {
                walk(item, &known, &field.index(index), report);
            }
        }
        _ => report.add(field, UNSUPPORTED),
    }
}

/// `emptyDir: {}` is a volume, however empty.
fn is_volume_source(value: &Value, field: &Field) -> bool {
    value.is_object() && field.as_str().starts_with("spec.volumes[")
}

/// Unset in all but form. A `false` or `0` counts as set: in a security context
/// it is a demand.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.values().all(is_unset),
    }
}
