//! Alarms on silent logs, so that one which begins to write fast is seen at once.
//!
//! Owns the alarms that are set and whose they are. Where the system grants
//! none, it says so once; such logs are looked at every interval, as upstream
//! looks at all.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use kubelet_model::ContainerId;

use crate::ports::{AlarmId, Fs, WriteAlarms};

/// More containers than a node runs; what is beyond does without.
const ALARMS_MAX: usize = 4_096;

pub(super) struct Alarms {
    fs: Arc<dyn Fs>,
    source: Option<Box<dyn WriteAlarms>>,
    set: BTreeMap<ContainerId, AlarmId>,
    owners: BTreeMap<AlarmId, ContainerId>,
    /// It was told that there are too few; until one is granted again.
    lacking: bool,
}

impl Alarms {
    pub(super) fn new(fs: Arc<dyn Fs>) -> Self {
        let (set, owners) = (BTreeMap::new(), BTreeMap::new());
        Self { fs, source: None, set, owners, lacking: false }
    }

    /// Sets an alarm on a container's log, unless it has one; false if the system grants none.
    pub(super) fn arm(&mut self, id: &ContainerId, log: &Path) -> bool {
        if self.set.contains_key(id) {
            return true;
        }
        if self.set.len() >= ALARMS_MAX {
            return false;
        }
        let granted = self.try_arm(log);
        match &granted {
            Ok(alarm) => {
                self.lacking = false;
                self.owners.insert(*alarm, id.clone());
                self.set.insert(id.clone(), *alarm);
            }
            // The next look at the log deals with its absence.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                if !self.lacking {
                    tracing::warn!(
                        container = %id, log = %log.display(), %error,
                        "cannot watch logs for sudden growth, so they are looked at once per \
                         containerLogMonitorInterval only; if a limit is reached, raise \
                         fs.inotify.max_user_watches or fs.inotify.max_user_instances with sysctl"
                    );
                }
                self.lacking = true;
            }
        }
        granted.is_ok()
    }

    fn try_arm(&mut self, log: &Path) -> io::Result<AlarmId> {
        let source = match &mut self.source {
            Some(source) => source,
            none => none.insert(self.fs.write_alarms()?),
        };
        source.arm(log)
    }

    /// Takes the alarm off a container's log, if it has one.
    pub(super) fn disarm(&mut self, id: &ContainerId) {
        let Some(alarm) = self.set.remove(id) else { return };
        self.owners.remove(&alarm);
        if let Some(source) = &mut self.source {
            source.disarm(alarm);
        }
    }

    /// The container whose log is written to again; its alarm is spent.
    pub(super) async fn next(&mut self) -> ContainerId {
        loop {
            let Some(source) = &mut self.source else { return std::future::pending().await };
            match source.next().await {
                Some(alarm) => {
                    if let Some(owner) = self.owners.remove(&alarm) {
                        self.set.remove(&owner);
                        return owner;
                    }
                }
                // All are lost; silent logs get others at their next look.
                None => {
                    self.source = None;
                    self.owners.clear();
                    self.set.clear();
                }
            }
        }
    }
}
