//! Disks of the node that are files: block devices without a disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{host, process};

/// A loop device over a file, until dropped.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Makes a file of this size that begins with `start`, and a device of it.
    pub fn over(image: &Path, start: &[u8], size: u64) -> Result<Self> {
        fs::write(image, start)?;
        fs::File::options().write(true).open(image)?.set_len(size)?;
        let device = losetup(&["--find", "--show"], image)?;
        Ok(Self(PathBuf::from(device.trim())))
    }

    /// Takes it away, as an administrator would: it goes once nobody has it open, and its
    /// number may be another's from then on.
    pub fn take_away(self) -> Result<PathBuf> {
        losetup(&["--detach"], &self.0)?;
        let path = self.0.clone();
        std::mem::forget(self);
        Ok(path)
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = losetup(&["--detach"], &self.0);
    }
}

/// The loop devices with something below a directory behind them, and what.
pub fn loops_over(dir: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let Ok(behind) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let behind = PathBuf::from(behind.trim_end_matches('\n').trim_end_matches(" (deleted)"));
        if behind.starts_with(dir) {
            found.push((Path::new("/dev").join(entry.file_name()), behind));
        }
    }
    found.sort();
    found
}

/// What `losetup` says about a device or the file behind one.
pub(crate) fn losetup(arguments: &[&str], path: &Path) -> Result<String> {
    let program = host::program("losetup", "mount")?;
    process::run(Command::new(program).args(arguments).arg(path))
}
