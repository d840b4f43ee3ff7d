//! Ids, desired and observed pods, actions, reasons.
//!
//! Everything here is data and arithmetic: no I/O, no clock, no tokio. Plans in
//! the `kubelet` crate are functions over these types, so every decision can be
//! tested as a table and replayed by seed.

pub mod ids;
pub mod manifest;
pub mod pod;
pub mod time;

pub use ids::{ContainerId, ContainerName, FullName, PodUid, SandboxId};
pub use pod::{DesiredPod, PodSet, Source};
pub use time::Mono;
