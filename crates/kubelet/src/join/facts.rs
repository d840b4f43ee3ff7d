//! What the node is like, for its object at the API server.
//!
//! Reads /proc, /sys and /etc through the file port, and asks the runtime. What is
//! asked for costly is remembered for a while.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cluster::node::{
    Devices, Facts, HugePages, Machine, Network, NodeFacts, NodeImage, Pressure, Reserved, Runtime,
    RuntimeHandler, Troubles, Versions,
};
use cri::v1;
use node_stats::MachineIds;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::NodeCertificates;
use crate::container_manager::{disk_bytes, machine_capacity};
use crate::node_shutdown::{NOT_READY, ShutdownReader};
use crate::pleg::{RuntimeState, RuntimeStateReader};
use crate::ports::{Fs, Ports, host_net};
use crate::volume_manager::attach::Attachments;

/// How long a list of images is good enough.
const IMAGES_FRESH: Duration = Duration::from_secs(30);
/// Bytes of a file in /proc, /sys or /etc that are read.
const FILE_MAX: usize = 64 << 10;

/// Knows what this node is like.
pub(super) struct NodeFactsReader {
    pub(super) ports: Ports,
    pub(super) state: RuntimeStateReader,
    pub(super) shutting_down: ShutdownReader,
    pub(super) root_dir: PathBuf,
    pub(super) hostname: String,
    pub(super) reserved: Reserved,
    /// Whether the node's name and routes tell its address, because nobody gave one.
    pub(super) looks_up: bool,
    pub(super) prefers_v6: bool,
    /// What keeps volumes from being had.
    pub(super) storage: Option<watch::Receiver<Option<String>>>,
    /// Which volumes are in use.
    pub(super) attachments: Attachments,
    pub(super) asked: Mutex<Asked>,
    pub(super) certificates: Arc<NodeCertificates>,
}

/// What the runtime said, and when.
#[derive(Default)]
pub(super) struct Asked {
    version: Option<String>,
    images: Option<(Instant, Vec<NodeImage>)>,
}

#[async_trait]
impl Facts for NodeFactsReader {
    async fn gather(&self, anew: bool) -> NodeFacts {
        let fs = &*self.ports.fs;
        let mut reader = self.state.clone();
        let state = reader.current_and_update();
        let told = reader.troubles(self.ports.clock.mono());
        let mut asked = self.asked.lock().await;
        let runtime = self.runtime(&state, anew, &mut asked).await;
        let images = self.images(&mut asked).await;
        let goes = self.shutting_down.is_shutting_down();
        NodeFacts {
            machine: Ok(machine(fs)),
            versions: Ok(versions(fs)),
            network: self.network().await,
            ephemeral_storage_bytes: disk_bytes(&self.root_dir),
            reserved: self.reserved,
            devices: Devices::default(),
            runtime,
            images,
            // Nothing watches for it yet, and so nobody is told of any.
            pressure: Pressure::default(),
            volumes_in_use: self.attachments.in_use(),
            troubles: Troubles {
                runtime: told.runtime,
                network: told.network,
                storage: self.storage.iter().filter_map(|told| told.borrow().clone()).collect(),
                soft: self.certificates.warning(),
                shutdown: goes.then(|| NOT_READY.to_owned()),
            },
        }
    }
}

impl NodeFactsReader {
    async fn network(&self) -> Network {
        let mut network =
            Network { interfaces: host_net::interfaces(&*self.ports.fs), ..Network::default() };
        if self.looks_up {
            network.by_name = host_net::by_name(&self.hostname).await;
            network.by_route = Some(host_net::by_route(self.prefers_v6).await);
        }
        network
    }

    async fn runtime(&self, state: &RuntimeState, anew: bool, asked: &mut Asked) -> Runtime {
        let runtime = &self.ports.runtime;
        if anew || asked.version.is_none() {
            asked.version = runtime.version().await.ok().map(|version| version.runtime_version);
        }
        Runtime {
            name: state.name.clone(),
            version: asked.version.clone(),
            // As it said last: a runtime that is away has not lost them.
            handlers: state.handlers.iter().map(handler).collect(),
            supplemental_groups_policy: state.groups_policy,
        }
    }

    async fn images(&self, asked: &mut Asked) -> Result<Vec<NodeImage>, String> {
        let now = Instant::now();
        if let Some((at, images)) = &asked.images
            && now < *at + IMAGES_FRESH
        {
            return Ok(images.clone());
        }
        let listed = self.ports.runtime.list_images().await;
        let listed = listed.map(|images| images.into_iter().map(image).collect());
        listed_or_known(&mut asked.images, now, listed.map_err(|error| error.to_string()))
    }
}

/// A runtime that is away has not lost its images: what it listed last holds, and it is
/// asked again at the next look.
fn listed_or_known(
    known: &mut Option<(Instant, Vec<NodeImage>)>,
    now: Instant,
    listed: Result<Vec<NodeImage>, String>,
) -> Result<Vec<NodeImage>, String> {
    match (listed, &*known) {
        (Ok(images), _) => {
            *known = Some((now, images.clone()));
            Ok(images)
        }
        (Err(_), Some((_, images))) => Ok(images.clone()),
        (Err(error), None) => Err(error),
    }
}

fn handler(of: &v1::RuntimeHandler) -> RuntimeHandler {
    let features = of.features.unwrap_or_default();
    RuntimeHandler {
        name: of.name.clone(),
        recursive_read_only_mounts: features.recursive_read_only_mounts,
        user_namespaces: features.user_namespaces,
    }
}

fn image(of: v1::Image) -> NodeImage {
    NodeImage { id: of.id, digests: of.repo_digests, tags: of.repo_tags, bytes: of.size }
}

pub(super) fn machine(fs: &dyn Fs) -> Machine {
    let capacity = machine_capacity();
    let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
    let id = ids.into_iter().map(|path| line(fs, path)).find(|id| !id.is_empty());
    let uuids =
        ["/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id", "/etc/machine-id"];
    let uuid = uuids.into_iter().map(|path| line(fs, path)).find(|id| !id.is_empty());
    let mut huge_pages = Vec::new();
    for (page_bytes, bytes) in &capacity.huge_pages {
        let pages = bytes.checked_div(*page_bytes).unwrap_or_default();
        huge_pages.push(HugePages { page_bytes: *page_bytes, pages });
    }
    Machine {
        machine_id: id.unwrap_or_default(),
        system_uuid: uuid.unwrap_or_default(),
        boot_id: line(fs, "/proc/sys/kernel/random/boot_id"),
        cores: u32::try_from(capacity.cpu_milli / 1000).unwrap_or_default(),
        memory_bytes: u64::try_from(capacity.memory_bytes).unwrap_or_default(),
        swap_bytes: swap_bytes(&text(fs, "/proc/meminfo")),
        huge_pages,
    }
}

/// Who the machine is, for metrics.
pub(crate) fn machine_ids(fs: &dyn Fs) -> MachineIds {
    let (Machine { machine_id, system_uuid, boot_id, .. }, versions) = (machine(fs), versions(fs));
    MachineIds { machine_id, system_uuid, boot_id, kernel: versions.kernel, os: versions.os_image }
}

fn swap_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("SwapTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

fn versions(fs: &dyn Fs) -> Versions {
    let release = text(fs, "/etc/os-release");
    let release = if release.is_empty() { text(fs, "/usr/lib/os-release") } else { release };
    let kernel = line(fs, "/proc/sys/kernel/osrelease");
    Versions { kernel, os_image: os_image(&release) }
}

/// The distribution's name for itself; `Linux` if it has none.
fn os_image(release: &str) -> String {
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        let plain = line.trim().trim_matches(|c| c == '"' || c == '\'');
        (!plain.is_empty()).then(|| plain.to_owned())
    };
    value("PRETTY_NAME").or_else(|| value("NAME")).unwrap_or_else(|| "Linux".to_owned())
}

fn text(fs: &dyn Fs, path: &str) -> String {
    match fs.read(Path::new(path), FILE_MAX) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // What a machine does not have, its object leaves empty.
        Err(_) => String::new(),
    }
}

fn line(fs: &dyn Fs, path: &str) -> String {
    text(fs, path).lines().next().unwrap_or_default().trim().to_owned()
}

/// A reader of facts that nobody has asked yet.
pub(super) fn arc(reader: NodeFactsReader) -> Arc<dyn Facts> {
    Arc::new(reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::RealFs;

    #[test]
    fn names_of_distributions() {
        assert_eq!(
            os_image("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"),
            "Debian GNU/Linux 12"
        );
        assert_eq!(os_image("NAME='Odd'\n"), "Odd");
        assert_eq!(os_image("VERSION=1"), "Linux");
        assert_eq!(swap_bytes("MemTotal: 1 kB\nSwapTotal:   2048 kB\n"), 2 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn images_of_a_runtime_that_is_away_are_known_from_before() {
        let away = || Err("away".to_owned());
        let (mut known, now) = (None, Instant::now());
        assert_eq!(listed_or_known(&mut known, now, away()), away());
        let images = |id: &str| vec![NodeImage { id: id.to_owned(), ..NodeImage::default() }];
        assert_eq!(listed_or_known(&mut known, now, Ok(images("a"))), Ok(images("a")));
        let later = now + IMAGES_FRESH;
        assert_eq!(listed_or_known(&mut known, later, away()), Ok(images("a")));
        assert_eq!(known.as_ref().map(|(at, _)| *at), Some(now), "asked again at the next look");
        assert_eq!(listed_or_known(&mut known, later, Ok(images("b"))), Ok(images("b")));
    }

    #[test]
    fn this_machine() {
        let machine = machine(&RealFs);
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && machine.boot_id.len() == 36);
        assert!(!versions(&RealFs).kernel.is_empty());
    }
}
