//! Ports: everything the agent reaches outside itself.
//!
//! Production wires them to the kernel and the runtime's socket; simulation to a
//! model of them. Nothing else in this crate may touch a clock, a file, a
//! socket, randomness or `tokio::spawn`.

mod cgroups;
mod clock;
mod fs;
pub mod host_net;
mod http;
mod login;
mod metered_plugins;
mod plugins;
mod probe;
mod programs;
mod real_fs;
mod real_login;
mod real_probe;
mod real_volumes;
mod remote_disk;
mod rng;
mod tasks;
mod volumes;

pub use self::cgroups::{NoCgroups, PodCgroupSpec, PodCgroups};
pub use clock::{Clock, SystemClock};
pub use fs::{
    AlarmId, ChangeStream, DirEntry, FileStamp, Fs, Links, NewFile, OpenFile, WriteAlarms,
};
pub use http::{Fetched, HttpFetch, HttpFetchError, HyperFetch};
pub use login::{Inhibitor, LoginError, LoginManager, LoginSession};
pub use metered_plugins::{CsiMetrics, MeteredPlugins};
pub(crate) use metered_plugins::{code_name, storage_seconds};
pub use plugins::{CsiNode, Plugins, Registrar, SocketPlugins};
pub use probe::{BODY_MAX, HttpAnswer, HttpRequest, PROBE_USER_AGENT, ProbeNet, Scheme};
pub use programs::{NoPrograms, ProgramCall, ProgramError, Programs, RealPrograms};
pub use real_fs::RealFs;
pub use real_login::Logind;
pub use real_probe::RealProbeNet;
pub use real_volumes::RealVolumeHost;
pub use remote_disk::{Chap, FcDisk, IscsiDisk, RemoteDisk, Share};
pub use rng::Jitter;
pub use tasks::{TaskHandle, Tasks};
pub use volumes::{Publication, SubPathBind, VolumeError, VolumeHost, VolumeQuotas};

use std::sync::Arc;

/// All ports in one cheap handle.
#[derive(Clone)]
pub struct Ports {
    /// The container runtime.
    pub runtime: Arc<dyn cri::Runtime>,
    /// The file system.
    pub fs: Arc<dyn Fs>,
    /// Files and mounts of volumes.
    pub volumes: Arc<dyn VolumeHost>,
    /// The pods' control groups.
    pub cgroups: Arc<dyn PodCgroups>,
    /// Fetches manifests from a URL.
    pub http: Arc<dyn HttpFetch>,
    /// Reaches the endpoints of pods.
    pub probe_net: Arc<dyn ProbeNet>,
    /// Runs credential providers.
    pub programs: Arc<dyn Programs>,
    /// Reaches plugins, such as CSI drivers.
    pub plugins: Arc<dyn Plugins>,
    /// The API server; none on a node of its own.
    pub api: Option<Arc<dyn api_client::Api>>,
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for jitter.
    pub jitter: Jitter,
    /// Spawns tasks.
    pub tasks: Tasks,
}

impl Ports {
    /// The machine's files, clock and network around a runtime, but no programs
    /// and no control groups: for tests and tools.
    pub fn around(runtime: Arc<dyn cri::Runtime>) -> Self {
        Self {
            runtime,
            cgroups: Arc::new(NoCgroups),
            fs: Arc::new(RealFs),
            volumes: Arc::new(RealVolumeHost::default()),
            http: Arc::new(HyperFetch::default()),
            probe_net: Arc::new(RealProbeNet::default()),
            programs: Arc::new(NoPrograms),
            plugins: Arc::new(SocketPlugins),
            api: None,
            clock: Arc::new(SystemClock::new()),
            jitter: Jitter::seeded(1),
            tasks: Tasks::default(),
        }
    }
}
