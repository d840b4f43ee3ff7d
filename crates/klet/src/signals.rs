//! SIGTERM and SIGINT: the first asks the agent to stop, the second ends it.
//!
//! Owns one thread, so that the second signal works also while the agent's own
//! thread is stuck. Upstream: apiserver/pkg/server/signal.go.

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// The first signal, once it comes.
pub struct Signals {
    first: oneshot::Receiver<&'static str>,
}

impl Signals {
    /// Takes over the signals: from here on they no longer end the process by themselves.
    pub fn listen() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start listening for signals")?;
        let both = {
            let _context = runtime.enter();
            let term = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
            (term, signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?)
        };
        let (send, first) = oneshot::channel();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || run(&runtime, both, send))
            .context("cannot start the thread that listens for signals")?;
        Ok(Self { first })
    }

    /// Completes on the first signal, with its name.
    pub async fn first(self) -> &'static str {
        // The sender lives in its thread until a signal came.
        self.first.await.unwrap_or("lost signals")
    }
}

fn run(runtime: &Runtime, mut both: (Signal, Signal), first: oneshot::Sender<&'static str>) {
    let name = runtime.block_on(next(&mut both));
    // With nobody left to tell, the process is at its end already.
    let _ = first.send(name);
    runtime.block_on(next(&mut both));
    std::process::exit(1);
}

async fn next((term, interrupt): &mut (Signal, Signal)) -> &'static str {
    tokio::select! { biased;
        _ = term.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
