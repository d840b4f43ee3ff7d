//! An event as it is told, and as the API has it. Pure.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use kubelet_model::EventType;
use serde_json::{Map, Value, json};

/// Who reports.
const COMPONENT: &str = "kubelet";
/// Where events are of what has no namespace.
const DEFAULT_NAMESPACE: &str = "default";
/// Longest name of an object.
const NAME_MAX: usize = 253;

/// What an event is about. What is not known is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Involved {
    /// For example `Pod`.
    pub kind: String,
    /// For example `v1`.
    pub api_version: String,
    /// Its namespace, if its kind has any.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its revision.
    pub resource_version: String,
    /// A part of it, such as `spec.containers{web}`.
    pub field_path: String,
}

impl fmt::Display for Involved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// An event that was counted and combined with others like it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventReport {
    /// Tells it from others: events of one key are one object, whose count grows.
    pub key: u64,
    /// About what.
    pub object: Involved,
    /// Normal or a warning.
    pub kind: EventType,
    /// In one word.
    pub reason: String,
    /// In many.
    pub message: String,
    /// How often it has happened.
    pub count: u32,
    /// The first time.
    pub first: Timestamp,
    /// The last time.
    pub last: Timestamp,
    /// What else machines may want to know.
    pub annotations: Vec<(String, String)>,
}

impl EventReport {
    /// Where the event is written.
    pub(super) fn namespace(&self) -> &str {
        match self.object.namespace.as_str() {
            "" => DEFAULT_NAMESPACE,
            namespace => namespace,
        }
    }

    /// Its name, by the time in nanoseconds: what it is about and when, or something else
    /// that is unique if that is no name.
    pub(super) fn name(&self, nanos: u64) -> String {
        let name = format!("{}.{nanos:x}", self.object.name);
        if is_name(&name) { name } else { self.other_name(nanos) }
    }

    /// A name in the form of a uuid.
    fn other_name(&self, nanos: u64) -> String {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            let Involved { kind, namespace, name, uid, .. } = &self.object;
            (salt, self.key, nanos, kind, namespace, name, uid).hash(&mut hasher);
            hasher.finish()
        };
        let (high, low) = (half(0), half(1));
        format!(
            "{:08x}-{:04x}-8{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }

    /// The whole event.
    pub(super) fn body(&self, name: &str, host: &str) -> Value {
        let Involved { kind, api_version, namespace, name: of, uid, resource_version, field_path } =
            &self.object;
        let mut involved = Map::new();
        for (key, value) in [
            ("kind", kind),
            ("namespace", namespace),
            ("name", of),
            ("uid", uid),
            ("apiVersion", api_version),
            ("resourceVersion", resource_version),
            ("fieldPath", field_path),
        ] {
            if !value.is_empty() {
                involved.insert(key.to_owned(), value.as_str().into());
            }
        }
        let mut metadata = json!({"name": name, "namespace": self.namespace()});
        for (key, value) in &self.annotations {
            metadata["annotations"][key] = value.as_str().into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": involved,
            "reason": self.reason,
            "message": self.message,
            "source": {"component": COMPONENT, "host": host},
            "firstTimestamp": time(self.first),
            "lastTimestamp": time(self.last),
            "count": self.count,
            "type": self.kind.as_str(),
            "eventTime": null,
            "reportingComponent": COMPONENT,
            "reportingInstance": host,
        })
    }

    /// What changes when it happens again.
    pub(super) fn patch(&self) -> Value {
        json!({"count": self.count, "lastTimestamp": time(self.last), "message": self.message})
    }
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn is_name(name: &str) -> bool {
    let alone = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|byte| alone(*byte))
            && bytes.last().is_some_and(|byte| alone(*byte))
            && bytes.iter().all(|byte| alone(*byte) || *byte == b'-')
    };
    name.len() <= NAME_MAX && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn report(name: &str, namespace: &str) -> EventReport {
        let at = Timestamp::from_nanosecond(1_700_000_000_123_456_789).unwrap();
        let object = Involved {
            kind: "Pod".to_owned(),
            api_version: "v1".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
            resource_version: String::new(),
            field_path: "spec.containers{a}".to_owned(),
        };
        EventReport {
            key: 1,
            object,
            kind: EventType::Warning,
            reason: "BackOff".to_owned(),
            message: "again".to_owned(),
            count: 3,
            first: at,
            last: at,
            annotations: vec![("a/b".to_owned(), "c".to_owned())],
        }
    }

    #[test]
    fn names_tell_what_and_when_if_they_can() {
        assert_eq!(report("web.a", "ns").name(0x17_9791), "web.a.179791");
        for odd in ["Web", "a..b", "-a", "a_b", "", &"a".repeat(252), "n\n"] {
            let name = report(odd, "ns").name(5);
            assert!(is_name(&name) && name.len() == 36, "{odd:?}: {name}");
            assert_ne!(name, report(odd, "ns").name(6));
            assert_ne!(name, report(odd, "other").name(5));
        }
    }

    #[test]
    fn events_are_as_upstream_writes_them() {
        let body = report("web", "ns").body("web.1", "n1");
        let expected = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "web.1", "namespace": "ns", "annotations": {"a/b": "c"}},
            "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "web", "uid": "u",
                "apiVersion": "v1", "fieldPath": "spec.containers{a}"},
            "reason": "BackOff", "message": "again",
            "source": {"component": "kubelet", "host": "n1"},
            "firstTimestamp": "2023-11-14T22:13:20Z", "lastTimestamp": "2023-11-14T22:13:20Z",
            "count": 3, "type": "Warning", "eventTime": null,
            "reportingComponent": "kubelet", "reportingInstance": "n1"});
        assert_eq!(body, expected);
        let patch =
            json!({"count": 3, "lastTimestamp": "2023-11-14T22:13:20Z", "message": "again"});
        assert_eq!(report("web", "ns").patch(), patch);
        let node = report("n1", "").body("n1.1", "n1");
        assert_eq!(node["metadata"]["namespace"], "default");
        assert_eq!(node["involvedObject"].get("namespace"), None);
    }
}
