//! Alarms on writes, by inotify.
//!
//! One descriptor for all files, since a user may have some hundred only. Each
//! watch is one that the kernel takes off at its first event, so that a file
//! written to a thousand times a second costs one wake-up.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{Stream, StreamExt};
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};

use crate::ports::fs::{AlarmId, WriteAlarms};

/// Room for some events; more wait in the kernel's queue.
const BUFFER_BYTES: usize = 1_024;

pub(super) struct Alarms {
    events: EventStream<Vec<u8>>,
    /// Alarms that are set.
    set: BTreeMap<AlarmId, WatchDescriptor>,
}

impl Alarms {
    pub(super) fn new() -> io::Result<Self> {
        let events = Inotify::init()?.into_event_stream(vec![0; BUFFER_BYTES])?;
        Ok(Self { events, set: BTreeMap::new() })
    }
}

/// The kernel's own number: it counts upwards and gives a watch that was taken
/// off no second life, so an event that is late belongs to nobody.
fn id_of(watch: &WatchDescriptor) -> AlarmId {
    AlarmId(watch.get_watch_descriptor_id().unsigned_abs().into())
}

impl WriteAlarms for Alarms {
    fn arm(&mut self, path: &Path) -> io::Result<AlarmId> {
        let watch = self.events.watches().add(path, WatchMask::MODIFY | WatchMask::ONESHOT)?;
        let alarm = id_of(&watch);
        self.set.insert(alarm, watch);
        Ok(alarm)
    }

    fn disarm(&mut self, alarm: AlarmId) {
        if let Some(watch) = self.set.remove(&alarm) {
            // It fails if the file is gone, and the watch with it.
            let _ = self.events.watches().remove(watch);
        }
    }
}

impl Stream for Alarms {
    type Item = AlarmId;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AlarmId>> {
        loop {
            // A descriptor that cannot be read tells nothing any more.
            let Some(Ok(event)) = ready!(self.events.poll_next_unpin(context)) else {
                return Poll::Ready(None);
            };
            // A write, or the watch's own end, which also comes with the file's.
            let over = EventMask::MODIFY | EventMask::IGNORED;
            let alarm = id_of(&event.wd);
            if event.mask.intersects(over) && self.set.remove(&alarm).is_some() {
                return Poll::Ready(Some(alarm));
            }
        }
    }
}
