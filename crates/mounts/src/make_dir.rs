//! Directories with an exact mode, and those that lead to them.
//!
//! Changes the mode of the last directory only. Never follows a link there.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::error::{Context, MountsError, OPEN};
use crate::place::{Entry, LIST, Place, facts};
use crate::table::is_mounted;

/// Directories that lead to something, when they are missing.
const PARENT_MODE: u32 = 0o750;

/// Makes a directory of exactly this mode, whatever the umask, and those that
/// lead to it with mode 0750. One that exists gets the mode, unless something is
/// mounted there: its mode is somebody else's.
pub fn make_dir(path: &Path, mode: u32) -> Result<(), MountsError> {
    let entry = lead_to(path)?;
    if is_mounted(&entry)? {
        return Ok(());
    }
    make_entry(&entry, mode).map(|_| ())
}

/// The name in an open directory, which is made if it is missing.
pub(crate) fn lead_to(path: &Path) -> Result<Entry, MountsError> {
    match Entry::of(path) {
        Err(error) if error.is_not_found() => {
            make_parents(path)?;
            Entry::of(path)
        }
        entry => entry,
    }
}

fn make_parents(path: &Path) -> Result<(), MountsError> {
    let mut missing = Vec::new();
    for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
        match Place::follow(parent) {
            Err(error) if error.is_not_found() => missing.push(parent),
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    missing.into_iter().rev().try_for_each(|parent| make_dir(parent, PARENT_MODE))
}

/// Makes, or opens, one directory and gives it the mode.
pub(crate) fn make_entry(entry: &Entry, mode: u32) -> Result<OwnedFd, MountsError> {
    let Entry { parent, name, path } = entry;
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode & 0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(MountsError::call("create directory", path, errno)),
    }
    let made = entry.open(LIST).context(OPEN, path)?;
    let now = facts(&made).context("look at", path)?;
    if u32::from(now.stx_mode) & 0o7777 != mode {
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode)).context("set the mode of", path)?;
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_made_directory_has_its_mode_and_its_parents_0750() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b/c");
        make_dir(&path, 0o777).unwrap();
        assert_eq!(mode_of(&path), 0o777);
        assert_eq!(mode_of(&temp.path().join("a/b")), 0o750);
        make_dir(&path, 0o2755).expect("once more");
        assert_eq!(mode_of(&path), 0o2755);
    }

    #[test]
    fn the_last_name_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let outside = temp.path().join("outside");
        make_dir(&outside, 0o700).unwrap();
        let link = temp.path().join("link");
        symlink(&outside, &link).unwrap();
        assert!(make_dir(&link, 0o777).is_err());
        assert_eq!(mode_of(&outside), 0o700);
        assert!(Place::directory(&link).is_err());
        Place::follow(&link).unwrap();
        make_dir(&link.join("inner"), 0o700).expect("links that lead there are followed");
    }

    #[test]
    fn a_path_without_a_last_name_is_refused() {
        for path in ["/", "..", "a/.."] {
            let error = make_dir(Path::new(path), 0o700).unwrap_err();
            assert!(matches!(error, MountsError::BadPath { .. }), "{path}: {error}");
        }
    }

    #[test]
    fn messages_name_operation_path_cause_and_advice() {
        let error = Place::directory(Path::new("/nowhere/at-all")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot open /nowhere: No such file or directory (os error 2); create it first, or \
             correct the path"
        );
    }
}
