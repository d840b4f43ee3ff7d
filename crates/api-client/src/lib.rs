//! Talks to a Kubernetes API server.
//!
//! Owns one connection, which all requests and watches share, and the credentials it
//! is opened with; both are renewed when their files change, or whoever renews a
//! certificate says so. Objects are JSON values:
//! whoever knows a type decodes it with `kubelet_model::typed`. Every request is bounded
//! in time and size, and nothing is tried twice except where the credentials were old.
//! Knows nothing of pods. Upstream: client-go (rest, transport, tools/cache).

mod access;
mod asking;
mod client;
mod error;
mod exec_plugin;
mod follow;
mod kubeconfig;
mod pace;
mod renew;
mod request;
mod tls;
mod watch;

pub use access::{Access, ExecPlugin, Pem, Token};
pub use client::{ApiClient, Clock};
pub use error::ApiError;
pub use follow::{Follower, News, Selection, Spread};
pub use kubeconfig::KubeconfigError;
pub use pace::{Limit, Pace};
pub use renew::{Renewed, Renewer, renewed};
pub use request::{Call, Patch, path};
pub use tls::Identity;
pub use watch::{Change, WatchEvent, Watching};

use async_trait::async_trait;
use serde_json::Value;

/// An API server, or what stands in for one.
#[async_trait]
pub trait Api: Send + Sync + 'static {
    /// Asks for something, and returns the object that is answered.
    async fn call(&self, call: Call) -> Result<Value, ApiError>;
    /// Begins to watch; the path holds the query.
    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError>;
}
