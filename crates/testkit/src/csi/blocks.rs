//! Block volumes of a driver: files behind loop devices.
//!
//! Which device a volume has is asked of the kernel each time, so that a driver that
//! crashed knows it. Data stays in the file while no device has it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tonic::Status;

use super::volumes::{SIZE_KEY, Volumes, failed};
use crate::disk;

/// Bytes of a volume that nobody gave a size.
const SIZE: u64 = 16 << 20;

impl Volumes {
    fn image(&self, volume: &str) -> PathBuf {
        self.dir.join(volume).join("block.img")
    }

    /// Was it asked for as a device?
    pub(super) fn is_block(&self, volume: &str) -> bool {
        self.image(volume).exists()
    }

    /// The volume's device, if the node has it.
    pub(super) fn device(&self, volume: &str) -> Result<Option<PathBuf>, Status> {
        let image = self.image(volume);
        if !image.exists() {
            return Ok(None);
        }
        let said = losetup(&["--noheadings", "--output", "NAME", "--associated"], &image)?;
        Ok(said.lines().next().map(|line| PathBuf::from(line.trim())))
    }

    /// Makes the volume if it is new, and its device if there is none.
    pub(super) fn attach(
        &self,
        volume: &str,
        context: &BTreeMap<String, String>,
    ) -> Result<PathBuf, Status> {
        if let Some(device) = self.device(volume)? {
            return Ok(device);
        }
        let image = self.image(volume);
        if !image.exists() {
            let size = context.get(SIZE_KEY).map_or(Ok(SIZE), |size| size.parse());
            let size = size.map_err(|_| Status::invalid_argument("size is no number"))?;
            let dir = self.dir.join(volume);
            fs::create_dir_all(&dir).map_err(|err| failed("create", &dir, err))?;
            let made = File::create(&image).and_then(|file| file.set_len(size));
            made.map_err(|err| failed("create", &image, err))?;
        }
        let said = losetup(&["--find", "--show"], &image)?;
        Ok(PathBuf::from(said.trim()))
    }

    /// Bytes of a volume that is a device.
    pub(super) fn device_size(&self, volume: &str) -> Option<u64> {
        fs::metadata(self.image(volume)).ok().map(|facts| facts.len())
    }

    /// Makes the file larger, and its device with it.
    pub(super) fn grow_device(&self, volume: &str, size: u64) -> Result<(), Status> {
        let image = self.image(volume);
        let grown = File::options().write(true).open(&image).and_then(|file| file.set_len(size));
        grown.map_err(|err| failed("grow", &image, err))?;
        match self.device(volume)? {
            Some(device) => losetup(&["--set-capacity"], &device).map(drop),
            None => Ok(()),
        }
    }

    /// Takes the volume's device away from the node.
    pub(super) fn detach(&self, volume: &str) -> Result<(), Status> {
        match self.device(volume)? {
            Some(device) => losetup(&["--detach"], &device).map(drop),
            None => Ok(()),
        }
    }

    /// Takes away every device.
    pub(super) fn detach_all(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if let Some(volume) = entry.file_name().to_str() {
                // There is nobody left to tell.
                let _ = self.detach(volume);
            }
        }
    }
}

fn losetup(arguments: &[&str], last: &Path) -> Result<String, Status> {
    disk::losetup(arguments, last).map_err(|err| Status::internal(format!("{err:#}")))
}
