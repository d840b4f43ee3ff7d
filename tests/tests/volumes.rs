//! Volumes: empty directories, in and out.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::{Value, json};
use testkit::{Node, PodManifest, host};

fn mounts(list: &[(&str, &str)]) -> Value {
    list.iter().map(|(name, path)| json!({"name": name, "mountPath": path})).collect()
}

fn pod_dir(node: &Node, uid: &str) -> PathBuf {
    node.klet.root_dir().join("pods").join(uid)
}

/// The first line of a container that has these words in it.
fn wait_line(node: &Node, name: &str, container: &str, words: &str) -> Result<String> {
    node.eventually(&format!("{container} of {name} to say {words:?}"), || {
        let said = node.log(name, container, 0)?.lines()?;
        let line = said.iter().find(|line| line.text.contains(words));
        Ok(line.with_context(|| format!("it said {} lines", said.len()))?.text.clone())
    })
}

#[test]
fn containers_share_empty_directories() -> Result<()> {
    let node = Node::start()?;
    let read = "until [ -e /all/logs/web/word ]; do sleep 0.1; done; cat /all/logs/web/word; \
                echo mode $(stat -c %a /all); grep ' /mem ' /proc/mounts; exec sleep 1000";
    let pod = PodManifest::new("web")
        .init("first", "echo early >/all/early")
        .with("volumeMounts", mounts(&[("disk", "/all")]))
        .container("writer", "cat /early; echo hello >/part/word; exec sleep 1000")
        .with("env", json!([{"name": "WHO", "value": "web"}]))
        .with(
            "volumeMounts",
            json!([
                {"name": "disk", "mountPath": "/part", "subPathExpr": "logs/$(WHO)"},
                {"name": "disk", "mountPath": "/early", "subPath": "early", "readOnly": true},
            ]),
        )
        .container("reader", read)
        .with("volumeMounts", mounts(&[("disk", "/all"), ("mem", "/mem")]))
        .spec(
            "volumes",
            json!([
                {"name": "disk", "emptyDir": {}},
                {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "3Mi"}},
                {"name": "unused", "hostPath": {"path": "/nowhere", "type": "Directory"}},
            ]),
        );
    node.manifests.put_pod(&pod)?;
    let view = node.wait_running("web")?;
    node.wait_word("web", "writer", "early")?;
    node.wait_word("web", "reader", "hello")?;
    node.wait_word("web", "reader", "mode 777")?;
    let line = wait_line(&node, "web", "reader", "/mem tmpfs")?;
    assert!(line.contains("size=3072k"), "{line}");
    let refused = node.run_in("web", "writer", "echo x >/early || echo read-only")?;
    assert!(refused.contains("read-only"), "{refused}");

    let dir = pod_dir(&node, &view.uid);
    let disk = dir.join("volumes/kubernetes.io~empty-dir/disk");
    assert_eq!(fs::metadata(&disk)?.permissions().mode() & 0o7777, 0o777);
    assert_eq!(fs::read_to_string(disk.join("logs/web/word"))?, "hello\n");
    assert!(dir.join("plugins/kubernetes.io~empty-dir/disk/ready").exists());
    assert!(host::mounts_below(&dir)?.len() >= 3, "memory, and two parts");

    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &view.uid)
}

#[test]
fn an_empty_directory_belongs_to_the_pods_group() -> Result<()> {
    let node = Node::start()?;
    let script = "echo x >/data/file; echo owner $(stat -c '%g %a' /data) $(stat -c %g /data/file)";
    let pod = PodManifest::script("grouped", &format!("{script}; exec sleep 1000"))
        .with("volumeMounts", mounts(&[("data", "/data")]))
        .spec("securityContext", json!({"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 4321}))
        .spec("volumes", json!([{"name": "data", "emptyDir": {"medium": "Memory"}}]));
    node.manifests.put_pod(&pod)?;
    assert_eq!(wait_line(&node, "grouped", "main", "owner")?, "owner 4321 3777 4321");
    Ok(())
}

#[test]
fn data_outlives_containers_and_klet_but_not_the_pod() -> Result<()> {
    let mut node = Node::start()?;
    let script = "echo life >>/data/lives; wc -l </data/lives; sleep 2; exit 1";
    let pod = |name: &str, medium: &str| {
        PodManifest::script(name, script)
            .with("volumeMounts", mounts(&[("data", "/data")]))
            .spec("volumes", json!([{"name": "data", "emptyDir": {"medium": medium}}]))
    };
    node.manifests.put_pod(&pod("disk", ""))?;
    node.manifests.put_pod(&pod("memory", "Memory"))?;
    let uids = [node.wait_running("disk")?.uid, node.wait_running("memory")?.uid];
    node.klet.kill9()?;
    node.klet.restart()?;
    for name in ["disk", "memory"] {
        node.eventually(&format!("{name} to find its data again"), || {
            let said = node.log(name, "main", 1)?.lines()?;
            ensure!(said.first().is_some_and(|line| line.text == "2"), "it said {said:?}");
            Ok(())
        })?;
    }
    // Gone while klet is away: nobody tells it how the pods were.
    node.klet.kill9()?;
    node.manifests.clear()?;
    node.klet.restart()?;
    node.wait_no_trace("disk", &uids[0])?;
    node.wait_no_trace("memory", &uids[1])
}

#[test]
fn a_pod_that_ended_keeps_no_mount() -> Result<()> {
    let node = Node::start()?;
    let pod = PodManifest::script("done", "echo x >/data/x")
        .restart("Never")
        .with("volumeMounts", mounts(&[("data", "/data")]))
        .spec("volumes", json!([{"name": "data", "emptyDir": {"medium": "Memory"}}]));
    node.manifests.put_pod(&pod)?;
    let view = node.wait_pod("done", "to succeed", |pod| pod.phase == "Succeeded")?;
    let dir = pod_dir(&node, &view.uid);
    node.eventually("its volume to go", || {
        let mounts = host::mounts_below(&dir)?;
        ensure!(mounts.is_empty(), "still mounted: {mounts:?}");
        ensure!(!dir.join("volumes/kubernetes.io~empty-dir/data").exists(), "it is still there");
        Ok(())
    })?;
    assert_eq!(node.pod("done")?.phase, "Succeeded");
    node.manifests.remove_pod("done")?;
    node.wait_no_trace("done", &view.uid)
}

#[test]
fn what_somebody_mounted_in_a_volume_is_never_removed() -> Result<()> {
    let mut node = Node::start()?;
    let pod = PodManifest::script("web", "exec sleep 1000")
        .with("volumeMounts", mounts(&[("data", "/data")]))
        .spec("volumes", json!([{"name": "data", "emptyDir": {}}]));
    node.manifests.put_pod(&pod)?;
    let view = node.wait_running("web")?;
    let precious = node.containerd.dir().join("precious");
    fs::create_dir(&precious)?;
    fs::write(precious.join("data"), "precious")?;
    let volume = pod_dir(&node, &view.uid).join("volumes/kubernetes.io~empty-dir/data");
    let target = volume.join("inside");
    fs::create_dir(&target)?;
    fs::write(volume.join("own"), "x")?;
    mount_bind(&precious, &target).context("cannot mount")?;

    node.manifests.remove_pod("web")?;
    let named = format!("will not remove {}: something is mounted there", target.display());
    let held = node.wait_klet_logs(&named);
    // A new life finds the same, and says so.
    node.klet.kill9()?;
    let said_before = fs::read_to_string(node.klet.log_path())?.matches(&named).count();
    node.klet.restart()?;
    let again = node.eventually("a new klet to say so too", || {
        let log = fs::read_to_string(node.klet.log_path())?;
        ensure!(log.matches(&named).count() > said_before, "{}", node.klet.log_tail());
        Ok(())
    });
    let (kept, own) = (read(&precious.join("data")), volume.join("own").exists());
    unmount(&target, UnmountFlags::empty()).context("cannot unmount")?;
    held?;
    again?;
    assert_eq!(kept, "precious");
    assert!(own, "nothing is removed while something is mounted there");
    node.klet.restart()?;
    node.wait_no_trace("web", &view.uid)?;
    assert_eq!(read(&precious.join("data")), "precious");
    Ok(())
}

#[test]
fn volumes_are_listed_measured_and_cleaned_up() -> Result<()> {
    let node = Node::start()?;
    let script = "dd if=/dev/zero of=/data/big bs=1M count=3; exec sleep 1000";
    let volumes = json!([
        {"name": "data", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        {"name": "absent", "hostPath": {"path": "/absent", "type": "Directory"}},
    ]);
    let pod = |name: &str, used: &[(&str, &str)]| {
        let pod = PodManifest::script(name, script).grace(1);
        pod.with("volumeMounts", mounts(used)).spec("volumes", volumes.clone())
    };
    node.manifests.put_pod(&pod("web", &[("data", "/data"), ("memory", "/memory")]))?;
    node.manifests.put_pod(&pod("waits", &[("absent", "/absent")]))?;
    let view = node.wait_running("web")?;
    let text = node.wait_says(
        &["volumes"],
        &[
            "default/web-n1 data emptyDir Ready 3.0Mi 2 ",
            "default/web-n1 memory emptyDir Ready 0 1 8.0Mi of 8.0Mi",
            "default/waits-n1 absent hostPath Waiting <none> <none> <none>",
            "default/waits-n1 absent: MountVolume.SetUp failed for volume \"absent\" : hostPath type check",
        ],
    )?;
    ensure!(!text.contains("clean"), "nothing is to be cleaned up: {text}");

    let precious = node.containerd.dir().join("precious");
    fs::create_dir(&precious)?;
    fs::write(precious.join("data"), "precious")?;
    let target = pod_dir(&node, &view.uid).join("volumes/kubernetes.io~empty-dir/data/inside");
    fs::create_dir(&target)?;
    mount_bind(&precious, &target).context("cannot mount")?;
    let cleaned = (|| {
        let needed = node.klet_says(&["volumes", "clean", "web-n1"]);
        ensure!(needed.is_err(), "a pod that runs needs its volumes: {needed:?}");
        node.manifests.remove_pod("web")?;
        let left = format!("`klet volumes clean --dry-run {}` shows what keeps it", view.uid);
        node.wait_says(&["volumes"], &["Leaving", "something is mounted there", &left])?;
        let target = target.display();
        let would = format!("would unmount {target}");
        node.wait_says(&["volumes", "clean", "--dry-run", &view.uid], &[&would])?;
        node.wait_says(
            &["volumes", "clean", "web-n1"],
            &[&format!("unmounted {target}"), "Nothing that was mounted was removed."],
        )
    })();
    if cleaned.is_err() {
        // It may be gone already.
        unmount(&target, UnmountFlags::empty()).ok();
    }
    cleaned?;
    node.wait_no_trace("web", &view.uid)?;
    assert_eq!(read(&precious.join("data")), "precious");
    Ok(())
}

#[test]
fn mounts_made_later_are_seen_by_who_asks() -> Result<()> {
    let node = Node::start()?;
    let mount = |kind: &str| json!([{"name": "d", "mountPath": "/d", "mountPropagation": kind}]);
    let pod = PodManifest::new("web")
        .container("sees", "exec sleep 1000")
        .with("volumeMounts", mount("HostToContainer"))
        .container("blind", "exec sleep 1000")
        .with("volumeMounts", mount("None"))
        .spec("volumes", json!([{"name": "d", "emptyDir": {}}]));
    node.manifests.put_pod(&pod)?;
    let view = node.wait_running("web")?;
    let source = node.containerd.dir().join("source");
    fs::create_dir(&source)?;
    fs::write(source.join("word"), "later")?;
    let target = pod_dir(&node, &view.uid).join("volumes/kubernetes.io~empty-dir/d/in");
    fs::create_dir(&target)?;
    mount_bind(&source, &target).context("cannot mount")?;
    let seen = node.run_in("web", "sees", "cat /d/in/word");
    let unseen = node.run_in("web", "blind", "ls /d/in | wc -l");
    unmount(&target, UnmountFlags::DETACH).context("cannot unmount")?;
    assert_eq!((seen?.trim(), unseen?.trim()), ("later", "0"));
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &view.uid)
}

#[test]
fn the_examples_run() -> Result<()> {
    let mut node = Node::start()?;
    let state = node.containerd.dir().join("state");
    let at = state.display().to_string();
    let names = ["shared-scratch", "limited-scratch", "host-directory"];
    node.manifests.put_example("shared-scratch", &[])?;
    node.manifests.put_example("limited-scratch", &[])?;
    node.manifests.put_example("host-directory", &[("/var/tmp/klet-example", &at)])?;
    wait_line(&node, "shared-scratch", "reader", "16.0M")?;
    wait_line(&node, "shared-scratch", "reader", "UTC")?;
    wait_line(&node, "limited-scratch", "work", "part")?;
    wait_line(&node, "host-directory", "count", "starts so far: 1")?;
    node.run_in("shared-scratch", "reader", "echo fast >/fast/word; echo slow >/scratch/word")?;
    node.outlive_examples(&names, |node| {
        let kept = node.run_in("shared-scratch", "reader", "cat /fast/word /scratch/word")?;
        assert_eq!(kept, "fast\nslow\n");
        let kept = node.run_in("limited-scratch", "work", "wc -c </scratch/part")?;
        assert_eq!(kept.trim(), "1048576");
        assert_eq!(node.run_in("host-directory", "count", "cat /state/starts")?, "started\n");
        Ok(())
    })?;
    assert_eq!(read(&state.join("starts")), "started\n", "it is kept when the pod goes");
    Ok(())
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
