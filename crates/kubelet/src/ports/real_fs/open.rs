//! Files held open: bounded reads at any offset, and writing piece by piece.
//!
//! Only regular files are opened, and never in a way that waits.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::stamp;
use crate::ports::fs::{FileStamp, Links, NewFile, OpenFile};

/// Opens a regular file for reading.
pub(super) fn regular(path: &Path, more: OFlags) -> io::Result<(File, Stat)> {
    // Its name first: a container may have put a device there, and to open one may start
    // something, such as a watchdog.
    let named = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | more, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&named)?.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(Errno::LOOP.into()),
        _ => return Err(not_regular()),
    }
    let named = format!("/proc/self/fd/{}", named.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    checked(rustix::fs::open(named, flags, Mode::empty())?.into())
}

fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "not a regular file")
}

fn checked(file: File) -> io::Result<(File, Stat)> {
    let stat = rustix::fs::fstat(&file)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(not_regular());
    }
    Ok((file, stat))
}

pub(super) struct Opened(File);

impl Opened {
    pub(super) fn new(path: &Path, links: Links) -> io::Result<Self> {
        let more = match links {
            Links::Follow => OFlags::empty(),
            Links::Refuse => OFlags::NOFOLLOW,
        };
        Ok(Self(regular(path, more)?.0))
    }
}

impl OpenFile for Opened {
    fn read_at(&self, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; limit];
        let mut filled = 0;
        while filled < limit {
            let at = offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            match self.0.read_at(&mut bytes[filled..], at) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn stamp(&self) -> io::Result<FileStamp> {
        Ok(stamp(&rustix::fs::fstat(&self.0)?))
    }

    fn mode(&self) -> io::Result<u32> {
        Ok(rustix::fs::fstat(&self.0)?.st_mode & 0o7777)
    }

    fn owner(&self) -> io::Result<u32> {
        Ok(rustix::fs::fstat(&self.0)?.st_uid)
    }
}

pub(super) struct Created(File);

impl Created {
    pub(super) fn new(path: &Path, mode: u32) -> io::Result<Self> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?;
        let (file, _) = checked(file.into())?;
        file.set_len(0)?;
        Ok(Self(file))
    }
}

impl NewFile for Created {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}
