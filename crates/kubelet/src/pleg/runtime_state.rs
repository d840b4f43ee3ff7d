//! Whether the runtime answers and whether it can start pods.

use tokio::sync::watch;

/// What the runtime says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimeState {
    /// The runtime's name, e.g. `containerd`; part of every container id in a status.
    pub name: String,
    /// Why pods cannot be managed; `None` when they can.
    pub problem: Option<String>,
    /// Why pods with a network of their own cannot start; `None` when they can.
    pub network_problem: Option<String>,
    /// Counts recoveries: a change means earlier failures say nothing any more.
    pub recoveries: u64,
}

/// Reads the runtime's state.
#[derive(Clone)]
pub struct RuntimeStateReader(watch::Receiver<RuntimeState>);

/// Not `Clone`: exactly one writer.
pub(super) struct RuntimeStateWriter(watch::Sender<RuntimeState>);

pub(super) fn channel() -> (RuntimeStateWriter, RuntimeStateReader) {
    let initial = RuntimeState {
        problem: Some("the runtime has not answered yet".to_owned()),
        ..RuntimeState::default()
    };
    let (tx, rx) = watch::channel(initial);
    (RuntimeStateWriter(tx), RuntimeStateReader(rx))
}

impl RuntimeStateReader {
    /// The state now.
    pub fn current(&self) -> RuntimeState {
        self.0.borrow().clone()
    }
    /// The state now; `changed` waits for one that differs from it.
    pub fn current_and_update(&mut self) -> RuntimeState {
        self.0.borrow_and_update().clone()
    }
    /// Waits for the next change; never returns once the agent shuts down.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl RuntimeStateWriter {
    /// Takes over a new state; says so once per change.
    pub(super) fn update(&self, edit: impl FnOnce(&mut RuntimeState)) {
        self.0.send_if_modified(|state| {
            let before = state.clone();
            edit(state);
            if state.problem.is_none() && before.problem.is_some() {
                state.recoveries += 1;
            }
            announce(&before, state);
            *state != before
        });
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
