//! The node around the agent: files, a URL, clocks.

mod clock;
mod fs;
mod http;

pub use clock::SimClock;
pub(crate) use fs::FileTree;
pub use fs::SimFs;
pub use http::SimHttp;
pub(crate) use http::WebPage;
