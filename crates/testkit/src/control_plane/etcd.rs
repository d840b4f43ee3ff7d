//! The store behind a stock API server.
//!
//! Owns the process and its data, which outlive a restart.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::process::Process;

/// How long it may take to end.
const END_LIMIT: Duration = Duration::from_secs(30);

/// An etcd of one member, on loopback.
pub(super) struct Etcd {
    program: PathBuf,
    dir: PathBuf,
    clients: u16,
    peers: u16,
    process: Process,
}

impl Etcd {
    /// Starts one that keeps its data below `dir`.
    pub(super) fn start(program: PathBuf, dir: &Path, clients: u16, peers: u16) -> Result<Self> {
        let process = spawn(&program, dir, clients, peers)?;
        Ok(Self { program, dir: dir.to_owned(), clients, peers, process })
    }

    /// Where its clients find it.
    pub(super) fn url(&self) -> String {
        url(self.clients)
    }

    /// Ends it; the data stays.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.process.terminate(END_LIMIT).map(drop)
    }

    /// Starts it again with the data that it had.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.process = spawn(&self.program, &self.dir, self.clients, self.peers)?;
        Ok(())
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn spawn(program: &Path, dir: &Path, clients: u16, peers: u16) -> Result<Process> {
    let mut command = Command::new(program);
    command
        .arg("--data-dir")
        .arg(dir.join("etcd"))
        .args(["--unsafe-no-fsync", "--listen-client-urls", &url(clients)])
        .args(["--advertise-client-urls", &url(clients), "--listen-peer-urls", &url(peers)]);
    Process::spawn("etcd", &mut command, &dir.join("etcd.log"))
}
