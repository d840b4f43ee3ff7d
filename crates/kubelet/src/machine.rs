//! What the machine is, as far as containers' settings depend on it.
//!
//! Reads /sys, /proc and the kernel's name, once at start. Upstream reads the
//! same in pkg/securitycontext, pkg/kubelet/sysctl, pkg/security/apparmor.

use std::path::Path;

use crate::ports::Fs;
use crate::settings::Machine;

/// Bytes of a file that tells labels.
const CONTEXTS_BYTES_MAX: usize = 64 << 10;
const CPUS: &str = "/sys/devices/system/cpu";

/// The machine this process runs on.
pub fn read(fs: &dyn Fs) -> Machine {
    let uname = rustix::system::uname();
    let apparmor = fs.read(Path::new("/sys/module/apparmor/parameters/enabled"), 64);
    let selinux = fs.stat(Path::new("/sys/fs/selinux/enforce")).is_ok();
    Machine {
        kernel: kernel_version(&uname.release().to_string_lossy()),
        apparmor: apparmor.is_ok_and(|text| text.starts_with(b"Y")),
        selinux,
        selinux_files: selinux.then(|| selinux_files(fs)).flatten(),
        thermal_throttle: thermal_throttle(fs),
    }
}

/// The label of containers' files: from where container tools keep it, else from the
/// policy in force. Upstream: opencontainers/selinux.
fn selinux_files(fs: &dyn Fs) -> Option<String> {
    let text = |path: &str| {
        let read = fs.read(Path::new(path), CONTEXTS_BYTES_MAX).ok()?;
        String::from_utf8(read).ok()
    };
    let of_policy = || {
        let policy = value_of(&text("/etc/selinux/config")?, "SELINUXTYPE")?;
        text(&format!("/etc/selinux/{policy}/contexts/lxc_contexts"))
    };
    let contexts = text("/usr/share/containers/selinux/contexts").or_else(of_policy)?;
    value_of(&contexts, "file")
}

/// A value of a file of `key = value` lines; it may be in quotes.
fn value_of(text: &str, key: &str) -> Option<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let mut values = lines.filter_map(|line| {
        let (found, value) = line.split_once('=')?;
        let value = value.trim().trim_matches('"');
        (found.trim() == key && !value.is_empty()).then(|| value.to_owned())
    });
    values.next()
}

/// Major and minor number of a release such as `6.1.0-13-amd64`.
fn kernel_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => (0, 0),
    }
}

/// The directories that exist, by number of the processor.
fn thermal_throttle(fs: &dyn Fs) -> Vec<String> {
    let Ok(entries) = fs.list(Path::new(CPUS)) else { return Vec::new() };
    let number = |name: &str| name.strip_prefix("cpu")?.parse::<u32>().ok();
    let mut cpus: Vec<u32> =
        entries.iter().filter_map(|entry| number(entry.name.to_str()?)).collect();
    cpus.sort_unstable();
    let path = |cpu| format!("{CPUS}/cpu{cpu}/thermal_throttle");
    cpus.into_iter().map(path).filter(|path| fs.stat(Path::new(path)).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::RealFs;

    #[test]
    fn releases_tell_a_version() {
        for (release, expected) in [
            ("6.1.0-13-amd64", (6, 1)),
            ("4.15", (4, 15)),
            ("5.10.102.1-microsoft-standard-WSL2", (5, 10)),
            ("odd", (0, 0)),
            ("7", (0, 0)),
        ] {
            assert_eq!(kernel_version(release), expected, "{release}");
        }
    }

    #[test]
    fn this_machine_has_a_kernel() {
        let machine = read(&RealFs);
        assert_ne!(machine.kernel, (0, 0));
        assert!(machine.thermal_throttle.iter().all(|path| Path::new(path).exists()));
    }

    #[test]
    fn labels_are_read_as_policies_write_them() {
        let text = "# file = \"no\"\n; file = no\nprocess = \"u:r:container_t:s0\"\n\
                    file = \"u:object_r:container_file_t:s0\"\nro_file=\"x\"\n";
        assert_eq!(value_of(text, "file").as_deref(), Some("u:object_r:container_file_t:s0"));
        assert_eq!(value_of("SELINUXTYPE=targeted\n", "SELINUXTYPE").as_deref(), Some("targeted"));
        assert_eq!(value_of("SELINUX=enforcing\nSELINUXTYPE=\n", "SELINUXTYPE"), None);
    }
}
