//! Events: what the agent tells users about an object, in upstream's words.
//!
//! Plain data. Reasons and messages are a compatibility contract.

use crate::ids::PodUid;
use crate::pod::DesiredPod;

/// Whether an event is worth a worry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// All as it should be.
    Normal,
    /// Something went wrong.
    Warning,
}

impl EventType {
    /// The text in `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventObject {
    /// The node of this name.
    Node(String),
    /// A PersistentVolume.
    PersistentVolume {
        /// Name.
        name: String,
        /// Uid; empty if the cluster gave it none.
        uid: String,
    },
    /// A pod, or one container of it.
    Pod {
        /// Uid.
        uid: PodUid,
        /// Name.
        name: String,
        /// Namespace.
        namespace: String,
        /// Empty, or `spec.containers{name}`, `spec.initContainers{name}` or
        /// `spec.ephemeralContainers{name}`.
        field_path: String,
    },
    /// A claim of an API server.
    Claim {
        /// Uid.
        uid: String,
        /// Name.
        name: String,
        /// Namespace.
        namespace: String,
    },
}

impl EventObject {
    /// The whole pod.
    pub fn pod(pod: &DesiredPod) -> Self {
        Self::Pod {
            uid: pod.uid().clone(),
            name: pod.name().to_owned(),
            namespace: pod.namespace().to_owned(),
            field_path: String::new(),
        }
    }

    /// One container of a pod; `None` if the pod's spec has none of that name.
    pub fn container(pod: &DesiredPod, name: &str) -> Option<Self> {
        let spec = pod.spec();
        let list = if spec.containers.iter().any(|c| c.name == name) {
            "containers"
        } else if spec.init_containers.iter().flatten().any(|c| c.name == name) {
            "initContainers"
        } else if spec.ephemeral_containers.iter().flatten().any(|c| c.name == name) {
            "ephemeralContainers"
        } else {
            return None;
        };
        Some(Self::Pod {
            uid: pod.uid().clone(),
            name: pod.name().to_owned(),
            namespace: pod.namespace().to_owned(),
            field_path: format!("spec.{list}{{{name}}}"),
        })
    }
}
