//! What volumes hold, for whoever asks.
//!
//! Measures through the ports when asked, never on a timer: by summing up files where a
//! volume shares its file system that does not count it, else by asking the file system or the volume's
//! driver. Upstream: pkg/kubelet/server/stats/volume_stat_calculator.go,
//! pkg/volume/metrics_*.go, pkg/volume/csi/csi_metrics.go.

use std::path::Path;
use std::sync::Arc;

use kubelet_model::{ConfigObject, ObjectKey};
use mounts::{Space, Usage};
use plugin_apis::csi::volume_usage::Unit;
use plugin_apis::csi::{NodeCapability, NodeGetVolumeStatsRequest, VolumeUsage};
use tokio::time::Instant;

use super::Volumes;
use super::claims::{PlaceKind, Resolved};
use super::csi::rpc_error;
use super::desired::Wanted;
use super::inventory::VolumeFacts;
use super::network::DiskSpec;
use crate::ports::{RemoteDisk, VolumeHost};

/// How a volume's use is found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measure {
    /// It shares its file system with others: its files are summed up.
    Files,
    /// The same, unless its file system counts it.
    Counted,
    /// It is a file system, or counts as one.
    FileSystem,
    /// Its driver knows.
    Driver {
        /// Which driver.
        driver: String,
        /// The volume, as the driver knows it.
        handle: String,
    },
    /// It is a device: nobody knows how much of it is used.
    Device,
    /// It is the host's own, as it is; nobody measures it.
    Not,
}

/// What a volume holds, and what its file system could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeUse {
    /// By the volume.
    pub used: Usage,
    /// Of the file system it is on.
    pub space: Space,
}

impl Measure {
    /// That of a volume. What a claim stands for is looked up.
    pub(super) fn of(
        wanted: &Wanted,
        get: &dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    ) -> Self {
        match wanted {
            Wanted::EmptyDir { quota: Some(_), .. } => Self::Counted,
            Wanted::EmptyDir { .. } | Wanted::Payload(_) => Self::Files,
            Wanted::HostPath { .. } | Wanted::Refused(_) => Self::Not,
            Wanted::Share(_) => Self::FileSystem,
            Wanted::Disk(spec) => Self::of_disk(spec),
            Wanted::Csi(spec) => {
                Self::Driver { driver: spec.driver.clone(), handle: spec.handle.clone() }
            }
            Wanted::Claim(claim) => match claim.resolve(get) {
                Ok(Resolved::Driver(spec)) => {
                    Self::Driver { driver: spec.driver.clone(), handle: spec.handle.clone() }
                }
                Ok(Resolved::Place(spec)) => match spec.kind {
                    PlaceKind::Local(_) => Self::FileSystem,
                    PlaceKind::Device => Self::Device,
                    PlaceKind::HostPath(_) => Self::Not,
                },
                Ok(Resolved::Share(_)) => Self::FileSystem,
                Ok(Resolved::Disk(spec)) => Self::of_disk(&spec),
                Err(_) => Self::Not,
            },
        }
    }

    /// As upstream, nobody measures a file system of a Fibre Channel network.
    fn of_disk(spec: &DiskSpec) -> Self {
        match spec.disk {
            _ if spec.block => Self::Device,
            RemoteDisk::Iscsi(_) => Self::FileSystem,
            RemoteDisk::Fc(_) => Self::Not,
        }
    }

    /// Whom the figures are from, as upstream calls it.
    fn source(&self) -> &str {
        match self {
            Self::Files | Self::Counted => "du",
            Self::FileSystem => "statfs",
            Self::Driver { driver, .. } => driver,
            Self::Device => "block",
            Self::Not => "",
        }
    }
}

impl Volumes {
    /// What a volume holds now; `None` if nobody knows.
    pub async fn measure(&self, volume: &VolumeFacts) -> Result<Option<VolumeUse>, String> {
        let Some(path) = volume.device.as_ref().or(volume.path.as_ref()) else { return Ok(None) };
        let (began, mut source) = (Instant::now(), volume.measure.source());
        let found = self.measure_at(path, &volume.measure, &mut source).await;
        if volume.measure != Measure::Not {
            self.0.metrics.measured(source, began);
        }
        found
    }

    async fn measure_at(
        &self,
        path: &Path,
        measure: &Measure,
        source: &mut &str,
    ) -> Result<Option<VolumeUse>, String> {
        let host = &*self.0.ports.volumes;
        let space = || async { host.space(path).await.map_err(|error| error.to_string()) };
        match measure {
            Measure::Not => Ok(None),
            Measure::Files => {
                let used = host.usage(path).await.map_err(|error| error.to_string())?;
                Ok(Some(VolumeUse { used, space: space().await? }))
            }
            Measure::Counted => {
                let used = match counted(host, path).await {
                    Some(used) => {
                        *source = "fsquota";
                        used
                    }
                    None => host.usage(path).await.map_err(|error| error.to_string())?,
                };
                Ok(Some(VolumeUse { used, space: space().await? }))
            }
            Measure::FileSystem => Ok(Some(whole(space().await?))),
            Measure::Device => {
                let size = host.device_size(path).await.map_err(|error| error.to_string())?;
                Ok(Some(whole(Space { capacity: size, ..Space::default() })))
            }
            Measure::Driver { driver, handle } => self.ask(driver, handle, path).await,
        }
    }

    async fn ask(
        &self,
        driver: &str,
        handle: &str,
        path: &Path,
    ) -> Result<Option<VolumeUse>, String> {
        let driver = self.0.drivers.get(driver).map_err(|error| error.to_string())?;
        let said = |error| rpc_error(&error);
        let capabilities = driver.node.capabilities().await.map_err(said)?;
        if !capabilities.contains(&NodeCapability::GetVolumeStats) {
            return Ok(None);
        }
        let request = NodeGetVolumeStatsRequest {
            volume_id: handle.to_owned(),
            volume_path: path.display().to_string(),
            staging_target_path: String::new(),
        };
        let answer = driver.node.stats(request).await.map_err(said)?;
        Ok(told(&answer.usage))
    }
}

/// What the file system has counted; `None` if it does not, which is told once.
async fn counted(host: &dyn VolumeHost, path: &Path) -> Option<Usage> {
    let counted = host.quotas()?.counted(path).await;
    counted.unwrap_or_else(|error| {
        tracing::warn!(%error, "a volume is measured by a walk from now on");
        None
    })
}

/// A volume that is a whole file system.
fn whole(space: Space) -> VolumeUse {
    VolumeUse { used: Usage { bytes: space.used, inodes: space.inodes_used }, space }
}

/// What a driver says; `None` if that is nothing.
fn told(usage: &[VolumeUsage]) -> Option<VolumeUse> {
    let of = |unit: Unit| {
        let found = usage.iter().find(|one| one.unit == unit as i32)?;
        let [available, total, used] = [found.available, found.total, found.used]
            .map(|amount| u64::try_from(amount).unwrap_or(0));
        Some((available, total, used))
    };
    let (bytes, inodes) = (of(Unit::Bytes), of(Unit::Inodes));
    if bytes.is_none() && inodes.is_none() {
        return None;
    }
    let (available, capacity, used) = bytes.unwrap_or_default();
    let (inodes_free, inodes, inodes_used) = inodes.unwrap_or_default();
    Some(whole(Space { available, capacity, used, inodes, inodes_free, inodes_used }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_tells_is_taken_as_far_as_it_goes() {
        let usage = |unit: Unit, available, total, used| VolumeUsage {
            available,
            total,
            used,
            unit: unit as i32,
        };
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[usage(Unit::Unknown, 1, 2, 3)]), None);
        let bytes = told(&[usage(Unit::Bytes, 70, 100, 30)]).expect("bytes");
        assert_eq!((bytes.used, bytes.space.capacity), (Usage { bytes: 30, inodes: 0 }, 100));
        let both = [usage(Unit::Inodes, 7, 10, 3), usage(Unit::Bytes, -1, 100, 30)];
        let both = told(&both).expect("both");
        assert_eq!(both.used, Usage { bytes: 30, inodes: 3 });
        assert_eq!((both.space.available, both.space.inodes_free), (0, 7));
    }
}
