//! The series of `/metrics/cadvisor` about disks, processes' limits and the machine.
//!
//! Upstream: vendor/github.com/google/cadvisor/metrics (prometheus.go,
//! prometheus_machine.go).

use std::collections::BTreeMap;
use std::path::Path;

use crate::block::{Device, DeviceIo};
use crate::cadvisor::{Labels, Series};
use crate::files::{self, FileError};
use crate::machine::MemInfo;
use crate::resource::bytes;
use crate::samples::Fs;
use crate::text::{self, Family, Kind};
use crate::topology::{MachineIds, Processors};

impl Series {
    /// What a group did to disks, by device.
    pub(crate) fn disk_io(
        &mut self,
        whose: Labels<'_>,
        io: &BTreeMap<Device, DeviceIo>,
        names: &BTreeMap<Device, String>,
    ) {
        for ((major, minor), io) in io {
            let device = names.get(&(*major, *minor)).map_or("", String::as_str);
            let labels = &whose.text(&[("device", device)]);
            let table: [(&'static str, &'static str, Option<u64>); 4] = [
                ("container_fs_reads_bytes_total", "Bytes read", io.read_bytes),
                ("container_fs_writes_bytes_total", "Bytes written", io.write_bytes),
                ("container_fs_reads_total", "Reads", io.reads),
                ("container_fs_writes_total", "Writes", io.writes),
            ];
            for (name, help, value) in table {
                self.put(labels, name, help, bytes(value));
            }
            let (major, minor) = (major.to_string(), minor.to_string());
            for (operation, value) in [("Read", io.read_bytes), ("Write", io.write_bytes)] {
                let labels = whose.text(&[
                    ("device", device),
                    ("major", &major),
                    ("minor", &minor),
                    ("operation", operation),
                ]);
                let name = "container_blkio_device_usage_total";
                self.put(&labels, name, "Bytes read and written by device", bytes(value));
            }
        }
    }

    /// What takes up room on a file system, and what room there is.
    pub(crate) fn file_system(&mut self, whose: Labels<'_>, device: &str, fs: &Fs) {
        let labels = &whose.text(&[("device", device)]);
        let table: [(&'static str, &'static str, Option<u64>); 4] = [
            ("container_fs_usage_bytes", "Bytes taken up on the file system", fs.used),
            ("container_fs_limit_bytes", "Bytes that the file system holds", fs.capacity),
            ("container_fs_inodes_free", "Inodes left", fs.inodes_free),
            ("container_fs_inodes_total", "Inodes of the file system", fs.inodes),
        ];
        for (name, help, value) in table {
            self.put(labels, name, help, bytes(value));
        }
    }

    /// How many files a container's first process may have open.
    pub(crate) fn open_files(&mut self, whose: Labels<'_>, limit: Option<f64>) {
        let labels = whose.text(&[("ulimit", "max_open_files")]);
        let help = "Soft limit of the container's first process, -1 for none";
        self.put(&labels, "container_ulimits_soft", help, limit);
    }
}

/// The soft limit of open files of a process; none if it is gone.
pub(crate) fn open_files(proc: &Path, pid: i32) -> Result<Option<f64>, FileError> {
    let text = files::read_if_any(&proc.join(pid.to_string()).join("limits"))?.unwrap_or_default();
    Ok(parse_open_files(&text))
}

fn parse_open_files(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(-1.0),
        number => number.parse::<u64>().ok().map(|number| number as f64),
    }
}

/// The machine's own series, without times.
pub(crate) fn machine(
    ids: &MachineIds,
    processors: &Processors,
    memory: Option<&MemInfo>,
) -> Vec<Family> {
    let labels = text::labels(&[
        ("boot_id", &ids.boot_id),
        ("machine_id", &ids.machine_id),
        ("system_uuid", &ids.system_uuid),
    ]);
    let count = |count: Option<usize>| count.map(|count| count as f64);
    let table = [
        ("machine_cpu_cores", "Logical processors", count(processors.threads)),
        ("machine_cpu_physical_cores", "Cores", count(processors.cores)),
        ("machine_cpu_sockets", "Sockets", count(processors.sockets)),
        ("machine_memory_bytes", "Memory", memory.map(|memory| memory.total as f64)),
        ("machine_swap_bytes", "Swap", memory.map(|memory| memory.swap_total as f64)),
    ];
    let mut all = Vec::new();
    for (name, help, value) in table {
        let mut family = Family::new(name, Kind::Gauge, help);
        family.add(&labels, value, None);
        all.push(family);
    }
    let mut errors = Family::new("machine_scrape_error", Kind::Gauge, "1 if measuring failed");
    errors.add("", Some(if memory.is_some() { 0.0 } else { 1.0 }), None);
    let mut version =
        Family::new("cadvisor_version_info", Kind::Gauge, "Kernel and distribution; no cadvisor");
    let labels = text::labels(&[
        ("cadvisorRevision", ""),
        ("cadvisorVersion", ""),
        ("dockerVersion", ""),
        ("kernelVersion", &ids.kernel),
        ("osVersion", &ids.os),
    ]);
    version.add(&labels, Some(1.0), None);
    all.extend([errors, version]);
    all
}

#[cfg(test)]
mod tests {
    use super::parse_open_files;

    #[test]
    fn limits_of_open_files() {
        let head = "Limit                     Soft Limit           Hard Limit           Units\n";
        for (line, limit) in [
            (
                "Max open files            1024                 524288               files",
                Some(1024.0),
            ),
            (
                "Max open files            unlimited            unlimited            files",
                Some(-1.0),
            ),
            ("Max open files            x", None),
            ("Max open files", None),
            ("Max cpu time              unlimited", None),
        ] {
            assert_eq!(parse_open_files(&format!("{head}{line}\n")), limit, "{line}");
        }
    }
}
