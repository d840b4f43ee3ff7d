//! The node's API, on ports 10250, 10255 and 10248 of a kubelet.
//!
//! Owns the listeners, TLS, who may connect, who asks and whether they may, and which
//! request is for what. Content comes from a [`NodeView`]; streams to commands and ports
//! are carried to the container runtime's own server. Knows nothing of pods.
//! Upstream: pkg/kubelet/server, cmd/kubelet/app/auth.go.

mod answer;
mod auth;
mod connection;
mod doors;
mod handle;
mod health;
mod listen;
mod log_options;
mod node_logs;
mod patience;
mod requests;
mod routes;
mod slis;
mod slots;
mod streams;
mod tls;
mod view;

pub use auth::{AuthenticationOptions, AuthorizationOptions};
pub use doors::{Doors, Guards};
pub use listen::{BoxFuture, NodeServer, ServerOptions, Spawn};
pub use requests::{Counted, RequestKind, Requests, request_kind};
pub use routes::Handlers;
pub use slots::ConnectionLimits;
pub use tls::{
    PemError, ServingCertificate, Tls, TlsOptions, TlsOptionsError, certificates, private_key,
};
pub use view::{
    Answer, Chunks, ContainerRef, Content, LogOptions, LogStreams, Metrics, NodeView, Page,
    PodFacts, Stdio, StreamAsk, ViewError,
};
