//! `kubelet_volume_stats_*`: what the volumes of claims hold, measured when asked.
//!
//! Each claim once, however many pods use it. A volume that cannot be measured in time
//! is left out: a driver that hangs must not keep the other metrics from anybody.
//! Upstream: pkg/kubelet/metrics/collectors/volume_stats.go.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kubelet_model::ObjectKey;
use tokio::time::timeout;

use crate::volume_manager::Volumes;
use crate::volume_manager::inventory::VolumeFacts;
use crate::volume_manager::measure::VolumeUse;

/// Volumes measured at a time: each takes a thread.
const MEASURED_AT_ONCE: usize = 4;
/// How long one may take.
const LIMIT: Duration = Duration::from_secs(5);

/// A metric: its name, what it is, and which figure.
type Gauge = (&'static str, &'static str, fn(&VolumeUse) -> u64);

const GAUGES: [Gauge; 6] = [
    ("capacity_bytes", "Capacity in bytes of the volume", |of| of.space.capacity),
    ("available_bytes", "Number of available bytes in the volume", |of| of.space.available),
    ("used_bytes", "Number of used bytes in the volume", |of| of.used.bytes),
    ("inodes", "Maximum number of inodes in the volume", |of| of.space.inodes),
    ("inodes_free", "Number of free inodes in the volume", |of| of.space.inodes_free),
    ("inodes_used", "Number of used inodes in the volume", |of| of.used.inodes),
];

/// The metrics of all claims that pods use now.
pub(super) async fn text(volumes: &Volumes) -> String {
    let of = |facts: VolumeFacts| Some((facts.claim.clone()?, facts));
    let all: BTreeMap<ObjectKey, VolumeFacts> =
        volumes.inventory().into_iter().filter_map(of).collect();
    let measure = async |(claim, facts): (ObjectKey, VolumeFacts)| {
        let measured = timeout(LIMIT, volumes.measure(&facts)).await;
        match measured.map_err(|_| format!("no answer in {} s", LIMIT.as_secs())).flatten() {
            Ok(measured) => Some((claim, measured?)),
            Err(error) => {
                tracing::debug!(%claim, error, "volume not measured");
                None
            }
        }
    };
    let all = stream::iter(all).map(measure).buffered(MEASURED_AT_ONCE);
    let all: Vec<Option<(ObjectKey, VolumeUse)>> = all.collect().await;
    let all: Vec<(ObjectKey, VolumeUse)> = all.into_iter().flatten().collect();
    if all.is_empty() { String::new() } else { format(&all) }
}

fn format(all: &[(ObjectKey, VolumeUse)]) -> String {
    let mut text = String::new();
    for (name, help, figure) in GAUGES {
        let name = format!("kubelet_volume_stats_{name}");
        let _ = write!(text, "# HELP {name} {help}.\n# TYPE {name} gauge\n");
        for (claim, of) in all {
            // Names of objects hold nothing that would need to be escaped.
            let ObjectKey { namespace, name: claim, .. } = claim;
            let labels = format!("namespace=\"{namespace}\",persistentvolumeclaim=\"{claim}\"");
            let _ = writeln!(text, "{name}{{{labels}}} {}", figure(of));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use kubelet_model::ObjectKind;
    use mounts::{Space, Usage};

    use super::*;

    #[test]
    fn every_claim_has_six_figures_of_its_own() {
        let claim = ObjectKey::new(ObjectKind::PersistentVolumeClaim, "ns", "data");
        let (available, capacity, used) = (60, 100, 40);
        let (inodes, inodes_free, inodes_used) = (10, 7, 3);
        let space = Space { available, capacity, used, inodes, inodes_free, inodes_used };
        let used = Usage { bytes: 38, inodes: 2 };
        let text = format(&[(claim, VolumeUse { used, space })]);
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let labels = r#"{namespace="ns",persistentvolumeclaim="data"}"#;
        let expected = [
            ("capacity_bytes", 100),
            ("available_bytes", 60),
            ("used_bytes", 38),
            ("inodes", 10),
            ("inodes_free", 7),
            ("inodes_used", 2),
        ];
        let expected =
            expected.map(|(name, value)| format!("kubelet_volume_stats_{name}{labels} {value}"));
        assert_eq!(values, expected);
    }
}
