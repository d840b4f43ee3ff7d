//! Volumes that a driver mounts once for the node, and pods share.
//!
//! Owns a turn per volume: whoever mounts or unmounts it, or counts its users, has
//! it. Who the users are is read from the disk, from the notes of all pods, so that
//! an agent that comes back knows them. Upstream: the device part of
//! volumemanager/cache, nestedpendingoperations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Turns at shared volumes. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Devices(Arc<StdMutex<Table>>);

/// The turn at a volume, until it is dropped.
pub(super) type Turn = OwnedMutexGuard<Device>;

/// By driver and handle.
type Table = BTreeMap<(String, String), Arc<Mutex<Device>>>;

/// What this life of the agent knows of a shared volume.
#[derive(Debug, Default)]
pub(super) struct Device {
    /// The driver has said that it is mounted.
    pub staged: bool,
    /// What has come of making it larger.
    pub growth: Growth,
}

/// What this life of the agent knows of the growth of a shared volume.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    /// How large the driver has made it.
    pub bytes: Option<i64>,
    /// The driver failed to grow it.
    pub failed: bool,
    /// The driver does not grow it while it is in use.
    pub refused: bool,
}

impl Devices {
    /// Waits for the turn at a volume; first come, first served.
    pub(super) async fn turn(&self, driver: &str, handle: &str) -> Turn {
        let device = {
            let mut table = self.0.lock().expect("devices lock: no code panics while holding it");
            // What nobody has in hand and is not mounted is not worth a place.
            table.retain(|_, device| {
                Arc::strong_count(device) > 1
                    || device
                        .try_lock()
                        .map_or(true, |device| device.staged || device.growth != Growth::default())
            });
            let key = (driver.to_owned(), handle.to_owned());
            Arc::clone(table.entry(key).or_default())
        };
        device.lock_owned().await
    }
}
