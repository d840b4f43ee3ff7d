//! Reading and writing the kernel's small files.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use crate::error::CgroupError;

/// A control file is a few lines; `cgroup.procs` of a large group is the longest.
const FILE_MAX: u64 = 4 << 20;

/// Text of a control file.
pub(crate) fn read(path: &Path) -> Result<String, CgroupError> {
    let text = || {
        let mut text = String::new();
        File::open(path)?.take(FILE_MAX).read_to_string(&mut text)?;
        io::Result::Ok(text)
    };
    text().map_err(|error| CgroupError::read(path, error))
}

/// Text of a control file; `None` if it or its group does not exist.
pub(crate) fn read_if_any(path: &Path) -> Result<Option<String>, CgroupError> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(CgroupError::Read { source, .. }) if is_gone(&source) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file or the group behind it no longer exists: reading an open file of a
/// removed group says ENODEV.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// Writes one value in one call, as the kernel wants. Never creates a file.
pub(crate) fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    let put =
        || OpenOptions::new().write(true).truncate(true).open(path)?.write_all(value.as_bytes());
    put().map_err(|error| CgroupError::write(path, value, error))
}
