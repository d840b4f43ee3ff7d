//! What messages look like: `facts.txt`, read once.
//!
//! Pure.

use std::collections::BTreeMap;
use std::sync::LazyLock;

static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| {
    let lines = include_str!("facts.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(message).map(|message| (message.name, message)).collect()
});

/// A message of the API.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    fields: BTreeMap<u32, Field>,
}

/// A field of one.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
    pub(super) keeps_zero: bool,
}

/// How often a field occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Once at most.
    One,
    /// As a list.
    Many,
    /// As a map by text.
    Map,
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Boolean,
    Integer,
    Bytes,
    Double,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// JSON inside.
    Raw,
    /// A list of text.
    Texts,
    Message(&'static str),
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        self.fields.get(&number)
    }
}

impl Field {
    /// Whether the fields of its message stand beside its own in JSON.
    pub(super) fn is_inline(&self) -> bool {
        self.name == "~"
    }

    pub(super) fn message(&self) -> Option<&'static Message> {
        match self.kind {
            Kind::Message(name) => MESSAGES.get(name),
            _ => None,
        }
    }
}

/// The message of an object's kind.
pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<&'static Message> {
    // Options of deletions come in the group of what is deleted.
    let package = match (api_version, kind) {
        (_, "DeleteOptions") => "meta",
        ("v1", _) => "core",
        ("coordination.k8s.io/v1", _) => "coordination",
        ("certificates.k8s.io/v1", _) => "certificates",
        ("certificates.k8s.io/v1beta1", _) => "certificates-beta",
        ("storage.k8s.io/v1", _) => "storage",
        ("node.k8s.io/v1", _) => "node",
        ("events.k8s.io/v1", _) => "events",
        ("discovery.k8s.io/v1", _) => "discovery",
        ("rbac.authorization.k8s.io/v1", _) => "rbac",
        ("authentication.k8s.io/v1", _) => "authentication",
        ("authorization.k8s.io/v1", _) => "authorization",
        ("policy/v1", _) => "policy",
        _ => return None,
    };
    MESSAGES.get(format!("{package}.{kind}").as_str())
}

fn message(line: &'static str) -> Option<Message> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let fields = words.map(field).collect::<Option<_>>()?;
    Some(Message { name, fields })
}

fn field(word: &'static str) -> Option<(u32, Field)> {
    let mut parts = word.splitn(3, ':');
    let (number, name, kind) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    let (kind, keeps_zero) = kind.strip_suffix('!').map_or((kind, false), |kind| (kind, true));
    let (shape, kind) = match kind.as_bytes().first()? {
        b'*' => (Shape::Many, &kind[1..]),
        b'%' => (Shape::Map, &kind[1..]),
        _ => (Shape::One, kind),
    };
    let kind = match kind {
        "s" => Kind::Text,
        "b" => Kind::Boolean,
        "i" => Kind::Integer,
        "y" => Kind::Bytes,
        "d" => Kind::Double,
        "quantity" => Kind::Quantity,
        "intstr" => Kind::IntOrString,
        "time" => Kind::Time,
        "micro" => Kind::MicroTime,
        "raw" => Kind::Raw,
        "strings" => Kind::Texts,
        message => Kind::Message(message),
    };
    Some((number, Field { name, shape, kind, keeps_zero }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;

    #[test]
    fn every_line_is_a_message_and_every_message_is_there() {
        let lines = include_str!("facts.txt").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), MESSAGES.len());
        for message in MESSAGES.values() {
            for field in message.fields.values() {
                let names_one = matches!(field.kind, Kind::Message(_));
                assert_eq!(field.message().is_some(), names_one, "{} {field:?}", message.name);
            }
        }
    }

    #[test]
    fn every_resource_can_be_sent() {
        for resource in RESOURCES {
            let known = of_kind(&resource.api_version(), resource.kind);
            assert!(known.is_some(), "{}", resource.qualified());
            for part in resource.subresources {
                if let Some((group, version, kind)) = part.own_kind() {
                    let api_version = if group.is_empty() {
                        version.to_owned()
                    } else {
                        format!("{group}/{version}")
                    };
                    assert!(of_kind(&api_version, kind).is_some(), "{kind}");
                }
            }
        }
    }
}
