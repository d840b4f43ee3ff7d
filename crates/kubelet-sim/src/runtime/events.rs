//! Delivery of life-cycle events: on time, late, twice or not at all.

use std::sync::Arc;
use std::time::Duration;

use cri::{ExitNote, RuntimeEvent, RuntimeEventKind};
use rand::RngExt;
use tokio::sync::mpsc;

use crate::world::State;

impl State {
    /// Opens a stream; it ends when [`State::break_streams`] drops its sender.
    pub(crate) fn subscribe(&mut self) -> mpsc::UnboundedReceiver<RuntimeEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.objects.subscribers.push(sender);
        receiver
    }

    /// Ends every event stream.
    pub(crate) fn break_streams(&mut self) {
        self.objects.subscribers.clear();
    }

    /// Tells every stream that something happened, as well as the faults let it.
    pub(crate) fn announce(&mut self, id: &str, uid: &str, kind: RuntimeEventKind) {
        if self.objects.subscribers.is_empty() {
            return;
        }
        let lost = self.faults.event_lost;
        if self.chance(lost) {
            return;
        }
        let (doubled, delayed) = (self.faults.event_doubled, self.faults.event_delayed);
        let copies = 1 + usize::from(self.chance(doubled));
        // Older runtimes do not say which pod an event is about.
        let pod_uid = (!uid.is_empty() && self.rng.random_bool(0.8)).then(|| uid.to_owned());
        let exit = match kind {
            RuntimeEventKind::Stopped => self.objects.containers.get(id),
            _ => None,
        };
        let exit = exit.map(|own| ExitNote { code: own.exit_code, finished_at: own.finished_ns });
        // Nor how a container ended.
        let exit = exit.filter(|_| self.rng.random_bool(0.7));
        let event = RuntimeEvent { container_id: id.to_owned(), pod_uid, kind, exit };
        for _ in 0..copies {
            let wait = if self.chance(delayed) {
                Duration::from_millis(self.rng.random_range(1..20_000))
            } else {
                Duration::ZERO
            };
            self.deliver(event.clone(), wait);
        }
    }

    fn deliver(&mut self, event: RuntimeEvent, wait: Duration) {
        let subscribers = &mut self.objects.subscribers;
        if wait.is_zero() {
            subscribers.retain(|stream| stream.send(event.clone()).is_ok());
            return;
        }
        for stream in Arc::new(subscribers.clone()).iter() {
            let (stream, event) = (stream.downgrade(), event.clone());
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                // A stream that broke meanwhile takes its late events with it.
                if let Some(stream) = stream.upgrade() {
                    let _ = stream.send(event);
                }
            });
        }
    }
}
