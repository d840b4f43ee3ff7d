//! Devices kept open while somebody may use them, whatever becomes of the agent.
//!
//! A device that nobody has open may be taken from the machine, and another come under its
//! name, without anyone noticing. A loop device over it has it open: the kernel keeps that
//! without a process. The kernel also knows whose it is, by the path of what is behind it,
//! so that another life of the agent, and another agent, finds it. It is read-only: nobody
//! is to write through it. Upstream: pkg/volume/util/volumepathhandler.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, MountsError, OPEN};
use crate::sys;

/// Block devices of the machine.
const BLOCK: &str = "/sys/block";
/// Where new loop devices come from.
const CONTROL: &str = "/dev/loop-control";
/// A file of sysfs is no longer than a page.
const PAGE: u64 = 1 << 16;
/// Others may take the loop device that was free: more often than this in a row is no
/// coincidence.
const TAKEN_MAX: usize = 64;
/// Said of a path that was removed since.
const DELETED: &str = " (deleted)";

/// Keeps the device at a path open until it is released, unless it is.
pub fn hold(path: &Path) -> Result<(), MountsError> {
    if !holders(path)?.is_empty() {
        return Ok(());
    }
    let device = open(path)?;
    let no_loops = |source| MountsError::NoLoopDevices { path: path.to_owned(), source };
    let control = rustix::fs::openat(CWD, CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let control = control.map_err(no_loops)?;
    for _ in 0..TAKEN_MAX {
        let number = sys::free_loop(control.as_fd()).map_err(no_loops)?;
        let holder = open(&PathBuf::from(format!("/dev/loop{number}")))?;
        match sys::set_loop(holder.as_fd(), device.as_fd()) {
            Err(Errno::BUSY) => {}
            done => return done.context("keep open, by a loop device,", path),
        }
    }
    Err(Errno::BUSY).context("keep open, by a loop device,", path)
}

/// Ends that; what nobody holds is fine, and so is a path that is gone.
pub fn release(path: &Path) -> Result<(), MountsError> {
    for name in holders(path)? {
        let device = PathBuf::from(format!("/dev/{name}"));
        let holder = match open(&device) {
            Err(error) if error.is_not_found() => continue,
            holder => holder?,
        };
        // Open, so nobody else can get it; it may have become another's before.
        if !is_holder(&name, &names_of(path)) {
            continue;
        }
        match sys::clear_loop(holder.as_fd()) {
            Ok(()) | Err(Errno::NXIO) => {}
            Err(error) => return Err(error).context("release", &device),
        }
    }
    Ok(())
}

/// The loop devices that keep the device at a path open, e.g. `loop3`: one, or none.
pub fn holders(path: &Path) -> Result<Vec<String>, MountsError> {
    let entries = match std::fs::read_dir(BLOCK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| failed(&error))?,
    };
    let wanted = names_of(path);
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with("loop")) else { continue };
        if is_holder(name, &wanted) {
            found.push(name.to_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// A path as given, and as the kernel tells it: without links.
fn names_of(path: &Path) -> Vec<PathBuf> {
    let dir = path.parent().and_then(|dir| dir.canonicalize().ok());
    let real = dir.zip(path.file_name()).map(|(dir, name)| dir.join(name));
    [path.to_owned()].into_iter().chain(real).collect()
}

fn is_holder(name: &str, wanted: &[PathBuf]) -> bool {
    // There is none for a loop device with nothing behind it.
    let Ok(file) = File::open(Path::new(BLOCK).join(name).join("loop/backing_file")) else {
        return false;
    };
    let mut told = String::new();
    let read = file.take(PAGE).read_to_string(&mut told);
    read.is_ok() && wanted.iter().any(|path| path == Path::new(without_marks(&told)))
}

/// The path that the kernel tells of what is behind a loop device.
fn without_marks(told: &str) -> &str {
    let told = told.trim_end_matches('\n');
    told.strip_suffix(DELETED).unwrap_or(told)
}

fn open(path: &Path) -> Result<OwnedFd, MountsError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).context(OPEN, path)
}

fn failed(error: &io::Error) -> MountsError {
    let source = Errno::from_io_error(error).unwrap_or(Errno::IO);
    MountsError::Call { operation: "list", path: BLOCK.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_marks_what_is_removed() {
        for (told, path) in [
            ("/plugins/pv/u1\n", "/plugins/pv/u1"),
            ("/plugins/pv/u1 (deleted)\n", "/plugins/pv/u1"),
            ("/plugins/a b/u1 \n", "/plugins/a b/u1 "),
            ("", ""),
        ] {
            assert_eq!(without_marks(told), path);
        }
    }

    #[test]
    fn links_on_the_way_do_not_hide_a_holder() {
        let temp = tempfile::tempdir().unwrap();
        let (real, link) = (temp.path().join("real"), temp.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let names = names_of(&link.join("u1"));
        assert_eq!(names, [link.join("u1"), real.canonicalize().unwrap().join("u1")]);
        assert_eq!(names_of(Path::new("/no/such/u1")), [PathBuf::from("/no/such/u1")]);
    }
}
