//! Whether the runtime answers and whether it can start pods.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use cri::v1;
use kubelet_model::Mono;
use tokio::sync::Notify;

use super::ready::{self, Contact, RuntimeTroubles};

/// What the runtime says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimeState {
    /// The runtime's name, e.g. `containerd`; part of every container id in a status.
    pub name: String,
    /// Why pods cannot be managed; `None` when they can.
    pub problem: Option<String>,
    /// Why the runtime calls itself unready, in upstream's words.
    pub unready: Option<String>,
    /// Why pods with a network of their own cannot start, in upstream's words;
    /// `None` when they can.
    pub network_problem: Option<String>,
    /// Whether it has answered since the agent began.
    pub answered: bool,
    /// What runs pods, by name, as it said last.
    pub handlers: Vec<v1::RuntimeHandler>,
    /// Handlers that can make a mount read-only all the way down; the runtime's own
    /// choice has no name.
    pub recursive_read_only: Vec<String>,
    /// It can give a process the groups that its pod names, and no others; `None` until
    /// it has answered.
    pub strict_groups: Option<bool>,
    /// The same in its own words: a runtime that tells of no features has none.
    pub groups_policy: Option<bool>,
    /// Counts recoveries: a change means earlier failures say nothing any more.
    pub recoveries: u64,
}

/// Reads the runtime's state.
///
/// Not a `watch` channel: that one wakes many readers in random order, and a
/// seed must replay.
#[derive(Clone)]
pub struct RuntimeStateReader {
    shared: Arc<Shared>,
    seen: u64,
}

/// Not `Clone`: exactly one writer.
pub(super) struct RuntimeStateWriter(Arc<Shared>);

struct Shared {
    state: Mutex<(u64, RuntimeState)>,
    /// Not part of the state: it changes all the time, and nobody is woken for it.
    contact: Mutex<Contact>,
    changed: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (u64, RuntimeState)> {
        self.state.lock().expect("runtime state lock: no code panics while holding it")
    }

    fn lock_contact(&self) -> MutexGuard<'_, Contact> {
        self.contact.lock().expect("contact lock: no code panics while holding it")
    }
}

pub(super) fn channel() -> (RuntimeStateWriter, RuntimeStateReader) {
    let initial = RuntimeState {
        problem: Some("the runtime has not answered yet".to_owned()),
        ..RuntimeState::default()
    };
    let shared = Arc::new(Shared {
        state: Mutex::new((0, initial)),
        contact: Mutex::default(),
        changed: Notify::new(),
    });
    (RuntimeStateWriter(Arc::clone(&shared)), RuntimeStateReader { shared, seen: 0 })
}

impl RuntimeStateReader {
    /// The state now; `changed` waits for one that differs from it.
    pub fn current_and_update(&mut self) -> RuntimeState {
        let state = self.shared.lock();
        self.seen = state.0;
        state.1.clone()
    }
    /// What keeps the node from being ready at this time.
    pub(crate) fn troubles(&self, now: Mono) -> RuntimeTroubles {
        let state = self.shared.lock().1.clone();
        ready::troubles(&state, *self.shared.lock_contact(), now)
    }

    /// Waits for the next change.
    pub async fn changed(&mut self) {
        loop {
            // Before the look: a change in between then completes it.
            let mut changed = pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            let version = self.shared.lock().0;
            if version != self.seen {
                self.seen = version;
                return;
            }
            changed.await;
        }
    }
}

impl RuntimeStateWriter {
    /// The runtime was heard of. Told before the state that comes of it.
    pub(super) fn heard(&self, edit: impl FnOnce(&mut Contact)) {
        edit(&mut self.0.lock_contact());
    }

    /// Takes over a new state; says so once per change.
    pub(super) fn update(&self, edit: impl FnOnce(&mut RuntimeState)) {
        let mut shared = self.0.lock();
        let (version, state) = &mut *shared;
        let before = state.clone();
        edit(state);
        if state.problem.is_none() && before.problem.is_some() {
            state.recoveries += 1;
        }
        announce(&before, state);
        if *state != before {
            *version += 1;
            drop(shared);
            self.0.changed.notify_waiters();
        }
    }
}

fn announce(before: &RuntimeState, now: &RuntimeState) {
    if before.problem != now.problem {
        match &now.problem {
            Some(why) => {
                tracing::error!(why, "container runtime is not usable; pods are left as they are")
            }
            None => tracing::info!(runtime = now.name, "container runtime is ready"),
        }
    }
    if before.network_problem != now.network_problem {
        match &now.network_problem {
            Some(why) => {
                tracing::warn!(why, "pod network is not ready; only host-network pods start")
            }
            None => tracing::info!("pod network is ready"),
        }
    }
}
