//! Takes an instance off the host, by force and in any state.
//!
//! Reads only what the instance itself wrote down: its directory, and
//! processes a testkit started, control groups, namespaces and firewall rules
//! that carry its path, container ids or network name. Works without the runtime's help, so
//! that a dead, stopped or half-started containerd is cleaned the same way.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

use crate::slot::Slot;
use crate::{disk, host, process};

/// How long killed processes may take to vanish.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where containerd keeps a task's bundle, below its state directory.
const TASKS: &str = "state/io.containerd.runtime.v2.task/k8s.io";

/// Removes everything the slot's last holder left. Nothing left is no error.
pub fn sweep(slot: &Slot) -> Result<()> {
    let dir = slot.dir();
    if !dir.exists() {
        return Ok(());
    }
    let ids = container_ids(dir);
    let sockets = shim_sockets(dir);
    let namespaces = network_namespaces(dir);
    kill_all(|| process::started_below(dir), "processes of the instance")?;
    remove_cgroups(&ids)?;
    remove_pod_cgroups(&slot.cgroup_root())?;
    for (device, behind) in disk::loops_over(dir) {
        // What an agent keeps open for its pods. A disk of a test is that test's.
        if behind.components().any(|part| part.as_os_str() == "volumeDevices") {
            let _ = disk::losetup(&["--detach"], &device);
        }
    }
    for point in host::mounts_below(dir)? {
        // A mount that went with its parent is gone already.
        let _ = unmount(&point, UnmountFlags::DETACH);
    }
    for path in namespaces {
        let _ = unmount(&path, UnmountFlags::DETACH);
        remove_file(&path)?;
    }
    for socket in sockets {
        remove_file(&socket)?;
    }
    remove_bridge(&slot.bridge())?;
    remove_firewall_rules(&slot.network())?;
    remove_log_links(dir)?;
    fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))
}

/// Ids of every container and sandbox the instance knows or knew.
fn container_ids(dir: &Path) -> BTreeSet<String> {
    [TASKS, "root/io.containerd.grpc.v1.cri/sandboxes", "root/io.containerd.grpc.v1.cri/containers"]
        .iter()
        .filter_map(|place| fs::read_dir(dir.join(place)).ok())
        .flat_map(|entries| entries.flatten())
        .filter_map(|entry| entry.file_name().into_string().ok())
        // Anything shorter could be the name of somebody else's control group.
        .filter(|name| name.len() == 64)
        .collect()
}

/// Sockets of the shims, which lie outside the instance's directory.
fn shim_sockets(dir: &Path) -> Vec<PathBuf> {
    let Ok(tasks) = fs::read_dir(dir.join(TASKS)) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("address")).ok())
        .filter_map(|address| address.trim().strip_prefix("unix://").map(PathBuf::from))
        .filter(|path| path.starts_with("/run/containerd/s"))
        .collect()
}

/// Network namespaces the instance's metadata mentions. Their names are random
/// and unique, so mentions of ones long gone do no harm.
fn network_namespaces(dir: &Path) -> BTreeSet<PathBuf> {
    let store = dir.join("root/io.containerd.metadata.v1.bolt/meta.db");
    let bytes = fs::read(store).unwrap_or_default();
    find_namespaces(&bytes).into_iter().filter(|path| path.exists()).collect()
}

fn find_namespaces(bytes: &[u8]) -> BTreeSet<PathBuf> {
    const MARK: &[u8] = b"/netns/cni-";
    const UUID: usize = 36;
    let mut found = BTreeSet::new();
    for at in 0..bytes.len().saturating_sub(MARK.len() + UUID - 1) {
        let name = &bytes[at + MARK.len()..at + MARK.len() + UUID];
        if bytes[at..].starts_with(MARK)
            && name.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
        {
            let name = String::from_utf8_lossy(name);
            found.insert(Path::new("/run/netns").join(format!("cni-{name}")));
        }
    }
    found
}

/// Kills until `find` finds nothing more.
fn kill_all(find: impl Fn() -> Vec<Pid>, what: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = find();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{what} do not end after SIGKILL: {left:?}");
        }
        for pid in left {
            // It may have ended since.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends what runs in the containers' control groups and removes the groups.
fn remove_cgroups(ids: &BTreeSet<String>) -> Result<()> {
    let mut groups = Vec::new();
    find_cgroups(Path::new("/sys/fs/cgroup"), ids, 0, &mut groups);
    kill_all(|| groups.iter().flat_map(|group| members(group)).collect(), "containers")?;
    let deadline = Instant::now() + PATIENCE;
    for group in groups {
        // Zombies hold a group until their parent has reaped them.
        while group.exists() && fs::remove_dir(&group).is_err() {
            if Instant::now() > deadline {
                bail!("cannot remove the control group {}", group.display());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Removes the group that pods of the slot had, in every hierarchy.
fn remove_pod_cgroups(root: &str) -> Result<()> {
    let name = root.trim_start_matches('/');
    let roots = host::cgroup_hierarchies()?.into_iter().map(|hierarchy| hierarchy.join(name));
    for root in roots.filter(|root| root.is_dir()) {
        let mut groups = Vec::new();
        collect_groups(&root, &mut groups);
        kill_all(|| groups.iter().flat_map(|group| members(group)).collect(), "pods")?;
        for group in groups {
            fs::remove_dir(&group)
                .with_context(|| format!("cannot remove the control group {}", group.display()))?;
        }
    }
    Ok(())
}

/// A group and all below it, the deepest first.
fn collect_groups(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_groups(&entry.path(), found);
        }
    }
    found.push(dir.to_owned());
}

/// Depth to look for a container's group: controller, kubepods, class, pod, container.
const CGROUP_DEPTH_MAX: usize = 6;

fn find_cgroups(dir: &Path, ids: &BTreeSet<String>, depth: usize, found: &mut Vec<PathBuf>) {
    if depth > CGROUP_DEPTH_MAX || ids.is_empty() {
        return;
    }
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        // Not through links: cgroup v1 joins controllers by them.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_str().is_some_and(|name| ids.contains(name)) {
            found.push(entry.path());
        } else {
            find_cgroups(&entry.path(), ids, depth + 1, found);
        }
    }
}

fn members(group: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok().and_then(Pid::from_raw)).collect()
}

fn remove_bridge(name: &str) -> Result<()> {
    if Path::new("/sys/class/net").join(name).exists() {
        process::run(Command::new("ip").args(["link", "delete", name]))?;
    }
    Ok(())
}

/// Deletes the rules and chains that carry the network's name.
fn remove_firewall_rules(network: &str) -> Result<()> {
    // Without the program nobody can have made rules.
    let Ok(save) = host::program("iptables-save", "iptables") else {
        return Ok(());
    };
    let rules = process::run(Command::new(save).args(["-t", "nat"]))?;
    let Some(script) = deletion_script(&rules, network) else {
        return Ok(());
    };
    let restore = host::program("iptables-restore", "iptables")?;
    let mut child = Command::new(restore)
        .arg("--noflush")
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start iptables-restore")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes()).context("cannot write to iptables-restore")?;
    }
    let status = child.wait().context("cannot wait for iptables-restore")?;
    if !status.success() {
        bail!("iptables-restore ended with {status} while removing the rules of {network}");
    }
    Ok(())
}

/// Turns `iptables-save` output into the commands that undo the network's part.
fn deletion_script(rules: &str, network: &str) -> Option<String> {
    let mark = format!("name: \\\"{network}\\\" id:");
    let owned: Vec<&str> = rules.lines().filter(|line| line.contains(&mark)).collect();
    if owned.is_empty() {
        return None;
    }
    let chains: BTreeSet<&str> = owned
        .iter()
        .flat_map(|rule| rule.split_whitespace())
        .filter(|word| word.starts_with("CNI-") && !word.starts_with("CNI-HOSTPORT-"))
        .collect();
    let mut script = String::from("*nat\n");
    for rule in owned {
        script.push_str(&rule.replacen("-A ", "-D ", 1));
        script.push('\n');
    }
    for verb in ["-F", "-X"] {
        for chain in &chains {
            script.push_str(&format!("{verb} {chain}\n"));
        }
    }
    script.push_str("COMMIT\n");
    Some(script)
}

/// Removes the fixed log directory's links into this instance.
fn remove_log_links(dir: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir("/var/log/containers") else {
        return Ok(());
    };
    for entry in entries.flatten() {
        if fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(dir)) {
            remove_file(&entry.path())?;
        }
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
            Err(err).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_found_in_raw_metadata() {
        let bytes = b"xx/var/run/netns/cni-0c1f4aa2-0d8f-1c2b-9d0e-00112233aabb\x00/netns/cni-no";
        let found = find_namespaces(bytes);
        let expected = "/run/netns/cni-0c1f4aa2-0d8f-1c2b-9d0e-00112233aabb";
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [PathBuf::from(expected)]);
    }

    #[test]
    fn only_the_networks_own_rules_are_undone() {
        let rules = r#"*nat
-A POSTROUTING -s 10.88.0.5/32 -m comment --comment "name: \"klet-testkit-0\" id: \"a\"" -j CNI-aa
-A POSTROUTING -s 10.9.0.5/32 -m comment --comment "name: \"other\" id: \"b\"" -j CNI-bb
-A CNI-aa -d 10.88.0.0/22 -m comment --comment "name: \"klet-testkit-0\" id: \"a\"" -j ACCEPT
COMMIT
"#;
        let script = deletion_script(rules, "klet-testkit-0").unwrap();
        assert!(script.contains("-D POSTROUTING -s 10.88.0.5/32"));
        assert!(script.contains("-F CNI-aa\n-X CNI-aa\nCOMMIT"));
        assert!(!script.contains("other") && !script.contains("CNI-bb"));
        assert_eq!(deletion_script(rules, "klet-testkit-1"), None);
    }
}
