//! Which volumes a pod needs, and how each is to be made. Pure.
//!
//! Only volumes that some container mounts, or has as a device, count. Image volumes are the
//! runtime's. Upstream: desired_state_of_world_populator.go, pkg/volume/emptydir.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EphemeralContainer, HostPathVolumeSource, PodSpec, Volume,
    VolumeDevice, VolumeMount,
};
use kubelet_model::quantity::Quantity;
use kubelet_model::{ConfigObject, DesiredPod, EventObject, ObjectKey};
use mounts::host_path::{HostPathError, HostPathType};

use super::attach::NodeView;
use super::claims::{ClaimSpec, Named, Resolved, Uses, driver_objects};
use super::csi::{self, CsiSpec};
use super::layout::VolumeName;
use super::network::{self, DiskSpec, ShareSpec};
use super::payload::{self, PayloadSpec};
use super::selinux::{Labels, NodeLabels};
use crate::container_manager::allocatable::Allocatable;
use crate::container_manager::{Rules, amounts, plan};
use crate::object_cache::KeptNode;
use crate::settings::Settings;

/// The volumes of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodVolumes {
    /// Whom events are about.
    pub object: EventObject,
    /// Some container wants to see mounts made later, or to make some.
    pub shares: bool,
    /// By name.
    pub volumes: BTreeMap<VolumeName, Wanted>,
}

/// How a volume is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A place that lives as long as the pod.
    EmptyDir {
        /// What it is made of.
        medium: Medium,
        /// The group it is given to.
        fs_group: Option<u32>,
        /// How its file system may count it; `None` if it must not.
        quota: Option<Quota>,
    },
    /// A path of the host.
    HostPath {
        /// Which.
        path: PathBuf,
        /// What it must be.
        kind: HostPathType,
    },
    /// Files that the agent writes.
    Payload(Arc<PayloadSpec>),
    /// What a CSI driver mounts.
    Csi(Arc<CsiSpec>),
    /// What a claim stands for.
    Claim(Arc<ClaimSpec>),
    /// What a server shares.
    Share(Arc<ShareSpec>),
    /// A disk of another machine.
    Disk(Arc<DiskSpec>),
    /// It can never be made; why.
    Refused(String),
}

impl Wanted {
    /// The kind, as manifests name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::EmptyDir { .. } => "emptyDir",
            Self::HostPath { .. } => "hostPath",
            Self::Payload(spec) => spec.kind.as_field(),
            Self::Csi(_) => "csi",
            Self::Claim(_) => "persistentVolumeClaim",
            Self::Share(_) => "nfs",
            Self::Disk(spec) => spec.kind(),
            Self::Refused(_) => "",
        }
    }

    /// It counts as the pod's use of the node's own disk. As upstream, secrets and
    /// other files that lie in memory do not.
    pub fn is_ephemeral(&self) -> bool {
        match self {
            Self::EmptyDir { medium, .. } => *medium == Medium::Disk,
            _ => self.kind() == "configMap",
        }
    }
}

/// How a file system may count a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The pod, or the volume itself, has a limit.
    pub limited: bool,
}

/// What an empty directory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// The disk of the agent's root directory.
    Disk,
    /// Memory, of so many bytes.
    Memory(Option<NonZeroU64>),
    /// Huge pages of so many bytes each.
    HugePages(NonZeroU64),
}

/// What the node gives pods.
#[derive(Debug, Clone, Copy)]
pub struct NodeFacts<'a> {
    /// What all pods may use together.
    pub allocatable: Allocatable,
    /// How limits count.
    pub rules: &'a Rules,
    /// How volumes are labelled.
    pub labels: NodeLabels<'a>,
}

impl<'a> NodeFacts<'a> {
    /// As the agent was told.
    pub fn of(settings: &'a Settings) -> Self {
        let files = settings.machine.selinux_files.as_deref();
        Self {
            allocatable: settings.allocatable,
            rules: &settings.resources,
            labels: NodeLabels { files, all_modes: settings.selinux_mount_all },
        }
    }
}

/// The volumes of a pod; `None` if no container uses any.
pub fn of_pod(pod: &DesiredPod, node: NodeFacts<'_>) -> Option<PodVolumes> {
    let spec = pod.spec();
    let mounted: BTreeSet<&str> = mounts(spec).map(|mount| mount.name.as_str()).collect();
    let mapped: BTreeSet<&str> = devices(spec).map(|device| device.name.as_str()).collect();
    let uses = |volume: &Volume| Uses {
        mounted: mounted.contains(volume.name.as_str()),
        mapped: mapped.contains(volume.name.as_str()),
    };
    let all = spec.volumes.iter().flatten();
    let used = all.map(|volume| (volume, uses(volume)));
    let needed = used.filter(|(volume, uses)| *uses != Uses::default() && volume.image.is_none());
    let (mut volumes, mut misnamed) = (BTreeMap::new(), BTreeMap::new());
    for (volume, uses) in needed {
        match VolumeName::new(&volume.name) {
            Some(name) => {
                let wanted = wanted(volume, &name, uses, pod, node);
                volumes.insert(name, wanted);
            }
            None => {
                let why = Wanted::Refused(bad_name(&volume.name));
                misnamed.insert(VolumeName::stand_in(&volume.name), why);
            }
        }
    }
    // Last: what is refused is told, whatever else has the name it is told under.
    volumes.append(&mut misnamed);
    let shares = |mount: &VolumeMount| {
        matches!(mount.mount_propagation.as_deref(), Some("HostToContainer" | "Bidirectional"))
    };
    let shares = mounts(spec).any(shares);
    (!volumes.is_empty()).then(|| PodVolumes { object: EventObject::pod(pod), shares, volumes })
}

/// Why a volume of such a name cannot be made.
fn bad_name(name: &str) -> String {
    format!(
        "{name:?} is no name of a volume: it has to be one part of a path, of 255 bytes at most; \
         name it anew"
    )
}

impl PodVolumes {
    /// The objects that the volumes' files come from, and drivers' credentials.
    pub(crate) fn objects(
        &self,
        get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
        node: &NodeView,
        node_name: &str,
    ) -> BTreeSet<ObjectKey> {
        let mut keys = BTreeSet::new();
        for wanted in self.volumes.values() {
            match wanted {
                Wanted::Payload(spec) => keys.extend(spec.objects().cloned()),
                Wanted::Csi(spec) => {
                    keys.extend(spec.secret.clone());
                    if node.in_cluster {
                        keys.extend(driver_objects(&spec.driver, &spec.pod, get));
                    }
                }
                Wanted::Claim(claim) => keys.extend(claim.objects(get, node, node_name)),
                Wanted::Disk(spec) => keys.extend(spec.secret.clone()),
                _ => {}
            }
        }
        keys
    }

    /// What the volumes need to know of the node without a cluster, as it is now: `None`
    /// while that is not known.
    pub(crate) fn of_node(
        &self,
        get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
        node: &NodeView,
    ) -> Option<KeptNode> {
        let mut kept = KeptNode::default();
        for wanted in self.volumes.values() {
            if let Wanted::Claim(claim) = wanted
                && claim.affinity(get).is_some()
            {
                kept.labels = Some(node.labels.clone()?);
            }
            let resolved = match wanted {
                Wanted::Claim(claim) => claim.resolve(get).ok(),
                Wanted::Disk(spec) => Some(Resolved::Disk(Arc::clone(spec))),
                _ => None,
            };
            let name = match resolved {
                Some(Resolved::Driver(spec)) => spec.unique_name(),
                Some(Resolved::Disk(spec)) => spec.unique_name.clone(),
                Some(Resolved::Place(_) | Resolved::Share(_)) | None => continue,
            };
            if node.check_attached(&name).is_ok() {
                let device = node.attached.as_ref().and_then(|all| all.get(&name));
                kept.attached.insert(name, device.cloned().unwrap_or_default());
            }
        }
        Some(kept)
    }
}

/// Every mount of every container.
fn mounts(spec: &PodSpec) -> impl Iterator<Item = &VolumeMount> {
    let init = spec.init_containers.iter().flatten();
    let plain = init.chain(&spec.containers).flat_map(|c: &Container| c.volume_mounts.iter());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.flat_map(|c: &EphemeralContainer| c.volume_mounts.iter());
    plain.chain(ephemeral).flatten()
}

/// Every device of every container.
fn devices(spec: &PodSpec) -> impl Iterator<Item = &VolumeDevice> {
    let init = spec.init_containers.iter().flatten();
    let plain = init.chain(&spec.containers).flat_map(|c: &Container| c.volume_devices.iter());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.flat_map(|c: &EphemeralContainer| c.volume_devices.iter());
    plain.chain(ephemeral).flatten()
}

fn wanted(
    volume: &Volume,
    name: &VolumeName,
    uses: Uses,
    pod: &DesiredPod,
    node: NodeFacts<'_>,
) -> Wanted {
    let spec = pod.spec();
    let is_claim = volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    if uses.mapped && !is_claim {
        let why = "only a persistentVolumeClaim or ephemeral volume can be in volumeDevices";
        return Wanted::Refused(why.to_owned());
    }
    let fs_group = spec.security_context.as_ref().and_then(|context| context.fs_group);
    let fs_group = fs_group.and_then(|id| u32::try_from(id).ok());
    if let Some((kind, sources)) = payload::sources_of(volume, pod, node.allocatable) {
        let memory = memory_size(&EmptyDirVolumeSource::default(), spec, node);
        let nested = nested(&volume.name, spec);
        let spec = PayloadSpec { kind, sources, fs_group, memory, nested };
        return Wanted::Payload(Arc::new(spec));
    }
    if let Some(source) = &volume.csi {
        return Wanted::Csi(Arc::new(csi::inline(&volume.name, source, pod)));
    }
    if let Some(source) = &volume.persistent_volume_claim {
        let labels = Labels::of(spec, &volume.name, node.labels);
        let read_only = source.read_only.unwrap_or(false);
        let named = Named { claim: &source.claim_name, read_only, owned: false };
        return Wanted::Claim(Arc::new(ClaimSpec::of(named, pod, &volume.name, uses, labels)));
    }
    if volume.ephemeral.is_some() {
        let labels = Labels::of(spec, &volume.name, node.labels);
        let claim = format!("{}-{}", pod.name(), volume.name);
        let named = Named { claim: &claim, read_only: false, owned: true };
        return Wanted::Claim(Arc::new(ClaimSpec::of(named, pod, &volume.name, uses, labels)));
    }
    if let Some(wanted) = network::inline(volume, name, pod) {
        return wanted;
    }
    let made = match (&volume.empty_dir, &volume.host_path) {
        (Some(source), None) => medium(source, spec, node).map(|medium| {
            let quota = (medium == Medium::Disk).then(|| quota(source, spec)).flatten();
            Wanted::EmptyDir { medium, fs_group, quota }
        }),
        (None, Some(source)) => host_path(source).map_err(|error| error.to_string()),
        _ => Err("this release has no volumes of this kind".to_owned()),
    };
    made.unwrap_or_else(Wanted::Refused)
}

/// Directories in a volume that other volumes are mounted on, in any container.
fn nested(volume: &str, spec: &PodSpec) -> BTreeSet<String> {
    let init = spec.init_containers.iter().flatten();
    let plain = init.chain(&spec.containers).map(|c| &c.volume_mounts);
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|c| &c.volume_mounts);
    let of = |mounts: &Option<Vec<VolumeMount>>| {
        let pairs = mounts.iter().flatten().map(|m| (m.name.as_str(), m.mount_path.as_str()));
        payload::nested(volume, &pairs.collect::<Vec<_>>())
    };
    plain.chain(ephemeral).flat_map(of).collect()
}

fn host_path(source: &HostPathVolumeSource) -> Result<Wanted, HostPathError> {
    let kind = source.type_.as_deref().unwrap_or_default().parse()?;
    Ok(Wanted::HostPath { path: PathBuf::from(&source.path), kind })
}

/// As upstream, of pods with users of their own alone: nobody else is kept from taking
/// files out of the volume's project.
fn quota(source: &EmptyDirVolumeSource, spec: &PodSpec) -> Option<Quota> {
    if spec.host_users != Some(false) {
        return None;
    }
    let own = source.size_limit.as_ref().and_then(|limit| Quantity::parse(&limit.0));
    let of_pod = amounts::pod_limits(spec, |_| {}).get("ephemeral-storage").copied();
    let limits = [own.map(Quantity::units), of_pod];
    Some(Quota { limited: limits.into_iter().flatten().any(|bytes| bytes > 0) })
}

fn medium(
    source: &EmptyDirVolumeSource,
    spec: &PodSpec,
    node: NodeFacts<'_>,
) -> Result<Medium, String> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(Medium::Disk),
        "Memory" => Ok(Medium::Memory(memory_size(source, spec, node))),
        pages if pages == "HugePages" || pages.starts_with("HugePages-") => {
            page_size(pages, spec).map(Medium::HugePages)
        }
        other => Err(format!("unknown storage medium {other:?}")),
    }
}

/// No more than all pods may use together, than this one may, and than it asks for.
fn memory_size(
    source: &EmptyDirVolumeSource,
    spec: &PodSpec,
    node: NodeFacts<'_>,
) -> Option<NonZeroU64> {
    let asked = source.size_limit.as_ref().and_then(|limit| Quantity::parse(&limit.0));
    let asked = asked.map(Quantity::units);
    let of_pod = plan::pod_group(spec, node.rules).memory_bytes;
    let limits =
        [of_pod, asked].into_iter().flatten().filter_map(|bytes| u64::try_from(bytes).ok());
    let all_pods = u64::try_from(node.allocatable.memory_bytes).unwrap_or(0);
    let all = limits.chain([all_pods]).filter_map(NonZeroU64::new);
    all.min()
}

/// The size of the pages: the one the medium names, if the pod requests such
/// pages, else the only one it requests.
fn page_size(medium: &str, spec: &PodSpec) -> Result<NonZeroU64, String> {
    let named = match medium.strip_prefix("HugePages-") {
        Some(size) => Some(
            Quantity::parse(size)
                .map(Quantity::units)
                .ok_or_else(|| format!("medium {medium}: {size:?} is no size of pages"))?,
        ),
        None => None,
    };
    let named = named.map(|bytes| u64::try_from(bytes).unwrap_or(0));
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let of_containers = containers.map(|c| amounts::of_container(c, amounts::Side::Request));
    let of_pod = amounts::of_pod_level(spec, amounts::Side::Request);
    let sizes: BTreeSet<u64> = of_containers
        .chain([of_pod])
        .flat_map(|amounts| amounts::huge_pages(&amounts).into_keys())
        .filter(|size| named.is_none_or(|named| named == *size))
        .collect();
    if sizes.len() > 1 {
        return Err(format!(
            "medium: {medium} can't be used if container requests multiple huge page sizes"
        ));
    }
    sizes.first().copied().and_then(NonZeroU64::new).ok_or_else(|| {
        format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for \
             huge pages"
        )
    })
}
