//! The API over HTTP: from a request to an answer.
//!
//! Owns the order of things: who asks, what for, may they, do it, show it. Reads
//! and writes the store; never touches a socket, so that it can be called from
//! within the process too.
//! Upstream: apiserver pkg/server, pkg/endpoints.

mod admission;
mod age;
mod api;
mod delete;
mod discovery;
mod media;
mod namespaces;
mod openapi;
mod parts;
mod read;
mod request;
mod response;
mod reviews;
mod table;
mod watch;
mod write;

pub use api::{Api, ApiParts, Clock, Peer, Randomness, system_randomness};
pub use response::{Body, Response};
