//! Spawning, so that a crash can be simulated by dropping every task at its
//! current await point.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinError, JoinHandle};

/// Spawns tasks and can end them all.
#[derive(Clone, Default)]
pub struct Tasks(Arc<Mutex<Registry>>, Arc<Notify>);

#[derive(Default)]
struct Registry {
    next: u64,
    failed: Option<&'static str>,
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

    /// Runs `work` that the agent cannot do without: should it panic, the agent
    /// must end, so that whoever supervises it starts it again.
    pub fn spawn_vital<F>(&self, name: &'static str, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = self.clone();
        self.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!(task = name, "a vital part of the agent panicked");
                tasks.lock().failed.get_or_insert(name);
                tasks.1.notify_one();
            }
        });
    }

    /// Completes with the name of a vital task once one has panicked.
    pub async fn vital_failure(&self) -> &'static str {
        loop {
            if let Some(name) = self.lock().failed {
                return name;
            }
            self.1.notified().await;
        }
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
    /// Waits for the task; an error means it panicked or was aborted.
    pub async fn join(self) -> Result<T, JoinError> {
        self.0.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_vital_task_that_panics_is_told() {
        let tasks = Tasks::default();
        tasks.spawn_vital("quiet", async {});
        tasks.spawn_vital("loud", async { panic!("as the test wants") });
        assert_eq!(tasks.vital_failure().await, "loud");
    }

    #[tokio::test]
    async fn aborting_drops_every_task() {
        let tasks = Tasks::default();
        let endless = tasks.spawn(std::future::pending::<()>());
        tasks.abort_all();
        assert!(endless.join().await.is_err());
        assert!(tasks.lock().live.is_empty());
    }
}
