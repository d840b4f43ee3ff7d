//! Numbered, locked places for private instances.
//!
//! Owns the numbering: slot N has the directory `BASE/N`, the lock `BASE/N.lock`,
//! the bridge `kletN` and the N-th /22 of 10.88.0.0/13. A slot is held as long
//! as its lock is; the kernel drops the lock when the holder dies, however it
//! dies, and the next taker removes what was left.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, mount};

use crate::{cleanup, host};

/// Where instances live: in a place where only root makes directories. Short,
/// because a unix socket path holds 107 bytes.
pub(crate) const BASE: &str = "/run/klet-testkit";

/// 10.88.0.0/13 cut into /22s, each with room for some 1,000 pods.
const SLOTS: u16 = 512;

/// A place of its own on this machine, until dropped.
#[derive(Debug)]
pub struct Slot {
    number: u16,
    dir: PathBuf,
    _lock: File,
}

impl Slot {
    /// Takes the first free slot whose addresses nobody on this host routes.
    pub fn take() -> Result<Self> {
        let routes = host::routes()?;
        for number in 0..SLOTS {
            let Some(slot) = Self::try_lock(number)? else {
                continue;
            };
            cleanup::sweep(&slot)?;
            let (address, prefix) = slot.subnet();
            if routes.iter().any(|route| route.overlaps(address, prefix)) {
                continue;
            }
            fs::create_dir_all(&slot.dir)
                .with_context(|| format!("cannot create {}", slot.dir.display()))?;
            return Ok(slot);
        }
        bail!(
            "all {SLOTS} test slots in {BASE} are in use or their addresses are routed; \
             end the tests that hold them, or free part of 10.88.0.0/13"
        )
    }

    fn try_lock(number: u16) -> Result<Option<Self>> {
        claim(Path::new(BASE))?;
        let path = Path::new(BASE).join(format!("{number}.lock"));
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let dir = Path::new(BASE).join(number.to_string());
                Ok(Some(Self { number, dir, _lock: lock }))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(err) => Err(err).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Puts a file system in memory on the directory. On disk, ext4 looks for a
    /// free inode past all that were freed in the last minutes, at the cost of
    /// whoever creates a file: a run would be charged for the run before it.
    pub fn hold_in_memory(&self) -> Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("klet-testkit", &self.dir, "tmpfs", flags, Some(c"mode=0711"))
            .with_context(|| format!("cannot mount a tmpfs on {}", self.dir.display()))
    }

    /// The directory everything of this slot lives in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Name of the slot's bridge; an interface name holds 15 bytes.
    pub fn bridge(&self) -> String {
        format!("klet{}", self.number)
    }

    /// Name of the slot's CNI network, which also marks its firewall rules.
    pub fn network(&self) -> String {
        format!("klet-testkit-{}", self.number)
    }

    /// The control group that everything of the slot's pods lies below.
    pub fn cgroup_root(&self) -> String {
        format!("/klet-testkit-{}", self.number)
    }

    /// First address and prefix length of the slot's range.
    pub fn subnet(&self) -> (Ipv4Addr, u8) {
        let first = u32::from(Ipv4Addr::new(10, 88, 0, 0));
        (Ipv4Addr::from(first + (u32::from(self.number) << 10)), 22)
    }
}

/// The root of a pod's user namespace passes through, and reads nothing.
const PASSABLE: u32 = 0o711;

/// Makes the directory, or insists that nobody else could have made or filled
/// it: what lies below is run, mounted and removed as root.
pub(crate) fn claim(base: &Path) -> Result<()> {
    match DirBuilder::new().mode(PASSABLE).create(base) {
        Err(err) if err.kind() != ErrorKind::AlreadyExists => {
            host::require_root()?;
            return Err(err).with_context(|| format!("cannot create {}", base.display()));
        }
        _ => (),
    }
    let found =
        fs::symlink_metadata(base).with_context(|| format!("cannot look at {}", base.display()))?;
    ensure!(
        found.is_dir()
            && found.uid() == rustix::process::geteuid().as_raw()
            && found.mode() & 0o022 == 0,
        "{} is not a directory that this user alone owns and writes (owner {}, mode {:o}); \
         remove it, and find out who made it",
        base.display(),
        found.uid(),
        found.mode() & 0o7777,
    );
    // One of an earlier version may be closed.
    fs::set_permissions(base, Permissions::from_mode(PASSABLE))
        .with_context(|| format!("cannot set the mode of {}", base.display()))
}

/// Removes what instances whose owner died have left. Returns how many there were.
pub fn reap_stale() -> Result<usize> {
    let Ok(entries) = fs::read_dir(BASE) else {
        return Ok(0);
    };
    let mut reaped = 0;
    for entry in entries {
        let name = entry.context("cannot list the test slots")?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(slot) = Slot::try_lock(number)? {
            cleanup::sweep(&slot)?;
            reaped += 1;
        }
    }
    Ok(reaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_slots_share_nothing() {
        let (a, b) = (Slot::take().unwrap(), Slot::take().unwrap());
        assert_ne!(a.dir(), b.dir());
        assert_ne!(a.bridge(), b.bridge());
        assert_ne!(a.subnet(), b.subnet());
        for slot in [a, b] {
            cleanup::sweep(&slot).unwrap();
            assert!(!slot.dir().exists());
        }
    }

    #[test]
    fn last_slot_ends_the_range() {
        let last = Slot::try_lock(SLOTS - 1).unwrap().unwrap();
        assert_eq!(last.subnet(), (Ipv4Addr::new(10, 95, 252, 0), 22));
        assert!(last.bridge().len() <= 15);
        // containerd adds this one beside the socket it is told.
        let socket = last.dir().join("containerd.sock.ttrpc");
        assert!(socket.as_os_str().len() < 108, "{} is too long", socket.display());
    }

    #[test]
    fn a_base_that_others_write_to_is_refused() {
        let base = std::env::temp_dir().join(format!("klet-base-{}", std::process::id()));
        claim(&base).unwrap();
        assert_eq!(fs::metadata(&base).unwrap().mode() & 0o777, PASSABLE);
        claim(&base).unwrap();
        for mode in [0o770, 0o702] {
            fs::set_permissions(&base, Permissions::from_mode(mode)).unwrap();
            let err = claim(&base).unwrap_err().to_string();
            assert!(err.contains("alone owns"), "{err}");
        }
        let link = base.with_extension("link");
        std::os::unix::fs::symlink(&base, &link).unwrap();
        assert!(claim(&link).is_err(), "a link may point anywhere");
        fs::remove_file(&link).unwrap();
        fs::remove_dir(&base).unwrap();
    }
}
