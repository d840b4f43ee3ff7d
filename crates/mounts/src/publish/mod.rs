//! Publishing: files that appear in a volume all at once, and change so.
//!
//! A version is written into a directory of its own; the link `..data` is then
//! swapped to it; users see links through `..data`. Owns the names in the volume
//! that begin with `..`, and its own links beside them; leaves all others alone.
//! Nothing found in the volume is believed: what `..data` says counts only if it
//! is the plain name of a version. One publisher per volume at a time.
//! Upstream: pkg/volume/util/atomic_writer.go. CVE-2017-1002102.

mod payload;
mod version;
mod write;

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, Uid};
use rustix::io::Errno;

use crate::error::{Context, MountsError, OPEN};
use crate::ownership::{FsGroup, Owned, own_open};
use crate::place::{LIST, Place, open_inside};
use crate::remove::remove_in;
use write::{as_path, holds, names, write_all};

pub use payload::{PathError, Payload, PayloadFile};

const DATA: &str = "..data";
const DATA_NEXT: &str = "..data_tmp";
/// The target of `..data`, and those of visible links, with room to spare.
const LINK_BYTES_MAX: usize = 300;
/// Names tried for a version's directory, and for `..data`, should someone take them.
const TRIES_MAX: usize = 100;
/// Old versions, or old links, that are removed at once; others go next time.
const STALE_MAX: usize = 10_000;

/// What publishing did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The content was there already; links that were missing are there now.
    Unchanged,
    /// The content is new.
    Written {
        /// What giving it to the group did, if there is one.
        owned: Option<Owned>,
    },
}

/// Makes a directory show exactly the payload's files. `group` gets the whole
/// directory, before the new version is seen.
pub fn publish(
    dir: &Path,
    payload: &Payload,
    group: Option<FsGroup>,
    now: SystemTime,
) -> Result<Published, MountsError> {
    let place = Place::directory(dir)?;
    let volume = Volume { dir: place.as_fd(), path: dir };
    let current = volume.current()?;
    if let Some((_, version)) = &current
        && holds(version.as_fd(), payload, dir)?
    {
        volume.link_visible(payload)?;
        volume.unlink_stale(payload)?;
        return Ok(Published::Unchanged);
    }
    let (name, version) = volume.make_version(now)?;
    let swapped = write_all(version.as_fd(), payload, dir)
        .and_then(|()| group.map(|group| own_open(volume.dir, dir, group, &mut |_| {})).transpose())
        .and_then(|owned| volume.swap(&name).map(|()| owned));
    let owned = match swapped {
        Ok(owned) => owned,
        Err(error) => {
            // The first error is the one to tell; the next publishing tries again.
            let _ = volume.remove(&name);
            return Err(error);
        }
    };
    volume.link_visible(payload)?;
    volume.unlink_stale(payload)?;
    volume.remove_versions_but(&name)?;
    Ok(Published::Written { owned })
}

struct Volume<'a> {
    dir: BorrowedFd<'a>,
    path: &'a Path,
}

impl Volume<'_> {
    /// The version users see, if it is one.
    fn current(&self) -> Result<Option<(Vec<u8>, OwnedFd)>, MountsError> {
        let Some(name) = self.target_of(DATA)?.filter(|name| version::is_name(name)) else {
            return Ok(None);
        };
        match open_inside(self.dir, name.as_slice(), LIST) {
            Ok(version) => Ok(Some((name, version))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(errno) => Err(errno).context(OPEN, &self.path.join(DATA)),
        }
    }

    /// What a link says; none if it is no link, or says more than ours do.
    fn target_of(&self, name: &str) -> Result<Option<Vec<u8>>, MountsError> {
        let mut text = [0; LINK_BYTES_MAX];
        match rustix::fs::readlinkat_raw(self.dir, name, &mut text) {
            Ok(length) if length < LINK_BYTES_MAX => Ok(text.get(..length).map(<[u8]>::to_vec)),
            Ok(_) | Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno).context("read the link", &self.path.join(name)),
        }
    }

    fn make_version(&self, now: SystemTime) -> Result<(String, OwnedFd), MountsError> {
        const OPERATION: &str = "create a version in";
        for _ in 0..TRIES_MAX {
            let name = version::name(now, random()?);
            match rustix::fs::mkdirat(self.dir, &name, Mode::from_raw_mode(0o700)) {
                Err(Errno::EXIST) => continue,
                result => result.context(OPERATION, self.path)?,
            }
            let version = open_inside(self.dir, &name, LIST).context(OPERATION, self.path)?;
            let mode = Mode::from_raw_mode(0o755);
            rustix::fs::fchmod(&version, mode).context(OPERATION, self.path)?;
            return Ok((name, version));
        }
        Err(MountsError::call(OPERATION, self.path, Errno::EXIST))
    }

    /// Points `..data` to a version, in one step.
    fn swap(&self, name: &str) -> Result<(), MountsError> {
        let path = self.path.join(DATA);
        for _ in 0..TRIES_MAX {
            match rustix::fs::symlinkat(name, self.dir, DATA_NEXT) {
                // Left by a crash, or put there by someone.
                Err(Errno::EXIST) => {
                    self.remove(DATA_NEXT)?;
                    continue;
                }
                result => result.context("create the link", &path)?,
            }
            match rustix::fs::renameat(self.dir, DATA_NEXT, self.dir, DATA) {
                // A directory in the link's place is nobody's but the publisher's.
                Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                    self.remove(DATA)?;
                }
                Err(Errno::NOENT) => {}
                result => return result.context("swap the link", &path),
            }
        }
        Err(MountsError::KeepsFilling { path })
    }

    /// Makes the links users see. A link to elsewhere is put right; a file or
    /// directory in a link's place is somebody's and stays.
    fn link_visible(&self, payload: &Payload) -> Result<(), MountsError> {
        for (name, owner) in payload.visible() {
            let wanted = format!("{DATA}/{name}");
            let path = self.path.join(name);
            for _ in 0..TRIES_MAX {
                match rustix::fs::symlinkat(&wanted, self.dir, name) {
                    Ok(()) => {
                        self.own_link(name, owner, &path)?;
                        break;
                    }
                    Err(Errno::EXIST) if !self.is_foreign_link(name, &wanted)? => break,
                    Err(Errno::EXIST) => unlink(self.dir, name, &path)?,
                    Err(errno) => return Err(errno).context("create the link", &path),
                }
            }
        }
        Ok(())
    }

    fn own_link(&self, name: &str, owner: Option<u32>, path: &Path) -> Result<(), MountsError> {
        let Some(owner) = owner else { return Ok(()) };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::chownat(self.dir, name, Some(Uid::from_raw(owner)), None, flags) {
            Err(Errno::NOENT) => Ok(()),
            result => result.context("change the owner of", path),
        }
    }

    fn is_foreign_link(&self, name: &str, ours: &str) -> Result<bool, MountsError> {
        let mut text = [0; LINK_BYTES_MAX];
        match rustix::fs::readlinkat_raw(self.dir, name, &mut text) {
            Ok(length) => Ok(text.get(..length) != Some(ours.as_bytes())),
            Err(Errno::NOENT) => Ok(true),
            Err(Errno::INVAL) => Ok(false),
            Err(errno) => Err(errno).context("read the link", &self.path.join(name)),
        }
    }

    /// Removes our links that no longer lead to a file: exactly those that say
    /// `..data/<their name>`.
    fn unlink_stale(&self, payload: &Payload) -> Result<(), MountsError> {
        let visible = payload.visible();
        let stale = |name: &[u8]| {
            !name.starts_with(b"..")
                && std::str::from_utf8(name).is_ok_and(|name| !visible.contains_key(name))
        };
        for name in names(self.dir, self.path, STALE_MAX, stale)? {
            let Ok(text) = name.to_str() else { continue };
            if self.target_of(text)?.is_some_and(|to| to == format!("{DATA}/{text}").as_bytes()) {
                unlink(self.dir, text, &self.path.join(text))?;
            }
        }
        Ok(())
    }

    /// Removes a name of ours, whatever it is by now.
    fn remove(&self, name: &str) -> Result<(), MountsError> {
        let path = self.path.join(name);
        match CString::new(name) {
            Ok(name) => remove_in(self.dir, &name, &path),
            Err(_) => Err(MountsError::bad_path(&path, "contains a NUL byte")),
        }
    }

    /// Removes other versions: the last one, and those of crashes.
    fn remove_versions_but(&self, keep: &str) -> Result<(), MountsError> {
        let old = |name: &[u8]| version::is_name(name) && name != keep.as_bytes();
        for name in names(self.dir, self.path, STALE_MAX, old)? {
            remove_in(self.dir, &name, &self.path.join(as_path(&name)))?;
        }
        Ok(())
    }
}

fn unlink(dir: BorrowedFd<'_>, name: &str, path: &Path) -> Result<(), MountsError> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        // Gone, or swapped for a directory, which is not ours.
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
        Err(errno) => Err(errno).context("remove the link", path),
    }
}

fn random() -> Result<u32, MountsError> {
    let mut bytes = [0; 4];
    let flags = rustix::rand::GetRandomFlags::empty();
    rustix::rand::getrandom(&mut bytes, flags).context("read", Path::new("/dev/urandom"))?;
    Ok(u32::from_ne_bytes(bytes))
}
