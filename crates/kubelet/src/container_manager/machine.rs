//! What the machine has, read from `/proc` and `/sys`.
//!
//! Reads only. Upstream: cAdvisor's machine information, pkg/kubelet/stats/pidlimit.

use std::collections::BTreeMap;
use std::path::Path;

use super::allocatable::Capacity;

/// Reads below `root`, which is `/` on a machine.
pub fn capacity(root: &Path) -> Capacity {
    Capacity {
        cpu_milli: cpus(root).saturating_mul(1000),
        memory_bytes: memory(root).unwrap_or(0),
        pids: pids(root),
        huge_pages: huge_pages(root),
    }
}

/// Bytes of the file system that this directory lies on, or will; `None` if that cannot be
/// asked.
pub fn disk_bytes(dir: &Path) -> Option<u64> {
    let disk = dir.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok())?;
    disk.f_blocks.checked_mul(disk.f_frsize)
}

/// What this machine has.
pub fn machine_capacity() -> Capacity {
    capacity(Path::new("/"))
}

/// This process's path in the version 2 tree; `/` if there is none.
pub fn own_group(root: &Path) -> String {
    let text = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    own.unwrap_or("/").to_owned()
}

/// Processors that are online, not those that this process may use.
fn cpus(root: &Path) -> i64 {
    let ranges = read(&root.join("sys/devices/system/cpu/online")).unwrap_or_default();
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse::<i64>().ok()?, last.trim().parse::<i64>().ok()?);
        (last >= first).then(|| last - first + 1)
    };
    let online: i64 = ranges.split(',').filter_map(count).sum();
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    if online > 0 { online } else { i64::try_from(usable).unwrap_or(1) }
}

fn memory(root: &Path) -> Option<i64> {
    let text = read(&root.join("proc/meminfo"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn pids(root: &Path) -> Option<i64> {
    let limits = ["pid_max", "threads-max"].into_iter().filter_map(|name| {
        read(&root.join("proc/sys/kernel").join(name))?.trim().parse::<i64>().ok()
    });
    limits.min()
}

fn huge_pages(root: &Path) -> BTreeMap<u64, u64> {
    let dir = root.join("sys/kernel/mm/hugepages");
    let sizes = cgroups::huge_page_sizes(&dir).unwrap_or_default();
    let bytes = |size: u64| {
        let file = dir.join(format!("hugepages-{}kB", size / 1024)).join("nr_hugepages");
        read(&file)?.trim().parse::<u64>().ok()?.checked_mul(size)
    };
    sizes.into_iter().filter_map(|size| Some((size, bytes(size)?))).collect()
}

/// These files are produced by the kernel and short.
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_files() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("sys/devices/system/cpu/online", "0-3,8,10-11\n"),
            ("proc/meminfo", "MemFree: 1 kB\nMemTotal:       16 kB\n"),
            ("proc/sys/kernel/pid_max", "4194304\n"),
            ("proc/sys/kernel/threads-max", "3000\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
            ("proc/self/cgroup", "1:name=systemd:/x\n0::/init.scope\n"),
        ] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let expected = Capacity {
            cpu_milli: 7000,
            memory_bytes: 16 << 10,
            pids: Some(3000),
            huge_pages: BTreeMap::from([(2 << 20, 6 << 20), (1 << 30, 0)]),
        };
        assert_eq!(capacity(root.path()), expected);
        assert_eq!(own_group(root.path()), "/init.scope");
    }

    #[test]
    fn a_machine_that_tells_nothing() {
        let root = tempfile::tempdir().unwrap();
        let capacity = capacity(root.path());
        assert!(capacity.cpu_milli >= 1000);
        assert_eq!((capacity.memory_bytes, capacity.pids), (0, None));
        assert_eq!(own_group(root.path()), "/");
    }
}
