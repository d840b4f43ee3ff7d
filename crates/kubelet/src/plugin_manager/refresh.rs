//! Asks drivers again how many volumes they can attach, as often as a cluster wants, and
//! when it turns out to be fewer.
//!
//! Owns when each is asked next. Reads drivers' CSIDriver objects; writes the table of
//! [`Drivers`], from which the cluster is told. Never registers a driver. Upstream:
//! pkg/volume/csi/csi_node_updater.go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::csi_node::CsiNodeHandle;
use k8s_openapi::api::storage::v1::CSIDriverSpec;
use kubelet_model::{ObjectKey, ObjectKind};
use tokio::time::{Instant, sleep_until};

use super::Drivers;
use crate::object_cache::Objects;

/// However often a cluster wants it.
const PERIOD_MIN: Duration = Duration::from_secs(1);

/// Asks drivers again.
pub struct Refresh {
    /// The drivers.
    pub drivers: Drivers,
    /// What the cluster says of them.
    pub objects: Objects,
    /// Tells the cluster.
    pub announcer: CsiNodeHandle,
}

impl Refresh {
    /// Works until it is dropped.
    pub async fn run(self) {
        // With each driver's period, from which the next time follows.
        let mut due: BTreeMap<String, (Duration, Instant)> = BTreeMap::new();
        loop {
            // Followed first: what changes during the look is then noticed.
            let mut coming = self.drivers.follow();
            let names = self.drivers.names();
            let keys: BTreeSet<ObjectKey> = names.iter().map(|name| key(name)).collect();
            let mut objects = self.objects.follow(keys);
            let now = Instant::now();
            let mut next = BTreeMap::new();
            for name in names {
                let Some(period) = self.period(&name) else { continue };
                let known = due.get(&name).filter(|(known, _)| *known == period);
                let at = known.map_or(now + period, |(_, at)| *at);
                next.insert(name, (period, at));
            }
            due = next;
            let first = due.values().map(|(_, at)| *at).min();
            tokio::select! { biased;
                () = coming.changed() => {}
                () = objects.changed() => {}
                names = self.drivers.to_ask() => {
                    for name in names {
                        self.ask(&name).await;
                    }
                }
                () = sleep_until(first.unwrap_or(now)), if first.is_some() => {
                    for (name, (period, at)) in &mut due {
                        if *at <= Instant::now() {
                            self.ask(name).await;
                            *at = Instant::now() + *period;
                        }
                    }
                }
            }
        }
    }

    /// How often the cluster wants a driver to be asked.
    fn period(&self, name: &str) -> Option<Duration> {
        let spec = self.objects.get(&key(name))?.spec::<CSIDriverSpec>()?;
        let seconds = u64::try_from(spec.node_allocatable_update_period_seconds?).ok()?;
        (seconds > 0).then(|| Duration::from_secs(seconds).max(PERIOD_MIN))
    }

    async fn ask(&self, name: &str) {
        let Ok(driver) = self.drivers.get(name) else { return };
        match driver.node.info().await {
            Ok(info) => self.drivers.renew(&driver, info),
            Err(error) => {
                tracing::warn!(driver = name, %error, "CSI driver does not tell how many volumes it can attach");
                return;
            }
        }
        if let Err(error) = self.announcer.announce(name).await {
            tracing::warn!(driver = name, %error, "the cluster does not hear of what a CSI driver can attach");
        }
    }
}

fn key(driver: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::CsiDriver, "", driver)
}
