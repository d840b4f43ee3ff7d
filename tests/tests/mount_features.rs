//! How volumes are mounted into containers: read-only with what is mounted below them, on
//! a runtime that can and on one that cannot; and whose group their files are.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cri::v1;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};
use testkit::{Node, PodManifest, http};

/// A file system in memory, for as long as this lives.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn at(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        mount("tmpfs", dir, "tmpfs", MountFlags::empty(), None).context("cannot mount a tmpfs")?;
        Ok(Self(dir.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // What is left is taken away with the node.
        unmount(&self.0, UnmountFlags::DETACH).ok();
    }
}

/// Whether the runtime tells that it can mount recursively read-only.
fn is_able(node: &Node) -> Result<bool> {
    let told = node.cri().block_on(async |client| client.status().await)?;
    let default = |handler: &&v1::RuntimeHandler| handler.name.is_empty();
    let handler = told.runtime_handlers.iter().find(default);
    let features = handler.and_then(|handler| handler.features.as_ref());
    Ok(features.is_some_and(|features| features.recursive_read_only_mounts))
}

/// A pod that tries to write to what it mounts at /v, and to what is mounted below.
fn writer(name: &str, path: &Path, mode: Option<&str>) -> PodManifest {
    let script = "for at in /v /v/below; do touch $at/of-$NAME && echo wrote $at || \
                  echo cannot write $at; done; cat /v/below/word; exec sleep 1000";
    let mut mount = json!({"name": "v", "mountPath": "/v", "readOnly": true});
    if let Some(mode) = mode {
        mount["recursiveReadOnly"] = json!(mode);
    }
    PodManifest::script(name, script)
        .with("env", json!([{"name": "NAME", "value": name}]))
        .with("volumeMounts", json!([mount]))
        .spec("volumes", json!([{"name": "v", "hostPath": {"path": path, "type": "Directory"}}]))
}

/// What /pods tells of the mount at /v.
fn told_mode(node: &Node, name: &str) -> Result<Value> {
    let list: Value = serde_json::from_str(&http::get_ok(node.klet.read_only_port(), "/pods")?)?;
    let pods = list["items"].as_array().context("no pods")?;
    let full = format!("{name}-n1");
    let pod = pods.iter().find(|pod| pod["metadata"]["name"] == *full).context("no such pod")?;
    let mounts = &pod["status"]["containerStatuses"][0]["volumeMounts"];
    let mounts = mounts.as_array().with_context(|| format!("no mounts are told: {pod:#}"))?;
    let at_v = mounts.iter().find(|mount| mount["mountPath"] == "/v").context("no /v")?;
    assert_eq!(at_v["readOnly"], json!(true), "{at_v}");
    Ok(at_v["recursiveReadOnly"].clone())
}

fn wait_told(node: &Node, name: &str, mode: &str) -> Result<()> {
    node.eventually(&format!("{name} to be told as {mode}"), || {
        let told = told_mode(node, name)?;
        ensure!(told == mode, "it is {told}");
        Ok(())
    })
}

#[test]
fn what_is_mounted_below_a_read_only_volume() -> Result<()> {
    let mut node = Node::start()?;
    let able = is_able(&node)?;
    let case = if able { "can, and is held to it" } else { "cannot, and says so" };
    println!("recursiveReadOnly: this runtime {case}");
    let dir = node.containerd.dir().join("host");
    let below = Tmpfs::at(&dir.join("below"))?;
    fs::write(below.0.join("word"), "hello\n")?;
    let pods = [("plain", None), ("off", Some("Disabled")), ("maybe", Some("IfPossible"))];
    for (name, mode) in pods.into_iter().chain([("on", Some("Enabled"))]) {
        node.manifests.put_pod(&writer(name, &dir, mode))?;
    }
    let check = |name: &str, whole: bool| -> Result<()> {
        node.wait_word(name, "main", "hello")?;
        node.wait_word(name, "main", "cannot write /v")?;
        let said = if whole { "cannot write /v/below" } else { "wrote /v/below" };
        let log = node.wait_word(name, "main", said)?;
        let lines = log.lines()?;
        let refused = lines.iter().filter(|line| line.text.contains("Read-only file system"));
        assert_eq!(refused.count(), if whole { 2 } else { 1 }, "{name}: {lines:?}");
        assert_eq!(below.0.join(format!("of-{name}")).exists(), !whole, "{name}");
        wait_told(&node, name, if whole { "Enabled" } else { "Disabled" })
    };
    check("plain", false)?;
    check("off", false)?;
    check("maybe", able)?;
    if able {
        check("on", true)?;
    } else {
        let why = "failed to resolve recursive read-only mode: volume \"v\" requested recursive \
                   read-only mode, but it is not supported by the runtime";
        node.wait_pod("on", "to be refused", |pod| {
            pod.container("main").is_ok_and(|main| {
                main.reason == "CreateContainerConfigError" && main.message.contains(why)
            })
        })?;
        assert_eq!(node.in_runtime("on")?.1, vec![], "nothing is made");
    }

    // Another klet tells the same, and nothing is left.
    node.survive_kill()?;
    for (name, whole) in [("plain", false), ("off", false), ("maybe", able)] {
        wait_told(&node, name, if whole { "Enabled" } else { "Disabled" })?;
    }
    let uids = ["plain", "off", "maybe", "on"].map(|name| (name, node.pod(name)));
    node.klet.kill9()?;
    node.manifests.clear()?;
    node.klet.restart()?;
    for (name, pod) in uids {
        node.wait_no_trace(name, &pod?.uid)?;
    }
    assert_eq!(fs::read_to_string(below.0.join("word"))?, "hello\n", "it is the host's");
    Ok(())
}

/// A group that no pod has.
const STRANGER: u32 = 5555;

fn grouped(name: &str, policy: &str, group: u32) -> PodManifest {
    let context = json!({"fsGroup": group, "fsGroupChangePolicy": policy});
    PodManifest::script(name, "cat /data/deep/word; echo up; exec sleep 1000")
        .with("volumeMounts", json!([{"name": "d", "mountPath": "/data"}]))
        .spec("volumes", json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]))
        .spec("securityContext", context)
}

/// Runs a pod with the claim until it has gone again; tells whose the file was then, and
/// after klet was killed and had started again.
fn group_after(node: &mut Node, name: &str, policy: &str, group: u32, file: &Path) -> Result<u32> {
    chown(file, None, Some(STRANGER))?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    node.manifests.put_pod(&grouped(name, policy, group))?;
    node.wait_word(name, "main", "up")?;
    let uid = node.pod(name)?.uid;
    let meta = fs::metadata(file)?;
    let mode = if meta.gid() == group { 0o660 } else { 0o600 };
    assert_eq!(meta.mode() & 0o7777, mode, "{name}: the mode goes with the group");
    node.survive_kill()?;
    node.wait_says(&["volumes"], &[&format!("default/{name}-n1 d persistentVolumeClaim Ready ")])?;
    assert_eq!(fs::metadata(file)?.gid(), meta.gid(), "{name}: a new klet found it as it is");
    node.klet.kill9()?;
    node.manifests.remove_pod(name)?;
    node.klet.restart()?;
    node.wait_no_trace(name, &uid)?;
    Ok(meta.gid())
}

#[test]
fn files_change_groups_as_the_policy_says() -> Result<()> {
    let mut node = Node::start()?;
    let disk = node.containerd.dir().join("disk");
    let file = disk.join("deep/word");
    fs::create_dir_all(disk.join("deep"))?;
    fs::write(&file, "hello\n")?;
    node.manifests.put_claim("Filesystem", "local", json!({"path": disk}))?;
    let root = || anyhow::Ok((fs::metadata(&disk)?.gid(), fs::metadata(&disk)?.mode() & 0o7777));
    for (name, policy, group, wanted) in [
        // Nothing is the group's yet.
        ("first", "OnRootMismatch", 4321, 4321),
        // The root is: the file is nobody's business, unless it always is.
        ("matches", "OnRootMismatch", 4321, STRANGER),
        ("always", "Always", 4321, 4321),
        ("other", "OnRootMismatch", 1234, 1234),
        ("always-other", "Always", 4321, 4321),
    ] {
        assert_eq!(group_after(&mut node, name, policy, group, &file)?, wanted, "{name}");
        let (gid, mode) = root()?;
        assert_eq!(gid, group, "{name}: the root is the group's");
        ensure!(mode & 0o2770 == 0o2770, "{name}: the root's mode is {mode:o}");
    }
    Ok(())
}
