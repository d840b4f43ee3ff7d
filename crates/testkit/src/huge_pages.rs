//! Huge pages of this host, reserved for one test at a time.
//!
//! Owns the reservation, under a file lock: it is the machine's, so that tests side by side
//! would undo each other's. Gives it back when dropped.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use crate::slot;

/// How many pages of 2 MiB the kernel keeps.
const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Pages of 2 MiB that are there until this is dropped.
pub struct HugePages {
    before: u64,
    _lock: File,
}

impl HugePages {
    /// Waits for its turn and reserves so many; says so and gives none if the kernel has none
    /// to give.
    pub fn reserve(test: &str, pages: u64) -> Result<Option<Self>> {
        let dir = Path::new(slot::BASE);
        slot::claim(dir)?;
        let lock = File::create(dir.join("huge-pages.lock")).context("cannot make a lock")?;
        flock(&lock, FlockOperation::LockExclusive).context("cannot take turns")?;
        let reserved = || -> Option<u64> { fs::read_to_string(RESERVED).ok()?.trim().parse().ok() };
        let given = reserved().and_then(|before| {
            let wanted = before + pages;
            let given = Self { before, _lock: lock };
            fs::write(RESERVED, wanted.to_string()).ok()?;
            reserved().filter(|now| *now >= wanted).map(|_| given)
        });
        if given.is_none() {
            eprintln!("SKIPPED {test}: the kernel gives no {pages} pages in {RESERVED}");
        }
        Ok(given)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = fs::write(RESERVED, self.before.to_string()) {
            eprintln!("{RESERVED} is not {} again: {error}", self.before);
        }
    }
}
