//! Ids, desired and observed pods, actions, reasons.
//!
//! Everything here is data and arithmetic: no I/O, no clock, no tokio. Plans in
//! the `kubelet` crate are functions over these types, so every decision can be
//! tested as a table and replayed by seed.

pub mod action;
pub mod backoff;
pub mod base64;
pub mod certificate;
pub mod containers;
pub mod event;
pub mod hash;
pub mod ids;
pub mod manifest;
pub mod object;
pub mod observed;
pub mod pod;
pub mod probe;
pub mod quantity;
pub mod quote;
pub mod reason;
pub mod resources;
pub mod restart;
pub mod time;
pub mod token;
pub mod trust;
pub mod typed;

pub use action::{Action, Grace, Steps, StopReason};
pub use backoff::{Backoff, BackoffPolicy};
pub use containers::ContainerKind;
pub use event::{EventObject, EventType};
pub use ids::{ContainerId, ContainerName, FullName, PodUid, SandboxId};
pub use object::{ConfigObject, ObjectKey, ObjectKind};
pub use observed::{ContainerState, Exit, ObservedContainer, ObservedPod, ObservedSandbox, RunsAs};
pub use pod::{DesiredPod, PodSet, Source};
pub use probe::{ProbeKind, ProbeResult, ProbeResults};
pub use reason::{WaitReason, Waiting};
pub use resources::{ContainerResize, ObservedResources, PodResources, Sizes};
pub use restart::{RestartDecision, RestartPolicy};
pub use time::Mono;
