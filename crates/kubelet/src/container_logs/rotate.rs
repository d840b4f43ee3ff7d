//! Rotates one log: clean up, move away, have the runtime open a new one, compress the older ones.

use std::io;
use std::path::{Path, PathBuf};

use cri::CallError;

use super::{gzip, plan};
use crate::ports::{Fs, Ports};

/// What came of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rotated {
    /// The runtime writes a new file.
    Done,
    /// This second's name is taken already; another attempt will find a free one.
    NameTaken,
}

/// Why a rotation is not complete. The log is whole in any case, and tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum RotateError {
    /// The path cannot be a log's.
    #[error("{} is no path of a log", .0.display())]
    Path(PathBuf),
    /// A file operation failed.
    #[error("cannot {action} {}: {source}; check the disk and its free space", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The runtime did not open a new file.
    #[error("the runtime did not open the log anew: {0}")]
    Reopen(#[from] CallError),
}

/// Rotates the log of a running container.
pub(super) async fn rotate(
    ports: &Ports,
    id: &str,
    log: &Path,
    max_files: usize,
) -> Result<Rotated, RotateError> {
    let fs = &*ports.fs;
    let no_log = || RotateError::Path(log.to_owned());
    let dir = log.parent().ok_or_else(no_log)?;
    let name = log.file_name().and_then(|name| name.to_str()).ok_or_else(no_log)?;
    let rotated = rotated_names(fs, dir, name).map_err(file_error("list", dir))?;
    let target = plan::rotated_name(name, ports.clock.wall());
    let gzipped = format!("{target}{}", plan::GZIPPED);
    if rotated.contains(&target) || rotated.contains(&gzipped) {
        return Ok(Rotated::NameTaken);
    }
    let plan = plan::rotation(rotated, max_files);
    for old in plan.remove.iter().map(|name| dir.join(name)) {
        fs.remove_file(&old).map_err(file_error("remove", &old))?;
    }
    let target = dir.join(target);
    fs.rename(log, &target).map_err(file_error("rotate", log))?;
    if let Err(error) = ports.runtime.reopen_container_log(id).await {
        // The runtime may have opened a new file though its answer was lost;
        // moving the old one over it would lose what is written from now on.
        if matches!(fs.stat(log), Err(missing) if missing.kind() == io::ErrorKind::NotFound) {
            fs.rename(&target, log).map_err(file_error("move back", &target))?;
        }
        return Err(error.into());
    }
    // Upstream compresses before it moves the log away, which leaves the same
    // files; but a fast log would grow all the while.
    for old in plan.compress.iter().map(|name| dir.join(name)) {
        gzip::compress(fs, &old).await.map_err(file_error("compress", &old))?;
    }
    Ok(Rotated::Done)
}

/// Names of a log's rotated files, compressed or not, in order.
pub(super) fn rotated_names(fs: &dyn Fs, dir: &Path, log: &str) -> io::Result<Vec<String>> {
    let of_log = |name: &String| name.strip_prefix(log).is_some_and(|rest| rest.starts_with('.'));
    let entries = fs.list(dir)?;
    Ok(entries.into_iter().filter_map(|e| e.name.into_string().ok()).filter(of_log).collect())
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RotateError {
    let path = path.to_owned();
    move |source| RotateError::File { action, path, source }
}
