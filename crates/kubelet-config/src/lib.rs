//! The kubelet's configuration: wire form, defaults, layers, checks, checked form.
//!
//! One path for starting and for checking: [`load`] reads a command line and
//! the files it names and returns an [`Outcome`] with the checked [`Config`],
//! the origin of every value, every warning and every problem. Pure, but for
//! [`files`], which reads the disk. Knows nothing of pods. Upstream:
//! cmd/kubelet/app/options, pkg/kubelet/apis/config.

pub mod config;
pub mod consumers;
pub mod decode;
pub mod defaults;
pub mod files;
pub mod flags;
pub mod gates;
pub mod go_duration;
pub mod host;
mod layers;
mod load;
pub mod path;
pub mod problem;
pub mod profile;
pub mod provenance;
pub mod quantity;
mod validate;
pub mod wire;

/// The release of Kubernetes whose kubelet this one stands in for.
pub const KUBERNETES_VERSION: &str = "v1.36.4";

pub use config::Config;
pub use files::{Disk, Files};
pub use flags::{Flags, VersionRequest};
pub use gates::FeatureGates;
pub use host::Host;
pub use load::{Outcome, load, load_matches};
pub use problem::{Problem, Warning};
pub use provenance::{Origin, Provenance};
