//! A small CSI driver for tests: real sockets, real mounts, faults on demand.
//!
//! Owns `plugins/NAME` in the kubelet's directory (its socket and the volumes,
//! each a directory), its socket in `plugins_registry`, and the mounts it
//! makes below the kubelet's directory; it takes them away when dropped, also
//! when the test panics. Volumes come into being when first asked for; a block
//! volume is a file behind a loop device. There is no Controller service.

mod blocks;
mod script;
mod serve;
mod service;
#[cfg(test)]
mod tests;
mod usage;
mod volumes;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
pub use plugin_apis::csi::NodeCapability;
pub use tonic::Code;

pub use script::{Asked, Call, Fault, Outcome, Rpc};
use script::{Script, lock};
use serve::{Served, Stop};
use service::Shared;
pub use volumes::SIZE_KEY;
use volumes::Volumes;

/// What a driver says of itself.
#[derive(Debug, Clone)]
pub struct CsiOptions {
    /// The driver's name.
    pub name: String,
    /// How it knows this node.
    pub node_id: String,
    /// What it can do; calls that need more are refused.
    pub capabilities: BTreeSet<NodeCapability>,
    /// Volumes per node; zero is no limit.
    pub volumes_max: i64,
    /// Where this node is.
    pub topology: BTreeMap<String, String>,
    /// CSI versions that it registers with.
    pub versions: Vec<String>,
}

impl Default for CsiOptions {
    /// Stages volumes, and nothing beyond.
    fn default() -> Self {
        Self {
            name: "hostpath.klet.test".to_owned(),
            node_id: "node-1".to_owned(),
            capabilities: BTreeSet::from([NodeCapability::StageUnstageVolume]),
            volumes_max: 0,
            topology: BTreeMap::new(),
            versions: vec!["1.0.0".to_owned()],
        }
    }
}

/// A CSI driver that serves until dropped.
pub struct CsiDriver {
    shared: Arc<Shared>,
    registry_socket: PathBuf,
    driver: Option<Served>,
    registrar: Option<Served>,
}

impl CsiDriver {
    /// Starts a driver for the kubelet whose root directory this is; it must
    /// exist, and its path must have no symbolic links, as in the mount table.
    pub fn start(kubelet_dir: &Path, options: CsiOptions) -> Result<Self> {
        let shown = kubelet_dir.display();
        ensure!(
            rustix::process::geteuid().is_root(),
            "a CSI driver needs root for its mounts; run the tests as root"
        );
        let real = kubelet_dir.canonicalize().with_context(|| format!("cannot find {shown}"))?;
        ensure!(real == kubelet_dir, "{shown} is really {}; use that", real.display());
        let dir = kubelet_dir.join("plugins").join(&options.name);
        let registry = kubelet_dir.join("plugins_registry");
        for dir in [&dir, &registry] {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let registry_socket = registry.join(format!("{}-reg.sock", options.name));
        let stages = options.capabilities.contains(&NodeCapability::StageUnstageVolume);
        let shared = Shared {
            options,
            socket: dir.join("csi.sock"),
            script: Script::default(),
            volumes: Volumes::new(kubelet_dir, dir.join("volumes"), stages),
            conditions: Mutex::default(),
        };
        let shared = Arc::new(shared);
        let mut driver = Self { shared, registry_socket, driver: None, registrar: None };
        driver.restart()?;
        Ok(driver)
    }

    /// The driver's name.
    pub fn name(&self) -> &str {
        &self.shared.options.name
    }

    /// The socket of the CSI services.
    pub fn socket(&self) -> &Path {
        &self.shared.socket
    }

    /// The socket of the registration service, there while registered.
    pub fn registry_socket(&self) -> &Path {
        &self.registry_socket
    }

    /// Serves registration, so that a kubelet finds the driver.
    pub fn register(&mut self) -> Result<()> {
        self.registrar = None;
        let stop = Arc::<Stop>::default();
        let routes = service::registrar(&self.shared, &stop);
        self.registrar = Some(Served::start(&self.registry_socket, routes, stop)?);
        Ok(())
    }

    /// Ends registration and removes its socket; the driver itself goes on.
    pub fn deregister(&mut self) {
        self.registrar = None;
        // Never registered is just as well.
        let _ = fs::remove_file(&self.registry_socket);
    }

    /// Makes a call to come go wrong: the next one, or, if faults wait
    /// already, the one after those.
    pub fn inject(&self, rpc: Rpc, fault: Fault) {
        self.shared.script.inject(rpc, fault);
    }

    /// Stops serving CSI at once. Mounts, the socket's file and registration stay.
    pub fn crash(&mut self) {
        self.driver = None;
    }

    /// Serves CSI on the same socket again, after a crash or instead of one.
    pub fn restart(&mut self) -> Result<()> {
        self.driver = None;
        let stop = Arc::<Stop>::default();
        let routes = service::driver(&self.shared, &stop);
        self.driver = Some(Served::start(&self.shared.socket, routes, stop)?);
        Ok(())
    }

    /// Whether CSI is served, which it is not after a crash.
    pub fn is_up(&self) -> bool {
        self.driver.as_ref().is_some_and(Served::is_up)
    }

    /// Every call so far, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.script.calls()
    }

    /// Every request of one kind so far, oldest first.
    pub fn requests<T: Asked>(&self) -> Vec<T> {
        self.shared.script.requests()
    }

    /// Where the files of a volume are, mounted or not.
    pub fn volume_dir(&self, volume: &str) -> PathBuf {
        self.shared.volumes.data(volume)
    }

    /// The device of a block volume, while the node has it.
    pub fn device_of(&self, volume: &str) -> Result<Option<PathBuf>> {
        Ok(self.shared.volumes.device(volume)?)
    }

    /// Everywhere a volume is mounted.
    pub fn mounts_of(&self, volume: &str) -> Result<Vec<PathBuf>> {
        Ok(self.shared.volumes.mounts_of(volume)?)
    }

    /// Makes a volume ill, or well again; told with its stats if the driver
    /// has VOLUME_CONDITION.
    pub fn set_condition(&self, volume: &str, ill: Option<&str>) {
        let mut conditions = lock(&self.shared.conditions);
        match ill {
            Some(ill) => conditions.insert(volume.to_owned(), ill.to_owned()),
            None => conditions.remove(volume),
        };
    }
}

impl Drop for CsiDriver {
    fn drop(&mut self) {
        self.deregister();
        self.crash();
        self.shared.volumes.clean();
        let _ = fs::remove_file(&self.shared.socket);
    }
}

impl std::fmt::Debug for CsiDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CsiDriver").field("name", &self.name()).field("up", &self.is_up()).finish()
    }
}
