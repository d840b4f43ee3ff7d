//! The kernel's own NFS server (version 4), with one directory to export. For the guest of
//! `make vm` only.
//!
//! Owns the export, the kernel's threads and rpc.mountd, which tells the kernel who may
//! have the export.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::guest::Guest;
use crate::host;
use crate::process::{self, Process};

const PACKAGE: &str = "nfs-kernel-server";
const CONTROL: &str = "/proc/fs/nfsd";
const CLIENT: &str = "127.0.0.1";
/// After a start, clients of before get this long to come back, and others wait. The kernel
/// takes no less.
const GRACE_SECONDS: &str = "10";

/// A server at 127.0.0.1 whose root is a directory, until dropped.
#[derive(Debug)]
pub struct NfsServer {
    root: PathBuf,
    _mountd: Process,
}

impl NfsServer {
    /// Exports a directory, which is made; says so and starts none where the kernel cannot.
    pub fn start(guest: &Guest, root: &Path) -> Result<Option<Self>> {
        for module in ["nfsd", "nfs"] {
            if let Err(error) = run("modprobe", "kmod", &[module]) {
                guest.lacks(module, &error);
                return Ok(None);
            }
        }
        for dir in [root, Path::new("/var/lib/nfs/v4recovery")] {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        for list in ["/etc/exports", "/var/lib/nfs/etab", "/var/lib/nfs/rmtab"] {
            fs::write(list, "").with_context(|| format!("cannot write {list}"))?;
        }
        if host::mounts_below(Path::new(CONTROL))?.is_empty() {
            run("mount", "mount", &["-t", "nfsd", "nfsd", CONTROL])?;
        }
        for file in ["nfsv4leasetime", "nfsv4gracetime"] {
            fs::write(Path::new(CONTROL).join(file), GRACE_SECONDS)
                .with_context(|| format!("cannot set {file}"))?;
        }
        // Number 0 makes it the root of what the server shows.
        let options = "rw,no_root_squash,no_subtree_check,insecure,fsid=0";
        run("exportfs", PACKAGE, &["-o", options, &format!("{CLIENT}:{}", root.display())])?;
        let mut mountd = Command::new(host::program("rpc.mountd", PACKAGE)?);
        mountd.args(["--foreground", "--no-nfs-version", "3"]);
        let mountd = Process::spawn("rpc.mountd", &mut mountd, &root.with_extension("log"))?;
        let server = Self { root: root.to_owned(), _mountd: mountd };
        server.answer()?;
        Ok(Some(server))
    }

    /// Has the kernel answer.
    pub fn answer(&self) -> Result<()> {
        run("rpc.nfsd", PACKAGE, &["--no-nfs-version", "3", "4"])
    }

    /// Has the kernel answer nobody, as when the machine is off.
    pub fn fall_silent(&self) -> Result<()> {
        run("rpc.nfsd", PACKAGE, &["0"])
    }

    /// Its address.
    pub fn address(&self) -> &'static str {
        CLIENT
    }

    /// What it exports.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for NfsServer {
    fn drop(&mut self) {
        let ended = self.fall_silent().and_then(|()| run("exportfs", PACKAGE, &["-ua"]));
        if let Err(error) = ended {
            eprintln!("the NFS server of {} is still there: {error:#}", self.root.display());
        }
    }
}

fn run(program: &str, package: &str, arguments: &[&str]) -> Result<()> {
    process::run(Command::new(host::program(program, package)?).args(arguments)).map(drop)
}
