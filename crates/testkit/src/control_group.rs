//! What the kernel holds a control group to.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Memory limit in bytes and processor quota in microseconds of a control group, which
/// is written as from the top of its hierarchy.
pub fn limits(path: &str) -> Result<(u64, u64)> {
    let mount = Path::new("/sys/fs/cgroup");
    let v2 = mount.join("cgroup.controllers").exists();
    let read = |controller: &str, v1: &str, v2_file: &str| -> Result<String> {
        let dir = if v2 { mount.to_owned() } else { mount.join(controller) };
        let file = dir.join(path.trim_start_matches('/')).join(if v2 { v2_file } else { v1 });
        fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))
    };
    let memory = read("memory", "memory.limit_in_bytes", "memory.max")?;
    let quota = read("cpu", "cpu.cfs_quota_us", "cpu.max")?;
    let number = |text: &str| {
        let first = text.split_whitespace().next().unwrap_or_default();
        first.parse().with_context(|| format!("{path} has {text:?}"))
    };
    Ok((number(&memory)?, number(&quota)?))
}
