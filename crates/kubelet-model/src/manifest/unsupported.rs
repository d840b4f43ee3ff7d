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
    walk(&value, &Known::all(), &Field::root(), &mut report);
    if pod.metadata.annotations.iter().flatten().any(|(key, _)| key == CONFIG_MIRROR) {
        let field = Field::root().key("metadata").key("annotations").key(CONFIG_MIRROR);
        report.add(&field, "marks a mirror pod, which only an API server holds; remove it");
    }
    report.finish()
}

/// A field acted on, seen from one of its parents.
struct Known {
    /// The steps that are left.
    rest: &'static str,
    /// The one value that is meant, if not any.
    at: Option<&'static Scalar>,
}

impl Known {
    fn all() -> Vec<Self> {
        let any = SUPPORTED.iter().map(|rest| Self { rest, at: None });
        any.chain(SUPPORTED_AT.iter().map(|(rest, at)| Self { rest, at: Some(at) })).collect()
    }

    fn covers(&self, value: &Value) -> bool {
        self.rest.is_empty() && self.at.is_none_or(|at| at.is(value))
    }

    fn below(&self, step: &str) -> Option<Self> {
        let (head, rest) = self.rest.split_once('.').unwrap_or((self.rest, ""));
        (head == step).then_some(Self { rest, at: self.at })
    }
}

/// `known` shrinks on the way down: a list may hold ten thousand pods.
fn walk(value: &Value, known: &[Known], field: &Field, report: &mut Report) {
    if is_unset(value) || known.iter().any(|known| known.covers(value)) {
        return;
    }
    // Descend only where something further down is acted on: the message then
    // names the highest field that is not.
    if known.iter().all(|known| known.rest.is_empty()) {
        report.add(field, UNSUPPORTED);
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
