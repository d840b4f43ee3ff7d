//! What is written where, against directories that look like the kernel's.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cgroups::{
    Address, CgroupError, CgroupName, Driver, Hierarchy, Limits, Systemd, Tree, Version,
};

fn put(dir: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(dir).unwrap();
    for (name, text) in files {
        fs::write(dir.join(name), text).unwrap();
    }
}

fn get(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn kubepods() -> CgroupName {
    CgroupName::root().child("kubepods").unwrap()
}

/// A version 1 machine with joint controllers, links to them, and a hybrid tree.
fn v1(group: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let path = root.path();
    for mount in ["cpu,cpuacct", "memory", "cpuset", "pids", "hugetlb", "systemd"] {
        put(&path.join(mount), &[("cgroup.procs", "")]);
    }
    std::os::unix::fs::symlink("cpu,cpuacct", path.join("cpu")).unwrap();
    std::os::unix::fs::symlink("cpu,cpuacct", path.join("cpuacct")).unwrap();
    put(&path.join("unified"), &[("cgroup.procs", ""), ("cgroup.controllers", "")]);
    put(&path.join("not-a-group"), &[]);
    put(&path.join("cpuset"), &[("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n")]);
    let at = |mount: &str| path.join(mount).join(group);
    put(&at("cpuset"), &[("cpuset.cpus", "\n"), ("cpuset.mems", "1\n")]);
    put(
        &at("cpu,cpuacct"),
        &[("cpu.shares", ""), ("cpu.cfs_quota_us", ""), ("cpu.cfs_period_us", "")],
    );
    put(&at("memory"), &[("memory.limit_in_bytes", "9223372036854771712\n")]);
    put(&at("pids"), &[("pids.max", "max\n")]);
    let pages = ["2MB", "1GB"].map(|size| format!("hugetlb.{size}.limit_in_bytes"));
    put(
        &at("hugetlb"),
        &[(&pages[0], "7"), (&pages[1], "7"), ("hugetlb.2MB.rsvd.limit_in_bytes", "7")],
    );
    root
}

fn v2(controllers: &str, group: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let common = [("cgroup.controllers", controllers), ("cgroup.subtree_control", "cpu\n")];
    put(root.path(), &common);
    put(&root.path().join(group), &common);
    put(
        &root.path().join(group),
        &[
            ("cpu.weight", "100\n"),
            ("cpu.max", "max 100000\n"),
            ("memory.max", "max\n"),
            ("pids.max", "max\n"),
            ("hugetlb.2MB.max", "max\n"),
            ("hugetlb.2MB.rsvd.max", "max\n"),
        ],
    );
    root
}

fn limits() -> Limits {
    Limits {
        cpu_shares: Some(1024),
        cpu_quota_us: Some(50_000),
        cpu_period_us: Some(100_000),
        memory_bytes: Some(64 << 20),
        pids: Some(100),
        huge_pages: Some(BTreeMap::from([(2 << 20, 4 << 20)])),
    }
}

fn tree(root: &Path) -> Tree {
    Tree::new(Hierarchy::detect(root).unwrap(), Driver::Cgroupfs)
}

#[test]
fn version_1_with_joint_controllers() {
    let root = v1("kubepods");
    let tree = tree(root.path());
    assert_eq!(tree.hierarchy().version(), Version::V1);
    let found: Vec<&str> = tree.hierarchy().controllers().collect();
    assert_eq!(found, ["cpu", "cpuacct", "cpuset", "hugetlb", "memory", "pids", "systemd"]);

    assert!(!tree.exists(&kubepods()));
    tree.create(&kubepods()).unwrap();
    assert!(tree.exists(&kubepods()));
    assert!(root.path().join("systemd/kubepods").is_dir());
    assert!(!root.path().join("unified/kubepods").exists());
    assert_eq!(get(root.path(), "cpuset/kubepods/cpuset.cpus"), "0-3");
    assert_eq!(get(root.path(), "cpuset/kubepods/cpuset.mems"), "1\n", "not overwritten");

    tree.apply(&kubepods(), &limits()).unwrap();
    for (file, value) in [
        ("cpu/kubepods/cpu.shares", "1024"),
        ("cpu/kubepods/cpu.cfs_quota_us", "50000"),
        ("cpu/kubepods/cpu.cfs_period_us", "100000"),
        ("memory/kubepods/memory.limit_in_bytes", "67108864"),
        ("pids/kubepods/pids.max", "100"),
        ("hugetlb/kubepods/hugetlb.2MB.limit_in_bytes", "4194304"),
        ("hugetlb/kubepods/hugetlb.2MB.rsvd.limit_in_bytes", "4194304"),
        ("hugetlb/kubepods/hugetlb.1GB.limit_in_bytes", "0"),
    ] {
        assert_eq!(get(root.path(), file), value, "{file}");
    }
    let pages = BTreeMap::from([(2 << 20, 4 << 20), (1 << 30, 0)]);
    assert_eq!(tree.read(&kubepods()).unwrap(), Limits { huge_pages: Some(pages), ..limits() });
}

/// runc makes the container's group in the hybrid tree, too, and leaves the parents of it.
#[test]
fn what_a_runtime_left_in_the_hybrid_tree_is_found_and_removed() {
    let root = v1("other");
    let tree = tree(root.path());
    let pod = kubepods().child("pod1").unwrap();
    fs::create_dir_all(root.path().join("unified/kubepods/pod1/container")).unwrap();
    assert_eq!(tree.children(&kubepods()).unwrap(), ["pod1".to_owned()].into());
    tree.remove(&pod).unwrap();
    assert!(!root.path().join("unified/kubepods/pod1").exists());
    assert!(root.path().join("unified/kubepods").exists(), "not its parent");
    assert!(tree.children(&kubepods()).unwrap().is_empty());
}

#[test]
fn version_2() {
    let root = v2("cpuset cpu io memory hugetlb pids rdma\n", "kubepods");
    let tree = tree(root.path());
    assert_eq!(tree.hierarchy().version(), Version::V2);
    tree.create(&kubepods()).unwrap();
    assert!(tree.exists(&kubepods()));
    assert_eq!(get(root.path(), "cgroup.subtree_control"), "+cpuset +hugetlb +memory +pids");

    tree.apply(&kubepods(), &limits()).unwrap();
    for (file, value) in [
        ("cpu.weight", "39"),
        ("cpu.max", "50000 100000"),
        ("memory.max", "67108864"),
        ("pids.max", "100"),
        ("hugetlb.2MB.max", "4194304"),
        ("hugetlb.2MB.rsvd.max", "4194304"),
    ] {
        assert_eq!(get(root.path(), &format!("kubepods/{file}")), value, "{file}");
    }
    let read = tree.read(&kubepods()).unwrap();
    assert_eq!(read, Limits { cpu_shares: Some(998), ..limits() });
}

#[test]
fn what_is_not_given_is_left_alone() {
    let root = v2("cpu memory pids", "kubepods");
    let tree = tree(root.path());
    let only_shares = Limits {
        cpu_shares: Some(2),
        cpu_quota_us: None,
        memory_bytes: Some(0),
        ..Limits::default()
    };
    tree.apply(&kubepods(), &only_shares).unwrap();
    assert_eq!(get(root.path(), "kubepods/cpu.weight"), "1");
    assert_eq!(get(root.path(), "kubepods/cpu.max"), "max 100000\n");
    assert_eq!(get(root.path(), "kubepods/memory.max"), "max\n");
    let unlimited = Limits {
        cpu_quota_us: Some(-1),
        cpu_period_us: Some(50_000),
        memory_bytes: Some(-1),
        pids: Some(-1),
        ..Limits::default()
    };
    tree.apply(&kubepods(), &unlimited).unwrap();
    assert_eq!(get(root.path(), "kubepods/cpu.max"), "max 50000");
    assert_eq!(get(root.path(), "kubepods/memory.max"), "max");
    assert_eq!(get(root.path(), "kubepods/pids.max"), "max");
}

#[test]
fn a_group_without_its_controllers_does_not_exist() {
    let root = v2("cpu memory", "kubepods");
    put(&root.path().join("kubepods"), &[("cgroup.controllers", "cpu\n")]);
    assert!(!tree(root.path()).exists(&kubepods()));
    let pids = Limits { pids: Some(5), ..Limits::default() };
    let error = tree(root.path()).apply(&kubepods(), &pids).unwrap_err();
    assert!(matches!(error, CgroupError::MissingControllers { .. }), "{error}");
}

#[test]
fn children_and_processes_from_every_tree() {
    let root = v1("kubepods");
    put(&root.path().join("cpu/kubepods/poda"), &[("cgroup.procs", "12\n13\n")]);
    put(&root.path().join("memory/kubepods/podb/inner"), &[("cgroup.procs", "13\n0\n99\n")]);
    let tree = tree(root.path());
    assert_eq!(Vec::from_iter(tree.children(&kubepods()).unwrap()), ["poda", "podb"]);
    assert_eq!(Vec::from_iter(tree.processes(&kubepods()).unwrap()), [12, 13, 99]);
    let absent = CgroupName::root().child("nothing").unwrap();
    assert!(tree.children(&absent).unwrap().is_empty());
    assert!(tree.processes(&absent).unwrap().is_empty());
}

#[test]
fn machines_that_will_not_do() {
    let root = tempfile::tempdir().unwrap();
    let error = Hierarchy::detect(root.path()).unwrap_err().to_string();
    assert!(error.contains("no control groups below"), "{error}");
    put(&root.path().join("cpu"), &[("cgroup.procs", "")]);
    let error = Hierarchy::detect(root.path()).unwrap_err().to_string();
    assert!(error.contains("cpuacct, cpuset, memory not mounted"), "{error}");
}

#[test]
fn without_systemd_its_groups_are_not_touched() {
    let root = v2("cpu memory", "kubepods.slice");
    put(&root.path().join("kubepods.slice/kubepods-podab_cd.slice"), &[]);
    let nobody = Address { path: root.path().join("nobody.sock"), bus: true };
    let hierarchy = Hierarchy::detect(root.path()).unwrap();
    let tree = Tree::under(hierarchy, Systemd::at(vec![nobody]));
    assert_eq!(tree.driver(), Driver::Systemd);
    assert_eq!(Vec::from_iter(tree.children(&kubepods()).unwrap()), ["podab-cd"]);
    let pod = kubepods().child("podnew").unwrap();
    for result in [tree.create(&pod), tree.apply(&kubepods(), &limits()), tree.remove(&kubepods())]
    {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("cannot ask systemd for control groups"), "{error}");
        assert!(error.contains("nobody.sock: No such file"), "{error}");
        assert!(error.contains("set cgroupDriver: cgroupfs"), "{error}");
    }
    assert_eq!(get(root.path(), "kubepods.slice/memory.max"), "max\n");
}

#[test]
fn limits_of_swap() {
    let root = v1("kubepods");
    assert!(!Hierarchy::detect(root.path()).unwrap().limits_swap("/"));
    put(&root.path().join("memory"), &[("memory.memsw.limit_in_bytes", "")]);
    assert!(Hierarchy::detect(root.path()).unwrap().limits_swap("/"));
    let root = v2("memory", "init.scope");
    assert!(!Hierarchy::detect(root.path()).unwrap().limits_swap("/init.scope"));
    put(&root.path().join("init.scope"), &[("memory.swap.max", "")]);
    assert!(Hierarchy::detect(root.path()).unwrap().limits_swap("/init.scope"));
}

#[test]
fn a_refused_value_says_what_to_do() {
    let root = v2("cpu memory", "kubepods");
    fs::remove_file(root.path().join("kubepods/memory.max")).unwrap();
    let memory = Limits { memory_bytes: Some(4096), ..Limits::default() };
    let error = tree(root.path()).apply(&kubepods(), &memory).unwrap_err().to_string();
    assert!(error.contains("cannot write \"4096\" to"), "{error}");
    assert!(error.contains("the kernel lacks this controller"), "{error}");
    assert!(!root.path().join("kubepods/memory.max").exists());
}

#[test]
fn memory_in_use() {
    let pods = kubepods();
    let machine = v1("kubepods");
    assert_eq!(tree(machine.path()).memory_usage(&pods).unwrap(), None);
    let files = [("memory.usage_in_bytes", "4096\n"), ("memory.current", "1\n")];
    put(&machine.path().join("memory/kubepods"), &files);
    assert_eq!(tree(machine.path()).memory_usage(&pods).unwrap(), Some(4096));
    let machine = v2("cpu memory\n", "kubepods");
    put(&machine.path().join("kubepods"), &[("memory.current", "8192\n")]);
    assert_eq!(tree(machine.path()).memory_usage(&pods).unwrap(), Some(8192));
}
