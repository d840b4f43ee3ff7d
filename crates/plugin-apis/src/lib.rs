//! Plugin APIs of the node: CSI v1 and plugin registration v1.
//!
//! Owns the generated types and a client for each API over a unix socket.
//! Reads and writes nothing else, and knows nothing of pods. Controller
//! services are left out: no node calls them. Upstream:
//! github.com/container-storage-interface/spec,
//! staging/src/k8s.io/kubelet/pkg/apis/pluginregistration and the clients in
//! pkg/volume/csi and pkg/kubelet/pluginmanager.

mod call;
pub mod client;
pub mod error;
mod redact;
pub mod registration;
mod socket;

pub use client::CsiClient;
pub use error::{CallError, CallErrorKind, is_final};
pub use redact::TOKENS_KEY;
pub use registration::RegistrationClient;
pub use socket::EndpointError;

/// The messages and services of CSI v1, client and server side.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, clippy::disallowed_types)]
pub mod csi {
    tonic::include_proto!("csi.v1");

    /// What a driver's Node service can do.
    pub use node_service_capability::rpc::Type as NodeCapability;
    /// Who may use a volume at the same time.
    pub use volume_capability::access_mode::Mode as AccessMode;
}

/// The messages and the service of plugin registration v1, client and server side.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, clippy::disallowed_types)]
pub mod pluginregistration {
    tonic::include_proto!("pluginregistration");

    /// `PluginInfo.type` of a CSI driver.
    pub const CSI_PLUGIN: &str = "CSIPlugin";
}
