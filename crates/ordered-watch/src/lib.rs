//! A watched value: one writer, many readers, who may all wait at once.
//!
//! Like tokio's `watch`, which wakes readers in an order that is drawn by lot; here they
//! wake in the order they came, so that a seed of the simulation has one course.
//! Owns the newest value. Keeps no history: a reader sees the newest, or waits.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::task::{Context, Poll, Waker};

/// Writes the value. Not `Clone`: exactly one writer.
pub struct Sender<T>(Arc<Shared<T>>);

/// Reads the value, and hears of new ones.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    number: u64,
    seen: u64,
}

/// The value, held as it is while this lives.
pub struct Ref<'a, T>(RwLockReadGuard<'a, Newest<T>>);

/// The writer is gone, and with it every further value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

struct Shared<T> {
    newest: RwLock<Newest<T>>,
    readers: Mutex<Readers>,
}

struct Newest<T> {
    value: T,
    version: u64,
    closed: bool,
}

#[derive(Default)]
struct Readers {
    /// How many there were, ever: each has a number.
    count: u64,
    /// Those that wait, by number.
    waiting: BTreeMap<u64, Waker>,
}

/// A writer and its first reader.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

// A change that panics leaves the value as far as it had come, as a cell would: both locks
// are taken whatever became of their last holder.
impl<T> Shared<T> {
    fn newest(&self) -> Ref<'_, T> {
        Ref(self.newest.read().unwrap_or_else(|poison| poison.into_inner()))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Newest<T>) -> R) -> R {
        change(&mut self.newest.write().unwrap_or_else(|poison| poison.into_inner()))
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn wake_all(&self) {
        // Wakers run other code, so the lock is given back first.
        let waiting = std::mem::take(&mut self.readers().waiting);
        waiting.into_values().for_each(Waker::wake);
    }
}

impl<T> Sender<T> {
    /// A writer that nobody reads yet.
    pub fn new(value: T) -> Self {
        let newest = RwLock::new(Newest { value, version: 0, closed: false });
        Self(Arc::new(Shared { newest, readers: Mutex::default() }))
    }

    /// Another reader, for whom the present value is nothing new.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.newest().0.version;
        Receiver::new(&self.0, seen)
    }

    /// The value now.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.newest()
    }

    /// A new value.
    pub fn send_replace(&self, value: T) {
        self.send_modify(|old| *old = value);
    }

    /// Changes the value.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value, and tells readers only if that says so.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = self.0.change(|newest| {
            let changed = change(&mut newest.value);
            newest.version += u64::from(changed);
            changed
        });
        if changed {
            self.0.wake_all();
        }
        changed
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.change(|newest| newest.closed = true);
        self.0.wake_all();
    }
}

impl<T> Receiver<T> {
    fn new(shared: &Arc<Shared<T>>, seen: u64) -> Self {
        let mut readers = shared.readers();
        readers.count += 1;
        Self { shared: Arc::clone(shared), number: readers.count, seen }
    }

    /// The value now.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.newest()
    }

    /// The value now, which then counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let newest = self.shared.newest();
        self.seen = newest.0.version;
        newest
    }

    /// The value now counts as new.
    pub fn mark_changed(&mut self) {
        self.seen = self.shared.newest().0.version.wrapping_sub(1);
    }

    /// Returns once there is a value that was not seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        poll_fn(|context| self.poll_changed(context)).await
    }

    /// Returns once the value is as it is wanted.
    pub async fn wait_for(&mut self, is_wanted: impl Fn(&T) -> bool) -> Result<Ref<'_, T>, Closed> {
        while !is_wanted(&self.borrow_and_update()) {
            self.changed().await?;
        }
        Ok(self.borrow())
    }

    fn poll_changed(&mut self, context: &Context<'_>) -> Poll<Result<(), Closed>> {
        // First in line, then a look: a value that comes in between wakes this one.
        self.shared.readers().waiting.insert(self.number, context.waker().clone());
        let (version, closed) = {
            let newest = self.borrow();
            (newest.0.version, newest.0.closed)
        };
        let ready = match version != self.seen {
            true => Ok(()),
            false if closed => Err(Closed),
            false => return Poll::Pending,
        };
        self.seen = version;
        self.shared.readers().waiting.remove(&self.number);
        Poll::Ready(ready)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self::new(&self.shared, self.seen)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.readers().waiting.remove(&self.number);
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.value.fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.borrow()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.borrow()).finish()
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody can change the value any more")
    }
}

impl std::error::Error for Closed {}

#[cfg(test)]
mod tests;
