//! HTTP endpoints: health on one port, a read-only view on another, and a local
//! socket for the commands of root.
//!
//! Owns the listeners. Reads statuses, metrics and the runtime's state. Only the
//! local socket changes anything. Requests are bounded in number, size and time.
//! Upstream: pkg/kubelet/server, cmd/kubelet/app/server.go.

mod claim_metrics;
mod connections;
mod containers;
mod listen;
pub mod local;
mod request_metrics;
mod routes;
pub mod secure;

pub use listen::{ListenError, serve};
pub use request_metrics::RequestMetrics;
pub use routes::{View, health_router, read_only_router};
