//! What was measured, and how the summary says it.
//!
//! A value that nobody knows stays absent, here and in the JSON.
//! Upstream: staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cpu {
    /// When.
    pub time: Option<Timestamp>,
    /// Billionths of a core, lately.
    pub nano_cores: Option<u64>,
    /// Nanoseconds of one core, in all.
    pub core_nanos: Option<u64>,
    /// Waiting for the processor.
    pub pressure: Option<Pressure>,
}

/// Memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Memory {
    /// When.
    pub time: Option<Timestamp>,
    /// The limit less the working set; absent without a limit.
    pub available: Option<u64>,
    /// All that is charged.
    pub usage: Option<u64>,
    /// What cannot be taken back at once.
    pub working_set: Option<u64>,
    /// Anonymous memory.
    pub rss: Option<u64>,
    /// Page faults, in all.
    pub faults: Option<u64>,
    /// Page faults that needed a disk, in all.
    pub major_faults: Option<u64>,
    /// Waiting for memory.
    pub pressure: Option<Pressure>,
}

/// Swap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swap {
    /// When.
    pub time: Option<Timestamp>,
    /// The limit less the usage; absent without a limit.
    pub available: Option<u64>,
    /// Bytes swapped out.
    pub usage: Option<u64>,
}

/// Waiting for disks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Io {
    /// When.
    pub time: Option<Timestamp>,
    /// How much.
    pub pressure: Option<Pressure>,
}

/// Time lost by waiting for a resource.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// All tasks waited.
    pub full: PressureLine,
    /// At least one task waited.
    pub some: PressureLine,
}

/// One line of the kernel's pressure files.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PressureLine {
    /// In all, in the kernel's unit.
    pub total: u64,
    /// Per cent of the last 10 s.
    pub avg10: f64,
    /// Per cent of the last minute.
    pub avg60: f64,
    /// Per cent of the last five minutes.
    pub avg300: f64,
}

/// Room on a file system, and what one user of it takes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fs {
    /// When.
    pub time: Option<Timestamp>,
    /// Bytes left.
    pub available: Option<u64>,
    /// Bytes in all.
    pub capacity: Option<u64>,
    /// Bytes of this user.
    pub used: Option<u64>,
    /// Inodes left.
    pub inodes_free: Option<u64>,
    /// Inodes in all.
    pub inodes: Option<u64>,
    /// Inodes of this user.
    pub inodes_used: Option<u64>,
}

/// One network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: Option<u64>,
    /// Errors in receiving.
    pub rx_errors: Option<u64>,
    /// Packets received. The summary does not tell of packets.
    pub rx_packets: Option<u64>,
    /// Packets not taken in.
    pub rx_dropped: Option<u64>,
    /// Bytes sent.
    pub tx_bytes: Option<u64>,
    /// Errors in sending.
    pub tx_errors: Option<u64>,
    /// Packets sent.
    pub tx_packets: Option<u64>,
    /// Packets not sent.
    pub tx_dropped: Option<u64>,
}

/// The network of a pod or the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// When.
    pub time: Option<Timestamp>,
    /// The one that counts as the pod's, if it is known.
    pub default: Option<Interface>,
    /// Each.
    pub interfaces: Vec<Interface>,
}

/// A container, or a group of the system's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerSample {
    /// Its name.
    pub name: String,
    /// Since when.
    pub started: Option<Timestamp>,
    /// Processor time.
    pub cpu: Option<Cpu>,
    /// Memory.
    pub memory: Option<Memory>,
    /// Swap.
    pub swap: Option<Swap>,
    /// Disks.
    pub io: Option<Io>,
    /// The writable layer.
    pub rootfs: Option<Fs>,
    /// The logs.
    pub logs: Option<Fs>,
}

impl Cpu {
    fn json(&self) -> Value {
        let mut map = timed(self.time);
        put(&mut map, "usageNanoCores", self.nano_cores);
        put(&mut map, "usageCoreNanoSeconds", self.core_nanos);
        put(&mut map, "psi", self.pressure.map(Pressure::json));
        Value::Object(map)
    }
}

impl Memory {
    fn json(&self) -> Value {
        let mut map = timed(self.time);
        put(&mut map, "availableBytes", self.available);
        put(&mut map, "usageBytes", self.usage);
        put(&mut map, "workingSetBytes", self.working_set);
        put(&mut map, "rssBytes", self.rss);
        put(&mut map, "pageFaults", self.faults);
        put(&mut map, "majorPageFaults", self.major_faults);
        put(&mut map, "psi", self.pressure.map(Pressure::json));
        Value::Object(map)
    }
}

impl Swap {
    fn json(&self) -> Value {
        let mut map = timed(self.time);
        put(&mut map, "swapAvailableBytes", self.available);
        put(&mut map, "swapUsageBytes", self.usage);
        Value::Object(map)
    }
}

impl Io {
    fn json(&self) -> Value {
        let mut map = timed(self.time);
        put(&mut map, "psi", self.pressure.map(Pressure::json));
        Value::Object(map)
    }
}

impl Pressure {
    fn json(self) -> Value {
        json!({ "full": self.full.json(), "some": self.some.json() })
    }
}

impl PressureLine {
    fn json(self) -> Value {
        json!({
            "total": self.total,
            "avg10": self.avg10,
            "avg60": self.avg60,
            "avg300": self.avg300,
        })
    }
}

impl Fs {
    pub(crate) fn map(&self) -> Map<String, Value> {
        let mut map = timed(self.time);
        put(&mut map, "availableBytes", self.available);
        put(&mut map, "capacityBytes", self.capacity);
        put(&mut map, "usedBytes", self.used);
        put(&mut map, "inodesFree", self.inodes_free);
        put(&mut map, "inodes", self.inodes);
        put(&mut map, "inodesUsed", self.inodes_used);
        map
    }

    pub(crate) fn json(&self) -> Value {
        Value::Object(self.map())
    }
}

impl Interface {
    fn fill(&self, map: &mut Map<String, Value>) {
        map.insert("name".to_owned(), self.name.as_str().into());
        put(map, "rxBytes", self.rx_bytes);
        put(map, "rxErrors", self.rx_errors);
        put(map, "txBytes", self.tx_bytes);
        put(map, "txErrors", self.tx_errors);
    }
}

impl Network {
    pub(crate) fn json(&self) -> Value {
        let mut map = timed(self.time);
        match &self.default {
            Some(interface) => interface.fill(&mut map),
            // The name is no optional field.
            None => drop(map.insert("name".to_owned(), "".into())),
        }
        let each = |interface: &Interface| {
            let mut map = Map::new();
            interface.fill(&mut map);
            Value::Object(map)
        };
        let all: Vec<Value> = self.interfaces.iter().map(each).collect();
        if !all.is_empty() {
            map.insert("interfaces".to_owned(), all.into());
        }
        Value::Object(map)
    }
}

/// The fields that containers, pods and the node share.
pub(crate) fn put_usage(
    map: &mut Map<String, Value>,
    cpu: Option<&Cpu>,
    memory: Option<&Memory>,
    io: Option<&Io>,
    swap: Option<&Swap>,
) {
    put(map, "cpu", cpu.map(Cpu::json));
    put(map, "memory", memory.map(Memory::json));
    put(map, "io", io.map(Io::json));
    put(map, "swap", swap.map(Swap::json));
}

impl ContainerSample {
    pub(crate) fn json(&self) -> Value {
        let mut map = Map::new();
        map.insert("name".to_owned(), self.name.as_str().into());
        map.insert("startTime".to_owned(), time_json(self.started));
        let (cpu, memory) = (self.cpu.as_ref(), self.memory.as_ref());
        put_usage(&mut map, cpu, memory, self.io.as_ref(), self.swap.as_ref());
        put(&mut map, "rootfs", self.rootfs.as_ref().map(Fs::json));
        put(&mut map, "logs", self.logs.as_ref().map(Fs::json));
        Value::Object(map)
    }
}

/// Adds a field that may be absent.
pub(crate) fn put(map: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value.into());
    }
}

/// An object with its time, which is no optional field.
pub(crate) fn timed(time: Option<Timestamp>) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("time".to_owned(), time_json(time));
    map
}

/// A time as the API writes it; null where it is unknown.
pub(crate) fn time_json(time: Option<Timestamp>) -> Value {
    match time {
        Some(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
        None => Value::Null,
    }
}

/// A sum in which the unknown counts for nothing, and is unknown if all is.
pub(crate) fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (one, other) => one.or(other),
    }
}
