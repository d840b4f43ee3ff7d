//! The node around the agent: files, control groups, a URL, clocks.

mod cgroups;
mod clock;
mod fs;
mod http;

pub(crate) use cgroups::PodGroups;
pub use cgroups::SimCgroups;
pub use clock::SimClock;
pub use fs::SimFs;
pub(crate) use fs::{FileTree, MANIFESTS};
pub use http::SimHttp;
pub(crate) use http::WebPage;
