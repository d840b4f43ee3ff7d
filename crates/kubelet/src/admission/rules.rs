//! What the node's owner decided about admission, and what the machine is.

use super::NodeView;

/// Settings of admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The Node as this machine and its configuration make it: it stands in for the API
    /// server's until that is known, and for good where there is no server. `None` if
    /// the machine does not tell what it has.
    pub own_node: Option<NodeView>,
    /// Features that the node declares; `None` with the gate NodeDeclaredFeatures off.
    pub declared_features: Option<Vec<String>>,
    /// Pods may name resources as a whole (gate PodLevelResources).
    pub pod_level_resources: bool,
    /// Tolerations may compare numbers (gate TaintTolerationComparisonOperators).
    pub compares_taints: bool,
}

impl Rules {
    /// Of a node of that name which has more of everything than pods can ask for.
    pub fn boundless(node_name: &str) -> Self {
        Self {
            own_node: Some(NodeView::boundless(node_name)),
            declared_features: None,
            pod_level_resources: true,
            compares_taints: false,
        }
    }
}
