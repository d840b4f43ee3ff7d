//! The node around the agent: files, a URL, clocks.

mod clock;
mod fs;
mod http;

pub use clock::SimClock;
pub use fs::SimFs;
pub(crate) use fs::{FileTree, MANIFESTS};
pub use http::SimHttp;
pub(crate) use http::WebPage;
