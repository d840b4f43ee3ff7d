//! What admission reads of a Node. Pure.

use std::collections::BTreeMap;

use kubelet_model::quantity::Quantity;
use serde_json::Value;

use crate::container_manager::amounts::Amounts;

/// The label that tells the operating system.
pub(super) const LABEL_OS: &str = "kubernetes.io/os";
/// The operating system here, in Go's word.
pub(super) const OS: &str = "linux";
/// More than all pods of a node can ask for.
const BOUNDLESS: i64 = i64::MAX / 4;

/// A Node, as far as it decides about pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What pods may have: processors in thousandths, all else in whole units.
    pub allocatable: Amounts,
}

/// A taint: keeps away pods that do not tolerate it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; may be empty.
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

impl NodeView {
    /// Reads a Node object; what is not as it should be is left out. What the label of
    /// the operating system says is known better here.
    pub fn read(object: &Value) -> Self {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let taint = |taint: &Value| {
            let field = |name: &str| taint[name].as_str().unwrap_or_default().to_owned();
            Taint { key: field("key"), value: field("value"), effect: field("effect") }
        };
        let taints = object.pointer("/spec/taints").and_then(Value::as_array);
        let mut labels = pairs(object, "/metadata/labels");
        labels.insert(LABEL_OS.to_owned(), OS.to_owned());
        let amounts = pairs(object, "/status/allocatable").into_iter();
        let amounts = amounts.filter_map(|(name, text)| {
            let quantity = Quantity::parse(&text)?;
            let amount = if name == "cpu" { quantity.milli() } else { quantity.units() };
            Some((name, amount))
        });
        Self {
            name: text("/metadata/name").to_owned(),
            labels,
            taints: taints.into_iter().flatten().map(taint).collect(),
            allocatable: amounts.collect(),
        }
    }

    /// The server's Node with what this machine itself has: the server is told of a
    /// change of that only a while after the agent has started.
    #[must_use]
    pub fn with_own(mut self, own: &Self) -> Self {
        for (name, amount) in &own.allocatable {
            self.allocatable.insert(name.clone(), *amount);
        }
        self
    }

    /// A node that has more of everything than pods can ask for.
    pub fn boundless(name: &str) -> Self {
        let all = ["cpu", "memory", "ephemeral-storage", "pods"];
        Self {
            name: name.to_owned(),
            labels: BTreeMap::from([
                (LABEL_OS.to_owned(), OS.to_owned()),
                ("kubernetes.io/hostname".to_owned(), name.to_owned()),
            ]),
            taints: Vec::new(),
            allocatable: all.into_iter().map(|name| (name.to_owned(), BOUNDLESS)).collect(),
        }
    }
}

fn pairs(object: &Value, at: &str) -> BTreeMap<String, String> {
    let Some(Value::Object(map)) = object.pointer(at) else { return BTreeMap::new() };
    let texts =
        map.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}
