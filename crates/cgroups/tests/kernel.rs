//! The running kernel, below a group of the test's own. Needs root.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};

use cgroups::{CgroupName, Driver, Hierarchy, Limits, Tree};

const MOUNT: &str = "/sys/fs/cgroup";

/// The tree, unless this machine cannot have the test; then says why.
fn tree(mount: &str) -> Option<Tree> {
    let refuse = |why: String| {
        eprintln!("SKIPPED, nothing was tested: {why}");
        None
    };
    if !rustix::process::geteuid().is_root() {
        return refuse("needs root".to_owned());
    }
    match Hierarchy::detect(Path::new(mount)) {
        Ok(hierarchy) => Some(Tree::new(hierarchy, Driver::Cgroupfs)),
        Err(error) => refuse(error.to_string()),
    }
}

fn own_root(what: &str) -> CgroupName {
    CgroupName::root().child(&format!("klet-test-{what}-{}", std::process::id())).unwrap()
}

/// A process that lives in a group of every tree.
fn process_in(tree: &Tree, mount: &str, name: &CgroupName) -> Child {
    let child = Command::new("sleep").arg("600").spawn().unwrap();
    let path = name.path(Driver::Cgroupfs);
    let mut mounts: Vec<_> =
        tree.hierarchy().controllers().map(|c| Path::new(mount).join(c)).collect();
    mounts.push(mount.into());
    for dir in mounts.iter().map(|mount| mount.join(path.trim_start_matches('/'))) {
        if dir.is_dir() {
            fs::write(dir.join("cgroup.procs"), child.id().to_string()).unwrap();
        }
    }
    child
}

fn killed_and_removed(tree: &Tree, mount: &str, root: &CgroupName) {
    let pod = root.child("pod-a").unwrap();
    let inner = pod.child("container").unwrap();
    tree.create(&inner).unwrap();
    let mut child = process_in(tree, mount, &inner);
    let pid = i32::try_from(child.id()).unwrap();
    assert!(tree.processes(root).unwrap().contains(&pid));
    assert_eq!(Vec::from_iter(tree.children(root).unwrap()), ["pod-a"]);
    tree.remove(root).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(tree.children(root).unwrap().is_empty());
    assert!(!tree.exists(&pod));
    tree.remove(root).expect("absent is fine");
}

#[test]
fn limits_are_in_force_and_groups_go_with_their_processes() {
    let Some(tree) = tree(MOUNT) else { return };
    let root = own_root("limits");
    let name = root.child("pod-a").unwrap();
    let has = |controller: &str| tree.hierarchy().controllers().any(|name| name == controller);
    tree.create(&name).unwrap();
    assert!(tree.exists(&name));
    let limits = Limits {
        cpu_shares: Some(512),
        cpu_quota_us: Some(50_000),
        cpu_period_us: Some(100_000),
        memory_bytes: Some(64 << 20),
        pids: has("pids").then_some(100),
        huge_pages: None,
    };
    tree.apply(&name, &limits).unwrap();
    let read = tree.read(&name).unwrap();
    let shares = read.cpu_shares.unwrap();
    assert!(shares == 512 || shares == 2 + 19 * 262_142 / 9_999, "{shares}");
    assert_eq!(Limits { cpu_shares: Some(512), huge_pages: None, ..read }, limits);
    // A shorter period with a smaller quota, then back: no order of writes fits both.
    for (quota, period) in [(5_000, 10_000), (900_000, 1_000_000), (-1, 100_000)] {
        let cpu =
            Limits { cpu_quota_us: Some(quota), cpu_period_us: Some(period), ..Limits::default() };
        tree.apply(&name, &cpu).unwrap();
        let read = tree.read(&name).unwrap();
        assert_eq!((read.cpu_quota_us, read.cpu_period_us), (Some(quota), Some(period)));
    }
    killed_and_removed(&tree, MOUNT, &root);
}

/// The version 2 tree of a hybrid machine has no controllers but kills at once.
#[test]
fn a_version_2_tree_kills_at_once() {
    let unified = format!("{MOUNT}/unified");
    let mount = if Path::new(&unified).is_dir() { &unified } else { MOUNT };
    let Some(tree) = tree(mount) else { return };
    killed_and_removed(&tree, mount, &own_root("kill"));
}
