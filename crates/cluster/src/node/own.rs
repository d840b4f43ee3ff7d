//! The node's own Node object as the API server has it.
//!
//! Owns the latest that is known, from a watch and from what reads and writes answer:
//! whichever is newer. Many read it; it is published only here. Upstream: the node
//! lister of pkg/kubelet/kubelet.go, pkg/kubelet/kubelet_nodecache.go.

use std::sync::Arc;

use ordered_watch as watch;
use serde_json::Value;

use super::fields;

/// A Node, as the server has it. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnNode(Arc<Value>);

impl OwnNode {
    pub(super) fn new(node: Value) -> Self {
        Self(Arc::new(node))
    }

    /// The whole object.
    pub fn object(&self) -> &Value {
        &self.0
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        fields::text(&self.0, "/metadata/uid")
    }

    /// Its revision.
    pub fn resource_version(&self) -> &str {
        fields::text(&self.0, "/metadata/resourceVersion")
    }

    /// Its labels.
    pub fn labels(&self) -> Vec<(&str, &str)> {
        self.pairs("/metadata/labels")
    }

    /// Its annotations.
    pub fn annotations(&self) -> Vec<(&str, &str)> {
        self.pairs("/metadata/annotations")
    }

    /// Its taints, as the server writes them.
    pub fn taints(&self) -> &[Value] {
        fields::list(&self.0, "/spec/taints")
    }

    /// Whether no pod is to be sent here.
    pub fn is_unschedulable(&self) -> bool {
        self.0.pointer("/spec/unschedulable") == Some(&Value::Bool(true))
    }

    /// The networks its pods live in.
    pub fn pod_cidrs(&self) -> Vec<String> {
        fields::texts(&self.0, "/spec/podCIDRs")
    }

    /// What pods may have, as quantities.
    pub fn allocatable(&self) -> Vec<(&str, &str)> {
        self.pairs("/status/allocatable")
    }

    /// What there is, as quantities.
    pub fn capacity(&self) -> Vec<(&str, &str)> {
        self.pairs("/status/capacity")
    }

    /// Its addresses: type and address.
    pub fn addresses(&self) -> Vec<(&str, &str)> {
        let addresses = fields::list(&self.0, "/status/addresses").iter();
        addresses.map(|one| (fields::text(one, "/type"), fields::text(one, "/address"))).collect()
    }

    /// Volumes it is known to use.
    pub fn volumes_in_use(&self) -> Vec<String> {
        fields::texts(&self.0, "/status/volumesInUse")
    }

    /// Volumes the controller has attached: unique name and device path.
    pub fn volumes_attached(&self) -> Vec<(&str, &str)> {
        let volumes = fields::list(&self.0, "/status/volumesAttached").iter();
        volumes.map(|one| (fields::text(one, "/name"), fields::text(one, "/devicePath"))).collect()
    }

    /// Whether others take it to be ready.
    pub fn is_ready(&self) -> bool {
        super::conditions::find(&self.0, "Ready").is_some_and(|ready| ready["status"] == "True")
    }

    fn pairs(&self, path: &str) -> Vec<(&str, &str)> {
        let mut pairs = Vec::new();
        if let Some(Value::Object(map)) = self.0.pointer(path) {
            for (key, value) in map {
                pairs.extend(value.as_str().map(|value| (key.as_str(), value)));
            }
        }
        pairs
    }

    /// Is it not older than the other? What has no number cannot be told, and is.
    fn is_no_older(&self, other: &Self) -> bool {
        let number = |node: &Self| node.resource_version().parse::<u64>().ok();
        match (number(self), number(other)) {
            (Some(own), Some(other)) => own >= other,
            _ => true,
        }
    }
}

/// Publishes the latest Node.
pub(super) struct Latest(watch::Sender<Option<OwnNode>>);

impl Latest {
    pub fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    pub fn subscribe(&self) -> watch::Receiver<Option<OwnNode>> {
        self.0.subscribe()
    }

    pub fn get(&self) -> Option<OwnNode> {
        self.0.borrow().clone()
    }

    /// Takes a Node that a server answered, unless a newer one is known.
    pub fn offer(&self, node: Value) -> OwnNode {
        let node = OwnNode::new(node);
        self.0.send_if_modified(|latest| {
            let takes = latest.as_ref().is_none_or(|latest| node.is_no_older(latest));
            let changes = takes && latest.as_ref() != Some(&node);
            if takes {
                *latest = Some(node.clone());
            }
            changes
        });
        node
    }

    /// Takes the Node of a list, whatever is known: a server that was restored from a
    /// backup counts from further back.
    pub fn replace(&self, node: Value) {
        let node = OwnNode::new(node);
        self.0.send_if_modified(|latest| {
            let changes = latest.as_ref() != Some(&node);
            *latest = Some(node);
            changes
        });
    }

    /// The Node is gone, as of the one that was deleted.
    pub fn forget(&self, gone: Option<Value>) {
        let gone = gone.map(OwnNode::new);
        self.0.send_if_modified(|latest| {
            // One that was made since is not the one that is gone.
            let stays = match (&*latest, &gone) {
                (Some(latest), Some(gone)) => !gone.is_no_older(latest),
                (None, _) => true,
                (Some(_), None) => false,
            };
            if !stays {
                *latest = None;
            }
            !stays
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use futures_util::FutureExt;

    use super::*;

    fn node(revision: &str) -> Value {
        json!({"metadata": {"resourceVersion": revision}})
    }

    #[test]
    fn the_newest_is_kept() {
        let latest = Latest::new();
        let mut seen = latest.subscribe();
        let revision = || latest.get().map(|node| node.resource_version().to_owned());
        latest.offer(node("10"));
        assert!(seen.changed().now_or_never().is_some());
        assert_eq!(latest.offer(node("9")).resource_version(), "9", "told what it offered");
        assert_eq!(revision().as_deref(), Some("10"));
        latest.offer(node("10"));
        assert!(seen.changed().now_or_never().is_none(), "nothing is new");
        latest.offer(node("11"));
        assert_eq!(revision().as_deref(), Some("11"));
        latest.forget(Some(node("5")));
        assert_eq!(revision().as_deref(), Some("11"), "an older one is gone");
        latest.forget(Some(node("12")));
        assert_eq!(revision(), None);
        latest.offer(node("20"));
        latest.replace(node("7"));
        assert_eq!(revision().as_deref(), Some("7"), "the server has no other");
        latest.offer(node("8"));
        assert_eq!(revision().as_deref(), Some("8"));
        latest.offer(node("odd"));
        latest.offer(node("3"));
        assert_eq!(revision().as_deref(), Some("3"));
        latest.forget(None);
        assert_eq!(revision(), None);
    }

    #[test]
    fn what_others_read() {
        let node = OwnNode::new(json!({
            "metadata": {"uid": "u", "labels": {"a": "b", "odd": 7}, "annotations": {"x": "y"}},
            "spec": {"unschedulable": true, "podCIDRs": ["10.1.0.0/24", "fd00::/64"],
                "taints": [{"key": "k"}]},
            "status": {"allocatable": {"cpu": "1"}, "capacity": {"cpu": "2"},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "volumesInUse": ["v"], "volumesAttached": [{"name": "v", "devicePath": "/d"}],
                "conditions": [{"type": "Ready", "status": "True"}]},
        }));
        assert_eq!((node.uid(), node.is_unschedulable(), node.is_ready()), ("u", true, true));
        assert_eq!(node.labels(), [("a", "b")]);
        assert_eq!(node.annotations(), [("x", "y")]);
        assert_eq!(node.pod_cidrs(), ["10.1.0.0/24", "fd00::/64"]);
        assert_eq!(node.taints(), [json!({"key": "k"})]);
        assert_eq!(node.allocatable(), [("cpu", "1")]);
        assert_eq!(node.capacity(), [("cpu", "2")]);
        assert_eq!(node.addresses(), [("InternalIP", "10.0.0.1")]);
        assert_eq!(node.volumes_in_use(), ["v"]);
        assert_eq!(node.volumes_attached(), [("v", "/d")]);
        let odd = OwnNode::new(json!(["x"]));
        assert_eq!((odd.uid(), odd.is_ready(), odd.labels().len()), ("", false, 0));
    }
}
