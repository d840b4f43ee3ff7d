//! Spawning, so that a crash can be simulated by dropping every task at its
//! current await point.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::task::{AbortHandle, JoinError, JoinHandle};

/// Spawns tasks and can end them all.
#[derive(Clone, Default)]
pub struct Tasks(Arc<Mutex<Registry>>);

#[derive(Default)]
struct Registry {
    next: u64,
    live: BTreeMap<u64, AbortHandle>,
}

/// A spawned task; dropping the handle lets the task run on.
pub struct TaskHandle<T>(JoinHandle<T>);

impl Tasks {
    /// Runs `work` on the current runtime.
    #[allow(clippy::disallowed_methods)] // the one place that may spawn
    pub fn spawn<F>(&self, work: F) -> TaskHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let key = {
            let mut registry = self.lock();
            registry.next += 1;
            registry.next
        };
        let done = Done { tasks: self.clone(), key };
        let handle = tokio::spawn(async move {
            let _done = done;
            work.await
        });
        if !handle.is_finished() {
            self.lock().live.insert(key, handle.abort_handle());
        }
        TaskHandle(handle)
    }

    /// Drops every task at its current await point.
    pub fn abort_all(&self) {
        let live = std::mem::take(&mut self.lock().live);
        live.into_values().for_each(|task| task.abort());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Registry> {
        self.0.lock().expect("task registry lock: no code panics while holding it")
    }
}

/// Takes the task off the registry when it ends, however it ends.
struct Done {
    tasks: Tasks,
    key: u64,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.tasks.lock().live.remove(&self.key);
    }
}

impl<T> TaskHandle<T> {
    /// Drops the task at its current await point.
    pub fn abort(&self) {
        self.0.abort();
    }
    /// Waits for the task; an error means it panicked or was aborted.
    pub async fn join(self) -> Result<T, JoinError> {
        self.0.await
    }
}
