//! Making groups and setting their limits.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::error::CgroupError;
use crate::files;
use crate::hierarchy::{Tree, Version};
use crate::huge_pages::page_size_text;
use crate::limits::{Limits, SHARES_MAX, SHARES_MIN, weight_of_shares};
use crate::name::CgroupName;
use crate::read::page_sizes;

/// The kernel's own period, for a quota that comes without one.
const PERIOD_DEFAULT_US: u64 = 100_000;

impl Tree {
    /// Makes the group and those above it, where they are missing.
    pub fn create(&self, name: &CgroupName) -> Result<(), CgroupError> {
        for group in name.lineage() {
            if let Some(systemd) = self.systemd.as_ref().filter(|_| !self.exists(&group)) {
                let (unit, parent) = group.unit();
                systemd.start(&unit, &parent, self.hierarchy().version())?;
            }
            // systemd passes on and makes only what it uses itself.
            self.make(&group)?;
        }
        Ok(())
    }

    /// Makes the directories of one group; those above it must exist. Not for
    /// systemd, which wants to be asked.
    pub fn make(&self, group: &CgroupName) -> Result<(), CgroupError> {
        for dir in self.dirs(group) {
            if self.hierarchy().version() == Version::V2 {
                self.pass_controllers_on(dir.parent().unwrap_or(&dir))?;
            }
            make_dir(&dir)?;
        }
        match self.hierarchy().version() {
            Version::V1 => self.inherit_cpuset(group),
            Version::V2 => Ok(()),
        }
    }

    /// Version 2: a group has the controllers that its parent passes on.
    fn pass_controllers_on(&self, parent: &Path) -> Result<(), CgroupError> {
        let file = parent.join("cgroup.subtree_control");
        let on = files::read(&file)?;
        let missing: Vec<String> = self
            .hierarchy()
            .controllers()
            .filter(|controller| !on.split_whitespace().any(|name| name == *controller))
            .map(|controller| format!("+{controller}"))
            .collect();
        if missing.is_empty() { Ok(()) } else { files::write(&file, &missing.join(" ")) }
    }

    /// Version 1: a new group has no processors and no memory nodes, so that no
    /// process could enter it.
    fn inherit_cpuset(&self, group: &CgroupName) -> Result<(), CgroupError> {
        let Some(dir) = self.dir("cpuset", group) else { return Ok(()) };
        let Some(parent) = dir.parent() else { return Ok(()) };
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let own = dir.join(file);
            if files::read(&own)?.trim().is_empty() {
                files::write(&own, files::read(&parent.join(file))?.trim())?;
            }
        }
        Ok(())
    }

    /// Sets the limits that are given.
    pub fn apply(&self, name: &CgroupName, limits: &Limits) -> Result<(), CgroupError> {
        match &self.systemd {
            None => self.write_limits(name, limits),
            // systemd would undo what it does not know of; huge pages it never sets.
            Some(systemd) => {
                let version = self.hierarchy().version();
                let rounded = systemd.limit(&name.unit().0, limits, version)?;
                self.write_limits(name, &rounded)
            }
        }
    }

    fn write_limits(&self, name: &CgroupName, limits: &Limits) -> Result<(), CgroupError> {
        self.apply_cpu(name, limits)?;
        if let Some(bytes) = limits.memory_bytes.filter(|bytes| *bytes != 0) {
            let dir = self.needed_dir("memory", name)?;
            let (file, none) = match self.hierarchy().version() {
                Version::V1 => ("memory.limit_in_bytes", "-1"),
                Version::V2 => ("memory.max", "max"),
            };
            files::write(&dir.join(file), &number_or(bytes, none))?;
        }
        if let Some(pids) = limits.pids {
            let dir = self.needed_dir("pids", name)?;
            files::write(&dir.join("pids.max"), &number_or(pids, "max"))?;
        }
        self.apply_huge_pages(name, limits)
    }

    fn apply_cpu(&self, name: &CgroupName, limits: &Limits) -> Result<(), CgroupError> {
        let dir = self.needed_dir("cpu", name)?;
        let quota = limits.cpu_quota_us.filter(|quota| *quota != 0);
        match self.hierarchy().version() {
            Version::V1 => {
                if let Some(shares) = limits.cpu_shares {
                    let shares = shares.clamp(SHARES_MIN, SHARES_MAX);
                    files::write(&dir.join("cpu.shares"), &shares.to_string())?;
                }
                set_quota_v1(&dir, quota, limits.cpu_period_us.filter(|period| *period != 0))
            }
            Version::V2 => {
                if let Some(shares) = limits.cpu_shares {
                    let weight = weight_of_shares(shares);
                    files::write(&dir.join("cpu.weight"), &weight.to_string())?;
                }
                if quota.is_none() && limits.cpu_period_us.is_none() {
                    return Ok(());
                }
                let period = limits.cpu_period_us.unwrap_or(PERIOD_DEFAULT_US);
                let quota = number_or(quota.unwrap_or(-1), "max");
                files::write(&dir.join("cpu.max"), &format!("{quota} {period}"))
            }
        }
    }

    fn apply_huge_pages(&self, name: &CgroupName, limits: &Limits) -> Result<(), CgroupError> {
        let Some(pages) = &limits.huge_pages else { return Ok(()) };
        let Some(dir) = self.dir("hugetlb", name) else { return Ok(()) };
        let suffix = match self.hierarchy().version() {
            Version::V1 => "limit_in_bytes",
            Version::V2 => "max",
        };
        let mut sizes = page_sizes(&dir, suffix)?;
        sizes.extend(
            pages.iter().filter(|(_, bytes)| **bytes > 0).map(|(size, _)| page_size_text(*size)),
        );
        for size in sizes {
            let wanted = pages.iter().find(|(bytes, _)| page_size_text(**bytes) == size);
            let value = wanted.map_or(0, |(_, limit)| *limit).to_string();
            files::write(&dir.join(format!("hugetlb.{size}.{suffix}")), &value)?;
            // Reservations are counted apart since Linux 5.7.
            let reserved = dir.join(format!("hugetlb.{size}.rsvd.{suffix}"));
            if reserved.exists() {
                files::write(&reserved, &value)?;
            }
        }
        Ok(())
    }
}

/// The kernel checks quota against period at each write, so either order can be
/// the wrong one.
fn set_quota_v1(dir: &Path, quota: Option<i64>, period: Option<u64>) -> Result<(), CgroupError> {
    let set_period = || match period {
        Some(period) => files::write(&dir.join("cpu.cfs_period_us"), &period.to_string()),
        None => Ok(()),
    };
    let first = set_period();
    if let Some(quota) = quota {
        files::write(&dir.join("cpu.cfs_quota_us"), &number_or(quota, "-1"))?;
    }
    if first.is_err() && quota.is_some() { set_period() } else { first }
}

fn number_or(value: i64, none: &str) -> String {
    if value < 0 { none.to_owned() } else { value.to_string() }
}

fn make_dir(dir: &Path) -> Result<(), CgroupError> {
    match std::fs::DirBuilder::new().mode(0o755).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(CgroupError::create(dir, error))
        }
        _ => Ok(()),
    }
}
