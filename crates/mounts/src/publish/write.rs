//! One version's directory: writing it, and comparing it with a payload.
//!
//! The directory may be in reach of a container, so nothing in it is trusted:
//! neither that a file is one nor that it is small.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Statx, Uid};
use rustix::io::Errno;

use super::payload::{Payload, PayloadFile};
use crate::error::{Context, MountsError, OPEN};
use crate::place::{LIST, NAME, facts, open_inside, through_proc};
use crate::walk::{At, Visitor, walk};

const DIR_MODE: u32 = 0o755;

/// Writes all files of a payload into an empty directory.
pub(super) fn write_all(
    dir: BorrowedFd<'_>,
    payload: &Payload,
    path: &Path,
) -> Result<(), MountsError> {
    for (name, file) in payload.files() {
        let path = path.join(name);
        match name.rsplit_once('/') {
            None => write_file(dir, name, file, &path)?,
            Some((above, name)) => {
                write_file(make_all(dir, above, &path)?.as_fd(), name, file, &path)?;
            }
        }
    }
    Ok(())
}

fn make_all(dir: BorrowedFd<'_>, above: &str, path: &Path) -> Result<OwnedFd, MountsError> {
    let mut dir = open_inside(dir, c".", LIST).context(OPEN, path)?;
    for name in above.split('/') {
        let mode = Mode::from_raw_mode(DIR_MODE);
        let made = match rustix::fs::mkdirat(&dir, name, mode) {
            Err(Errno::EXIST) => false,
            result => result.map(|()| true).context("create the directory of", path)?,
        };
        dir = open_inside(&dir, name, LIST).context("open the directory of", path)?;
        if made {
            rustix::fs::fchmod(&dir, mode).context("set the mode of the directory of", path)?;
        }
    }
    Ok(dir)
}

fn write_file(
    dir: BorrowedFd<'_>,
    name: &str,
    file: &PayloadFile,
    path: &Path,
) -> Result<(), MountsError> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
    let fd =
        rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600)).context("create", path)?;
    let mut open = File::from(fd);
    open.write_all(&file.data)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .context("write", path)?;
    // The owner first: a change of owner takes some permissions away.
    if let Some(owner) = file.owner {
        let owner = Some(Uid::from_raw(owner));
        rustix::fs::fchown(&open, owner, None).context("change the owner of", path)?;
    }
    let mode = Mode::from_raw_mode(file.mode & 0o7777);
    rustix::fs::fchmod(&open, mode).context("set the mode of", path)
}

/// Whether a directory holds exactly the payload's files, by their content.
pub(super) fn holds(
    dir: BorrowedFd<'_>,
    payload: &Payload,
    path: &Path,
) -> Result<bool, MountsError> {
    for (name, file) in payload.files() {
        if !same_content(dir, name, &file.data, &path.join(name))? {
            return Ok(false);
        }
    }
    let mut others = Others { known: payload.paths(), found: false };
    walk(dir, path, &mut others)?;
    Ok(!others.found)
}

/// Reads one byte more than there should be, and only from a file: opening a
/// pipe or a device may block, or do something.
fn same_content(
    dir: BorrowedFd<'_>,
    name: &str,
    data: &[u8],
    path: &Path,
) -> Result<bool, MountsError> {
    let named = match open_inside(dir, name, NAME) {
        Ok(named) => named,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(false),
        Err(errno) => return Err(errno).context(OPEN, path),
    };
    let facts = facts(&named).context("look at", path)?;
    let is_file = FileType::from_raw_mode(facts.stx_mode.into()) == FileType::RegularFile;
    if !is_file || facts.stx_size != data.len() as u64 {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = rustix::fs::open(through_proc(named.as_fd()), flags, Mode::empty())
        .context("read", path)?;
    let mut content = Vec::with_capacity(data.len() + 1);
    File::from(open)
        .take(data.len() as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .context("read", path)?;
    Ok(content == data)
}

/// Looks for one thing that is not in the payload.
struct Others<'a> {
    known: BTreeSet<&'a str>,
    found: bool,
}

impl Others<'_> {
    fn look(&mut self, at: &At<'_>) -> ControlFlow<()> {
        let relative = at.relative();
        let known = relative.as_os_str().is_empty()
            || relative.to_str().is_some_and(|path| self.known.contains(path));
        self.found |= !known;
        if self.found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Visitor for Others<'_> {
    fn leaf(&mut self, at: &At<'_>, _: &Statx) -> Result<ControlFlow<()>, MountsError> {
        Ok(self.look(at))
    }

    fn directory(&mut self, at: &At<'_>, _: &Statx) -> Result<ControlFlow<()>, MountsError> {
        Ok(self.look(at))
    }
}

/// Names in a directory that `wanted` picks.
pub(super) fn names(
    dir: BorrowedFd<'_>,
    path: &Path,
    limit: usize,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<CString>, MountsError> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir).context("list", path)? {
        let entry = entry.context("list", path)?;
        let name = entry.file_name();
        if name != c"." && name != c".." && wanted(name.to_bytes()) {
            names.push(name.to_owned());
            if names.len() >= limit {
                break;
            }
        }
    }
    Ok(names)
}

/// A name as part of a path, for messages.
pub(super) fn as_path(name: &std::ffi::CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}
