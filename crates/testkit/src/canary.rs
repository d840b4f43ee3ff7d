//! A directory of the host that nothing may touch, for hostile containers to aim at.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// A small tree, and how it was.
#[derive(Debug)]
pub struct Canary {
    /// Where it is.
    pub root: PathBuf,
    before: Facts,
}

/// Inode, mode, owner, group and content or target, by path.
type Facts = BTreeMap<PathBuf, (u64, u32, u32, u32, Vec<u8>)>;

impl Canary {
    /// Makes `canary` in this directory.
    pub fn new(dir: &Path) -> Result<Self> {
        let root = dir.join("canary");
        fs::create_dir_all(root.join("deep/word"))?;
        fs::write(root.join("word"), "precious\n")?;
        fs::write(root.join("deep/word/file"), "precious\n")?;
        symlink("word", root.join("link"))?;
        Ok(Self { before: facts(&root)?, root })
    }

    /// Fails unless all of it is as it was made.
    pub fn check(&self) -> Result<()> {
        ensure!(facts(&self.root)? == self.before, "{} was touched", self.root.display());
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
        found.insert(path, (meta.ino(), meta.mode(), meta.uid(), meta.gid(), content));
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
        fs::write(canary.root.join("deep/word/file"), "spoilt\n").unwrap();
        assert!(canary.check().is_err());
    }
}
