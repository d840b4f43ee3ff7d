//! Which limits on local storage a pod has, and which one it exceeds. Pure.
//!
//! Upstream: emptyDirLimitEviction, podEphemeralStorageLimitEviction and
//! containerEphemeralStorageLimitEviction in pkg/kubelet/eviction.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use kubelet_model::quantity::{Quantity, canonical};
use kubelet_model::quote;
use node_stats::{ContainerSample, Fs, PodSample};

use crate::container_manager::amounts;

const STORAGE: &str = "ephemeral-storage";

/// A limit in bytes, and as upstream writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Limit {
    bytes: u64,
    text: String,
}

/// The limits of one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StorageLimits {
    /// Of `emptyDir` volumes, by name, in the order of the spec.
    volumes: Vec<(String, Limit)>,
    /// Of all containers together.
    pod: Option<Limit>,
    /// Of regular containers, by name.
    containers: Vec<(String, Limit)>,
}

/// Why a pod has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// As the metric calls it.
    pub(super) signal: &'static str,
    /// As its status tells it.
    pub(super) message: String,
}

impl StorageLimits {
    /// Those of a pod; `None` if it has none.
    pub(super) fn of(spec: &PodSpec) -> Option<Self> {
        let volumes = spec.volumes.iter().flatten().filter_map(|volume| {
            let limit = limit(&volume.empty_dir.as_ref()?.size_limit.as_ref()?.0)?;
            (limit.bytes > 0).then(|| (volume.name.clone(), limit))
        });
        let own = |container: &Container| {
            let limits = container.resources.as_ref()?.limits.as_ref()?;
            limit(&limits.get(STORAGE)?.0)
        };
        let containers = spec.containers.iter().filter_map(|container| {
            let limit = own(container).filter(|limit| limit.bytes > 0)?;
            Some((container.name.clone(), limit))
        });
        let first = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let pod = first.filter_map(own).next().and_then(|first| total(spec, &first));
        let limits = Self { volumes: volumes.collect(), pod, containers: containers.collect() };
        (limits != Self::default()).then_some(limits)
    }

    /// Depends on what containers have written outside of volumes.
    pub(super) fn counts_layers(&self) -> bool {
        self.pod.is_some()
    }

    /// The first limit that a pod exceeds. Containers' layers are no burden to the node's
    /// own disk where the runtime has one of its own; while that is not known, containers
    /// are not judged.
    pub(super) fn judge(&self, used: &PodSample, own_image_fs: Option<bool>) -> Option<Verdict> {
        self.judge_volumes(used).or_else(|| self.judge_pod(used)).or_else(|| {
            let own_image_fs = own_image_fs?;
            used.containers.iter().find_map(|one| self.judge_container(one, own_image_fs))
        })
    }

    fn judge_volumes(&self, used: &PodSample) -> Option<Verdict> {
        let exceeds = |(name, limit): &&(String, Limit)| {
            let measured = used.volumes.iter().find(|volume| volume.name == *name);
            measured.is_some_and(|volume| bytes(Some(&volume.fs)) > limit.bytes)
        };
        let (name, limit) = self.volumes.iter().find(exceeds)?;
        let (name, limit) = (quote::go(name), quote::go(&limit.text));
        Some(Verdict {
            signal: "emptydirfs.limit",
            message: format!("Usage of EmptyDir volume {name} exceeds the limit {limit}. "),
        })
    }

    fn judge_pod(&self, used: &PodSample) -> Option<Verdict> {
        let limit = self.pod.as_ref()?;
        let exceeds = bytes(used.ephemeral.as_ref()) > limit.bytes;
        let text = &limit.text;
        exceeds.then(|| Verdict {
            signal: "ephemeralpodfs.limit",
            message: format!(
                "Pod ephemeral local storage usage exceeds the total limit of containers {text}. "
            ),
        })
    }

    fn judge_container(&self, used: &ContainerSample, own_image_fs: bool) -> Option<Verdict> {
        let (name, limit) = self.containers.iter().find(|(name, _)| *name == used.name)?;
        let layer = if own_image_fs { 0 } else { bytes(used.rootfs.as_ref()) };
        let exceeds = bytes(used.logs.as_ref()).saturating_add(layer) > limit.bytes;
        let limit = quote::go(&limit.text);
        exceeds.then(|| Verdict {
            signal: "ephemeralcontainerfs.limit",
            message: format!(
                "Container {name} exceeded its local ephemeral storage limit {limit}. "
            ),
        })
    }
}

/// What nobody could measure counts as nothing.
fn bytes(fs: Option<&Fs>) -> u64 {
    fs.and_then(|fs| fs.used).unwrap_or(0)
}

fn limit(text: &str) -> Option<Limit> {
    let bytes = u64::try_from(Quantity::parse(text)?.units()).ok()?;
    Some(Limit { bytes, text: canonical(text)? })
}

/// The sum of all limits, written in the form of the first.
fn total(spec: &PodSpec, first: &Limit) -> Option<Limit> {
    let sum = amounts::pod_limits(spec, |_| {}).get(STORAGE).copied()?;
    let bytes = u64::try_from(sum).ok()?;
    if bytes == first.bytes {
        return Some(first.clone());
    }
    let text = match first.text.ends_with('i') {
        true => Quantity::bytes_text(sum),
        false => canonical(&sum.to_string())?,
    };
    Some(Limit { bytes, text })
}
