//! Fields this release does not act on. A pod that sets one is refused, because
//! running it without would be running something else.
//!
//! Walks the pod as JSON along an allow-list, so a field that nobody thought of
//! is refused and not ignored.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::problem::{Field, Problem, Report};

const UNSUPPORTED: &str = "not supported by this release";

/// Annotation of mirror pods, which only an API server holds.
const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// Fields acted on, whatever their value; `*` stands for every item or entry.
/// A path covers everything below it.
const SUPPORTED: &[&str] = &[
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
    "spec.affinity",
    "spec.automountServiceAccountToken",
    "spec.containers.*.args",
    "spec.containers.*.command",
    "spec.containers.*.env.*.name",
    "spec.containers.*.env.*.value",
    "spec.containers.*.image",
    "spec.containers.*.imagePullPolicy",
    "spec.containers.*.name",
    "spec.containers.*.ports",
    "spec.containers.*.resources.limits.cpu",
    "spec.containers.*.resources.limits.memory",
    "spec.containers.*.resources.requests.cpu",
    "spec.containers.*.resources.requests.memory",
    "spec.containers.*.stdin",
    "spec.containers.*.stdinOnce",
    "spec.containers.*.tty",
    "spec.containers.*.workingDir",
    "spec.dnsPolicy",
    "spec.enableServiceLinks",
    "spec.hostIPC",
    "spec.hostNetwork",
    "spec.hostPID",
    "spec.hostname",
    "spec.nodeName",
    "spec.nodeSelector",
    "spec.preemptionPolicy",
    "spec.priority",
    "spec.priorityClassName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.shareProcessNamespace",
    "spec.subdomain",
    "spec.terminationGracePeriodSeconds",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    // Written here, never read from a manifest.
    "status",
];

/// Fields that mean nothing at this one value.
const SUPPORTED_AT: &[(&str, Scalar)] = &[
    ("spec.containers.*.terminationMessagePath", Scalar::Text("/dev/termination-log")),
    ("spec.containers.*.terminationMessagePolicy", Scalar::Text("File")),
    ("spec.hostUsers", Scalar::Bool(true)),
    ("spec.os.name", Scalar::Text("linux")),
    ("spec.setHostnameAsFQDN", Scalar::Bool(false)),
];

enum Scalar {
    Text(&'static str),
    Bool(bool),
}

impl Scalar {
    fn is(&self, value: &Value) -> bool {
        match self {
            Self::Text(text) => value.as_str() == Some(text),
            Self::Bool(flag) => value.as_bool() == Some(*flag),
        }
    }
}

/// Every field that is set and not acted on by this release.
pub fn unsupported(pod: &Pod) -> Vec<Problem> {
    let mut report = Report::default();
    // A Pod holds only strings, numbers, lists and maps with string keys.
    let value = serde_json::to_value(pod).expect("a decoded pod can be written as JSON");
    walk(&value, &mut Vec::new(), &Field::root(), &mut report);
    if pod.metadata.annotations.iter().flatten().any(|(key, _)| key == CONFIG_MIRROR) {
        let field = Field::root().key("metadata").key("annotations").key(CONFIG_MIRROR);
        report.add(&field, "marks a mirror pod, which only an API server holds; remove it");
    }
    report.finish()
}

fn walk<'v>(value: &'v Value, path: &mut Vec<&'v str>, field: &Field, report: &mut Report) {
    if is_unset(value) || SUPPORTED.iter().any(|known| matches_path(known, path)) {
        return;
    }
    let at_value = |(known, at): &(&str, Scalar)| matches_path(known, path) && at.is(value);
    if SUPPORTED_AT.iter().any(at_value) {
        return;
    }
    // Descend only where something further down is acted on: the message then
    // names the highest field that is not.
    if !leads_somewhere(path) {
        report.add(field, UNSUPPORTED);
        return;
    }
    match value {
        Value::Object(entries) => {
            for (key, entry) in entries {
                path.push(key);
                walk(entry, path, &field.key(key), report);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push("*");
                walk(item, path, &field.index(index), report);
                path.pop();
            }
        }
        _ => report.add(field, UNSUPPORTED),
    }
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

fn matches_path(known: &str, path: &[&str]) -> bool {
    known.split('.').eq(path.iter().copied())
}

fn leads_somewhere(path: &[&str]) -> bool {
    let all = SUPPORTED.iter().copied().chain(SUPPORTED_AT.iter().map(|(known, _)| *known));
    let leads = |known: &str| {
        let mut steps = known.split('.');
        path.iter().all(|step| steps.next() == Some(step)) && steps.next().is_some()
    };
    path.is_empty() || all.into_iter().any(leads)
}
