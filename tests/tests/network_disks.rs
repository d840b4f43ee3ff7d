//! Volumes on other machines: nfs, iscsi and fc, in pods and through claims. The kernel
//! here knows none of them; stand-ins for the host's tools bind directories and show loop
//! devices instead. real_nfs.rs and real_iscsi.rs have real ones, in a virtual machine.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use testkit::controllers::{bind, claimant, set_attached, wait_event, wait_in_use};
use testkit::disk::LoopDevice;
use testkit::network_disks::{FcLink, NetworkDisks};
use testkit::remote_volumes::{READ, WRITE, claim, ensure_nothing_left, kill_and_restart, pod};
use testkit::{ApiOptions, Cluster, Node, NodeOptions, PodManifest, http};

/// A node whose tools are stand-ins.
fn node() -> Result<(Node, NetworkDisks)> {
    let options = NodeOptions { klet_absent: true, ..NodeOptions::default() };
    let mut node = Node::start_with(options)?;
    let disks = NetworkDisks::new(&node.containerd.dir().join("network"))?;
    node.klet.put_first_in_path(&disks.tools());
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    Ok((node, disks))
}

fn loop_device(node: &Node, name: &str) -> Result<LoopDevice> {
    LoopDevice::over(&node.containerd.dir().join(name), b"", 32 << 20)
}

/// A pod that has the claim as /dev/disk.
fn device_pod(name: &str, script: &str) -> PodManifest {
    PodManifest::script(name, &format!("{script}; exec sleep 1000"))
        .with("volumeDevices", json!([{"name": "d", "devicePath": "/dev/disk"}]))
        .spec("volumes", json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]))
        .grace(1)
}

const WRITE_DEVICE: &str =
    "[ -b /dev/disk ] && printf hello | dd of=/dev/disk conv=fsync; echo written";

/// Bytes that a pod's volume could hold, and those that it holds, as statistics tell.
fn figures(node: &Node, pod: &str) -> Result<(u64, u64)> {
    let summary = http::get_ok(node.klet.read_only_port(), "/stats/summary")?;
    let summary: Value = serde_json::from_str(&summary)?;
    let mut pods = summary["pods"].as_array().into_iter().flatten();
    let pod = pods.find(|one| one["podRef"]["name"] == pod).context("no such pod")?;
    let mut all = pod["volume"].as_array().into_iter().flatten();
    let found = all.find(|one| one["name"] == "d").with_context(|| format!("{pod:#}"))?;
    let of = |name: &str| found[name].as_u64().with_context(|| format!("{name}: {found:#}"));
    Ok((of("capacityBytes")?, of("usedBytes")?))
}

#[test]
fn pods_share_what_a_server_exports() -> Result<()> {
    let (mut node, disks) = node()?;
    let export = disks.export("/exports/data");
    let nfs = json!({"nfs": {"server": "fd00::1", "path": "/exports/data"}});
    let writer = pod("writer", WRITE, &nfs).spec("securityContext", json!({"fsGroup": 4321}));
    node.manifests.put_pod(&writer)?;
    let denied = "MountVolume.SetUp failed for volume \"d\" : cannot mount \
                  [fd00::1]:/exports/data on ";
    let said = "mount.nfs: access denied by server while mounting [fd00::1]:/exports/data";
    node.wait_says(&["why", "writer"], &[denied, said])?;
    fs::create_dir_all(&export)?;
    let owner = fs::metadata(&export)?.gid();
    node.wait_word("writer", "main", "up")?;
    let writer = node.pod("writer")?.uid;
    assert_eq!(fs::read_to_string(export.join("word"))?, "hello\n");
    assert_eq!(fs::metadata(&export)?.gid(), owner, "it is the server's");
    let dir = node.klet.root_dir().join("pods").join(&writer);
    assert!(dir.join("volumes/kubernetes.io~nfs/d/word").is_file());
    node.wait_says(&["volumes"], &["default/writer-n1 d nfs Ready "])?;

    // Through a claim, with options, and only to read.
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
         "spec": {"accessModes": ["ReadWriteMany"], "mountOptions": ["nfsvers=4.1", "hard"],
            "nfs": {"server": "files", "path": "/exports/data"}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
         "spec": {"accessModes": ["ReadWriteMany"], "volumeName": "pv"}},
    ]});
    node.manifests.put("claim.json", list.to_string())?;
    let read = "cat /data/word; touch /data/x || echo cannot write";
    let mut read_only = claim();
    read_only["persistentVolumeClaim"]["readOnly"] = json!(true);
    node.manifests.put_pod(&pod("reader", read, &read_only))?;
    node.wait_word("reader", "main", "hello")?;
    node.wait_word("reader", "main", "cannot write")?;
    let reader = node.pod("reader")?.uid;
    let asked = disks.mounted()?;
    let by_claim = format!(
        "-t nfs -o hard,nfsvers=4.1,ro files:/exports/data {}/pods/{reader}/volumes/\
         kubernetes.io~nfs/pv",
        node.klet.root_dir().display()
    );
    ensure!(asked.contains(&by_claim), "{by_claim:?} is not in {asked}");
    let text = node.klet_says(&["volumes"])?;
    ensure!(!text.contains("<none>"), "a server tells how full it is: {text}");
    let room = rustix::fs::statvfs(&export)?;
    for name in ["writer-n1", "reader-n1"] {
        node.eventually("the figures to be the server's", || {
            let (capacity, used) = figures(&node, name)?;
            ensure!(capacity == room.f_blocks * room.f_frsize, "{capacity}");
            ensure!(used > 0 && used < capacity, "{used} of {capacity}");
            Ok(())
        })?;
    }

    kill_and_restart(&mut node, "writer", "nfs")?;
    ensure!(disks.mounted()? == asked, "nothing is mounted twice");
    node.manifests.remove_pod("writer")?;
    node.wait_no_trace("writer", &writer)?;
    assert_eq!(node.run_in("reader", "main", READ)?.trim(), "hello");

    // The last pod goes while klet is away.
    node.klet.kill9()?;
    node.manifests.remove_pod("reader")?;
    node.klet.restart()?;
    node.wait_no_trace("reader", &reader)?;
    assert_eq!(fs::read_to_string(export.join("word"))?, "hello\n", "data outlives the pods");
    Ok(())
}

#[test]
fn a_share_for_one_pod_is_given_to_one() -> Result<()> {
    let (node, disks) = node()?;
    fs::create_dir_all(disks.export("/exports/data"))?;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
         "spec": {"accessModes": ["ReadWriteOncePod"],
            "nfs": {"server": "files", "path": "/exports/data"}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
         "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "pv"}},
    ]});
    node.manifests.put("claim.json", list.to_string())?;
    node.manifests.put_pod(&pod("one", WRITE, &claim()))?;
    node.wait_word("one", "main", "up")?;
    node.manifests.put_pod(&pod("two", READ, &claim()))?;
    let taken = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    node.wait_says(&["why", "two"], &[taken])?;
    node.manifests.remove_pod("one")?;
    node.wait_word("two", "main", "hello")?;
    Ok(())
}

#[test]
fn pods_share_a_disk_of_a_fibre_channel() -> Result<()> {
    let (mut node, _disks) = node()?;
    let device = loop_device(&node, "fc.img")?;
    let link = FcLink::to(device.path())?;
    let global = node.klet.root_dir().join("plugins/kubernetes.io/fc");
    let global = global.join(format!("{}-lun-0", link.wwn()));
    let fc = json!({"targetWWNs": [link.wwn()], "lun": 0});
    node.manifests.put_claim("Filesystem", "fc", json!({"targetWWNs": [link.wwn()], "lun": 9}))?;
    let writer = pod("writer", WRITE, &claim()).spec("securityContext", json!({"fsGroup": 4321}));
    node.manifests.put_pod(&writer)?;
    let none = "MountVolume.WaitForAttach failed for volume \"pv\" : cannot attach FC disk ";
    node.wait_says(&["why", "writer"], &[none, "no fc disk found"])?;
    node.manifests.put_claim("Filesystem", "fc", fc.clone())?;
    node.wait_word("writer", "main", "up")?;
    let writer = node.pod("writer")?.uid;
    assert_eq!(fs::read_to_string(global.join("word"))?, "hello\n");
    assert_eq!(fs::metadata(&global)?.gid(), 4321, "it belongs to the pod's group");

    // The same disk, named by a pod itself.
    node.manifests.put_pod(&pod("reader", READ, &json!({"fc": fc})))?;
    node.wait_word("reader", "main", "hello")?;
    let reader = node.pod("reader")?.uid;
    kill_and_restart(&mut node, "reader", "fc")?;
    node.manifests.remove_pod("writer")?;
    node.wait_no_trace("writer", &writer)?;
    assert_eq!(node.run_in("reader", "main", READ)?.trim(), "hello");

    // The last pod goes while klet is away.
    node.klet.kill9()?;
    node.manifests.remove_pod("reader")?;
    node.klet.restart()?;
    node.wait_no_trace("reader", &reader)?;
    ensure_nothing_left(&node, "fc")?;

    // And the disk can be had again.
    node.manifests.put_pod(&pod("again", READ, &claim()))?;
    node.wait_word("again", "main", "hello")?;
    let again = node.pod("again")?.uid;
    node.manifests.remove_pod("again")?;
    node.wait_no_trace("again", &again)?;
    ensure_nothing_left(&node, "fc")
}

#[test]
fn pods_share_disks_of_an_iscsi_target() -> Result<()> {
    let (mut node, disks) = node()?;
    let (first, second) = (loop_device(&node, "a.img")?, loop_device(&node, "b.img")?);
    disks.put_unit(0, first.path())?;
    disks.put_unit(1, second.path())?;
    disks.put_password("swordfish")?;
    let iscsi = |lun: u32| {
        json!({"targetPortal": "192.0.2.1", "iqn": disks.iqn(), "lun": lun,
            "chapAuthSession": true, "secretRef": {"name": "chap"}})
    };
    node.manifests.put_claim("Filesystem", "iscsi", iscsi(0))?;
    node.manifests.put_pod(&pod("writer", WRITE, &claim()))?;
    let missing = "MountVolume.WaitForAttach failed for volume \"pv\" : couldn't get secret \
                   default/chap error: secret \"chap\" not found";
    node.wait_says(&["why", "writer"], &[missing])?;
    let secret = |password: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "chap"},
            "type": "kubernetes.io/iscsi-chap", "stringData":
            {"node.session.auth.username": "me", "node.session.auth.password": password}})
    };
    node.manifests.put("chap.json", secret("wrong").to_string())?;
    let refused = "failed to log in: iscsiadm: Login failed to authenticate with target";
    node.wait_says(&["why", "writer"], &[refused])?;
    node.manifests.put("chap.json", secret("swordfish").to_string())?;
    node.wait_word("writer", "main", "up")?;
    let writer = node.pod("writer")?.uid;
    let global = node.klet.root_dir().join("plugins/kubernetes.io/iscsi/iface-default");
    let unit = global.join(format!("192.0.2.1:3260-{}-lun-0", disks.iqn()));
    assert_eq!(fs::read_to_string(unit.join("word"))?, "hello\n");

    // Another unit of the target, named by a pod itself; and the first one again.
    node.manifests.put_pod(&pod("other", WRITE, &json!({"iscsi": iscsi(1)})))?;
    node.wait_word("other", "main", "up")?;
    let other = node.pod("other")?.uid;
    node.manifests.put_pod(&pod("reader", READ, &claim()))?;
    node.wait_word("reader", "main", "hello")?;
    let reader = node.pod("reader")?.uid;
    kill_and_restart(&mut node, "other", "iscsi")?;
    node.manifests.remove_pod("writer")?;
    node.wait_no_trace("writer", &writer)?;
    assert_eq!(node.run_in("reader", "main", READ)?.trim(), "hello");
    node.manifests.remove_pod("reader")?;
    node.wait_no_trace("reader", &reader)?;
    ensure!(!unit.exists(), "the first unit is nobody's");
    ensure!(!disks.left()?.is_empty(), "the session is the other pod's");
    assert_eq!(node.run_in("other", "main", READ)?.trim(), "hello");

    // The last pod goes while klet is away.
    node.klet.kill9()?;
    node.manifests.remove_pod("other")?;
    node.klet.restart()?;
    node.wait_no_trace("other", &other)?;
    assert_eq!(disks.left()?, Vec::<PathBuf>::new(), "no session, record or link");
    ensure_nothing_left(&node, "iscsi")?;
    let log = fs::read_to_string(node.klet.log_path())?;
    ensure!(!log.contains("swordfish"), "the password is nobody's business");
    Ok(())
}

/// The test is the controller that says whose turn a disk has.
#[test]
fn a_disk_of_a_cluster_waits_for_its_turn_and_is_in_use_until_it_is_let_go() -> Result<()> {
    let mut cluster = Cluster::prepare(ApiOptions::default(), Value::Null, false)?;
    let disks = NetworkDisks::new(&cluster.node.containerd.dir().join("network"))?;
    cluster.node.klet.put_first_in_path(&disks.tools());
    cluster.node.klet.launch()?;
    cluster.node.klet.wait_healthy()?;
    let device = loop_device(&cluster.node, "a.img")?;
    disks.put_unit(2, device.path())?;
    // Nobody can log in before the test lets them.
    disks.put_password("not yet")?;
    let iscsi = json!({"targetPortal": "192.0.2.1", "iqn": disks.iqn(), "lun": 2});
    bind(&cluster, "data", "pv-1", "", json!({"csi": null, "iscsi": iscsi}))?;
    let uid = cluster.create_pod(&claimant("web", claim()))?;
    let name = format!("kubernetes.io/iscsi/192.0.2.1:{}:2", disks.iqn());
    wait_in_use(&cluster, &[&name])?;
    cluster.node.wait_says(
        &["why", "web"],
        &["VerifyControllerAttachedVolume", "is not yet in node's status"],
    )?;
    ensure!(disks.asked().is_err(), "nobody reaches for a disk that is not attached");
    set_attached(&cluster, json!([{"name": name, "devicePath": ""}]))?;
    wait_event(&cluster, "FailedMount", "failed to log in: iscsiadm: Login failed")?;

    // Killed between attached and mounted: the next life goes on where it was.
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    wait_in_use(&cluster, &[&name])?;
    disks.put_password("")?;
    cluster.wait_ready("web")?;
    let word = cluster.node.run_in("web", "main", "cat /data/word")?;
    ensure!(!word.is_empty(), "it is what the pod wrote");
    cluster.node.survive_kill()?;
    wait_in_use(&cluster, &[&name])?;
    assert_eq!(cluster.node.run_in("web", "main", "cat /data/word")?, word);

    // It goes while klet is away, and is in use until the disk is let go.
    cluster.node.klet.kill9()?;
    cluster.delete_pod("web", None)?;
    cluster.node.klet.restart()?;
    cluster.wait_no_trace("web", &uid)?;
    wait_in_use(&cluster, &[])?;
    assert_eq!(disks.left()?, Vec::<PathBuf>::new(), "no session, record or link");
    ensure_nothing_left(&cluster.node, "iscsi")
}

#[test]
fn disks_are_given_as_what_they_are() -> Result<()> {
    let (mut node, disks) = node()?;
    let device = loop_device(&node, "disk.img")?;
    let link = FcLink::to(device.path())?;
    disks.put_unit(3, device.path())?;
    let fc = json!({"targetWWNs": [link.wwn()], "lun": 0});
    let iscsi = json!({"targetPortal": "192.0.2.1", "iqn": disks.iqn(), "lun": 3});
    for (kind, source) in [("fc", fc), ("iscsi", iscsi)] {
        node.manifests.put_claim("Block", kind, source)?;
        node.manifests.put_pod(&device_pod("writer", WRITE_DEVICE))?;
        node.wait_word("writer", "main", "written")?;
        let writer = node.pod("writer")?.uid;
        node.manifests.put_pod(&device_pod("reader", "head -c 5 /dev/disk; echo"))?;
        node.wait_word("reader", "main", "hello")?;
        let reader = node.pod("reader")?.uid;
        kill_and_restart(&mut node, "reader", "persistentVolumeClaim")?;
        node.manifests.remove_pod("writer")?;
        node.wait_no_trace("writer", &writer)?;
        assert_eq!(node.run_in("reader", "main", "head -c 5 /dev/disk")?.trim(), "hello");
        node.klet.kill9()?;
        node.manifests.remove_pod("reader")?;
        node.klet.restart()?;
        node.wait_no_trace("reader", &reader)?;
        ensure_nothing_left(&node, kind)?;
    }
    assert_eq!(disks.left()?, Vec::<PathBuf>::new(), "no session, record or link");
    Ok(())
}

/// As a volume group or a RAID of the host has it: what they write would be lost.
#[test]
fn a_disk_that_somebody_else_has_is_not_let_go() -> Result<()> {
    let (mut node, disks) = node()?;
    let device = loop_device(&node, "a.img")?;
    disks.put_unit(0, device.path())?;
    let iscsi = json!({"targetPortal": "192.0.2.1", "iqn": disks.iqn(), "lun": 0});
    node.manifests.put_claim("Block", "iscsi", iscsi)?;
    node.manifests.put_pod(&device_pod("web", WRITE_DEVICE))?;
    node.wait_word("web", "main", "written")?;
    let uid = node.pod("web")?.uid;
    let alone = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let held = rustix::fs::open(device.path(), alone, Mode::empty())?;
    // Without its notes, too, it is found again after a failure.
    node.klet.kill9()?;
    fs::remove_dir_all(node.klet.root_dir().join("pods").join(&uid).join("plugins"))?;
    node.manifests.remove_pod("web")?;
    node.klet.restart()?;
    let shown = device.path().display();
    let why = format!("the device {shown} is in use when it was no longer expected to be in use");
    node.wait_klet_logs(&why)?;
    ensure!(!disks.left()?.is_empty(), "the session is there");
    drop(held);
    node.wait_no_trace("web", &uid)?;
    assert_eq!(disks.left()?, Vec::<PathBuf>::new(), "no session, record or link");
    ensure_nothing_left(&node, "iscsi")
}

/// As another agent leaves them: without a note of which disk it is.
#[test]
fn what_an_upstream_kubelet_left_is_undone() -> Result<()> {
    let (mut node, disks) = node()?;
    let device = loop_device(&node, "a.img")?;
    disks.put_unit(0, device.path())?;
    let iscsi = json!({"targetPortal": "192.0.2.1", "iqn": disks.iqn(), "lun": 0});
    node.manifests.put_pod(&pod("web", WRITE, &json!({"iscsi": iscsi})))?;
    node.wait_word("web", "main", "up")?;
    let uid = node.pod("web")?.uid;
    node.klet.kill9()?;
    let dir = node.klet.root_dir().join("pods").join(&uid);
    fs::remove_dir_all(dir.join("plugins"))?;
    node.manifests.remove_pod("web")?;
    node.klet.restart()?;
    node.wait_no_trace("web", &uid)?;
    assert_eq!(disks.left()?, Vec::<PathBuf>::new(), "no session, record or link");
    ensure_nothing_left(&node, "iscsi")
}

/// The examples, with devices of this test in place of what they name.
#[test]
fn the_examples_run() -> Result<()> {
    let (mut node, disks) = node()?;
    let put = |name: &str, changes: &[(&str, &str)]| node.manifests.put_example(name, changes);
    let images = ["a.img", "b.img", "c.img", "d.img"].map(|name| loop_device(&node, name));
    let [far, fibre, disk, block] = images;
    let (far, fibre, disk, block) = (far?, fibre?, disk?, block?);
    disks.put_unit(0, far.path())?;
    disks.put_password("change-me-too")?;
    // A target without a password.
    let open = NetworkDisks::new(&node.containerd.dir().join("network"))?;
    let far_block = loop_device(&node, "e.img")?;
    open.put_unit(1, far_block.path())?;
    let link = FcLink::to(fibre.path())?;
    fs::create_dir_all(disks.export("/exports/data"))?;
    let text = |path: &Path| path.display().to_string();
    put("nfs", &[])?;
    put("iscsi", &[("iqn.2003-01.com.example:disk", disks.iqn())])?;
    put("iscsi-block", &[("iqn.2003-01.com.example:block", open.iqn())])?;
    put("fc", &[("500a0982991b8dc5", link.wwn())])?;
    put("local-disk", &[("/dev/sdx", &text(disk.path()))])?;
    put("block-device", &[("/dev/sdx", &text(block.path()))])?;
    for name in ["nfs", "iscsi", "fc", "local-disk"] {
        node.wait_word(name, "count", "1")?;
    }
    for (name, device) in [("block-device", &block), ("iscsi-block", &far_block)] {
        node.wait_word(name, "write", "hello")?;
        ensure!(fs::read(device.path())?.starts_with(b"hello"), "{name} is on the device");
    }
    let names = ["nfs", "iscsi", "iscsi-block", "fc", "local-disk", "block-device"];
    node.outlive_examples(&names, |node| {
        for name in ["nfs", "iscsi", "fc", "local-disk"] {
            let kept = node.run_in(name, "count", "cat /data/klet-example")?;
            assert_eq!(kept.lines().count(), 1, "{name}");
        }
        for name in ["block-device", "iscsi-block"] {
            assert_eq!(node.run_in(name, "write", "head -c 5 /dev/disk")?, "hello", "{name}");
        }
        Ok(())
    })?;
    for disks in [&disks, &open] {
        assert_eq!(disks.left()?, Vec::<PathBuf>::new(), "no session, record or link");
    }
    let kept = fs::read_to_string(disks.export("/exports/data").join("klet-example"))?;
    assert_eq!(kept.lines().count(), 1, "data outlives the pods");
    ensure!(fs::read(block.path())?.starts_with(b"hello"), "on the device, too");
    Ok(())
}
