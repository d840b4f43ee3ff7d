//! Reading a file that a container may have written, or swapped for another.
//!
//! Opens nothing but a file, as a pipe or a device would block or do something,
//! and reads no more than it is told. Links lead wherever they would with the
//! volume as the root of everything, so never out of it. Upstream: SecureJoin in
//! github.com/cyphar/filepath-securejoin, which looks names up twice.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{Context, MountsError, OPEN};
use crate::place::{Place, facts, resolve, through_proc};

/// The volume is the root, also for absolute links and `..`; no other mount in it
/// is entered.
const AS_ROOT: ResolveFlags =
    ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// How a file begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// Its first bytes.
    pub data: Vec<u8>,
    /// They are all of it.
    pub whole: bool,
}

/// Reads a file in a volume, up to a limit.
pub fn read_inside(volume: &Path, path: &Path, limit: usize) -> Result<Beginning, MountsError> {
    // Joining an absolute path would leave the volume's own out of messages.
    let shown = volume.join(path.strip_prefix("/").unwrap_or(path));
    let root = Place::directory(volume)?;
    let named = match resolve(&root, path, OFlags::PATH | OFlags::CLOEXEC, AS_ROOT) {
        Err(Errno::XDEV) => return Err(MountsError::bad_path(&shown, "leads to another mount")),
        named => named.context(OPEN, &shown)?,
    };
    let facts = facts(&named).context("look at", &shown)?;
    if FileType::from_raw_mode(facts.stx_mode.into()) != FileType::RegularFile {
        return Err(MountsError::bad_path(&shown, "is not a regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = rustix::fs::open(through_proc(named.as_fd()), flags, Mode::empty())
        .context("read", &shown)?;
    let mut data = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    File::from(open)
        .take(most)
        .read_to_end(&mut data)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .context("read", &shown)?;
    let whole = data.len() <= limit;
    data.truncate(limit);
    Ok(Beginning { data, whole })
}
