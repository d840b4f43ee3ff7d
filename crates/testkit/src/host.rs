//! What this host has: privileges, programs, routes, mounts, control groups.
//!
//! Reads /proc, /sys/fs/cgroup and PATH. Changes nothing.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// A route of this host's main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    address: Ipv4Addr,
    prefix: u8,
}

impl Route {
    /// Whether the two ranges share an address. The default route is not counted.
    pub fn overlaps(&self, address: Ipv4Addr, prefix: u8) -> bool {
        let shorter = self.prefix.min(prefix);
        if self.prefix == 0 {
            return false;
        }
        let mask = u32::MAX << (32 - u32::from(shorter));
        u32::from(self.address) & mask == u32::from(address) & mask
    }
}

/// The routes of this host.
pub fn routes() -> Result<Vec<Route>> {
    let table = fs::read_to_string("/proc/net/route").context("cannot read /proc/net/route")?;
    Ok(table.lines().skip(1).filter_map(parse_route).collect())
}

fn parse_route(line: &str) -> Option<Route> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // The kernel prints both in the byte order of the wire, read as a native number.
    let address = u32::from_str_radix(fields.get(1)?, 16).ok()?.swap_bytes();
    let mask = u32::from_str_radix(fields.get(7)?, 16).ok()?;
    Some(Route { address: address.into(), prefix: u8::try_from(mask.count_ones()).ok()? })
}

/// The program's path, or an error that says which Debian package holds it.
pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    for dir in places {
        let candidate = dir.join(name);
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!("{name} is not installed; run `make setup`, or `apt-get install {package}`")
}

/// Which containerd the tests run: its name and version.
pub fn containerd_version() -> Result<String> {
    let told = process::run(Command::new(program("containerd", "containerd")?).arg("--version"))?;
    // containerd SOURCE VERSION COMMIT
    let version = told.split_whitespace().nth(2);
    let version = version.with_context(|| format!("containerd --version says {told:?}"))?;
    Ok(format!("containerd {version}"))
}

/// Fails unless this process may create namespaces, mounts and bridges.
pub fn require_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    bail!(
        "a private containerd needs root for namespaces, mounts and its bridge; \
         run the tests as root (`sudo -E env PATH=\"$PATH\" make test`)"
    )
}

/// Fails on processors that the pause program is not written for.
pub fn require_architecture() -> Result<()> {
    supports(std::env::consts::ARCH)
}

fn supports(architecture: &str) -> Result<()> {
    if architecture == "x86_64" {
        return Ok(());
    }
    bail!(
        "the private containerd needs an x86-64 machine, and this is {architecture}: \
         the pause image of the tests holds x86-64 instructions"
    )
}

/// Fails unless the named CNI plugins are installed where Debian puts them.
pub fn require_cni(dir: &Path, plugins: &[&str]) -> Result<()> {
    for plugin in plugins {
        if !dir.join(plugin).is_file() {
            bail!(
                "the CNI plugin {} is not installed; run `make setup`, \
                 or `apt-get install containernetworking-plugins`",
                dir.join(plugin).display()
            );
        }
    }
    Ok(())
}

/// Mount points at or below `dir`, deepest first.
pub fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let table =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let mut mounts: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(unescape(point)))
        .filter(|point| point.starts_with(dir))
        .collect();
    // Later lines cover earlier ones, so the reverse order also peels stacked mounts.
    mounts.reverse();
    mounts.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    Ok(mounts)
}

/// The roots of the host's control groups: one, or one for each hierarchy of cgroup v1.
pub fn cgroup_hierarchies() -> Result<Vec<PathBuf>> {
    let mount = Path::new("/sys/fs/cgroup");
    if mount.join("cgroup.controllers").exists() {
        return Ok(vec![mount.to_owned()]);
    }
    let entries = fs::read_dir(mount).context("cannot read /sys/fs/cgroup")?;
    // Not links: they join controllers that share a hierarchy.
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    Ok(entries.flatten().filter(is_dir).map(|entry| entry.path()).collect())
}

/// Control groups of a pod below this one, in every hierarchy.
pub fn pod_cgroups_below(root: &str, uid: &str) -> Result<Vec<PathBuf>> {
    let mut groups = Vec::new();
    for hierarchy in cgroup_hierarchies()? {
        named_below(&hierarchy.join(root.trim_start_matches('/')), uid, &mut groups)?;
    }
    Ok(groups)
}

/// Directories below `dir` with the uid in their name; those in them are not listed.
fn named_below(dir: &Path, uid: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        // It went while others were read, or a hierarchy has none.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.with_context(|| format!("cannot list {}", dir.display()))?,
    };
    // systemd's way to write a name has no dashes in a part of it.
    let written = [uid.to_owned(), uid.replace('-', "_")];
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        match written.iter().any(|uid| name.contains(uid)) {
            true => found.push(entry.path()),
            false => named_below(&entry.path(), uid, found)?,
        }
    }
    Ok(())
}

/// Undoes the octal escapes of mountinfo.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_parsed_and_compared() {
        let line = "eth0 0000580A 00000000 0001 0 0 0 0000FFFF 0 0 0";
        let route = parse_route(line).unwrap();
        assert_eq!(route, Route { address: Ipv4Addr::new(10, 88, 0, 0), prefix: 16 });
        assert!(route.overlaps(Ipv4Addr::new(10, 88, 4, 0), 22));
        assert!(!route.overlaps(Ipv4Addr::new(10, 89, 0, 0), 22));
    }

    #[test]
    fn the_default_route_claims_nothing() {
        let route = Route { address: Ipv4Addr::UNSPECIFIED, prefix: 0 };
        assert!(!route.overlaps(Ipv4Addr::new(10, 88, 0, 0), 22));
    }

    #[test]
    fn groups_of_a_pod_are_found_however_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let uid = "11-22";
        for group in ["kubepods/pod11-22/c", "kubepods/pod11-23", "k.slice/k-pod11_22.slice/x"] {
            fs::create_dir_all(dir.path().join(group)).unwrap();
        }
        let mut found = Vec::new();
        named_below(dir.path(), uid, &mut found).unwrap();
        found.sort();
        let expected = ["k.slice/k-pod11_22.slice", "kubepods/pod11-22"];
        assert_eq!(found, expected.map(|group| dir.path().join(group)));
        named_below(&dir.path().join("absent"), uid, &mut found).unwrap();
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn another_processor_is_named() {
        assert!(supports("x86_64").is_ok());
        let err = supports("aarch64").unwrap_err().to_string();
        assert!(err.contains("x86-64 machine, and this is aarch64"), "{err}");
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let err = program("no-such-program", "some-package").unwrap_err().to_string();
        assert!(err.contains("apt-get install some-package"), "{err}");
    }
}
