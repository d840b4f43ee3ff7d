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

/// What `losetup` says about a device or the file behind one.
pub(crate) fn losetup(arguments: &[&str], path: &Path) -> Result<String> {
    let program = host::program("losetup", "mount")?;
    process::run(Command::new(program).args(arguments).arg(path))
}
