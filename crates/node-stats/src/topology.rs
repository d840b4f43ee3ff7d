//! What the machine is made of: processors by cores and sockets.
//!
//! Upstream: vendor/github.com/google/cadvisor/machine.

use std::collections::BTreeSet;
use std::path::Path;

use crate::files::{self, FileError};

/// Who the machine is. The caller knows where that is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineIds {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// The firmware's.
    pub system_uuid: String,
    /// Of this boot.
    pub boot_id: String,
    /// The kernel's version.
    pub kernel: String,
    /// The distribution's name for itself.
    pub os: String,
}

/// Processors, as the kernel lists them. What it does not tell stays absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Processors {
    /// Those that programs see.
    pub(crate) threads: Option<usize>,
    /// Those with units of their own.
    pub(crate) cores: Option<usize>,
    /// Chips.
    pub(crate) sockets: Option<usize>,
}

/// Reads the list.
pub(crate) fn processors(proc: &Path) -> Result<Processors, FileError> {
    let text = files::read_if_any(&proc.join("cpuinfo"))?.unwrap_or_default();
    Ok(parse(&text))
}

fn parse(text: &str) -> Processors {
    let (mut threads, mut cores, mut sockets) = (0, BTreeSet::new(), BTreeSet::new());
    let mut socket = None;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let number = value.trim().parse::<u32>().ok();
        match key.trim() {
            "processor" if number.is_some() => {
                threads += 1;
                socket = None;
            }
            "physical id" => {
                socket = number;
                sockets.extend(number);
            }
            "core id" => cores.extend(number.map(|core| (socket, core))),
            _ => {}
        }
    }
    let some = |count: usize| (count > 0).then_some(count);
    Processors { threads: some(threads), cores: some(cores.len()), sockets: some(sockets.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_core_count_once() {
        let one = |n: u32, socket: u32, core: u32| {
            format!(
                "processor\t: {n}\nmodel name: x\nphysical id\t: {socket}\ncore id\t: {core}\n\n"
            )
        };
        let text = [one(0, 0, 0), one(1, 0, 0), one(2, 0, 1), one(3, 1, 0)].concat();
        let found = parse(&text);
        assert_eq!((found.threads, found.cores, found.sockets), (Some(4), Some(3), Some(2)));
        // Machines that do not tell of cores.
        let found = parse("processor : 0\nBogoMIPS : 48.00\n\nprocessor : 1\n\nHardware : x\n");
        assert_eq!(found, Processors { threads: Some(2), ..Processors::default() });
        assert_eq!(parse(""), Processors::default());
    }
}
