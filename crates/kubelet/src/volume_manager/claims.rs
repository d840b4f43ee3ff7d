//! Claims: from what a pod names to what a driver is asked, or where it lies. Pure.
//!
//! A cluster binds claims, and says so. On a node of its own nobody does: a claim names
//! its PersistentVolume, and both lie beside the pods. Objects are looked up by a
//! function. Upstream: desired_state_of_world_populator.go.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

mod bound;
mod unusable;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, NodeSelector, ObjectReference, PersistentVolumeClaimSpec,
    PersistentVolumeSpec, SecretReference,
};
use kubelet_model::quantity::Quantity;
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind, Source};
use mounts::host_path::{HostPathError, HostPathType};

use super::attach::NodeView;
use super::csi::{
    Access, CsiSpec, Grouping, Persistent, PodIdentity, PodTokens, Policy, attachment_id,
    driver_key, unique_name,
};
use super::growth::{Size, Sizes};
use super::layout::VolumeName;
use super::network::{self, DiskSpec, ShareSpec};
use super::selinux::Labels;
pub use unusable::Unusable;
use unusable::foreign_kind;

/// A volume that a pod names by a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimSpec {
    /// Which claim.
    pub claim: ObjectKey,
    /// The pod only reads it.
    pub read_only: bool,
    /// Whom its files belong to.
    pub grouping: Grouping,
    /// Its name in the pod.
    pub name: String,
    /// How containers use it.
    pub uses: Uses,
    /// Whose it is.
    pub pod: PodIdentity,
    /// The claim was made for the pod alone, which must own it.
    pub owned: bool,
    /// It is to be found at an API server.
    pub from_api: bool,
    /// Which SELinux label they have.
    pub labels: Labels,
}

/// What a pod's spec says of a claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    pub claim: &'a str,
    pub read_only: bool,
    pub owned: bool,
}

/// How a pod's containers use a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uses {
    /// Some mount it.
    pub mounted: bool,
    /// Some have it as a device.
    pub mapped: bool,
}

impl ClaimSpec {
    /// What a pod's spec asks for, of a volume of this name.
    pub(super) fn of(
        named: Named<'_>,
        pod: &DesiredPod,
        name: &str,
        uses: Uses,
        labels: Labels,
    ) -> Self {
        let (kind, namespace) = (ObjectKind::PersistentVolumeClaim, pod.namespace());
        Self {
            claim: ObjectKey::new(kind, namespace, named.claim),
            read_only: named.read_only,
            grouping: Grouping::of(pod),
            name: name.to_owned(),
            uses,
            pod: PodIdentity::of(pod),
            owned: named.owned,
            from_api: pod.source() == Source::Api,
            labels,
        }
    }

    /// Every object that decides what the volume is, as far as they are known.
    pub(super) fn objects(
        &self,
        get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
        node: &NodeView,
        node_name: &str,
    ) -> BTreeSet<ObjectKey> {
        let mut keys = BTreeSet::from([self.claim.clone()]);
        let claim = get(&self.claim).and_then(|claim| claim.spec::<PersistentVolumeClaimSpec>());
        let Some(volume) = claim.and_then(|claim| claim.volume_name) else { return keys };
        let volume = ObjectKey::new(ObjectKind::PersistentVolume, "", &volume);
        let spec = get(&volume).and_then(|volume| volume.spec::<PersistentVolumeSpec>());
        keys.insert(volume);
        let Some(spec) = spec else { return keys };
        if let Some(csi) = spec.csi {
            if node.in_cluster {
                keys.extend(driver_objects(&csi.driver, &self.pod, get));
            }
            // Before that all that can be read in it is that the node has too many.
            let (driver, handle) = (&csi.driver, &csi.volume_handle);
            let policy = || Policy::read(get(&driver_key(driver)).as_deref());
            // Of a driver of which nothing can be read, nobody asks for anything either.
            let limits = || node.attaches() && policy().is_ok_and(|policy| policy.limits);
            if node.check_attached(&unique_name(driver, handle)).is_ok() || limits() {
                let id = attachment_id(handle, driver, node_name);
                keys.insert(ObjectKey::new(ObjectKind::VolumeAttachment, "", &id));
            }
            keys.extend(secret(csi.node_stage_secret_ref.as_ref()));
            keys.extend(secret(csi.node_publish_secret_ref.as_ref()));
            keys.extend(secret(csi.node_expand_secret_ref.as_ref()));
        }
        if let Some(iscsi) = spec.iscsi.filter(|iscsi| iscsi.secret_ref.is_some()) {
            keys.insert(network::secret_of(&iscsi, &self.claim.namespace));
        }
        keys
    }

    /// What the claim stands for, or what is missing.
    pub(super) fn resolve(
        &self,
        get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    ) -> Result<Resolved, ClaimError> {
        let failed = |why| ClaimError::Claim { claim: self.claim.clone(), why: Box::new(why) };
        let (name, volume) = self.bound_to(get)?;
        let block = self.check_mode(volume.volume_mode.as_deref())?;
        let kind = if volume.csi.is_some() { "" } else { foreign_kind(&volume) };
        let modes = volume.access_modes.unwrap_or_default();
        let access = modes.first().and_then(|mode| Access::named(mode));
        let (Some(volume_name), Some(access)) = (VolumeName::new(&name), access) else {
            return Err(failed(Unusable::Kind { volume: name, kind }));
        };
        let for_driver = volume.mount_options.unwrap_or_default();
        let mount_options = self.mount_options(&name, &for_driver, get);
        let at = |path: String, kind, fs_type: Option<String>| {
            Resolved::Place(Arc::new(PlaceSpec {
                volume: volume_name.clone(),
                path: PathBuf::from(path),
                read_only: self.read_only,
                kind,
                fs_type: fs_type.unwrap_or_default(),
                mount_options: mount_options.clone(),
                once_pod: access == Access::OncePod,
            }))
        };
        if let Some(local) = volume.local {
            let kind = if block { PlaceKind::Device } else { PlaceKind::Local(self.grouping) };
            return Ok(at(local.path, kind, local.fs_type));
        }
        let usage = network::Usage {
            volume: volume_name.clone(),
            read_only: self.read_only,
            mount_options: mount_options.clone(),
            block,
            grouping: self.grouping,
            persistent: true,
            once_pod: access == Access::OncePod,
            context: {
                let can = !block && (volume.iscsi.is_some() || volume.fc.is_some());
                let label = self.labels.for_mount(|| Ok(can), &modes);
                label.map_err(|why| failed(Unusable::Type(why)))?
            },
        };
        let disk = match (&volume.nfs, &volume.iscsi, &volume.fc) {
            (Some(nfs), _, _) => {
                return Ok(Resolved::Share(Arc::new(ShareSpec::nfs(nfs, usage))));
            }
            (_, Some(iscsi), _) => {
                Some(DiskSpec::iscsi_volume(iscsi, &self.claim.namespace, usage))
            }
            (_, _, Some(fc)) => Some(DiskSpec::fc(fc, usage)),
            _ => None,
        };
        if let Some(disk) = disk {
            let disk = disk.map_err(|why| failed(Unusable::Type(why)))?;
            return Ok(Resolved::Disk(Arc::new(disk)));
        }
        if volume.host_path.is_some() && block {
            return Err(failed(Unusable::NotBlock(name)));
        }
        if let Some(HostPathVolumeSource { path, type_ }) = volume.host_path {
            let kind = type_.as_deref().unwrap_or_default().parse();
            let kind =
                kind.map_err(|error: HostPathError| failed(Unusable::Type(error.to_string())))?;
            return Ok(at(path, PlaceKind::HostPath(kind), None));
        }
        let capacity =
            volume.capacity.as_ref().and_then(|all| Quantity::parse(&all.get("storage")?.0));
        let Some(csi) = volume.csi else {
            return Err(failed(Unusable::Kind { volume: name, kind }));
        };
        let mounts_labels = || {
            let policy = Policy::read(get(&driver_key(&csi.driver)).as_deref())?;
            Ok(policy.mounts_labels)
        };
        let label = self.labels.for_mount(mounts_labels, &modes);
        let label = label.map_err(|why| failed(Unusable::Type(why)))?;
        Ok(Resolved::Driver(Arc::new(CsiSpec {
            driver: csi.driver,
            handle: csi.volume_handle,
            // As upstream: what the volume itself says is for whoever attaches it.
            read_only: self.read_only,
            fs_type: csi.fs_type.unwrap_or_default(),
            context: csi.volume_attributes.unwrap_or_default(),
            pod: self.pod.clone(),
            policy: Policy::default(),
            publish_context: Default::default(),
            tokens: PodTokens::default(),
            secret: secret(csi.node_publish_secret_ref.as_ref()),
            grouping: self.grouping,
            persistent: Some(Persistent {
                volume: volume_name,
                access,
                block,
                mount_options: for_driver,
                stage_secret: secret(csi.node_stage_secret_ref.as_ref()),
                expand_secret: secret(csi.node_expand_secret_ref.as_ref()),
                bytes: capacity.map(Quantity::units).filter(|bytes| *bytes > 0),
                sizes: get(&self.claim)
                    .and_then(|claim| Sizes::of(&claim, Size::of(volume.capacity.as_ref())?)),
                label,
            }),
        })))
    }

    /// The volume that the claim stands for, or what is missing.
    fn bound_to(
        &self,
        get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    ) -> Result<(String, PersistentVolumeSpec), ClaimError> {
        let failed = |why| ClaimError::Claim { claim: self.claim.clone(), why: Box::new(why) };
        let (at, kinds) = match self.from_api {
            true => (" from API server", ["persistentvolumeclaims", "persistentvolumes"]),
            false => ("", ["persistentvolumeclaim", "persistentvolume"]),
        };
        let claim = get(&self.claim);
        let asked = claim.as_ref().and_then(|claim| claim.spec::<PersistentVolumeClaimSpec>());
        let (Some(claim), Some(asked)) = (claim, asked) else {
            let name = self.claim.name.clone();
            return Err(failed(Unusable::NoClaim { at, kind: kinds[0], name }));
        };
        let state = bound::ClaimState::of(&claim);
        if let Some(state) = &state {
            state.check(&asked).map_err(failed)?;
            if self.owned && !state.is_controlled_by(&self.pod.uid) {
                let (claim, pod) = (self.claim.clone(), self.pod.name.clone());
                return Err(ClaimError::NotOwned { claim, pod });
            }
        }
        let name = asked.volume_name.clone().unwrap_or_default();
        let key = ObjectKey::new(ObjectKind::PersistentVolume, "", &name);
        let volume = get(&key).and_then(|volume| volume.spec::<PersistentVolumeSpec>());
        let Some(volume) = volume else {
            return Err(failed(Unusable::NoVolume { at, kind: kinds[1], name }));
        };
        match state {
            Some(_) => bound::check_reference(&name, volume.claim_ref.as_ref(), &claim.uid),
            None => self.check(&asked, &name, &volume),
        }
        .map_err(failed)?;
        Ok((name, volume))
    }

    /// How the node is to mount a volume: as its annotation says, or else its spec. As
    /// upstream each option counts once, and drivers hear of the spec alone.
    fn mount_options(
        &self,
        volume: &str,
        spec: &[String],
        get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    ) -> Vec<String> {
        let object = get(&ObjectKey::new(ObjectKind::PersistentVolume, "", volume));
        let annotated = object.and_then(|object| bound::mount_options(&object));
        let all: BTreeSet<String> =
            annotated.unwrap_or_else(|| spec.to_vec()).into_iter().collect();
        all.into_iter().filter(|option| !option.is_empty()).collect()
    }

    /// Which nodes the volume can be used on.
    pub(super) fn affinity(
        &self,
        get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    ) -> Option<NodeSelector> {
        let (_, volume) = self.bound_to(get).ok()?;
        volume.node_affinity?.required
    }

    /// The group that users of the volume need to be in, as it says itself.
    pub(super) fn gid(&self, get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>) -> Option<i64> {
        let (name, _) = self.bound_to(get).ok()?;
        bound::gid(&*get(&ObjectKey::new(ObjectKind::PersistentVolume, "", &name))?)
    }

    /// Is it a device, and used as what it is?
    fn check_mode(&self, mode: Option<&str>) -> Result<bool, ClaimError> {
        let mode = mode.filter(|mode| !mode.is_empty()).unwrap_or("Filesystem");
        let block = mode == "Block";
        let wrong = |used| ClaimError::Mode { volume: self.name.clone(), mode: mode.into(), used };
        match self.uses {
            Uses { mounted: true, .. } if block => Err(wrong("volumeMounts")),
            Uses { mapped: true, .. } if !block => Err(wrong("volumeDevices")),
            _ => Ok(block),
        }
    }

    /// Is the volume one for this claim?
    fn check(
        &self,
        asked: &PersistentVolumeClaimSpec,
        name: &str,
        volume: &PersistentVolumeSpec,
    ) -> Result<(), Unusable> {
        let volume_name = || name.to_owned();
        if let Some(bound) = &volume.claim_ref
            && !self.is_meant(bound)
        {
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            let claim = format!("{}/{}", text(&bound.namespace), text(&bound.name));
            return Err(Unusable::ForAnother { volume: volume_name(), claim });
        }
        let modes = volume.access_modes.as_deref().unwrap_or_default();
        let mode = |mode: &Option<String>| mode.as_deref() == Some("Block");
        if mode(&asked.volume_mode) != mode(&volume.volume_mode) {
            return Err(Unusable::OtherMode { volume: volume_name() });
        }
        match asked.access_modes.iter().flatten().find(|mode| !modes.contains(mode)) {
            Some(mode) => Err(Unusable::NoMode { volume: volume_name(), mode: mode.clone() }),
            None => Ok(()),
        }
    }

    fn is_meant(&self, bound: &ObjectReference) -> bool {
        bound.namespace.as_deref() == Some(&self.claim.namespace)
            && bound.name.as_deref() == Some(&self.claim.name)
    }
}

/// What a claim stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resolved {
    /// What a driver is asked for.
    Driver(Arc<CsiSpec>),
    /// A place on this node.
    Place(Arc<PlaceSpec>),
    /// What a server shares.
    Share(Arc<ShareSpec>),
    /// A disk of another machine.
    Disk(Arc<DiskSpec>),
}

impl Resolved {
    /// The PersistentVolume it is.
    pub(super) fn volume(&self) -> Option<&VolumeName> {
        match self {
            Self::Driver(spec) => spec.persistent.as_ref().map(|own| &own.volume),
            Self::Place(spec) => Some(&spec.volume),
            Self::Share(spec) => Some(&spec.volume),
            Self::Disk(spec) => Some(&spec.volume),
        }
    }
}

/// A persistent volume that lies on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlaceSpec {
    /// The name of its PersistentVolume.
    pub volume: VolumeName,
    /// Where it lies.
    pub path: PathBuf,
    /// The pod only reads it.
    pub read_only: bool,
    /// Of which kind it is.
    pub kind: PlaceKind,
    /// The file system of a disk; empty leaves it to the agent.
    pub fs_type: String,
    /// How a disk is mounted, and what is bound of it or of a directory.
    pub mount_options: Vec<String>,
    /// One pod has it at a time.
    pub once_pod: bool,
}

/// How a place is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
    /// A directory of the agent's to bind and to give away.
    Local(Grouping),
    /// The host's, as it is.
    HostPath(HostPathType),
    /// A block device, to be used as one.
    Device,
}

/// A claim stands for no volume, in upstream's words as far as it has any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// For none at all.
    #[error("error processing PVC {}/{}: {why}", .claim.namespace, .claim.name)]
    Claim {
        /// Which claim.
        claim: ObjectKey,
        /// Why.
        why: Box<Unusable>,
    },
    /// For none that can be used as the pod does.
    #[error("volume {volume} has volumeMode {mode}, but is specified in {used}")]
    Mode {
        /// The volume's name in the pod.
        volume: String,
        /// What it is.
        mode: String,
        /// The field that names it.
        used: &'static str,
    },
    /// It is another's.
    #[error(
        "PVC {}/{} was not created for pod {}/{pod} (pod is not owner)",
        .claim.namespace, .claim.name, .claim.namespace
    )]
    NotOwned {
        /// Which claim.
        claim: ObjectKey,
        /// The pod's name.
        pod: String,
    },
}

/// What a cluster says of a driver, and the tokens that it wants of a pod. Which these are
/// is not known while what it says cannot be read.
pub(super) fn driver_objects(
    driver: &str,
    pod: &PodIdentity,
    get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
) -> BTreeSet<ObjectKey> {
    let key = driver_key(driver);
    let policy = Policy::read(get(&key).as_deref()).ok();
    let tokens = policy.into_iter().flat_map(|policy| pod.token_keys(&policy));
    tokens.map(|(_, key)| key).chain([key]).collect()
}

fn secret(reference: Option<&SecretReference>) -> Option<ObjectKey> {
    let SecretReference { name, namespace } = reference?;
    Some(ObjectKey::new(ObjectKind::Secret, namespace.as_deref()?, name.as_deref()?))
}
