//! Disks of the node that are volumes: what is on one, a file system on a blank one,
//! and its mount.
//!
//! Nothing is ever written to a disk that holds anything. Blank is one of which nobody
//! else has hold, on which `blkid` knows nothing, and whose first and last four mebibytes
//! are zeros. Never uses a shell. Upstream: k8s.io/mount-utils, FormatAndMount.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mounts::mount::Device;
use rustix::fs::OFlags;

use super::super::volumes::VolumeError;
use super::tool::{self, Said, ToolError};

/// Bytes at either end that are zeros on a blank disk: every file system and every table
/// of partitions has something there.
const ENDS_BYTES: u64 = 4 << 20;
/// How long a disk may take to be looked at: one that answers takes moments.
const LOOK_LIMIT: Duration = Duration::from_secs(60);
/// How long a file system may take to be made, or to be checked: the largest disks take
/// hours, and nothing is to be gained by stopping halfway.
const WORK_LIMIT: Duration = Duration::from_secs(6 * 3_600);
/// `blkid` knows nothing of it.
const NOTHING_FOUND: i32 = 2;
/// From here on `fsck` left errors.
const ERRORS_LEFT: i32 = 4;

/// A disk of the node, and how to mount it.
pub(super) struct Disk {
    /// The block device.
    pub device: PathBuf,
    /// The file system it has, or gets if it is blank.
    pub fs_type: String,
    /// Options as in fstab, one each.
    pub options: Vec<String>,
}

/// Mounts a disk, and makes a file system on a blank one before.
pub(super) fn mount(target: &Path, disk: &Disk) -> Result<(), VolumeError> {
    if mounts::table::is_mount_point(target)? {
        return Ok(());
    }
    let fs_type = &disk.fs_type;
    if fs_type.is_empty() || !fs_type.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        return Err(refused(&disk.device, format!("{fs_type:?} is no kind of file system")));
    }
    let read_only = disk.options.iter().any(|option| option == "ro");
    match found_on(&disk.device)? {
        // As upstream, nothing is repaired, nor made, on what is only read.
        OnDisk::FileSystem(found) if found == *fs_type && read_only => {}
        OnDisk::Nothing if read_only => {
            let why = "it is blank, and the volume is only read";
            return Err(refused(&disk.device, why.to_owned()));
        }
        OnDisk::FileSystem(found) if found == *fs_type => check(&disk.device)?,
        OnDisk::FileSystem(found) => {
            let (device, wanted) = (disk.device.clone(), fs_type.clone());
            return Err(VolumeError::OtherFileSystem { device, found, wanted });
        }
        OnDisk::Other(what) => return Err(refused(&disk.device, format!("it holds {what}"))),
        OnDisk::Nothing => {
            blank(&disk.device)?;
            tracing::info!(device = %disk.device.display(), fs_type, "making a file system");
            make(&disk.device, fs_type)?;
        }
    }
    mounts::make_dir(target, 0o750)?;
    let device = Device { source: &disk.device, fs_type, options: &disk.options, read_only };
    Ok(mounts::mount::device(target, &device)?)
}

enum OnDisk {
    Nothing,
    FileSystem(String),
    /// What it is, as `blkid` calls it.
    Other(String),
}

fn found_on(device: &Path) -> Result<OnDisk, VolumeError> {
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-s", "USAGE", "-o", "export"];
    let output = run("blkid", &arguments, device, LOOK_LIMIT)?;
    let text = String::from_utf8_lossy(&output.output).into_owned();
    let value = |key: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        found.map(str::to_owned)
    };
    match (output.status.code(), value("TYPE"), value("PTTYPE")) {
        (Some(0), Some(found), _) if value("USAGE").as_deref() == Some("filesystem") => {
            Ok(OnDisk::FileSystem(found))
        }
        (Some(0), Some(found), _) => Ok(OnDisk::Other(found)),
        (Some(0), None, Some(table)) => Ok(OnDisk::Other(format!("partitions ({table})"))),
        (Some(NOTHING_FOUND), None, None) => Ok(OnDisk::Nothing),
        _ => {
            Err(refused(device, format!("blkid cannot tell what it holds: {}", output.complaint())))
        }
    }
}

/// Fails unless nobody else has hold of the device and its ends are zeros.
fn blank(device: &Path) -> Result<(), VolumeError> {
    let unread = |error: io::Error| refused(device, format!("it cannot be read: {error}"));
    let flags = OFlags::EXCL | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let mut disk =
        OpenOptions::new().read(true).custom_flags(flags).open(device).map_err(unread)?;
    let size = disk.seek(SeekFrom::End(0)).map_err(unread)?;
    for start in [0, size.saturating_sub(ENDS_BYTES)] {
        disk.seek(SeekFrom::Start(start)).map_err(unread)?;
        if !is_zeros(&mut disk).map_err(unread)? {
            let why = "it has no file system, and yet something is written on it; wipe it if \
                       that may go (wipefs, dd)";
            return Err(refused(device, why.to_owned()));
        }
    }
    Ok(())
}

fn is_zeros(disk: &mut File) -> io::Result<bool> {
    let mut part = vec![0; 64 << 10];
    let mut rest = disk.take(ENDS_BYTES);
    loop {
        match rest.read(&mut part)? {
            0 => return Ok(true),
            read if part[..read].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Not forced: the tool, too, refuses a disk that holds something.
fn make(device: &Path, fs_type: &str) -> Result<(), VolumeError> {
    let tool = format!("mkfs.{fs_type}");
    // As upstream, no part is kept for root.
    let arguments: &[&str] = if fs_type.starts_with("ext") { &["-m0"] } else { &[] };
    let output = run(&tool, arguments, device, WORK_LIMIT)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(refused(device, format!("{tool} failed: {}", output.complaint()))),
    }
}

/// As upstream: what can be repaired without asking is. A node without the tool mounts
/// the file system as it is.
fn check(device: &Path) -> Result<(), VolumeError> {
    match run("fsck", &["-a"], device, WORK_LIMIT) {
        Ok(output) if output.status.code() == Some(ERRORS_LEFT) => Err(refused(
            device,
            format!("'fsck' found errors on device it could not correct: {}", output.complaint()),
        )),
        Ok(_) => Ok(()),
        Err(VolumeError::NoTool { tool, .. }) => {
            tracing::warn!(device = %device.display(), tool, "not checked before its mount");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn run(
    name: &str,
    arguments: &[&str],
    device: &Path,
    limit: Duration,
) -> Result<Said, VolumeError> {
    let path = device.to_str().ok_or_else(|| refused(device, "its name is no text".to_owned()))?;
    let arguments: Vec<&str> = arguments.iter().copied().chain([path]).collect();
    tool::run(name, &arguments, limit).map_err(|error| match error {
        ToolError::Missing => {
            VolumeError::NoTool { tool: name.to_owned(), by: path.to_owned(), install: "it" }
        }
        ToolError::Run(error) => refused(device, format!("cannot run {name}: {error}")),
        ToolError::TimedOut(limit, said) => {
            let limit = limit.as_secs();
            refused(device, format!("{name} did not end within {limit} s and was killed: {said}"))
        }
    })
}

fn refused(device: &Path, why: String) -> VolumeError {
    VolumeError::Disk { device: device.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that stands for a disk of 16 MiB.
    fn disk(dir: &Path, content: &[(u64, &[u8])]) -> PathBuf {
        use std::os::unix::fs::FileExt;
        let path = dir.join("disk");
        let file = File::create(&path).expect("a file");
        file.set_len(16 << 20).expect("a size");
        for (at, bytes) in content {
            file.write_all_at(bytes, *at).expect("content");
        }
        path
    }

    fn attempt(dir: &Path, device: &Path, fs_type: &str) -> String {
        let (device, fs_type) = (device.to_owned(), fs_type.to_owned());
        let disk = Disk { device, fs_type, options: vec![] };
        mount(&dir.join("target"), &disk).expect_err("it cannot be mounted here").to_string()
    }

    #[test]
    fn only_a_blank_disk_is_written_to() {
        let temp = tempfile::tempdir().expect("a directory");
        let table = [0x55, 0xaa];
        for (content, why) in [
            (vec![(0, &b"data"[..])], "something is written on it"),
            (vec![((16 << 20) - 5, &b"data"[..])], "something is written on it"),
            (vec![(510, &table[..]), (450, &[0x83, 0, 0, 0, 1][..])], "it holds "),
        ] {
            let path = disk(temp.path(), &content);
            let before = std::fs::read(&path).expect("the disk");
            let error = attempt(temp.path(), &path, "ext4");
            assert!(error.starts_with("will not use ") && error.contains(why), "{error}");
            assert!(std::fs::read(&path).expect("the disk") == before, "{error}: it is changed");
        }
        let error = attempt(temp.path(), &temp.path().join("none"), "ext4");
        assert!(error.starts_with("will not use "), "{error}");
        let error = attempt(temp.path(), &disk(temp.path(), &[]), "../sh");
        assert!(error.contains("is no kind of file system"), "{error}");
        let error = attempt(temp.path(), &disk(temp.path(), &[]), "none");
        assert!(error.starts_with("mkfs.none is not installed on this node"), "{error}");
    }

    #[test]
    fn what_was_made_is_found_and_not_made_again() {
        let temp = tempfile::tempdir().expect("a directory");
        let path = disk(temp.path(), &[]);
        blank(&path).expect("blank");
        make(&path, "ext4").expect("a file system");
        assert!(matches!(found_on(&path), Ok(OnDisk::FileSystem(found)) if found == "ext4"));
        let before = std::fs::read(&path).expect("the disk");
        let error = attempt(temp.path(), &path, "xfs");
        assert!(error.contains("it holds ext4, and the volume is to be xfs"), "{error}");
        assert!(std::fs::read(&path).expect("the disk") == before);
    }
}
