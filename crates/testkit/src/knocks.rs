//! Counts who comes to the door of a server that is away.
//!
//! Owns the server's address while it is paused: takes every connection and hangs up.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

/// Pause between looks at the door.
const LOOK: Duration = Duration::from_millis(5);

/// Counts until it is dropped; then the address is free again.
pub struct Knocks {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    count: AtomicUsize,
    over: AtomicBool,
}

impl Knocks {
    /// Begins to count at an address that nobody has.
    pub fn count_at(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).context("the address of a paused server")?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while !own.over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok(_) => drop(own.count.fetch_add(1, Ordering::Relaxed)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                    // Whoever knocked has gone meanwhile: it has knocked all the same.
                    Err(_) => drop(own.count.fetch_add(1, Ordering::Relaxed)),
                }
            }
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    /// How many have come.
    pub fn count(&self) -> usize {
        self.shared.count.load(Ordering::Relaxed)
    }
}

impl Drop for Knocks {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only counts; a panic of it would have been seen.
            let _ = thread.join();
        }
    }
}
