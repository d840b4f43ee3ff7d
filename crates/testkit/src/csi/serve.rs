//! A gRPC server on a unix socket and a thread of its own, so that stopping it
//! breaks every connection as the end of a process would.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tokio::sync::Notify;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

/// Tells a server to stop.
#[derive(Default)]
pub(super) struct Stop {
    told: AtomicBool,
    wake: Notify,
}

impl Stop {
    pub(super) fn tell(&self) {
        self.told.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }
}

/// A server under way. Dropping it is a crash; the socket's file stays behind.
pub(super) struct Served {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Serves `routes` on the socket, in place of whoever had it. The server
    /// ends when `stop` is told.
    pub(super) fn start(socket: &Path, routes: Routes, stop: Arc<Stop>) -> Result<Self> {
        let shown = socket.display();
        match fs::remove_file(socket) {
            Err(err) if err.kind() != ErrorKind::NotFound => {
                return Err(err).with_context(|| format!("cannot remove the old {shown}"));
            }
            _ => (),
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start an async runtime for a CSI driver")?;
        let listener =
            UnixListener::bind(socket).with_context(|| format!("cannot listen on {shown}"))?;
        listener.set_nonblocking(true).with_context(|| format!("cannot serve {shown}"))?;
        let incoming = {
            let _inside = runtime.enter();
            let listener = tokio::net::UnixListener::from_std(listener)
                .with_context(|| format!("cannot serve {shown}"))?;
            UnixListenerStream::new(listener)
        };
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("csi-driver".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let served = Server::builder().serve_with_incoming(routes.prepare(), incoming);
                    tokio::select! {
                        biased;
                        () = told.wake.notified() => (),
                        ended = served => ended.expect("serving a unix socket does not end"),
                    }
                });
            })
            .context("cannot start a thread for a CSI driver")?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Whether nobody has told it to stop.
    pub(super) fn is_up(&self) -> bool {
        !self.stop.told.load(Ordering::SeqCst)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.tell();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed, and this may be the unwinding of another.
            let _ = thread.join();
        }
    }
}
