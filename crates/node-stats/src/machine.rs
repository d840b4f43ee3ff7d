//! What `/proc` tells: memory, processes, networks, pressure, the time of boot.
//!
//! Upstream: vendor/github.com/google/cadvisor (machine, libcontainer handler),
//! pkg/kubelet/stats/pidlimit.

use std::path::Path;

use jiff::Timestamp;

use crate::files::{self, FileError};
use crate::samples::{Interface, Network, Pressure, PressureLine};

/// Interfaces told of one network; a host with more has veth pairs, which are not.
const INTERFACES_MAX: usize = 4096;
/// Interfaces that are no traffic of a pod or the node.
const IGNORED: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];
/// The interface that counts as a pod's, as upstream.
const DEFAULT_INTERFACE: &str = "eth0";

/// The node's memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemInfo {
    /// Memory in all.
    pub total: u64,
    /// Swap in all.
    pub swap_total: u64,
    /// Swap not in use.
    pub swap_free: u64,
}

/// Reads `meminfo`.
pub fn mem_info(proc: &Path) -> Result<MemInfo, FileError> {
    let path = proc.join("meminfo");
    let text = files::read(&path)?;
    parse_mem_info(&text)
        .ok_or_else(|| FileError::unexpected(&path, "MemTotal, SwapTotal, SwapFree"))
}

fn parse_mem_info(text: &str) -> Option<MemInfo> {
    let bytes = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next() == Some(key))?;
        let value: u64 = line.split_once(':')?.1.trim().strip_suffix("kB")?.trim().parse().ok()?;
        value.checked_mul(1024)
    };
    let (total, swap_total) = (bytes("MemTotal")?, bytes("SwapTotal")?);
    Some(MemInfo { total, swap_total, swap_free: bytes("SwapFree")? })
}

/// Tasks the node may have: the smaller of the kernel's two limits.
pub fn pid_max(proc: &Path) -> Result<Option<u64>, FileError> {
    let limit = |name| files::number(&proc.join("sys/kernel").join(name));
    let limits = [limit("pid_max")?, limit("threads-max")?];
    Ok(limits.into_iter().flatten().min())
}

/// Tasks the node has.
pub fn tasks(proc: &Path) -> Result<u64, FileError> {
    let path = proc.join("loadavg");
    let text = files::read(&path)?;
    let count = || text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok();
    count().ok_or_else(|| FileError::unexpected(&path, "running/all tasks in its fourth field"))
}

/// When the machine was started.
pub fn boot_time(proc: &Path) -> Result<Timestamp, FileError> {
    let path = proc.join("stat");
    let text = files::read(&path)?;
    let boot = || Timestamp::from_second(i64::try_from(files::keyed(&text, "btime")?).ok()?).ok();
    boot().ok_or_else(|| FileError::unexpected(&path, "a line btime"))
}

/// The networks a process sees; `None` if it is gone.
pub fn network_of(proc: &Path, pid: i32, now: Timestamp) -> Result<Option<Network>, FileError> {
    let path = proc.join(pid.to_string()).join("net/dev");
    let Some(text) = files::read_if_any(&path)? else { return Ok(None) };
    let interfaces = parse_net_dev(&text)
        .ok_or_else(|| FileError::unexpected(&path, "sixteen numbers per interface"))?;
    let default = interfaces.iter().find(|interface| interface.name == DEFAULT_INTERFACE).cloned();
    Ok(Some(Network { time: Some(now), default, interfaces }))
}

/// A line that makes no sense discredits the whole file.
fn parse_net_dev(text: &str) -> Option<Vec<Interface>> {
    let mut all = Vec::new();
    for line in text.lines().skip(2).take(INTERFACES_MAX) {
        let (name, numbers) = line.split_once(':')?;
        let mut fields = [0u64; 16];
        let mut words = numbers.split_whitespace();
        for field in &mut fields {
            *field = words.next()?.parse().ok()?;
        }
        let name = name.trim();
        if words.next().is_some() || name.is_empty() {
            return None;
        }
        if IGNORED.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        all.push(Interface {
            name: name.to_owned(),
            rx_bytes: Some(fields[0]),
            rx_errors: Some(fields[2]),
            tx_bytes: Some(fields[8]),
            tx_errors: Some(fields[10]),
            rx_packets: Some(fields[1]),
            rx_dropped: Some(fields[3]),
            tx_packets: Some(fields[9]),
            tx_dropped: Some(fields[11]),
        });
    }
    Some(all)
}

/// Reads a pressure file; `None` if the kernel keeps none.
pub(crate) fn pressure(path: &Path) -> Result<Option<Pressure>, FileError> {
    let Some(text) = files::read_if_any(path)? else { return Ok(None) };
    parse_pressure(&text).map(Some).ok_or_else(|| FileError::unexpected(path, "lines of pressure"))
}

fn parse_pressure(text: &str) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let (name, rest) = line.split_once(' ')?;
        let parsed = parse_pressure_line(rest)?;
        match name {
            "some" => pressure.some = parsed,
            "full" => pressure.full = parsed,
            _ => {}
        }
    }
    Some(pressure)
}

fn parse_pressure_line(text: &str) -> Option<PressureLine> {
    let mut line = PressureLine::default();
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=')?;
        let average = || value.parse().ok().filter(|value: &f64| value.is_finite());
        match key {
            "total" => line.total = value.parse().ok()?,
            "avg10" => line.avg10 = average()?,
            "avg60" => line.avg60 = average()?,
            "avg300" => line.avg300 = average()?,
            _ => {}
        }
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_bytes() {
        let text = "MemTotal:       2048 kB\nMemFree: 1 kB\nSwapTotal:  10 kB\nSwapFree:  4 kB\n";
        let expected = MemInfo { total: 2 << 20, swap_total: 10_240, swap_free: 4096 };
        assert_eq!(parse_mem_info(text), Some(expected));
        for bad in ["", "MemTotal: x kB\nSwapTotal: 0 kB\nSwapFree: 0 kB", "MemTotal: 2048 kB\n"] {
            assert_eq!(parse_mem_info(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn networks() {
        let head = "Inter-| Receive\n face |bytes\n";
        let line = |name: &str| format!("{name}: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n");
        let text = format!("{head}{}{}{}", line("    lo"), line("  eth0"), line("vethab"));
        let all = parse_net_dev(&text).expect("well formed");
        let expected = Interface {
            name: "eth0".to_owned(),
            rx_bytes: Some(1),
            rx_errors: Some(3),
            tx_bytes: Some(9),
            tx_errors: Some(11),
            rx_packets: Some(2),
            rx_dropped: Some(4),
            tx_packets: Some(10),
            tx_dropped: Some(12),
        };
        assert_eq!(all, [expected]);
        for bad in ["eth0: 1 2 3\n", "eth0 1\n", ": 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"] {
            assert_eq!(parse_net_dev(&format!("{head}{bad}")), None, "{bad:?}");
        }
        assert_eq!(parse_net_dev(head), Some(Vec::new()));
    }

    #[test]
    fn pressures() {
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=42\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let pressure = parse_pressure(text).expect("well formed");
        assert_eq!((pressure.some.total, pressure.full.total), (42, 7));
        assert_eq!((pressure.some.avg10, pressure.some.avg60), (1.5, 0.25));
        for bad in ["some avg10=NaN total=1\n", "some total=-1\n", "some\n", "full total\n"] {
            assert_eq!(parse_pressure(bad), None, "{bad:?}");
        }
    }
}
