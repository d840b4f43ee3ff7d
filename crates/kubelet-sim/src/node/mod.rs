//! The node around the agent: files, volumes, a CSI driver, control groups, a URL, the
//! endpoints of pods, a login manager, clocks.

mod alarms;
mod cgroups;
mod clock;
mod fs;
mod http;
mod login;
mod mount_table;
mod network_disks;
mod plugins;
mod probe_net;
mod volume_work;
mod volumes;

pub(crate) use cgroups::PodGroups;
pub use cgroups::SimCgroups;
pub use clock::SimClock;
pub use fs::SimFs;
pub(crate) use fs::{FileTree, MANIFESTS};
pub use http::SimHttp;
pub(crate) use http::WebPage;
pub(crate) use login::Shutdowns;
pub use login::SimLogin;
pub(crate) use mount_table::MountTable;
pub(crate) use network_disks::{FC, ISCSI, NFS, fc_source, iscsi_source, nfs_source};
pub(crate) use plugins::CsiVolumes;
pub use plugins::SimPlugins;
pub(crate) use probe_net::Endpoints;
pub use probe_net::SimProbeNet;
pub use volume_work::SimVolumes;
