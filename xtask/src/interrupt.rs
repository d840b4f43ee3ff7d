//! Ctrl-C, a polite kill or a closed terminal as a flag, so that a task can end what it started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Set once SIGINT, SIGTERM or SIGHUP has arrived.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes the three signals over from now on.
    pub fn install() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start an async runtime for signals")?;
        let (mut interrupt, mut terminate, mut hang_up) = {
            let _guard = runtime.enter();
            (
                signal(SignalKind::interrupt()).context("cannot handle SIGINT")?,
                signal(SignalKind::terminate()).context("cannot handle SIGTERM")?,
                signal(SignalKind::hangup()).context("cannot handle SIGHUP")?,
            )
        };
        let set = Arc::clone(&flag);
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => (),
                    _ = terminate.recv() => (),
                    _ = hang_up.recv() => (),
                }
            });
            set.store(true, Ordering::SeqCst);
        });
        Ok(Self(flag))
    }

    /// Whether it is time to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
