//! The local endpoint: what `klet pods`, `logs`, `exec`, `events`, `rm`, `top`,
//! `volumes` and `why` talk to.
//!
//! Owns a socket that only root may use. Reads statuses, events, progress, logs,
//! volumes and the runtime. Changes three things, all when told to: it removes a
//! manifest, has the runtime start a command in a container, and unmounts what keeps
//! the directory of a pod that is gone. Upstream has none; crictl and kubectl do this
//! there.

mod find;
pub(super) mod logs;
mod node;
mod routes;
pub(super) mod runtime;
mod socket;
mod volumes;
mod why;
pub mod wire;

use std::path::PathBuf;
use std::sync::Arc;

use cluster::node::NodeHandle;

use crate::join::NodeCertificates;
use crate::ports::{Clock, Fs};
use crate::server::View;

pub use routes::router;
pub use socket::{SocketError, serve};

/// The socket's name in the state directory.
pub const SOCKET: &str = "klet.sock";

/// What the local endpoint looks at.
#[derive(Clone)]
pub struct Local {
    /// What the other servers show as well.
    pub view: View,
    /// The container runtime.
    pub runtime: Arc<dyn cri::Runtime>,
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// The file system.
    pub fs: Arc<dyn Fs>,
    /// Names and directories.
    pub place: Arc<Place>,
    /// The node in its cluster; none on a node of its own.
    pub cluster: Option<NodeHandle>,
    /// The node's certificates.
    pub certificates: Arc<NodeCertificates>,
}

/// Where things are on this node.
#[derive(Debug, Clone)]
pub struct Place {
    /// The node's name.
    pub node_name: String,
    /// Manifest file or directory.
    pub manifests: Option<PathBuf>,
    /// URL that serves manifests.
    pub manifest_url: Option<String>,
    /// Root of the pods' log directories.
    pub pod_logs_dir: PathBuf,
    /// Where the agent's own files are.
    pub root_dir: PathBuf,
}
