//! What is mounted, and what goes wrong with work on it.
//!
//! Owns the mount table. Whoever unmounts is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet::ports::VolumeError;
use mounts::MountsError;
use rand::RngExt;

use crate::world::State;

/// What is mounted, and where work is under way.
#[derive(Default)]
pub(crate) struct MountTable {
    /// Which mount each is, so that one made anew can be told from the old.
    pub(crate) mounts: BTreeMap<PathBuf, u64>,
    /// What is bound to a mount point, where that is a directory of its own.
    parts: BTreeMap<PathBuf, PathBuf>,
    /// Until when work is under way, by the life that began it and its place.
    pub(super) busy: BTreeMap<(u64, PathBuf), Duration>,
    /// What somebody else mounted: neither the agent's to unmount nor to remove.
    pub(crate) foreign: BTreeSet<PathBuf>,
    /// Disks of other machines that are here, and the session each came with.
    pub(crate) attached: BTreeMap<PathBuf, String>,
    /// What the agent asked for, and how often.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Work that hangs the next time, and how long.
    pub(crate) hangs: Vec<(&'static str, Duration)>,
    made: u64,
}

impl MountTable {
    pub(crate) fn add(&mut self, path: &Path) {
        self.made += 1;
        self.mounts.insert(path.to_owned(), self.made);
    }

    /// The agent asks for something, whatever becomes of it.
    pub(super) fn count(&mut self, what: &str, place: &str) {
        *self.calls.entry(format!("{what} {place}")).or_default() += 1;
    }

    /// Does a scenario want this work to hang?
    pub(super) fn next_hang(&mut self, what: &str) -> Option<Twist> {
        let at = self.hangs.iter().position(|(wanted, _)| *wanted == what)?;
        Some(Twist::Hang(self.hangs.remove(at).1))
    }

    /// Where that what is written to a path really goes.
    pub(crate) fn source_of<'a>(&'a self, path: &'a Path) -> &'a Path {
        let mut source = path;
        while let Some(next) = self.parts.get(source) {
            source = next;
        }
        source
    }

    /// Mounts of a directory, or of something in it.
    pub(crate) fn mounts_from(&self, source: &Path) -> Vec<PathBuf> {
        let all = self.mounts.keys();
        all.filter(|point| self.source_of(point).starts_with(source)).cloned().collect()
    }

    /// Other mounts of what is mounted at a point.
    pub(crate) fn sharers(&self, point: &Path) -> Vec<PathBuf> {
        if !self.mounts.contains_key(point) {
            return Vec::new();
        }
        let mut all = self.mounts_from(self.source_of(point));
        all.retain(|other| other != point);
        all
    }

    /// The mounts on a path and below it.
    pub(crate) fn at_or_below(&self, path: &Path) -> Vec<PathBuf> {
        let all = self.mounts.keys();
        all.filter(|point| point.starts_with(path)).cloned().collect()
    }
}

pub(super) enum Twist {
    Fail,
    LoseAnswer,
    Hang(Duration),
    CrashBefore,
    CrashAfter,
}

impl State {
    pub(super) fn volume_twist(&mut self) -> Option<Twist> {
        let faults = &self.faults;
        let (error, lost) = (faults.volume_error, faults.lost_answer);
        let (hang, crash) = (faults.hang, faults.crash_at_call);
        if self.chance(error) {
            return Some(Twist::Fail);
        }
        if self.chance(lost) {
            return Some(Twist::LoseAnswer);
        }
        if self.chance(hang) {
            let long = Duration::from_millis(self.rng.random_range(1_000..100_000));
            return Some(Twist::Hang(long));
        }
        if self.chance(crash) {
            let before = self.rng.random_bool(0.5);
            return Some(if before { Twist::CrashBefore } else { Twist::CrashAfter });
        }
        None
    }
}

impl State {
    pub(super) fn mount(&mut self, target: &Path) -> Result<(), VolumeError> {
        if !self.files.has(target) {
            return Err(MountsError::BadPath { path: target.into(), why: "is missing" }.into());
        }
        self.mount_once(target);
        Ok(())
    }

    /// Mounts at a directory, unless that is done.
    pub(super) fn mount_once(&mut self, target: &Path) {
        if !self.volumes.mounts.contains_key(target) {
            self.volumes.add(target);
        }
    }

    /// What is mounted at a target shows the files of another directory.
    pub(super) fn bind(&mut self, target: &Path, source: PathBuf) {
        self.volumes.parts.insert(target.to_owned(), source);
    }

    pub(super) fn unmount_if_mounted(&mut self, point: &Path) {
        if self.volumes.mounts.contains_key(point) {
            self.unmount(point);
        }
    }

    /// The kernel unmounts nothing that has another mount in it.
    pub(super) fn unmount_if_free(&mut self, point: &Path) -> Result<(), VolumeError> {
        match self.volumes.at_or_below(point).iter().any(|below| below != point) {
            true if self.volumes.mounts.contains_key(point) => {
                Err(MountsError::Busy { path: point.to_owned() }.into())
            }
            _ => {
                self.unmount_if_mounted(point);
                Ok(())
            }
        }
    }

    pub(super) fn unmount(&mut self, point: &Path) {
        self.check_volume_undone(point, "unmounts");
        self.check_not_foreign(point, "unmounts");
        self.volumes.mounts.remove(point);
        // What lies in memory goes with it; what is bound stays where it is.
        if self.volumes.parts.remove(point).is_none() {
            for path in self.files.names_in(point) {
                self.files.remove_tree(&path);
            }
        }
    }
}
