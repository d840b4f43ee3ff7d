//! Reading back limits, groups and processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::error::CgroupError;
use crate::files;
use crate::hierarchy::{Tree, Version};
use crate::limits::{Limits, shares_of_weight};
use crate::name::CgroupName;

/// Groups followed below one group; runtimes make a few per container.
const SUBTREE_MAX: usize = 10_000;
/// Version 1 says "no limit" with the largest number of whole pages.
const V1_NO_LIMIT: u64 = 1 << 62;

impl Tree {
    /// The limits in force. A controller or file that the machine lacks stays `None`.
    pub fn read(&self, name: &CgroupName) -> Result<Limits, CgroupError> {
        let mut limits = Limits::default();
        if let Some(dir) = self.dir("cpu", name) {
            self.read_cpu(&dir, &mut limits)?;
        }
        if let Some(dir) = self.dir("memory", name) {
            let file = match self.hierarchy().version() {
                Version::V1 => "memory.limit_in_bytes",
                Version::V2 => "memory.max",
            };
            limits.memory_bytes = limit(&dir.join(file))?;
        }
        if let Some(dir) = self.dir("pids", name) {
            limits.pids = limit(&dir.join("pids.max"))?;
        }
        if let Some(dir) = self.dir("hugetlb", name) {
            limits.huge_pages = Some(self.read_huge_pages(&dir)?);
        }
        Ok(limits)
    }

    /// Bytes of memory that the group and all below it use now; `None` if the
    /// kernel does not tell.
    pub fn memory_usage(&self, name: &CgroupName) -> Result<Option<u64>, CgroupError> {
        let Some(dir) = self.dir("memory", name) else { return Ok(None) };
        let file = match self.hierarchy().version() {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        unsigned(&dir.join(file))
    }

    fn read_cpu(&self, dir: &Path, limits: &mut Limits) -> Result<(), CgroupError> {
        match self.hierarchy().version() {
            Version::V1 => {
                limits.cpu_shares = unsigned(&dir.join("cpu.shares"))?;
                limits.cpu_quota_us = limit(&dir.join("cpu.cfs_quota_us"))?;
                limits.cpu_period_us = unsigned(&dir.join("cpu.cfs_period_us"))?;
            }
            Version::V2 => {
                limits.cpu_shares = unsigned(&dir.join("cpu.weight"))?.map(shares_of_weight);
                let file = dir.join("cpu.max");
                let Some(text) = files::read_if_any(&file)? else { return Ok(()) };
                let (quota, period) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
                limits.cpu_quota_us = Some(parse_limit(&file, quota)?);
                limits.cpu_period_us =
                    Some(period.parse().map_err(|_| unexpected(&file, &text, "quota and period"))?);
            }
        }
        Ok(())
    }

    fn read_huge_pages(&self, dir: &Path) -> Result<BTreeMap<u64, u64>, CgroupError> {
        let suffix = match self.hierarchy().version() {
            Version::V1 => "limit_in_bytes",
            Version::V2 => "max",
        };
        let mut pages = BTreeMap::new();
        for size in page_sizes(dir, suffix)? {
            let value = limit(&dir.join(format!("hugetlb.{size}.{suffix}")))?.unwrap_or(0);
            let Some(bytes) = bytes_of_page_size(&size) else { continue };
            pages.insert(bytes, u64::try_from(value).unwrap_or(V1_NO_LIMIT));
        }
        Ok(pages)
    }

    /// Components of the groups right below this one, in any of its trees.
    pub fn children(&self, name: &CgroupName) -> Result<BTreeSet<String>, CgroupError> {
        let mut all = BTreeSet::new();
        for dir in self.all_dirs(name) {
            for child in child_dirs(&dir)? {
                let directory = child.file_name().and_then(|name| name.to_str());
                all.extend(directory.and_then(|text| name.component_of(text, self.driver())));
            }
        }
        Ok(all)
    }

    /// Every process in the group or below it.
    pub fn processes(&self, name: &CgroupName) -> Result<BTreeSet<i32>, CgroupError> {
        let mut all = BTreeSet::new();
        for dir in self.all_dirs(name) {
            for group in subtree(&dir)? {
                all.extend(processes_of(&group)?);
            }
        }
        Ok(all)
    }
}

/// A directory and all below it, parents first. Empty if it does not exist.
pub(crate) fn subtree(dir: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = vec![dir.to_owned()];
    let mut next = 0;
    while let Some(dir_here) = found.get(next).cloned() {
        found.extend(child_dirs(&dir_here)?);
        if found.len() > SUBTREE_MAX {
            return Err(CgroupError::TooLarge { path: dir.to_owned(), limit: SUBTREE_MAX });
        }
        next += 1;
    }
    Ok(found)
}

/// Processes right in one directory; 0 stands for one outside our view.
pub(crate) fn processes_of(dir: &Path) -> Result<Vec<i32>, CgroupError> {
    let text = files::read_if_any(&dir.join("cgroup.procs"))?.unwrap_or_default();
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid > 0).collect())
}

fn child_dirs(dir: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if files::is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(CgroupError::read(dir, error)),
    };
    let dirs = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut paths: Vec<PathBuf> = dirs.take(SUBTREE_MAX).map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// Page sizes (`2MB`) that a group has limits for.
pub(crate) fn page_sizes(dir: &Path, suffix: &str) -> Result<BTreeSet<String>, CgroupError> {
    let entries = std::fs::read_dir(dir).map_err(|error| CgroupError::read(dir, error))?;
    let size_of = |name: &str| {
        let size = name.strip_prefix("hugetlb.")?.strip_suffix(suffix)?.strip_suffix('.')?;
        (!size.contains('.')).then(|| size.to_owned())
    };
    Ok(entries
        .filter_map(Result::ok)
        .filter_map(|entry| size_of(entry.file_name().to_str()?))
        .collect())
}

fn bytes_of_page_size(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let shift = match &text[end..] {
        "B" => 0,
        "KB" => 10,
        "MB" => 20,
        "GB" => 30,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_shl(shift)
}

fn unexpected(path: &Path, text: &str, expected: &'static str) -> CgroupError {
    CgroupError::Unexpected { path: path.to_owned(), text: text.trim().to_owned(), expected }
}

fn unsigned(path: &Path) -> Result<Option<u64>, CgroupError> {
    let Some(text) = files::read_if_any(path)? else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| unexpected(path, &text, "a number"))
}

fn limit(path: &Path) -> Result<Option<i64>, CgroupError> {
    files::read_if_any(path)?.map(|text| parse_limit(path, text.trim())).transpose()
}

/// A number, or -1 for no limit.
fn parse_limit(path: &Path, text: &str) -> Result<i64, CgroupError> {
    if text == "max" || text == "-1" {
        return Ok(-1);
    }
    let value: u64 = text.parse().map_err(|_| unexpected(path, text, "a number or max"))?;
    Ok(i64::try_from(value).ok().filter(|_| value < V1_NO_LIMIT).unwrap_or(-1))
}
