//! A port without TLS that leads to one with it, as somebody.
//!
//! For clients of streams, which speak to runtimes and so know no TLS. Owns a port on
//! loopback and a thread; connections end with it.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::https_client;

/// The door; it shuts when dropped.
pub struct PlainDoor {
    port: u16,
    shut: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PlainDoor {
    /// Leads to a port on loopback, with a client's certificate and key in PEM.
    pub fn open(server: u16, identity: Option<(&str, &str)>) -> Result<Self> {
        let connector = TlsConnector::from(Arc::new(https_client::trusting(identity)?));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)));
        let listener = listener.context("cannot listen")?;
        let port = listener.local_addr().context("cannot read the port")?.port();
        let (shut, shutting) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    // An error means that the owner is gone.
                    _ = shutting => {}
                    () = lead(listener, server, connector) => {}
                }
            });
        });
        Ok(Self { port, shut: Some(shut), thread: Some(thread) })
    }

    /// Host and port, as in `127.0.0.1:1234`.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for PlainDoor {
    fn drop(&mut self) {
        // A thread that has ended needs nothing more.
        let _ = self.shut.take().map(|shut| shut.send(()));
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            eprintln!("the thread of a door panicked");
        }
    }
}

async fn lead(listener: TcpListener, server: u16, connector: TlsConnector) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let connector = connector.clone();
        connections.spawn(async move {
            if let Err(error) = pass(client, server, connector).await {
                eprintln!("a connection to port {server} broke: {error:#}");
            }
        });
    }
}

async fn pass(mut client: TcpStream, server: u16, connector: TlsConnector) -> Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server)).await?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let mut server = connector.connect(ServerName::try_from("localhost")?, server).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
