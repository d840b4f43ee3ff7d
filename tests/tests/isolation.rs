//! What pods share with each other and the host: namespaces and control groups.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::huge_pages::HugePages;
use testkit::{Node, PodManifest};

const STAYS: &str = "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done";

/// A namespace of a process on this host, such as `net:[4026531840]`.
fn own_namespace(kind: &str) -> Result<String> {
    let link =
        fs::read_link(format!("/proc/self/ns/{kind}")).context("a process has namespaces")?;
    Ok(link.to_string_lossy().into_owned())
}

#[test]
fn namespaces() -> Result<()> {
    let node = Node::start()?;
    let two = |name: &str| PodManifest::new(name).container("one", STAYS).container("two", STAYS);
    node.manifests.put_pod(&two("apart"))?;
    node.manifests.put_pod(&two("shared").spec("shareProcessNamespace", json!(true)))?;
    let host = PodManifest::new("host").container("one", STAYS);
    let host = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .fold(host, |pod, field| pod.spec(field, json!(true)));
    node.manifests.put_pod(&host)?;
    for name in ["apart", "shared", "host"] {
        node.wait_running(name)?;
    }
    let namespace = |pod: &str, container: &str, kind: &str| -> Result<String> {
        let text = node.run_in(pod, container, &format!("readlink /proc/self/ns/{kind}"))?;
        Ok(text.trim().to_owned())
    };
    for kind in ["net", "ipc"] {
        let one = namespace("apart", "one", kind)?;
        assert_eq!(one, namespace("apart", "two", kind)?, "a pod shares its {kind}");
        assert_ne!(one, own_namespace(kind)?, "and not the host's");
    }
    assert_ne!(namespace("apart", "one", "pid")?, namespace("apart", "two", "pid")?);
    assert_eq!(namespace("shared", "one", "pid")?, namespace("shared", "two", "pid")?);
    assert_eq!(node.run_in("shared", "one", "cat /proc/1/comm")?.trim(), "pause");
    let (ip, own) = (node.pod("host")?.ip, node.pod("apart")?.ip);
    ensure!(ip.is_some() && own.is_some() && ip != own, "addresses are {ip:?} and {own:?}");
    for kind in ["net", "ipc", "pid"] {
        assert_eq!(namespace("host", "one", kind)?, own_namespace(kind)?, "{kind}");
    }
    Ok(())
}

/// Files of one control group, on either version.
struct Group {
    v2: bool,
    name: String,
}

impl Group {
    fn dir(&self, controller: &str) -> PathBuf {
        let mount = Path::new("/sys/fs/cgroup");
        let mount = if self.v2 { mount.to_owned() } else { mount.join(controller) };
        mount.join(self.name.trim_start_matches('/'))
    }

    fn read(&self, controller: &str, v1: &str, v2: &str) -> Result<String> {
        let path = self.dir(controller).join(if self.v2 { v2 } else { v1 });
        let text = fs::read_to_string(&path);
        Ok(text.with_context(|| format!("no {}", path.display()))?.trim().to_owned())
    }
}

fn sized(name: &str, resources: Value) -> PodManifest {
    PodManifest::script(name, STAYS).with("resources", resources)
}

#[test]
fn control_groups() -> Result<()> {
    let node = Node::start()?;
    let v2 = is_v2();
    let full = json!({"cpu": "250m", "memory": "64Mi"});
    node.manifests.put_pod(&sized("sure", json!({"limits": full})))?;
    node.manifests.put_pod(&sized("hopes", json!({"requests": {"cpu": "100m"}})))?;
    node.manifests.put_pod(&sized("begs", json!({})))?;
    let root = node.containerd.cgroup_root();
    let mut groups = Vec::new();
    for (name, class) in [("sure", ""), ("hopes", "/burstable"), ("begs", "/besteffort")] {
        let uid = node.wait_running(name)?.uid;
        groups.push(Group { v2, name: format!("{root}/kubepods{class}/pod{uid}") });
    }
    let [sure, hopes, begs] = groups.as_slice() else { unreachable!("three were made") };
    assert_eq!(sure.read("memory", "memory.limit_in_bytes", "memory.max")?, "67108864");
    let quota = if v2 { "25000 100000" } else { "25000" };
    assert_eq!(sure.read("cpu", "cpu.cfs_quota_us", "cpu.max")?, quota);
    let shares = |group: &Group| group.read("cpu", "cpu.shares", "cpu.weight");
    let [quarter, tenth, least] = if v2 { ["10", "4", "1"] } else { ["256", "102", "2"] };
    assert_eq!(
        (shares(sure)?, shares(hopes)?, shares(begs)?),
        (quarter.to_owned(), tenth.to_owned(), least.to_owned())
    );
    // Those that hope have together what they ask for; the others share what is left.
    let tier = |class: &str| Group { v2, name: format!("{root}/kubepods/{class}") };
    for (class, wanted) in [("burstable", tenth), ("besteffort", least)] {
        node.eventually(&format!("the share of {class}"), || {
            let found = shares(&tier(class))?;
            ensure!(found == wanted, "it is {found}");
            Ok(())
        })?;
    }
    // Who asks for nothing is killed first when memory runs out. (Scores below
    // its own are not for a runtime that is itself confined.)
    for (name, score) in [("hopes", "999"), ("begs", "1000")] {
        assert_eq!(node.run_in(name, "main", "cat /proc/1/oom_score_adj")?.trim(), score, "{name}");
    }
    for group in &groups {
        // Containers run below their pod's group.
        let inside = fs::read_dir(group.dir("cpu"))?.flatten().filter(|e| e.path().is_dir());
        let mut processes = String::new();
        for entry in inside {
            processes += &fs::read_to_string(entry.path().join("cgroup.procs"))?;
        }
        ensure!(processes.lines().count() >= 2, "{} holds only {processes:?}", group.name);
    }
    for name in ["sure", "hopes", "begs"] {
        node.manifests.remove_pod(name)?;
    }
    for (name, group) in ["sure", "hopes", "begs"].iter().zip(&groups) {
        node.wait_gone(name)?;
        node.eventually(&format!("{} to be removed", group.name), || {
            for controller in ["cpu", "memory", "pids"] {
                let dir = group.dir(controller);
                ensure!(!dir.exists(), "{} is still there", dir.display());
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn overhead_and_processes() -> Result<()> {
    let node = Node::start_configured(json!({"podPidsLimit": 40}))?;
    let v2 = is_v2();
    let limits = json!({"limits": {"cpu": "250m", "memory": "64Mi"}});
    let overhead = json!({"cpu": "500m", "memory": "32Mi"});
    node.manifests.put_pod(&sized("heavy", limits.clone()).spec("overhead", overhead))?;

    // The container keeps its own limit; what its sandbox costs is the pod's.
    let heavy = group_of(&node, &node.wait_running("heavy")?.uid);
    let memory = 96 * 1024 * 1024;
    assert_eq!(heavy.read("memory", "memory.limit_in_bytes", "memory.max")?, memory.to_string());
    let quota = if v2 { "75000 100000" } else { "75000" };
    assert_eq!(heavy.read("cpu", "cpu.cfs_quota_us", "cpu.max")?, quota);
    if !v2 {
        assert_eq!(heavy.read("cpu", "cpu.shares", "")?, "768");
    }
    let sent = node.sent_config("heavy", "main")?["linux"]["resources"].clone();
    assert_eq!(sent["memory_limit_in_bytes"], 64 * 1024 * 1024, "{sent}");
    assert_eq!((&sent["cpu_quota"], &sent["cpu_shares"]), (&json!(25_000), &json!(256)), "{sent}");

    assert_eq!(heavy.read("pids", "pids.max", "pids.max")?, "40");
    let bomb = "for n in $(seq 60); do sleep 30 >/dev/null 2>&1 & done; echo all run";
    let bombed = node.run_in("heavy", "main", bomb);
    ensure!(!bombed.as_ref().is_ok_and(|text| text.contains("all run")), "{bombed:?}");
    Ok(())
}

#[test]
fn large_pages() -> Result<()> {
    let Some(_pages) = HugePages::reserve("large_pages", 2)? else { return Ok(()) };
    let node = Node::start()?;
    let large = json!({"cpu": "250m", "memory": "64Mi", "hugepages-2Mi": "4Mi"});
    node.manifests.put_pod(&sized("large", json!({"limits": large})))?;
    // Every size the machine has is limited, to nothing if it is not asked for.
    let large = node.wait_running("large")?;
    let sent = node.sent_config("large", "main")?["linux"]["resources"]["hugepage_limits"].clone();
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages").map_or(0, |sizes| sizes.count());
    assert_eq!(sent.as_array().map_or(0, Vec::len), sizes, "{sent}");
    let two = sent.as_array().into_iter().flatten().find(|one| one["page_size"] == "2MB");
    assert_eq!(two.map(|two| &two["limit"]), Some(&json!(4 * 1024 * 1024)), "{sent}");
    let large = group_of(&node, &large.uid);
    if is_v2() || large.dir("hugetlb").exists() {
        let limit = large.read("hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max")?;
        assert_eq!(limit, (4 * 1024 * 1024).to_string());
    }
    Ok(())
}

fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// The group of a pod that has a class of its own.
fn group_of(node: &Node, uid: &str) -> Group {
    let root = node.containerd.cgroup_root();
    Group { v2: is_v2(), name: format!("{root}/kubepods/pod{uid}") }
}
