//! What users are told of the node when it starts: things that work, but not well.
//!
//! Reads the resolver file, the machine's control groups and its swap, once.
//! Writes events. Upstream: pkg/kubelet/kubelet_linux.go, CheckLimitsForResolvConf
//! in pkg/kubelet/network/dns, pkg/kubelet/cm, pkg/kubelet/util/swap.

use std::io;
use std::path::Path;

use cgroups::{Hierarchy, Version};

use crate::events::NodeEvents;
use crate::ports::{Fs, VolumeError};
use crate::runtime_manager::dns;
use crate::settings::Settings;

const CGROUP_V1: &str = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed \
     in a future release. Please migrate to cgroup v2. More information at \
     https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";

const MAY_SWAP: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. \
     secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.";

/// The kernel's list of swap areas: a line each, below a heading.
pub const SWAPS: &str = "/proc/swaps";
/// More than the kernel's 32 areas with the longest paths.
const SWAPS_BYTES_MAX: usize = 256 << 10;

/// What is looked at.
pub struct Host<'a> {
    /// Where the control groups are mounted.
    pub cgroups: &'a Path,
    /// The list of swap areas.
    pub swaps: &'a Path,
    /// Can memory be mounted so that it is never swapped out?
    pub can_refuse_swap: Result<bool, VolumeError>,
}

/// Looks, and tells.
pub fn tell(events: &NodeEvents, settings: &Settings, fs: &dyn Fs, host: &Host<'_>) {
    if swap_is_on(fs, host.swaps) && !matches!(host.can_refuse_swap, Ok(true)) {
        let error = host.can_refuse_swap.as_ref().err().map(ToString::to_string);
        tracing::warn!(error, "{MAY_SWAP} Turn swap off, or encrypt it.");
        events.warn("PossibleMemoryBackedVolumesOnDisk", MAY_SWAP);
    }
    if Hierarchy::detect(host.cgroups).is_ok_and(|found| found.version() == Version::V1) {
        tracing::warn!("{CGROUP_V1}");
        events.warn("CgroupV1", CGROUP_V1);
    }
    let resolver_file = settings.resolv_conf.as_deref();
    if let Some(problem) = resolver_file.and_then(|path| resolver_problem(fs, path, settings)) {
        tracing::warn!(problem, "pods may look names up in fewer domains than the node");
        events.warn("CheckLimitsForResolvConf", problem);
    }
}

/// Kernels without swap have no list.
fn swap_is_on(fs: &dyn Fs, swaps: &Path) -> bool {
    match fs.read(swaps, SWAPS_BYTES_MAX) {
        Ok(text) => String::from_utf8_lossy(&text).trim().lines().count() > 1,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => {
            let path = swaps.display();
            tracing::warn!(%path, %error, "cannot tell whether swap is on; taking it for on");
            true
        }
    }
}

/// What is wrong with the file that pods' resolver settings derive from.
fn resolver_problem(fs: &dyn Fs, path: &Path, settings: &Settings) -> Option<String> {
    match fs.read(path, dns::RESOLV_CONF_BYTES_MAX) {
        Ok(text) => dns::limits_problem(&String::from_utf8_lossy(&text), path, settings),
        Err(error) => Some(format!("open {}: {}", path.display(), system_text(&error))),
    }
}

/// An error of the system in the words and the case that upstream's events have.
fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.chars().take(1).flat_map(char::to_lowercase).chain(text.chars().skip(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::RealFs;

    fn told(search: Option<&str>, cluster_domain: &str, v1: bool) -> (Vec<String>, String) {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("resolv.conf");
        if let Some(search) = search {
            std::fs::write(&file, format!("nameserver 192.0.2.1\nsearch {search}\n"))
                .expect("file");
        }
        for group in ["cpu", "cpuacct", "cpuset", "memory"].iter().filter(|_| v1) {
            std::fs::create_dir(dir.path().join(group)).expect("a group");
            std::fs::write(dir.path().join(group).join("cgroup.procs"), "").expect("file");
        }
        if !v1 {
            std::fs::write(dir.path().join("cgroup.controllers"), "cpu memory").expect("file");
        }
        let settings = Settings {
            resolv_conf: Some(file.clone()),
            cluster_domain: cluster_domain.to_owned(),
            ..Settings::for_node("n")
        };
        let (events, recorder) = NodeEvents::for_test();
        let none = dir.path().join("swaps");
        let host = Host { cgroups: dir.path(), swaps: &none, can_refuse_swap: Ok(false) };
        tell(&events, &settings, &RealFs, &host);
        (recorder.node_lines(), file.display().to_string())
    }

    #[test]
    fn a_good_node_is_not_talked_about() {
        assert!(told(Some("a.example b.example"), "cluster.local", false).0.is_empty());
        let fits = vec!["a"; 32].join(" ");
        assert!(told(Some(&fits), "", false).0.is_empty());
    }

    #[test]
    fn version_1_is_warned_of() {
        let (lines, _) = told(Some("a"), "", true);
        assert_eq!(
            lines,
            ["Warning CgroupV1: cgroup v1 detected. cgroup v1 support is deprecated and will be \
              removed in a future release. Please migrate to cgroup v2. More information at \
              https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"]
        );
    }

    #[test]
    fn memory_that_may_be_swapped_out_is_warned_of() {
        let dir = tempfile::tempdir().expect("a directory");
        let swaps = dir.path().join("swaps");
        let settings = Settings { resolv_conf: None, ..Settings::for_node("n") };
        let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        let on = format!("{heading}/swapfile file 2097148 0 -2\n");
        let failed = || Err(VolumeError::Mounts(mounts::MountsError::OldKernel { call: "fsopen" }));
        for (list, can_refuse_swap, warned) in [
            (heading, Ok(false), false),
            (&on, Ok(true), false),
            (&on, Ok(false), true),
            (&on, failed(), true),
        ] {
            std::fs::write(&swaps, list).expect("file");
            let (events, recorder) = NodeEvents::for_test();
            let host = Host { cgroups: dir.path(), swaps: &swaps, can_refuse_swap };
            tell(&events, &settings, &RealFs, &host);
            let expected = "Warning PossibleMemoryBackedVolumesOnDisk: The tmpfs noswap option is \
                not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be \
                swapped to disk and should no longer be considered secure.";
            let expected: Vec<&str> = warned.then_some(expected).into_iter().collect();
            assert_eq!(recorder.node_lines(), expected, "{list}");
        }
    }

    #[test]
    fn resolver_files_beyond_the_limits_are_warned_of() {
        let long = "x".repeat(254);
        let full = vec!["y".repeat(253); 9].join(" ");
        let many = vec!["a"; 33].join(" ");
        let too_many_with_a_cluster = vec!["a"; 30].join(" ");
        for (search, domain, expected) in [
            (
                Some(many.as_str()),
                "",
                "Resolv.conf file 'FILE' contains search line consisting of more than 32 domains!",
            ),
            (
                Some(&too_many_with_a_cluster),
                "cluster.local",
                "Resolv.conf file 'FILE' contains search line consisting of more than 29 domains!",
            ),
            (
                Some(&long),
                "",
                "Resolv.conf file \"FILE\" contains a search path which length is more than allowed 253 chars!",
            ),
            (
                Some(&full),
                "",
                "Resolv.conf file 'FILE' contains search line which length is more than allowed 2048 chars!",
            ),
            (None, "", "open FILE: no such file or directory"),
        ] {
            let (lines, file) = told(search, domain, false);
            let expected = format!("Warning CheckLimitsForResolvConf: {expected}");
            assert_eq!(lines, [expected.replace("FILE", &file)]);
        }
    }
}
