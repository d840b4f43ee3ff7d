//! A directory of the host that nothing may touch, for hostile containers to aim at.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// A small tree, and how it was.
#[derive(Debug)]
pub struct Canary {
    /// Where it is.
    pub root: PathBuf,
    before: Facts,
}

/// Inode, mode, owner, group, last change and content or target, by path. A directory is
/// changed by what is made in it, even if that is taken away again.
type Facts = BTreeMap<PathBuf, (u64, u32, u32, u32, (i64, i64), Vec<u8>)>;

impl Canary {
    /// Makes `canary` in this directory.
    pub fn new(dir: &Path) -> Result<Self> {
        let root = dir.join("canary");
        fs::create_dir_all(root.join("deep/word"))?;
        fs::write(root.join("word"), "precious\n")?;
        fs::write(root.join("deep/word/file"), "precious\n")?;
        symlink("word", root.join("link"))?;
        for (name, mode) in [("", 0o751), ("word", 0o604), ("deep", 0o705)] {
            let path = root.join(name);
            chown(&path, Some(77), Some(88))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
        Ok(Self { before: facts(&root)?, root })
    }

    /// Fails unless all of it is as it was made.
    pub fn check(&self) -> Result<()> {
        let now = facts(&self.root)?;
        let gone = self.before.keys().find(|path| !now.contains_key(*path));
        let other = now.iter().find(|(path, facts)| self.before.get(*path) != Some(*facts));
        ensure!(gone.is_none(), "{gone:?} is gone");
        ensure!(other.is_none(), "{other:?} was touched, and was {:?}", self.before);
        Ok(())
    }
}

fn facts(root: &Path) -> Result<Facts> {
    let (mut found, mut queue) = (Facts::new(), vec![root.to_owned()]);
    while let Some(path) = queue.pop() {
        let meta = path.symlink_metadata()?;
        let content = if meta.is_symlink() {
            fs::read_link(&path)?.into_os_string().into_encoded_bytes()
        } else if meta.is_dir() {
            for entry in fs::read_dir(&path)? {
                queue.push(entry?.path());
            }
            Vec::new()
        } else {
            fs::read(&path)?
        };
        let changed = (meta.ctime(), meta.ctime_nsec());
        found.insert(path, (meta.ino(), meta.mode(), meta.uid(), meta.gid(), changed, content));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touch_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let canary = Canary::new(dir.path()).unwrap();
        canary.check().unwrap();
        fs::write(canary.root.join("deep/new"), "").unwrap();
        fs::remove_file(canary.root.join("deep/new")).unwrap();
        assert!(canary.check().is_err(), "something was made, and is gone");
        let canary = Canary { before: facts(&canary.root).unwrap(), ..canary };
        fs::remove_file(canary.root.join("word")).unwrap();
        assert!(canary.check().unwrap_err().to_string().contains("word\") is gone"));
    }
}
