//! What control groups have read from disks and written to them, by device.
//!
//! Reads `io.stat` of version 2, the throttling counters of version 1. Upstream:
//! vendor/github.com/google/cadvisor/container/libcontainer/handler.go (diskStats).

use std::collections::BTreeMap;
use std::path::Path;

use crate::files::{self, FileError};
use crate::groups::Groups;

/// What a group did to one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceIo {
    pub(crate) read_bytes: Option<u64>,
    pub(crate) write_bytes: Option<u64>,
    pub(crate) reads: Option<u64>,
    pub(crate) writes: Option<u64>,
}

/// Major and minor number of a device.
pub(crate) type Device = (u32, u32);

fn device(text: &str) -> Option<Device> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Groups {
    /// By device; nothing where the machine does not count.
    pub(crate) fn disk_io(&self, group: &str) -> Result<BTreeMap<Device, DeviceIo>, FileError> {
        let mut all = BTreeMap::new();
        if self.is_unified() {
            if let Some(dir) = self.dir("io", group)
                && let Some(text) = files::read_if_any(&dir.join("io.stat"))?
            {
                read_v2(&text, &mut all);
            }
            return Ok(all);
        }
        let Some(dir) = self.dir("blkio", group) else { return Ok(all) };
        let counters = |name: &str| {
            // Newer kernels count what is below a group too.
            let recursive = files::read_if_any(&dir.join(format!("{name}_recursive")))?;
            match recursive {
                Some(text) => Ok(Some(text)),
                None => files::read_if_any(&dir.join(name)),
            }
        };
        if let Some(text) = counters("blkio.throttle.io_service_bytes")? {
            read_v1(&text, &mut all, |io| (&mut io.read_bytes, &mut io.write_bytes));
        }
        if let Some(text) = counters("blkio.throttle.io_serviced")? {
            read_v1(&text, &mut all, |io| (&mut io.reads, &mut io.writes));
        }
        Ok(all)
    }
}

/// Lines such as `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0`.
fn read_v2(text: &str, all: &mut BTreeMap<Device, DeviceIo>) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(device) = words.next().and_then(device) else { continue };
        let mut io = DeviceIo::default();
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let value = value.parse().ok();
            match key {
                "rbytes" => io.read_bytes = value,
                "wbytes" => io.write_bytes = value,
                "rios" => io.reads = value,
                "wios" => io.writes = value,
                _ => {}
            }
        }
        // A device that was never used is listed without counters.
        if io != DeviceIo::default() {
            all.insert(device, io);
        }
    }
}

/// Lines such as `8:0 Read 4096`, and a total of all.
fn read_v1(
    text: &str,
    all: &mut BTreeMap<Device, DeviceIo>,
    fields: fn(&mut DeviceIo) -> (&mut Option<u64>, &mut Option<u64>),
) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(device) = words.next().and_then(device) else { continue };
        let (kind, value) = (words.next(), words.next().and_then(|value| value.parse().ok()));
        if !matches!(kind, Some("Read" | "Write")) {
            continue;
        }
        let (read, write) = fields(all.entry(device).or_default());
        *(if kind == Some("Read") { read } else { write }) = value;
    }
}

/// Names of the machine's disks, such as `/dev/sda`.
pub(crate) fn disk_names(proc: &Path) -> Result<BTreeMap<Device, String>, FileError> {
    let text = files::read_if_any(&proc.join("diskstats"))?.unwrap_or_default();
    let mut names = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse().ok();
        if let (Some(major), Some(minor)) = (number(), number())
            && let Some(name) = words.next()
        {
            names.insert((major, minor), format!("/dev/{name}"));
        }
    }
    Ok(names)
}

/// The device of the file system that holds a path, as the kernel names it.
pub(crate) fn device_of(mounts: &str, path: &str) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let (mount, source) = line.split_once(" - ")?;
        let Some(point) = mount.split(' ').nth(4) else { continue };
        let Some(source) = source.split(' ').nth(1) else { continue };
        let below = match path.strip_prefix(point) {
            Some(rest) => point == "/" || rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        // Of mounts on the same place the last one is seen.
        if below && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), source));
        }
    }
    best.map(|(_, source)| source.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_count_by_device() {
        let mut all = BTreeMap::new();
        read_v2(
            "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n7:1 \nodd\n253:0 rbytes=9 x\n",
            &mut all,
        );
        let sda =
            DeviceIo { read_bytes: Some(1), write_bytes: Some(2), reads: Some(3), writes: Some(4) };
        let other = DeviceIo { read_bytes: Some(9), ..DeviceIo::default() };
        assert_eq!(all, BTreeMap::from([((8, 0), sda), ((253, 0), other)]));
        let mut all = BTreeMap::new();
        read_v1("8:0 Read 1\n8:0 Write 2\n8:0 Sync 9\n8:0 Total 3\nTotal 3\n", &mut all, |io| {
            (&mut io.read_bytes, &mut io.write_bytes)
        });
        read_v1("8:0 Read 3\n8:0 Write 4\nTotal 7\n", &mut all, |io| {
            (&mut io.reads, &mut io.writes)
        });
        assert_eq!(all, BTreeMap::from([((8, 0), sda)]));
    }

    #[test]
    fn the_innermost_mount_is_the_device() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      23 22 0:5 / /proc rw shared:1 - proc proc rw\n\
                      24 22 8:2 / /var/lib rw - xfs /dev/sdb rw\n\
                      25 22 8:3 / /var/lib rw - xfs /dev/sdc rw\n";
        for (path, device) in [
            ("/var/lib/containerd/x", "/dev/sdc"),
            ("/var/library", "/dev/sda1"),
            ("/var/lib", "/dev/sdc"),
            ("/proc/1", "proc"),
            ("/", "/dev/sda1"),
        ] {
            assert_eq!(device_of(mounts, path).as_deref(), Some(device), "{path}");
        }
        assert_eq!(device_of("", "/"), None);
        assert_eq!(device_of("odd\n", "/"), None);
    }
}
