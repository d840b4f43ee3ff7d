//! Events about the node itself.

use kubelet_model::{EventObject, EventType};

use super::Recorder;

/// Takes events about one node. Cheap to clone.
#[derive(Clone)]
pub struct NodeEvents {
    recorder: Recorder,
    node: EventObject,
}

impl NodeEvents {
    /// Events about the node of this name go to that recorder.
    pub fn new(recorder: Recorder, node_name: &str) -> Self {
        Self { recorder, node: EventObject::Node(node_name.to_owned()) }
    }

    /// All as it should be.
    pub fn normal(&self, reason: &'static str, message: impl Into<String>) {
        self.recorder.record(&self.node, EventType::Normal, reason, message);
    }

    /// Something is wrong.
    pub fn warn(&self, reason: &'static str, message: impl Into<String>) {
        self.recorder.record(&self.node, EventType::Warning, reason, message);
    }
}

#[cfg(test)]
impl NodeEvents {
    /// Events of a node `n` and where they can be read.
    pub(crate) fn for_test() -> (Self, Recorder) {
        let recorder = Recorder::new(std::sync::Arc::new(crate::ports::SystemClock::new()));
        (Self::new(recorder.clone(), "n"), recorder)
    }
}

#[cfg(test)]
impl Recorder {
    /// `Normal Starting: Starting kubelet.`, one line per event about a node.
    pub(crate) fn node_lines(&self) -> Vec<String> {
        let events = self.all().into_iter();
        let events = events.filter(|event| matches!(event.object, EventObject::Node(_)));
        events.map(|e| format!("{} {}: {}", e.kind.as_str(), e.reason, e.message)).collect()
    }
}
