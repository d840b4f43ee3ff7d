//! Project quotas: what a directory holds, counted by its file system and not by a walk.
//!
//! Owns the node's project files, /etc/projects and /etc/projid, while it changes them,
//! and which directories it has counted. Reads and writes the project of a directory and
//! the limits of a project, by descriptors that the caller opened; blocking, for root, on
//! Linux 5.14 and later, on ext4 and xfs. Limits nothing: the file system counts, and
//! whoever asks decides. Never looks at what is in a directory, and knows nothing of pods.
//! Upstream: pkg/volume/util/fsquota, which runs xfs_quota and lsattr for the same.
//!
//! The only `unsafe` code of the tree is in `sys.rs`: two ioctls and one system call that
//! no safe crate offers.

mod error;
mod files;
mod kernel;
mod plan;
mod projects;
mod quotas;
mod sys;
#[cfg(test)]
mod tests;

pub use error::QuotaError;
pub use files::ProjectFiles;
pub use kernel::{Kernel, Linux, Project, Support, Used};
pub use plan::{Counting, Uncounted};
pub use projects::ProjectId;
pub use quotas::Quotas;
