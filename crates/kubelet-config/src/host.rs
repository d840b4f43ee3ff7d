//! The few facts about the host that decide whether a configuration can work.

use std::collections::BTreeSet;
use std::path::Path;

use crate::files::Files;
use crate::validate::parse_cpu_list;

/// Facts about the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The unified cgroup hierarchy is in use.
    pub cgroup_v2: bool,
    /// CPUs that are online, where the host tells.
    pub online_cpus: Option<BTreeSet<u32>>,
}

impl Host {
    /// Looks at this host.
    pub fn look(files: &dyn Files) -> Self {
        let online = files.read(Path::new("/sys/devices/system/cpu/online")).ok();
        let online =
            online.and_then(|bytes| parse_cpu_list(String::from_utf8_lossy(&bytes).trim()).ok());
        Self {
            cgroup_v2: files.read(Path::new("/sys/fs/cgroup/cgroup.controllers")).is_ok(),
            online_cpus: online,
        }
    }
}
