//! Performs actions: the only place that changes the runtime.
//!
//! Owns nothing that outlives an action. Reads the pod's spec, writes to the
//! runtime and to the pod's log directory. Never decides whether an action is
//! right. Upstream: pkg/kubelet/kuberuntime.

mod container_spec;
mod env;
mod executor;
mod log_paths;
mod resources;
mod sandbox_spec;
mod start;
mod stop;
mod hooks;

pub use executor::{ActionError, Executor, PodIdentity};
pub use resources::qos_class;
