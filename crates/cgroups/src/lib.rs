//! Control groups, version 1 and 2: names, limits, making, killing, removing.
//!
//! Owns the translation between values and the kernel's files, or systemd's units
//! where groups are its own. Reads and writes below the root it is given, and asks
//! systemd over D-Bus. Never decides a value and knows nothing of pods.
//! Upstream: pkg/kubelet/cm/cgroup_manager_linux.go and opencontainers/cgroups.

mod error;
mod files;
mod hierarchy;
mod huge_pages;
mod kill;
mod limits;
mod name;
mod read;
mod systemd;
mod write;

pub use error::CgroupError;
pub use hierarchy::{Hierarchy, Tree, Version};
pub use huge_pages::{huge_page_sizes, page_size_text};
pub use limits::{Limits, SHARES_MAX, SHARES_MIN, shares_of_weight, weight_of_shares};
pub use name::{CgroupName, Driver, NameError};
pub use systemd::{Address, Systemd};
