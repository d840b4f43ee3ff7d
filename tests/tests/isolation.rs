//! What pods share with each other and the host: namespaces and control groups.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
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
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
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
    if !v2 {
        assert_eq!(
            (shares(sure)?, shares(hopes)?, shares(begs)?),
            ("256".into(), "102".into(), "2".into())
        );
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
