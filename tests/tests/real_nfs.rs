//! nfs volumes of a real server: the kernel's own, in the virtual machine of `make vm`.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::Node;
use testkit::guest::Guest;
use testkit::nfs_server::NfsServer;
use testkit::remote_volumes::{
    READ, WRITE, claim, ensure_nothing_left, kill_and_restart, look, pod,
};

/// klet leaves a server that has not answered for a minute.
const LEAVE_LIMIT: Duration = Duration::from_secs(420);

#[test]
fn pods_share_what_a_real_server_exports() -> Result<()> {
    let Some(guest) = Guest::here("pods_share_what_a_real_server_exports") else { return Ok(()) };
    let place = tempfile::tempdir()?;
    let root = place.path().join("export");
    let Some(server) = NfsServer::start(&guest, &root)? else { return Ok(()) };
    let mut node = Node::start()?;
    fs::create_dir(server.root().join("data"))?;
    let nfs = json!({"nfs": {"server": server.address(), "path": "/data"}});
    node.manifests.put_pod(&pod("writer", WRITE, &nfs))?;
    node.wait_word("writer", "main", "up")?;
    let writer = node.pod("writer")?.uid;
    assert_eq!(fs::read_to_string(server.root().join("data/word"))?, "hello\n");
    let told = look(&node, "writer", "grep ' /data ' /proc/mounts")?;
    ensure!(told.contains(" nfs4 ") && told.contains("127.0.0.1:/data"), "{told}");

    // Through a claim, with options, and only to read.
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
         "spec": {"accessModes": ["ReadWriteMany"], "mountOptions": ["nfsvers=4.1", "hard"],
            "nfs": {"server": server.address(), "path": "/data", "readOnly": true}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
         "spec": {"accessModes": ["ReadWriteMany"], "volumeName": "pv"}},
    ]});
    node.manifests.put("claim.json", list.to_string())?;
    let read = "cat /data/word; touch /data/x || echo cannot write; grep ' /data ' /proc/mounts";
    node.manifests.put_pod(&pod("reader", read, &claim()))?;
    let said = node.wait_word("reader", "main", "cannot write")?;
    said.time_of("hello")?;
    let reader = node.pod("reader")?.uid;
    let told = look(&node, "reader", "grep ' /data ' /proc/mounts")?;
    ensure!(told.contains("vers=4.1") && told.contains(",hard,"), "{told}");
    let text = node.klet_says(&["volumes"])?;
    ensure!(!text.contains("<none>"), "a server tells how full it is: {text}");

    kill_and_restart(&mut node, "writer", "nfs")?;
    node.manifests.remove_pod("writer")?;
    node.wait_no_trace("writer", &writer)?;
    assert_eq!(look(&node, "reader", READ)?.trim(), "hello");

    // The last pod goes while klet is away.
    node.klet.kill9()?;
    node.manifests.remove_pod("reader")?;
    node.klet.restart()?;
    node.wait_no_trace("reader", &reader)?;
    ensure_nothing_left(&node, "nfs")?;
    assert_eq!(fs::read_to_string(server.root().join("data/word"))?, "hello\n", "it is kept");
    Ok(())
}

/// One pod sleeps, the other waits for the server in the middle of a write.
#[test]
fn pods_go_while_their_server_is_silent() -> Result<()> {
    let Some(guest) = Guest::here("pods_go_while_their_server_is_silent") else { return Ok(()) };
    let place = tempfile::tempdir()?;
    let root = place.path().join("export");
    let Some(server) = NfsServer::start(&guest, &root)? else { return Ok(()) };
    let mut node = Node::start()?;
    let nfs = json!({"nfs": {"server": server.address(), "path": "/"}});
    node.manifests.put_pod(&pod("idle", WRITE, &nfs))?;
    let busy = "echo up; while :; do date >/data/busy; sync; done";
    node.manifests.put_pod(&pod("busy", busy, &nfs))?;
    let mut uids = Vec::new();
    for name in ["idle", "busy"] {
        node.wait_word(name, "main", "up")?;
        uids.push((name, node.pod(name)?.uid));
    }
    node.eventually("the write", || Ok(fs::metadata(server.root().join("busy")).map(drop)?))?;
    server.fall_silent()?;

    // Killed in between, it finds mounts of a server that says nothing.
    node.klet.kill9()?;
    node.klet.restart()?;
    for (name, _) in &uids {
        node.manifests.remove_pod(name)?;
    }
    for (name, uid) in &uids {
        node.within(LEAVE_LIMIT, &format!("{name} to go"), || node.wait_no_trace(name, uid))?;
    }
    server.answer()?;
    assert_eq!(fs::read_to_string(server.root().join("word"))?, "hello\n", "it is kept");

    // And the next pod has the export again.
    node.manifests.put_pod(&pod("next", READ, &nfs))?;
    node.wait_word("next", "main", "hello")?;
    let next = node.pod("next")?.uid;
    node.manifests.remove_pod("next")?;
    node.wait_no_trace("next", &next)
}
