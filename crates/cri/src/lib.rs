//! CRI v1: generated types, the runtime port and its gRPC client.
//!
//! Knows nothing of pods beyond what CRI messages carry. Upstream:
//! staging/src/k8s.io/cri-api and cri-client.

pub mod error;
pub mod port;

pub use error::{CallError, CallErrorKind};
pub use port::{EventStream, Runtime, RuntimeEvent, RuntimeEventKind};
