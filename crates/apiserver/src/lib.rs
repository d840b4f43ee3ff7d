//! A small Kubernetes API server.
//!
//! Stores objects in memory with upstream's rules for revisions, watches, patches,
//! parts of objects and deletion; issues tokens and certificates; asks RBAC. It is
//! generic over the resources in [`resources`] and has no cases for tests. Tests of
//! klet's API client run against it, and klet is to embed it.
//!
//! What it leaves to others: scheduling, controllers of workloads, garbage
//! collection, admission plug-ins, server-side apply. It reads protobuf and writes JSON.

pub mod auth;
pub mod certificates;
pub mod direct;
pub mod error;
pub mod http_api;
mod json;
pub mod objects;
pub mod patch;
pub mod resources;
pub mod select;
pub mod serve;
pub mod store;
pub mod wire;

pub use auth::{StaticToken, User};
pub use error::ApiError;
pub use http_api::{Api, Peer};
pub use serve::{ApiServer, Settings, StartError};
pub use store::Store;
