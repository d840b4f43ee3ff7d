//! Ports: everything the agent reaches outside itself.
//!
//! Production wires them to the kernel and the runtime's socket; simulation to a
//! model of them. Nothing else in this crate may touch a clock, a file, a
//! socket, randomness or `tokio::spawn`.

mod clock;
mod fs;
mod http;
mod real_fs;
mod rng;
mod tasks;

pub use clock::{Clock, SystemClock};
pub use fs::{ChangeStream, DirEntry, FileStamp, Fs, Links, NewFile, OpenFile};
pub use http::{Fetched, HttpFetch, HttpFetchError, HyperFetch};
pub use real_fs::RealFs;
pub use rng::Jitter;
pub use tasks::{TaskHandle, Tasks};

use std::sync::Arc;

/// All ports in one cheap handle.
#[derive(Clone)]
pub struct Ports {
    /// The container runtime.
    pub runtime: Arc<dyn cri::Runtime>,
    /// The file system.
    pub fs: Arc<dyn Fs>,
    /// Fetches manifests from a URL.
    pub http: Arc<dyn HttpFetch>,
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for jitter.
    pub jitter: Jitter,
    /// Spawns tasks.
    pub tasks: Tasks,
}
