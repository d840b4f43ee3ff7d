//! iscsi volumes of a real target, through the kernel's initiator and udev's links, in the
//! virtual machine of `make vm`. Fibre Channel cannot be had without its hardware.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::guest::Guest;
use testkit::iscsi_target::IscsiTarget;
use testkit::remote_volumes::{
    READ, WRITE, claim, ensure_nothing_left, kill_and_restart, look, pod,
};
use testkit::{Node, PodManifest};

const UNITS: u32 = 2;
/// xfs refuses less than 300 MB.
const SIZE: u64 = 320 << 20;
const PASSWORD: &str = "swordfish-in-the-sea";

fn secret(password: &str) -> String {
    let data = json!({"node.session.auth.username": "me", "node.session.auth.password": password});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "chap"},
        "type": "kubernetes.io/iscsi-chap", "stringData": data});
    secret.to_string()
}

fn unit(target: &IscsiTarget, lun: u32) -> Value {
    json!({"targetPortal": target.portal(), "iqn": target.iqn(), "lun": lun})
}

#[test]
fn pods_have_disks_of_a_real_target() -> Result<()> {
    let Some(guest) = Guest::here("pods_have_disks_of_a_real_target") else { return Ok(()) };
    let place = tempfile::tempdir()?;
    let dir = place.path().join("target");
    let Some(target) = IscsiTarget::start(&guest, &dir, UNITS, SIZE)? else { return Ok(()) };
    let mut node = Node::start()?;
    target.put_account("me", PASSWORD)?;
    let iscsi = |lun: u32| {
        let mut unit = unit(&target, lun);
        unit["chapAuthSession"] = json!(true);
        unit["secretRef"] = json!({"name": "chap"});
        unit
    };
    node.manifests.put("chap.json", secret("not-the-password"))?;
    node.manifests.put_claim("Filesystem", "iscsi", iscsi(1))?;
    node.manifests.put_pod(&pod("writer", WRITE, &claim()))?;
    node.wait_says(&["why", "writer"], &["failed to log in: iscsiadm:", "authorization failure"])?;
    node.manifests.put("chap.json", secret(PASSWORD))?;
    node.wait_word("writer", "main", "up")?;
    let writer = node.pod("writer")?.uid;
    let told = look(&node, "writer", "grep ' /data ' /proc/mounts")?;
    ensure!(told.contains(" ext4 ") && told.contains("-lun-1 "), "{told}");

    // Another unit of the target, named by a pod itself; and the first one again.
    let mut other = iscsi(2);
    other["fsType"] = json!("xfs");
    node.manifests.put_pod(&pod("other", WRITE, &json!({"iscsi": other})))?;
    node.wait_word("other", "main", "up")?;
    let told = look(&node, "other", "grep ' /data ' /proc/mounts")?;
    ensure!(told.contains(" xfs "), "{told}");
    let other = node.pod("other")?.uid;
    node.manifests.put_pod(&pod("reader", READ, &claim()))?;
    node.wait_word("reader", "main", "hello")?;
    let reader = node.pod("reader")?.uid;
    kill_and_restart(&mut node, "other", "iscsi")?;
    for (name, uid) in [("writer", &writer), ("reader", &reader)] {
        node.manifests.remove_pod(name)?;
        node.wait_no_trace(name, uid)?;
    }
    ensure!(!target.left()?.is_empty(), "the session is the other pod's");
    assert_eq!(look(&node, "other", READ)?.trim(), "hello");

    // The last pod goes while klet is away.
    node.klet.kill9()?;
    node.manifests.remove_pod("other")?;
    node.klet.restart()?;
    node.wait_no_trace("other", &other)?;
    node.eventually("the session to end", || target.ensure_nothing_left())?;
    ensure_nothing_left(&node, "iscsi")?;
    let log = fs::read_to_string(node.klet.log_path())?;
    ensure!(!log.contains(PASSWORD), "the password is nobody's business");

    // And the disk can be had again, with what was on it.
    node.manifests.put_pod(&pod("again", READ, &claim()))?;
    node.wait_word("again", "main", "hello")?;
    let again = node.pod("again")?.uid;
    node.manifests.remove_pod("again")?;
    node.wait_no_trace("again", &again)?;
    node.eventually("the session to end", || target.ensure_nothing_left())?;
    ensure_nothing_left(&node, "iscsi")
}

#[test]
fn a_pod_has_a_real_disk_as_what_it_is() -> Result<()> {
    let Some(guest) = Guest::here("a_pod_has_a_real_disk_as_what_it_is") else { return Ok(()) };
    let place = tempfile::tempdir()?;
    let dir = place.path().join("target");
    let Some(target) = IscsiTarget::start(&guest, &dir, 1, SIZE)? else { return Ok(()) };
    let mut node = Node::start()?;
    node.manifests.put_claim("Block", "iscsi", unit(&target, 1))?;
    let script = "[ -b /dev/disk ] && printf hello | dd of=/dev/disk conv=fsync; echo written; \
                  exec sleep 1000";
    let raw = PodManifest::script("raw", script)
        .with("volumeDevices", json!([{"name": "d", "devicePath": "/dev/disk"}]))
        .spec("volumes", json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]))
        .grace(1);
    node.manifests.put_pod(&raw)?;
    node.wait_word("raw", "main", "written")?;
    ensure!(fs::read(Path::new(&dir).join("unit-1.img"))?.starts_with(b"hello"), "it is there");
    let uid = node.pod("raw")?.uid;
    kill_and_restart(&mut node, "raw", "persistentVolumeClaim")?;
    assert_eq!(look(&node, "raw", "head -c 5 /dev/disk")?, "hello");
    node.klet.kill9()?;
    node.manifests.remove_pod("raw")?;
    node.klet.restart()?;
    node.wait_no_trace("raw", &uid)?;
    node.eventually("the session to end", || target.ensure_nothing_left())?;
    ensure_nothing_left(&node, "iscsi")
}
