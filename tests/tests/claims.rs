//! Persistent volumes that lie on the node: claims, volumes and pods are manifests
//! beside each other, and data outlives all of them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::disk::LoopDevice;
use testkit::{Node, PodManifest};

fn claimant(name: &str, script: &str) -> PodManifest {
    PodManifest::script(name, &format!("{script}; exec sleep 1000"))
        .with("volumeMounts", json!([{"name": "d", "mountPath": "/data"}]))
        .spec("volumes", json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]))
        .grace(1)
}

fn disk(node: &Node) -> PathBuf {
    node.containerd.dir().join("disk")
}

/// Mounts that show this directory.
fn binds_of(dir: &Path) -> Result<usize> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    // Its path in its file system is the end of its path; other nodes have one of its name,
    // each in a file system of their own.
    let device = fs::metadata(dir)?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let name = dir.file_name().context("a directory has a name")?;
    let shows = |line: &&str| {
        let fields: Vec<&str> = line.split(' ').collect();
        fields[2] == device && Path::new(fields[3]).ends_with(name)
    };
    Ok(mounts.lines().filter(shows).count())
}

#[test]
fn pods_share_a_directory_of_the_node() -> Result<()> {
    let mut node = Node::start()?;
    let disk = disk(&node);
    node.manifests.put_claim("Filesystem", "local", json!({"path": disk}))?;
    let part = json!([{"name": "d", "mountPath": "/data"},
        {"name": "d", "mountPath": "/part", "subPath": "a/b"}]);
    let writer = claimant("writer", "echo hello >/data/word; echo x >/part/x")
        .with("volumeMounts", part)
        .spec("securityContext", json!({"fsGroup": 4321}));
    node.manifests.put_pod(&writer)?;
    let missing = format!("path \"{}\" does not exist", disk.display());
    node.wait_says(&["why", "writer"], &[&missing])?;
    fs::create_dir(&disk)?;
    let writer = node.wait_running("writer")?.uid;
    node.eventually("the writer to write to a part", || {
        Ok(fs::metadata(disk.join("a/b/x")).map(drop)?)
    })?;
    assert_eq!(fs::metadata(&disk)?.gid(), 4321, "it belongs to the pod's group");
    let dir = node.klet.root_dir().join("pods").join(&writer);
    assert!(dir.join("volumes/kubernetes.io~local-volume/pv/word").is_file());
    node.wait_says(&["volumes"], &["default/writer-n1 d persistentVolumeClaim Ready "])?;
    let text = node.klet_says(&["volumes"])?;
    ensure!(!text.contains("<none>"), "a file system tells how full it is: {text}");

    // Of another group, but the first one's it stays.
    let reader = claimant("reader", "cat /data/word; echo mine >/data/other")
        .spec("securityContext", json!({"fsGroup": 1234}));
    node.manifests.put_pod(&reader)?;
    node.wait_word("reader", "main", "hello")?;
    let reader = node.pod("reader")?.uid;
    assert_eq!(fs::metadata(&disk)?.gid(), 4321);
    node.manifests.remove_pod("writer")?;
    node.wait_no_trace("writer", &writer)?;
    assert_eq!(node.run_in("reader", "main", "cat /data/word")?.trim(), "hello");

    // Another klet finds the volume mounted, and what its owner allows as it was.
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o1777))?;
    node.klet.kill9()?;
    node.klet.restart()?;
    node.wait_says(&["volumes"], &["default/reader-n1 d persistentVolumeClaim Ready "])?;
    assert_eq!(fs::metadata(&disk)?.mode() & 0o7777, 0o1777);

    // The last pod goes while klet is away.
    node.klet.kill9()?;
    node.manifests.remove_pod("reader")?;
    node.klet.restart()?;
    node.wait_no_trace("reader", &reader)?;
    assert_eq!(fs::read_to_string(disk.join("word"))?, "hello\n");
    assert_eq!(fs::read_to_string(disk.join("other"))?, "mine\n");
    assert_eq!(binds_of(&disk)?, 0, "nothing shows it any more");
    Ok(())
}

/// As upstream: of the pod, in these words.
#[test]
fn a_claim_that_is_missing_is_told_of_the_pod() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&claimant("web", "echo up"))?;
    let missing = "Unable to attach or mount volumes: unmounted volumes=[d], unattached \
                   volumes=[], failed to process volumes=[d]: error processing PVC default/data: \
                   failed to fetch PVC: persistentvolumeclaim \"data\" not found";
    node.wait_says(&["events", "web"], &["FailedMount", missing])?;
    node.manifests.put_claim(
        "Filesystem",
        "hostPath",
        json!({"path": disk(&node), "type": "DirectoryOrCreate"}),
    )?;
    node.wait_word("web", "main", "up")?;
    Ok(())
}

#[test]
fn a_volume_that_is_only_read() -> Result<()> {
    let node = Node::start()?;
    let disk = disk(&node);
    fs::create_dir(&disk)?;
    fs::write(disk.join("word"), "hello\n")?;
    node.manifests.put_claim("Filesystem", "local", json!({"path": disk}))?;
    let claim = json!({"claimName": "data", "readOnly": true});
    let pod = claimant("reader", "cat /data/word; touch /data/x || echo cannot write")
        .spec("volumes", json!([{"name": "d", "persistentVolumeClaim": claim}]));
    node.manifests.put_pod(&pod)?;
    node.wait_word("reader", "main", "hello")?;
    node.wait_word("reader", "main", "cannot write")?;
    assert!(!disk.join("x").exists());
    Ok(())
}

#[test]
fn a_blank_disk_gets_a_file_system_and_keeps_it() -> Result<()> {
    let mut node = Node::start()?;
    let image = node.containerd.dir().join("disk.img");
    let device = LoopDevice::over(&image, b"", 32 << 20)?;
    node.manifests.put_claim("Filesystem", "local", json!({"path": device.path()}))?;
    node.manifests.put_pod(&claimant("writer", "echo hello >/data/word; sync; echo up"))?;
    node.wait_word("writer", "main", "up")?;
    let writer = node.pod("writer")?.uid;
    let mount = node.klet.root_dir().join("plugins/kubernetes.io/local-volume/mounts/pv");
    assert_eq!(fs::read_to_string(mount.join("word"))?, "hello\n");
    assert!(mount.join("lost+found").is_dir(), "it is ext4");
    node.manifests.put_pod(&claimant("reader", "cat /data/word"))?;
    node.wait_word("reader", "main", "hello")?;
    let reader = node.pod("reader")?.uid;
    node.manifests.remove_pod("writer")?;
    node.wait_no_trace("writer", &writer)?;
    assert_eq!(node.run_in("reader", "main", "cat /data/word")?.trim(), "hello");

    // The last pod goes while klet is away, and the next finds what is there.
    node.klet.kill9()?;
    node.manifests.remove_pod("reader")?;
    node.klet.restart()?;
    node.wait_no_trace("reader", &reader)?;
    assert!(!mount.exists(), "mounted for nobody");
    node.manifests.put_pod(&claimant("again", "cat /data/word"))?;
    node.wait_word("again", "main", "hello")?;
    let again = node.pod("again")?.uid;
    node.manifests.remove_pod("again")?;
    node.wait_no_trace("again", &again)
}

#[test]
fn a_disk_that_holds_anything_is_not_formatted() -> Result<()> {
    let node = Node::start()?;
    let image = node.containerd.dir().join("disk.img");
    let device = LoopDevice::over(&image, b"precious", 32 << 20)?;
    node.manifests.put_claim("Filesystem", "local", json!({"path": device.path()}))?;
    node.manifests.put_pod(&claimant("web", "echo up"))?;
    let why = format!(
        "will not use {}: it has no file system, and yet something is written on it",
        device.path().display()
    );
    node.wait_says(&["why", "web"], &[&why])?;
    let uid = node.pod("web")?.uid;
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)?;
    ensure!(fs::read(&image)?.starts_with(b"precious\0"), "it is as it was");
    Ok(())
}

#[test]
fn a_path_of_the_host_through_a_claim() -> Result<()> {
    let mut node = Node::start()?;
    let (disk, name) = (disk(&node), "host-path-claim");
    let at = disk.display().to_string();
    node.manifests.put_example(name, &[("/var/tmp/klet-example-claim", &at)])?;
    node.wait_word(name, "count", "1")?;
    let uid = node.wait_running(name)?.uid;
    let starts = || fs::read_to_string(disk.join("starts"));
    assert_eq!(starts()?.lines().count(), 1);
    assert_eq!(node.run_in(name, "count", "cat /data/starts")?, starts()?);

    node.survive_kill()?;
    node.run_in(name, "count", "echo later >>/data/starts")?;
    ensure!(starts()?.ends_with("\nlater\n"), "what is written is on the node's disk");
    // It goes while klet is away.
    node.klet.kill9()?;
    node.manifests.remove_example(name)?;
    node.klet.restart()?;
    node.wait_no_trace(name, &uid)?;
    assert_eq!(starts()?.lines().count(), 2, "data outlives the pod");
    assert_eq!(binds_of(&disk)?, 0, "nothing shows it any more");
    Ok(())
}

#[test]
fn the_example_runs() -> Result<()> {
    let mut node = Node::start()?;
    let (disk, name) = (disk(&node), "local-claim");
    fs::create_dir(&disk)?;
    node.manifests.put_example("local-claim", &[("/var/tmp", &disk.display().to_string())])?;
    node.wait_word(name, "count", "1")?;
    let starts = || fs::read_to_string(disk.join("klet-example"));
    node.outlive_examples(&[name], |node| {
        let seen = node.run_in(name, "count", "cat /disk/klet-example")?;
        ensure!(seen == starts()? && seen.lines().count() == 1, "it counts on the node's disk");
        ensure!(binds_of(&disk)? > 0, "it is shown");
        Ok(())
    })?;
    assert_eq!(starts()?.lines().count(), 1, "data outlives the pod");
    assert_eq!(binds_of(&disk)?, 0, "nothing shows it any more");
    Ok(())
}
