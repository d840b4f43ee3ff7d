//! What the node is like, and whom it tells: the ports of this module. Pure data and
//! two traits; whoever implements them reads files, asks the runtime, records events.

use std::net::IpAddr;

use async_trait::async_trait;
use kubelet_model::EventType;

/// Knows what the node is like.
#[async_trait]
pub trait Facts: Send + Sync + 'static {
    /// What the node is like now. What cannot be learnt is an error inside, soon: it is
    /// given up on after a while. With `anew` the runtime is to be asked, not remembered.
    async fn gather(&self, anew: bool) -> NodeFacts;
}

/// Is told what comes of it.
#[async_trait]
pub trait Reports: Send + Sync + 'static {
    /// Something happened to the node that users should know.
    fn event(&self, event: NodeEvent);
    /// The API server knows these volumes to be in use: they may be attached now.
    fn volumes_reported(&self, volumes: &[String]);
    /// The pods' networks, joined by commas, are others than before: tells the runtime.
    ///
    /// # Errors
    /// Why the runtime would not have it; it is told again at the next update.
    async fn pod_networks(&self, networks: &str) -> Result<(), String>;
    /// Signs of life fail again and again: the connection may be dead, and is to be made
    /// anew.
    async fn reconnect(&self);
}

/// An event about the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent {
    /// Whether it is worth a worry.
    pub kind: EventType,
    /// Upstream's word for it.
    pub reason: &'static str,
    /// In full.
    pub message: String,
}

/// What the node is like. Errors are for people to read.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
    /// The machine.
    pub machine: Result<Machine, String>,
    /// What runs on it.
    pub versions: Result<Versions, String>,
    /// Its addresses.
    pub network: Network,
    /// Bytes of the file system that holds the node's own data; `None` if unknown.
    pub ephemeral_storage_bytes: Option<u64>,
    /// What pods cannot have.
    pub reserved: Reserved,
    /// Resources that plugins know.
    pub devices: Devices,
    /// The container runtime.
    pub runtime: Runtime,
    /// Images that are here.
    pub images: Result<Vec<NodeImage>, String>,
    /// What is short.
    pub pressure: Pressure,
    /// Unique names of volumes in use; `None` until those of a former run are known.
    pub volumes_in_use: Option<Vec<String>>,
    /// What keeps the node from being ready.
    pub troubles: Troubles,
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// The firmware's.
    pub system_uuid: String,
    /// Of this boot.
    pub boot_id: String,
    /// Cores.
    pub cores: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// Swap; 0 if there is none.
    pub swap_bytes: u64,
    /// Sizes of huge pages, and how many there are of each.
    pub huge_pages: Vec<HugePages>,
}

/// Huge pages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Size of a page.
    pub page_bytes: u64,
    /// How many.
    pub pages: u64,
}

/// What runs on the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Versions {
    /// The kernel's.
    pub kernel: String,
    /// The distribution's name for itself.
    pub os_image: String,
}

/// Addresses to choose from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Of the host's interfaces.
    pub interfaces: Vec<IpAddr>,
    /// What the node's name resolves to. Needed only if `NodeSettings::looks_up_name`.
    pub by_name: Vec<IpAddr>,
    /// Of the interface of the default route, in the preferred family; or why there is
    /// none. Needed as the names are.
    pub by_route: Option<Result<IpAddr, String>>,
}

/// What pods cannot have: reserved for the system and the agent, and kept free by
/// eviction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Disk.
    pub ephemeral_storage_bytes: u64,
}

/// Resources that plugins know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// How many there are, by name.
    pub capacity: Vec<(String, u64)>,
    /// How many are healthy.
    pub allocatable: Vec<(String, u64)>,
    /// Names whose plugin is gone.
    pub removed: Vec<String>,
    /// Nothing is remembered of devices: an older Node object is wrong about them.
    pub forgotten: bool,
}

/// The container runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runtime {
    /// Its name.
    pub name: String,
    /// Its version, if it answers.
    pub version: Option<String>,
    /// Its handlers.
    pub handlers: Vec<RuntimeHandler>,
    /// Whether it knows policies of supplemental groups; `None` if it does not say.
    pub supplemental_groups_policy: Option<bool>,
}

/// A handler of the runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeHandler {
    /// Its name; empty for the default one.
    pub name: String,
    /// Mounts can be read-only all the way down.
    pub recursive_read_only_mounts: bool,
    /// Pods can have user namespaces.
    pub user_namespaces: bool,
}

/// An image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeImage {
    /// Its id.
    pub id: String,
    /// Names by digest.
    pub digests: Vec<String>,
    /// Names by tag.
    pub tags: Vec<String>,
    /// Its size.
    pub bytes: u64,
}

/// What is short.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Disk.
    pub disk: bool,
    /// Processes.
    pub pids: bool,
}

/// What keeps the node from being ready, in upstream's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Troubles {
    /// With the runtime.
    pub runtime: Vec<String>,
    /// With pods' networks.
    pub network: Vec<String>,
    /// With storage.
    pub storage: Vec<String>,
    /// The node is about to go.
    pub shutdown: Option<String>,
    /// What is wanted but not needed: told, and no obstacle.
    pub soft: Option<String>,
}
