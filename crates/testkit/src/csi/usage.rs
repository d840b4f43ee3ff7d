//! Size and use of a volume: of the file system below it, or, if the volume
//! has a size of its own, of the files in it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use plugin_apis::csi::VolumeUsage;
use plugin_apis::csi::volume_usage::Unit;
use rustix::fs::statvfs;

/// Bytes and inodes, in this order.
pub(super) fn measure(path: &Path, size: Option<u64>) -> io::Result<Vec<VolumeUsage>> {
    let found = statvfs(path)?;
    let (bytes, inodes) = match size {
        None => {
            let unit = found.f_frsize;
            let used = (found.f_blocks - found.f_bfree) * unit;
            let bytes = usage(Unit::Bytes, found.f_blocks * unit, used, found.f_bavail * unit);
            let used = found.f_files - found.f_ffree;
            (bytes, usage(Unit::Inodes, found.f_files, used, found.f_favail))
        }
        Some(size) => {
            let (used, files) = disk_usage(path)?;
            let bytes = usage(Unit::Bytes, size, used, size.saturating_sub(used));
            (bytes, usage(Unit::Inodes, found.f_files, files, found.f_favail))
        }
    };
    Ok(vec![bytes, inodes])
}

/// Of a device nobody knows more than its size.
pub(super) fn of_device(size: u64) -> Vec<VolumeUsage> {
    vec![usage(Unit::Bytes, size, 0, 0)]
}

fn usage(unit: Unit, total: u64, used: u64, available: u64) -> VolumeUsage {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    VolumeUsage {
        available: number(available),
        total: number(total),
        used: number(used),
        unit: unit as i32,
    }
}

/// Bytes on disk and number of files, the directory itself included.
fn disk_usage(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    let (mut bytes, mut files) = (found.blocks() * 512, 1);
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            let (more_bytes, more_files) = disk_usage(&entry?.path())?;
            bytes += more_bytes;
            files += more_files;
        }
    }
    Ok((bytes, files))
}
