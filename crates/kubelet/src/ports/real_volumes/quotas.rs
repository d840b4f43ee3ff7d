//! Volumes that their file systems count.
//!
//! Owns what was said about file systems that cannot. Opens a volume once, as a directory
//! and never as a link, and works on what it opened.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mounts::{Place, Usage};
use quota::{Counting, Quotas, Uncounted};

use super::super::volumes::{VolumeError, VolumeQuotas};
use super::RealVolumeHost;
use super::flights::Manner;

/// Counts, and says once why not.
pub(super) struct Counter {
    quotas: Quotas,
    /// Reasons that were told: a handful, which name no volume.
    told: Mutex<BTreeSet<String>>,
}

impl RealVolumeHost {
    /// Has file systems count volumes.
    pub fn with_quotas(self, quotas: Quotas) -> Self {
        let counter = Counter { quotas, told: Mutex::default() };
        Self { counter: Some(Arc::new(counter)), ..self }
    }
}

impl Counter {
    fn count(&self, dir: &Path, limited: bool) -> Result<(), VolumeError> {
        let place = Place::directory(dir)?;
        let path = dir.display();
        match self.quotas.count(place.as_fd(), dir, limited)? {
            Counting::Counted(project) => {
                tracing::debug!(%path, %project, "the file system counts the volume");
            }
            Counting::Not(Uncounted::Unsupported(reason)) => self.tell(dir, reason),
            Counting::Not(reason) => {
                tracing::info!(%path, %reason, "the volume is measured by a walk");
            }
        }
        Ok(())
    }

    /// All volumes share a file system: this is said once, and not of each.
    fn tell(&self, dir: &Path, reason: String) {
        let mut told = self.told.lock().expect("told lock: no code panics while holding it");
        if !told.contains(&reason) {
            let path = dir.display();
            tracing::warn!(%path, reason, "no project quotas; volumes are measured by walks");
            told.insert(reason);
        }
    }

    fn counted(&self, dir: &Path) -> Result<Option<Usage>, VolumeError> {
        let place = Place::directory(dir)?;
        let used = self.quotas.used(place.as_fd(), dir)?;
        Ok(used.map(|used| Usage { bytes: used.bytes, inodes: used.inodes }))
    }

    fn forget(&self, dir: &Path) -> Result<(), VolumeError> {
        let place = match Place::directory(dir) {
            Err(error) if error.is_not_found() => None,
            place => Some(place?),
        };
        Ok(self.quotas.forget(place.as_ref().map(Place::as_fd), dir)?)
    }
}

#[async_trait]
impl VolumeQuotas for RealVolumeHost {
    async fn count(&self, dir: &Path, limited: bool) -> Result<(), VolumeError> {
        let Some(counter) = self.counter.clone() else { return Ok(()) };
        let path = dir.to_owned();
        let count = move || counter.count(&path, limited);
        self.flights.run(dir, "setting the project of".to_owned(), count).await
    }

    async fn counted(&self, dir: &Path) -> Result<Option<Usage>, VolumeError> {
        let Some(counter) = self.counter.clone() else { return Ok(None) };
        let path = dir.to_owned();
        let look = move || counter.counted(&path);
        self.flights
            .fly(Manner::Look, dir, "reading the quota of".to_owned(), move |_| look())
            .await
    }

    async fn forget(&self, dir: &Path) -> Result<(), VolumeError> {
        let Some(counter) = self.counter.clone() else { return Ok(()) };
        let path = dir.to_owned();
        self.flights
            .run(dir, "removing the quota of".to_owned(), move || counter.forget(&path))
            .await
    }
}
