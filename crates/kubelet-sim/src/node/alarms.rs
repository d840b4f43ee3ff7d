//! Alarms on writes to files of the node.
//!
//! Owns which are set. They are lost as often as notices of watches are.

use std::collections::BTreeMap;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use kubelet::ports::{AlarmId, WriteAlarms};
use tokio::sync::mpsc;

use crate::world::{State, World};

/// Alarms that may wait to be heard; more are lost.
const WAITING_MAX: usize = 64;

/// Alarms that are set.
#[derive(Default)]
pub(crate) struct SetAlarms {
    set: BTreeMap<AlarmId, (PathBuf, mpsc::Sender<AlarmId>)>,
    last: u64,
}

impl SetAlarms {
    /// Forgets the alarms of holders that are gone.
    pub(crate) fn prune(&mut self) {
        self.set.retain(|_, (_, listener)| !listener.is_closed());
    }
}

impl State {
    /// Sets off the alarms on a file that was written to, or is no more.
    pub(crate) fn sound_alarms(&mut self, changed: &Path) {
        let on_it = |(path, _): &(PathBuf, _)| path == changed;
        let alarms = self.files.alarms.set.iter().filter(|(_, set)| on_it(set));
        for alarm in alarms.map(|(alarm, _)| *alarm).collect::<Vec<_>>() {
            let lost = self.faults.watch_lost;
            if self.chance(lost) {
                continue;
            }
            if let Some((_, listener)) = self.files.alarms.set.remove(&alarm) {
                // Nobody listens any more, or too many wait already.
                let _ = listener.try_send(alarm);
            }
        }
    }
}

/// The alarms of one holder.
pub(crate) struct SimAlarms {
    world: Arc<World>,
    sender: mpsc::Sender<AlarmId>,
    heard: mpsc::Receiver<AlarmId>,
}

impl SimAlarms {
    pub(crate) fn new(world: Arc<World>) -> Self {
        let (sender, heard) = mpsc::channel(WAITING_MAX);
        Self { world, sender, heard }
    }
}

impl WriteAlarms for SimAlarms {
    fn arm(&mut self, path: &Path) -> Result<AlarmId> {
        let mut state = self.world.lock();
        let path = state.files.real_path(path)?;
        let alarms = &mut state.files.alarms;
        alarms.last += 1;
        let alarm = AlarmId(alarms.last);
        alarms.set.insert(alarm, (path, self.sender.clone()));
        Ok(alarm)
    }

    fn disarm(&mut self, alarm: AlarmId) {
        self.world.lock().files.alarms.set.remove(&alarm);
    }
}

impl Stream for SimAlarms {
    type Item = AlarmId;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AlarmId>> {
        self.heard.poll_recv(context)
    }
}
