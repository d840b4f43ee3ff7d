//! Files and mounts of volumes, safe against whoever writes into them meanwhile.
//!
//! Owns every step that touches what a container can write: mounting, binding
//! sub paths, publishing configuration, owning, measuring and removing trees.
//! Reads and writes what it is told to; blocking, for root, on Linux 5.6 and
//! later. Never decides what a pod should have, and knows nothing of pods.
//! Upstream: pkg/volume/util, k8s.io/mount-utils.
//!
//! What is trusted: the directories that lead to a path given here belong to
//! the agent or the administrator, and links among them are followed. What is
//! not: the last name of a path, and everything below it. There each name is
//! resolved once, relative to an open directory, by calls that refuse to follow
//! a link out of it or to enter another mount; from then on the descriptor is
//! used, so swapping the name for a link changes nothing.

mod bind;
mod error;
pub mod held;
pub mod host_path;
mod make_dir;
pub mod mount;
pub mod ownership;
mod place;
pub mod publish;
mod read;
mod remove;
mod remove_dirs;
pub mod sub_path;
mod sys;
pub mod table;
mod unmount;
mod usage;
mod walk;

pub use bind::{Bind, bind, make_shared, restrict};
pub use error::MountsError;
pub use make_dir::make_dir;
pub use place::Place;
pub use read::{Beginning, read_inside};
pub use remove::remove_tree;
pub use remove_dirs::remove_dirs;
pub use unmount::{Unmounted, force_unmount, unmount};
pub use usage::{Space, Usage, measure, space, usage};
