//! Room on file systems and what files take up.
//!
//! Upstream: cAdvisor's fs package, pkg/kubelet/stats/host_stats_provider.go.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::Timestamp;

use crate::samples::{Fs, add};

/// Files counted in one directory of logs: rotation leaves a handful.
const FILES_MAX: usize = 10_000;
/// The unit in which the kernel counts the blocks of a file.
const BLOCK: u64 = 512;

/// The file system of a directory. `used` is what all its users take up.
pub(crate) fn space(dir: &Path, now: Timestamp) -> io::Result<Fs> {
    let stat = rustix::fs::statvfs(dir)?;
    let bytes = |blocks: u64| Some(blocks.saturating_mul(stat.f_frsize));
    // File systems that make inodes on demand say 0.
    let inodes = (stat.f_files > 0).then_some(stat.f_files);
    Ok(Fs {
        time: Some(now),
        available: bytes(stat.f_bavail),
        capacity: bytes(stat.f_blocks),
        used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        inodes_free: inodes.map(|_| stat.f_ffree),
        inodes,
        inodes_used: inodes.map(|all| all.saturating_sub(stat.f_ffree)),
    })
}

/// The room of one file system with the use of another.
pub(crate) fn on(room: &Fs, used: Option<u64>, inodes_used: Option<u64>) -> Fs {
    Fs { used, inodes_used, ..*room }
}

/// Bytes and inodes of one file; `None` if it does not exist.
pub(crate) fn file(path: &Path) -> io::Result<Option<(u64, u64)>> {
    match path.symlink_metadata() {
        Ok(found) => Ok(Some((found.blocks().saturating_mul(BLOCK), 1))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes and inodes of the files right in a directory; `None` if it does not exist.
pub(crate) fn files_in(dir: &Path) -> io::Result<Option<(Option<u64>, Option<u64>)>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut bytes, mut inodes) = (None, None);
    for entry in entries.take(FILES_MAX) {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // One that was rotated away meanwhile takes up nothing.
        if let Some((size, count)) = file(&entry.path())? {
            bytes = add(bytes, Some(size));
            inodes = add(inodes, Some(count));
        }
    }
    Ok(Some((bytes, inodes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_summed_and_directories_are_not() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        assert_eq!(files_in(&dir.path().join("none"))?, None);
        assert_eq!(files_in(dir.path())?, Some((None, None)));
        std::fs::write(dir.path().join("0.log"), vec![b'x'; 10_000])?;
        std::fs::write(dir.path().join("1.log"), "y")?;
        std::fs::create_dir(dir.path().join("sub"))?;
        std::fs::write(dir.path().join("sub/2.log"), vec![b'x'; 100_000])?;
        let found = files_in(dir.path())?;
        let (Some(bytes), Some(2)) = found.unwrap_or_default() else {
            anyhow::bail!("two files, not {found:?}");
        };
        anyhow::ensure!((10_001..100_000).contains(&bytes), "{bytes}");
        Ok(())
    }

    #[test]
    fn a_real_file_system_adds_up() -> anyhow::Result<()> {
        let now = Timestamp::UNIX_EPOCH;
        let fs = space(Path::new("/"), now)?;
        let (Some(capacity), Some(used), Some(available)) = (fs.capacity, fs.used, fs.available)
        else {
            anyhow::bail!("{fs:?}");
        };
        anyhow::ensure!(capacity > 0 && used + available <= capacity, "{fs:?}");
        anyhow::ensure!(space(Path::new("/no/such/dir"), now).is_err());
        Ok(())
    }
}
