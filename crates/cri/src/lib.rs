//! CRI v1: generated types, the runtime port and its gRPC client.
//!
//! Knows nothing of pods beyond what CRI messages carry. Upstream:
//! staging/src/k8s.io/cri-api and cri-client.

mod answers;
mod auth;
pub mod client;
mod endpoint;
pub mod error;
mod events;
mod failure;
pub mod port;

pub use client::{ClientConfig, CriClient};
pub use endpoint::EndpointError;
pub use error::{CallError, CallErrorKind};
pub use port::{Download, EventStream, ExitNote, Runtime, RuntimeEvent, RuntimeEventKind};

/// The messages and services of CRI v1, client and server side.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, clippy::disallowed_types)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// The health service that gRPC servers offer for probes, client and server side.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, clippy::disallowed_types)]
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

/// containerd's own services, for what CRI or its older versions lack.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, clippy::disallowed_types)]
pub mod containerd {
    tonic::include_proto!("containerd.services.events.v1");
    /// Downloads under way.
    pub mod content {
        tonic::include_proto!("containerd.services.content.v1");
    }
    /// Payloads of the events.
    pub mod payloads {
        tonic::include_proto!("containerd.events");
    }
}
