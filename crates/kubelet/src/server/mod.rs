//! HTTP endpoints: the node's API on one port, what anybody may read on another, health
//! on a third, and a local socket for the commands of root.
//!
//! Owns the listeners. Reads statuses, metrics and the runtime's state. Only the
//! local socket changes anything. Requests are bounded in number, size and time.
//! Upstream: pkg/kubelet/server, cmd/kubelet/app/server.go.

mod claim_metrics;
mod classic;
mod connections;
mod containers;
mod listen;
pub mod local;
mod request_metrics;
pub mod secure;
mod view;

pub use listen::{ListenError, Open, serve};
pub use request_metrics::RequestMetrics;
pub use view::View;
