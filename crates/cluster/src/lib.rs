//! What a node does with its API server besides running pods.
//!
//! Each module is a future for the agent to run, told of the world through values
//! and small traits; none spawns tasks, reads a clock or touches a file, except that
//! certificates are kept in files. Knows the API and the node's own facts; never decides
//! anything about pods or containers. Upstream: pkg/kubelet/kubelet_node_status.go,
//! pkg/kubelet/nodestatus, client-go tools/record, pkg/kubelet/util/manager,
//! pkg/kubelet/token, pkg/kubelet/clustertrustbundle, pkg/kubelet/podcertificate,
//! pkg/volume/csi/nodeinfomanager, pkg/volume/util (resizes), client-go util/certificate.

pub mod certificates;
pub mod claims;
pub mod csi_node;
pub mod events;
pub mod node;
pub mod objects;
mod pem;
pub mod pod_certificates;
pub mod tokens;
pub mod trust_bundles;
