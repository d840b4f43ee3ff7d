//! The runtime's numbers as samples.
//!
//! Pure. A runtime may leave out any value; none is made up. Upstream:
//! pkg/kubelet/stats/cri_stats_provider.go.

use cri::v1;
use jiff::Timestamp;

use crate::samples::{Cpu, Fs, Interface, Io, Memory, Network, Pressure, PressureLine, Swap};

fn value(value: &Option<v1::UInt64Value>) -> Option<u64> {
    value.as_ref().map(|value| value.value)
}

/// A time of the runtime's; 0 stands for none.
pub(crate) fn time(nanos: i64) -> Option<Timestamp> {
    (nanos > 0).then(|| Timestamp::from_nanosecond(nanos.into()).ok())?
}

pub(crate) fn cpu(usage: &v1::CpuUsage) -> Option<Cpu> {
    let cpu = Cpu {
        time: time(usage.timestamp),
        nano_cores: value(&usage.usage_nano_cores),
        core_nanos: value(&usage.usage_core_nano_seconds),
        pressure: usage.psi.as_ref().map(pressure),
    };
    (cpu.nano_cores.is_some() || cpu.core_nanos.is_some()).then_some(cpu)
}

pub(crate) fn memory(usage: &v1::MemoryUsage) -> Option<Memory> {
    let memory = Memory {
        time: time(usage.timestamp),
        available: value(&usage.available_bytes),
        usage: value(&usage.usage_bytes),
        working_set: value(&usage.working_set_bytes),
        rss: value(&usage.rss_bytes),
        faults: value(&usage.page_faults),
        major_faults: value(&usage.major_page_faults),
        pressure: usage.psi.as_ref().map(pressure),
    };
    (memory.usage.is_some() || memory.working_set.is_some()).then_some(memory)
}

pub(crate) fn swap(usage: &v1::SwapUsage) -> Option<Swap> {
    let swap = Swap {
        time: time(usage.timestamp),
        available: value(&usage.swap_available_bytes),
        usage: value(&usage.swap_usage_bytes),
    };
    (swap.usage.is_some() || swap.available.is_some()).then_some(swap)
}

pub(crate) fn io(usage: &v1::IoUsage) -> Option<Io> {
    let pressure = usage.psi.as_ref().map(pressure)?;
    Some(Io { time: time(usage.timestamp), pressure: Some(pressure) })
}

/// What one user takes up; the room comes from the file system.
pub(crate) fn fs(usage: &v1::FilesystemUsage) -> Fs {
    Fs {
        time: time(usage.timestamp),
        used: value(&usage.used_bytes),
        inodes_used: value(&usage.inodes_used),
        ..Fs::default()
    }
}

pub(crate) fn network(usage: &v1::NetworkUsage) -> Network {
    Network {
        time: time(usage.timestamp),
        default: usage.default_interface.as_ref().map(interface),
        // The runtime tells the others apart from it; the summary lists each.
        interfaces: usage
            .default_interface
            .iter()
            .chain(&usage.interfaces)
            .map(interface)
            .collect(),
    }
}

fn interface(usage: &v1::NetworkInterfaceUsage) -> Interface {
    Interface {
        name: usage.name.clone(),
        rx_bytes: value(&usage.rx_bytes),
        rx_errors: value(&usage.rx_errors),
        tx_bytes: value(&usage.tx_bytes),
        tx_errors: value(&usage.tx_errors),
        ..Interface::default()
    }
}

pub(crate) fn processes(usage: &v1::ProcessUsage) -> Option<u64> {
    value(&usage.process_count)
}

fn pressure(stats: &v1::PsiStats) -> Pressure {
    let line = |data: &Option<v1::PsiData>| {
        let data = data.unwrap_or_default();
        let sane = |value: f64| if value.is_finite() { value } else { 0.0 };
        PressureLine {
            total: data.total,
            avg10: sane(data.avg10),
            avg60: sane(data.avg60),
            avg300: sane(data.avg300),
        }
    };
    Pressure { full: line(&stats.full), some: line(&stats.some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_stays_absent() {
        assert_eq!(cpu(&v1::CpuUsage { timestamp: 5, ..Default::default() }), None);
        assert_eq!(memory(&v1::MemoryUsage::default()), None);
        assert_eq!(swap(&v1::SwapUsage::default()), None);
        assert_eq!(io(&v1::IoUsage::default()), None);
        assert_eq!(processes(&v1::ProcessUsage::default()), None);
        assert_eq!(fs(&v1::FilesystemUsage::default()), Fs::default());
        let zero = Some(v1::UInt64Value { value: 0 });
        let usage = v1::MemoryUsage { working_set_bytes: zero, ..Default::default() };
        let expected = Memory { working_set: Some(0), ..Memory::default() };
        assert_eq!(memory(&usage), Some(expected), "a zero that is told is a zero");
    }

    #[test]
    fn wild_times_are_none() {
        assert_eq!((time(0), time(-1)), (None, None));
        assert!(time(i64::MAX).is_some());
    }
}
