//! A real iSCSI target (tgt) and the initiator's daemon (open-iscsi). For the guest of
//! `make vm` only.
//!
//! Owns both daemons and the target. Disks are files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::Guest;
use crate::host;
use crate::process::{self, Process};
use crate::wait::eventually;

/// How long the target's daemon may take to answer.
const START_LIMIT: Duration = Duration::from_secs(60);
const PORTAL: &str = "127.0.0.1:3260";
const IQN: &str = "iqn.2003-01.test.klet:real";
const INITIATOR: &str = "/etc/iscsi/initiatorname.iscsi";

/// A target at 127.0.0.1, until dropped.
#[derive(Debug)]
pub struct IscsiTarget {
    _iscsid: Process,
    _tgtd: Process,
}

impl IscsiTarget {
    /// Starts both sides, with a disk of this size for each of the units from 1 on; says so
    /// and starts none where the kernel cannot.
    pub fn start(guest: &Guest, dir: &Path, units: u32, size: u64) -> Result<Option<Self>> {
        if let Err(error) = run("modprobe", "kmod", &["iscsi_tcp"]) {
            guest.lacks("iscsi_tcp", &error);
            return Ok(None);
        }
        for one in [dir, Path::new("/run/tgtd"), Path::new("/run/lock/iscsi")] {
            fs::create_dir_all(one).with_context(|| format!("cannot make {}", one.display()))?;
        }
        fs::write(INITIATOR, "InitiatorName=iqn.2003-01.test.klet:node\n")
            .with_context(|| format!("cannot write {INITIATOR}"))?;
        let mut tgtd = Command::new(host::program("tgtd", "tgt")?);
        tgtd.args(["--foreground", "--iscsi", &format!("portal={PORTAL}")]);
        let mut tgtd = Process::spawn("tgtd", &mut tgtd, &dir.join("tgtd.log"))?;
        eventually(START_LIMIT, "tgtd to answer", || {
            tgtd.check_alive()?;
            tgtadm(&["target", "--op", "show"])
        })?;
        tgtadm(&["target", "--op", "new", "--tid", "1", "--targetname", IQN])?;
        for unit in 1..=units {
            let image = dir.join(format!("unit-{unit}.img"));
            fs::File::create(&image)?.set_len(size)?;
            let (unit, image) = (unit.to_string(), image.display().to_string());
            let new = ["logicalunit", "--op", "new", "--tid", "1", "--lun"];
            tgtadm(&[&new[..], &[&unit, "--backing-store", &image]].concat())?;
        }
        tgtadm(&["target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL"])?;
        let mut iscsid = Command::new(host::program("iscsid", "open-iscsi")?);
        let iscsid = Process::spawn("iscsid", iscsid.arg("--foreground"), &dir.join("iscsid.log"))?;
        Ok(Some(Self { _iscsid: iscsid, _tgtd: tgtd }))
    }

    /// Has it ask for a user's password.
    pub fn put_account(&self, user: &str, password: &str) -> Result<()> {
        tgtadm(&["account", "--op", "new", "--user", user, "--password", password])?;
        tgtadm(&["account", "--op", "bind", "--tid", "1", "--user", user])
    }

    /// Its name.
    pub fn iqn(&self) -> &'static str {
        IQN
    }

    /// Where it listens.
    pub fn portal(&self) -> &'static str {
        PORTAL
    }

    /// Sessions of the kernel, records of the initiator and links to disks that there are.
    pub fn left(&self) -> Result<Vec<PathBuf>> {
        let mut left = Vec::new();
        let nodes = ["/etc/iscsi/nodes", "/var/lib/iscsi/nodes"];
        for dir in nodes.iter().chain(&["/sys/class/iscsi_session", "/dev/disk/by-path"]) {
            let Ok(entries) = fs::read_dir(dir) else { continue };
            for entry in entries {
                let path = entry?.path();
                let ours = path.to_string_lossy().contains(IQN);
                if ours || dir.ends_with("iscsi_session") {
                    left.push(path);
                }
            }
        }
        Ok(left)
    }

    /// Fails if something of the target is left.
    pub fn ensure_nothing_left(&self) -> Result<()> {
        let left = self.left()?;
        ensure!(left.is_empty(), "sessions, records or links are left: {left:?}");
        Ok(())
    }
}

fn tgtadm(arguments: &[&str]) -> Result<()> {
    run("tgtadm", "tgt", &[&["--lld", "iscsi", "--mode"], arguments].concat())
}

fn run(program: &str, package: &str, arguments: &[&str]) -> Result<()> {
    process::run(Command::new(host::program(program, package)?).args(arguments)).map(drop)
}
