//! Performs actions: the only place that changes the runtime.
//!
//! Owns nothing that outlives an action but the pod's files. Reads the pod's
//! spec, writes to the runtime, to the pod's log directory and to its own
//! directory. Never decides whether an action is right. Upstream:
//! pkg/kubelet/kuberuntime, and kubelet_pods.go for what containers are told.

mod container_spec;
mod devices;
pub(crate) mod dns;
mod downward;
pub(crate) mod env;
mod env_file;
mod executor;
mod hooks;
mod hostname;
mod hosts;
mod images;
pub(crate) mod log_paths;
mod mounts;
mod pod_files;
mod profile;
pub mod refusal;
mod resize;
mod resources;
mod sandbox;
mod sandbox_resources;
mod sandbox_spec;
mod security;
mod start;
mod stop;
pub(crate) mod sysctl;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod user_namespace;
mod volume_mounts;

pub(crate) use downward::{file_field, file_resource};
pub use executor::{ActionError, Executor, Means, PodIdentity};
pub use hooks::HookMetrics;
pub(crate) use images::mounted as mounted_images;
pub use pod_files::{pod_dir, pods_dir, remove_pod_dir};
pub use resources::qos_class;
