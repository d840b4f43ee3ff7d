//! What pods and the node use, when somebody asks.
//!
//! Owns the answers of the kubelet's `/stats/summary`, `/metrics/resource` and
//! `/metrics/cadvisor`. Reads control groups, `/proc`, file systems and the runtime;
//! writes nothing and keeps only the samples that rates are made of. Never decides
//! which pods there are: the caller gives them. Upstream: pkg/kubelet/stats,
//! pkg/kubelet/server/stats, pkg/kubelet/metrics/collectors/resource_metrics.go.

mod block;
mod cadvisor;
mod cadvisor_host;
mod disks;
mod files;
mod gather;
mod groups;
mod input;
mod limits;
mod machine;
mod node;
mod pods;
mod rates;
mod resource;
mod runtime;
mod samples;
mod text;
mod topology;

pub use files::{FileError, Limit};
pub use gather::{Clock, Stats, StatsError, Summary};
pub use groups::{GroupUsage, Groups};
pub use input::{ContainerInput, NodeStatsInput, PodStatsInput, Roots, SystemGroup, VolumeStats};
pub use limits::GroupLimits;
pub use node::{NodeRest, NodeSample};
pub use pods::PodSample;
pub use rates::Sampler;
pub use samples::{
    ContainerSample, Cpu, Fs, Interface, Io, Memory, Network, Pressure, PressureLine, Swap,
};
pub use topology::MachineIds;
