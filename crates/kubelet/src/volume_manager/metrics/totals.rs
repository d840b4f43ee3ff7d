//! How many volumes there should be and are, by plugin, counted when somebody asks.
//! Upstream: totalVolumesCollector of pkg/kubelet/volumemanager/metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use kubelet_model::{ConfigObject, ObjectKey};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::super::claims::{PlaceKind, Resolved};
use super::super::desired::{PodVolumes, Wanted};
use super::super::layout::PluginName;
use super::super::plan::Goal;
use super::super::{Shared, VolumeState, Volumes};

/// What upstream says if it knows no plugin.
const UNKNOWN: &str = "N/A";

/// A state of the world, as upstream calls it.
const DESIRED: &str = "desired_state_of_world";
const ACTUAL: &str = "actual_state_of_world";

/// Counts volumes for `/metrics`, as long as there are any.
pub struct TotalVolumes(Weak<Shared>);

impl fmt::Debug for TotalVolumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TotalVolumes")
    }
}

impl Collector for TotalVolumes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let volumes = self.0.upgrade().map(Volumes);
        let counts = volumes.map(|volumes| volumes.totals()).unwrap_or_default();
        if counts.is_empty() {
            return Ok(());
        }
        let mut all = encoder.encode_descriptor(
            "volume_manager_total_volumes",
            "Number of volumes in Volume Manager",
            None,
            MetricType::Gauge,
        )?;
        for ((plugin, state), count) in counts {
            let labels = [("plugin_name", plugin.as_str()), ("state", state)];
            ConstGauge::new(count).encode(all.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

type Counts = BTreeMap<(String, &'static str), i64>;

impl Volumes {
    /// Counts them whenever somebody asks.
    pub fn total(&self) -> TotalVolumes {
        TotalVolumes(Arc::downgrade(&self.0))
    }

    fn totals(&self) -> Counts {
        let get = |key: &ObjectKey| self.0.objects.get(key);
        let mut counts = Counts::new();
        for entry in self.lock().values() {
            let state = entry.state.borrow();
            match &*entry.goal.borrow() {
                Goal::Mount(pod) => count(pod, &state, true, &get, &mut counts),
                Goal::Keep(pod) => count(pod, &state, false, &get, &mut counts),
                Goal::Release => {}
            }
        }
        for plugin in self.0.metrics.leaving() {
            *counts.entry((plugin, ACTUAL)).or_default() += 1;
        }
        counts
    }
}

type Get<'a> = &'a dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>;

/// Counts the volumes of a pod; those of one that ends are no longer desired.
fn count(pod: &PodVolumes, state: &VolumeState, desired: bool, get: Get<'_>, counts: &mut Counts) {
    for (name, wanted) in &pod.volumes {
        let there = match state {
            VolumeState::Ready(all) => all.contains_key(name.as_str()),
            // Nobody has looked yet, or mounts are about to be shared.
            VolumeState::Waiting { volumes, .. } if volumes.is_empty() => false,
            VolumeState::Waiting { volumes, .. } => !volumes.iter().any(|one| one == name.as_str()),
            VolumeState::Gone => false,
        };
        let plugin = plugin_of(wanted, get).unwrap_or_else(|| UNKNOWN.to_owned());
        if there {
            *counts.entry((plugin.clone(), ACTUAL)).or_default() += 1;
        }
        if desired {
            *counts.entry((plugin, DESIRED)).or_default() += 1;
        }
    }
}

/// The plugin that a volume is of, as upstream names it: with the driver, if it has one.
/// `None` if it is not known what the volume is.
pub(in crate::volume_manager) fn plugin_of(wanted: &Wanted, get: Get<'_>) -> Option<String> {
    const HOST_PATH: &str = "kubernetes.io/host-path";
    Some(match wanted {
        Wanted::EmptyDir { .. } => PluginName::empty_dir().plain(),
        Wanted::HostPath { .. } => HOST_PATH.to_owned(),
        Wanted::Payload(spec) => spec.kind.plugin().plain(),
        Wanted::Csi(spec) => of_driver(&spec.driver),
        Wanted::Share(_) => PluginName::nfs().plain(),
        Wanted::Disk(spec) => spec.plugin().plain(),
        Wanted::Refused(_) => return None,
        Wanted::Claim(claim) => match claim.resolve(get).ok()? {
            Resolved::Driver(spec) => of_driver(&spec.driver),
            Resolved::Share(_) => PluginName::nfs().plain(),
            Resolved::Disk(spec) => spec.plugin().plain(),
            Resolved::Place(spec) => match spec.kind {
                PlaceKind::Local(_) | PlaceKind::Device => PluginName::local().plain(),
                PlaceKind::HostPath(_) => HOST_PATH.to_owned(),
            },
        },
    })
}

/// That of a driver's volumes.
pub(in crate::volume_manager) fn of_driver(driver: &str) -> String {
    format!("{}:{driver}", PluginName::csi().plain())
}
