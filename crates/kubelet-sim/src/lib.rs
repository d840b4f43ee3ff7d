//! Whole-node deterministic simulation: world, faults, checkers.
//!
//! The real agent runs against a simulated runtime, file system, URL and clock,
//! under paused time on one thread. A seed decides everything: delays, faults,
//! churn, crashes. Rules are checked as things happen (`invariants`) and once
//! all is quiet (`checkers`). Never used by the product.
//!
//! Simulation owns time and spawning, so the bans that make the product use
//! ports do not bind here.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod agent;
mod answers;
mod api;
mod chaos;
pub mod checkers;
mod claimed_disks;
mod config_map;
mod container_template;
mod deadlines;
mod faults;
mod foreign;
mod foreign_mounts;
mod hooks;
mod invariants;
mod kills;
mod lifecycle;
mod manifest;
mod node;
mod oracle;
mod panics;
mod runtime;
mod script;
pub mod seeds;
mod sim;
mod sizes;
mod storage;
mod trace;
mod volume_rules;
mod volume_template;
mod world;

pub use api::ApiFaults;
pub use container_template::{
    ContainerTemplate, Features, OwnRestart, ProbeRole, ProbeTemplate, Way,
};
pub use faults::{EventSupport, Faults};
pub use hooks::{Hook, HookWay};
pub use manifest::{NAMESPACE, PodTemplate, REVISION_LABEL, Restart};
pub use node::{SimClock, SimFs, SimHttp, SimPlugins, SimProbeNet, SimVolumes};
pub use oracle::Place;
pub use runtime::{Program, SimRuntime, Twist};
pub use script::LiveContainer;
pub use sim::SimWorld;
pub use sizes::Size;
pub use trace::Trace;
pub use volume_template::VolumeSet;
pub use world::{Life, Violation, World};
