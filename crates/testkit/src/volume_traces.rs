//! What volumes leave in an agent's root directory beside the directories of pods: global
//! mounts, staging directories, maps of devices.
//!
//! Reads the root directory and the mount table. Changes nothing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::host;

/// What is still there of a pod that is gone: whatever is named after it, and once no pod
/// is left on the node, every mount, file and directory of a volume.
pub fn left_of(root: &Path, uid: &str) -> Result<Vec<PathBuf>> {
    let last = children(&root.join("pods"))?.is_empty();
    let mut left = Vec::new();
    for plugin in children(&root.join("plugins"))? {
        let name = plugin.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with("kubernetes.io") {
            continue;
        }
        let mounts = host::mounts_below(&plugin)?;
        let within = everything_below(&plugin)?;
        left.extend(mounts.into_iter().filter(|path| last || is_named(path, uid)));
        left.extend(within.into_iter().filter(|path| {
            let below = path.strip_prefix(&plugin).unwrap_or(path);
            is_named(path, uid) || last && !is_scaffold(below, path)
        }));
    }
    Ok(left)
}

fn is_named(path: &Path, uid: &str) -> bool {
    path.components().any(|part| part.as_os_str().to_string_lossy().contains(uid))
}

/// Directories of a plugin or a driver, for volumes to come: they hold none themselves.
fn is_scaffold(below: &Path, path: &Path) -> bool {
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    let is_dir = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let known = match parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] {
        [_] | ["csi", _] | ["local-volume", "mounts"] => true,
        [.., last] => matches!(last, "volumeDevices" | "publish" | "staging"),
        [] => true,
    };
    is_dir && known
}

fn everything_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut queue) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = queue.pop() {
        for path in children(&dir)? {
            // A mount is told as one: what it holds is somebody's data.
            let within = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
            if within && host::mounts_below(&path)?.first() != Some(&path) {
                queue.push(path.clone());
            }
            found.push(path);
        }
    }
    Ok(found)
}

fn children(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        // Nothing was ever made there, or it went while others were read.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| format!("cannot list {}", dir.display()))?,
    };
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        assert_eq!(left_of(root, "u1").unwrap(), Vec::<PathBuf>::new());
        let all = root.join("plugins/kubernetes.io");
        for scaffold in ["csi/d.example", "csi/volumeDevices/publish", "local-volume/mounts"] {
            fs::create_dir_all(all.join(scaffold)).unwrap();
        }
        fs::create_dir_all(root.join("plugins/d.example/state")).unwrap();
        fs::create_dir_all(root.join("pods")).unwrap();
        assert_eq!(left_of(root, "u1").unwrap(), Vec::<PathBuf>::new());

        // Of another pod's volume, and of its own.
        fs::create_dir_all(root.join("pods/u2")).unwrap();
        let global = all.join("local-volume/mounts/pv");
        fs::create_dir(&global).unwrap();
        assert_eq!(left_of(root, "u1").unwrap(), Vec::<PathBuf>::new());
        let device = all.join("csi/volumeDevices/publish/pv/u1");
        fs::create_dir_all(device.parent().unwrap()).unwrap();
        fs::write(&device, "").unwrap();
        assert_eq!(left_of(root, "u1").unwrap(), std::slice::from_ref(&device));

        // Nobody is left who could use either.
        fs::remove_file(&device).unwrap();
        fs::remove_dir(root.join("pods/u2")).unwrap();
        let mut left = left_of(root, "u1").unwrap();
        left.sort();
        assert_eq!(left, [device.parent().unwrap().to_owned(), global]);
    }
}
