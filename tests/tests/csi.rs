//! CSI drivers: they register, mount volumes of pods, fail, crash and go.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plugin_apis::csi::volume_capability::AccessType;
use plugin_apis::csi::{
    NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
};
use serde_json::{Value, json};
use testkit::csi::{Code, CsiDriver, CsiOptions, Fault, NodeCapability, Outcome, Rpc};
use testkit::{Node, PodManifest};

const DRIVER: &str = "hostpath.klet.test";
const MISSING: &str =
    "driver name hostpath.klet.test not found in the list of registered CSI drivers";

/// A driver of inline volumes, which are never staged.
fn driver(node: &Node, capabilities: &[NodeCapability]) -> Result<CsiDriver> {
    let capabilities: BTreeSet<_> = capabilities.iter().copied().collect();
    let options = CsiOptions { capabilities, ..CsiOptions::default() };
    CsiDriver::start(&node.klet.root_dir().canonicalize()?, options)
}

fn pod(name: &str, script: &str, source: Value) -> PodManifest {
    let mut csi = json!({"driver": DRIVER});
    for (key, value) in source.as_object().into_iter().flatten() {
        csi[key] = value.clone();
    }
    PodManifest::script(name, &format!("{script}; exec sleep 1000"))
        .with("volumeMounts", json!([{"name": "data", "mountPath": "/data"}]))
        .spec("volumes", json!([{"name": "data", "csi": csi}]))
}

fn volume_dir(node: &Node, uid: &str) -> PathBuf {
    node.klet.root_dir().join("pods").join(uid).join("volumes/kubernetes.io~csi/data")
}

/// Waits until a message about the pod's volume has these words in it.
fn wait_problem(node: &Node, name: &str, words: &str) -> Result<String> {
    let told = |pod: &testkit::PodView| {
        let condition = pod.condition("PodReadyToStartContainers");
        condition.is_ok_and(|condition| condition.message.contains(words))
    };
    Ok(node.wait_pod(name, &format!("to tell {words:?}"), told)?.uid)
}

#[test]
fn a_pod_waits_for_its_driver_and_writes_through_it() -> Result<()> {
    let node = Node::start()?;
    let mut driver = driver(&node, &[])?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"},
        "stringData": {"token": "open sesame"}});
    let source = json!({
        "fsType": "ext4",
        "volumeAttributes": {"colour": "blue"},
        "nodePublishSecretRef": {"name": "key"},
    });
    let script = "echo hello >/data/word; echo group $(stat -c %g /data)";
    let web = pod("web", script, source).spec("securityContext", json!({"fsGroup": 4321}));
    node.manifests.put_pod(&web)?;
    let text = format!(
        "MountVolume.SetUp failed for volume \"data\" : kubernetes.io/csi: mounter.SetUpAt failed \
         to get CSI client: {MISSING}"
    );
    let uid = wait_problem(&node, "web", &text)?;
    node.wait_says(&["events", "web"], &["Warning FailedMount", MISSING])?;
    node.wait_says(&["why", "web"], &[MISSING, "plugins_registry", "driver has registered"])?;
    assert_eq!(node.in_runtime("web")?, (vec![], vec![]), "nothing is made before");

    driver.register()?;
    let text = "fetching NodePublishSecretRef default/key failed: kubernetes.io/csi: failed to \
                find the secret key in the namespace default with error: secret \"key\" not found";
    wait_problem(&node, "web", text)?;
    assert!(driver.requests::<NodePublishVolumeRequest>().is_empty(), "it was not asked");
    node.manifests.put("key.json", secret.to_string())?;
    node.wait_running("web")?;
    node.wait_word("web", "main", "group 4321")?;

    let asked = driver.requests::<NodePublishVolumeRequest>().pop().context("it was asked")?;
    let told = |key: &str| asked.volume_context.get(key).map(String::as_str);
    assert_eq!(told("colour"), Some("blue"));
    assert_eq!(told("csi.storage.k8s.io/pod.uid"), Some(uid.as_str()));
    assert_eq!(told("csi.storage.k8s.io/pod.namespace"), Some("default"));
    assert_eq!(told("csi.storage.k8s.io/ephemeral"), Some("true"));
    assert_eq!(asked.secrets.get("token").map(String::as_str), Some("open sesame"));
    let dir = volume_dir(&node, &uid);
    assert_eq!(PathBuf::from(&asked.target_path), dir.canonicalize()?.join("mount"));
    let volume = &asked.volume_id;
    assert_eq!(fs::read_to_string(driver.volume_dir(volume).join("word"))?, "hello\n");
    let note: Value = serde_json::from_slice(&fs::read(dir.join("vol_data.json"))?)?;
    assert_eq!(note["driverName"], DRIVER);
    assert_eq!((&note["volumeHandle"], &note["specVolID"]), (&json!(volume), &json!("data")));
    assert_eq!(note["volumeLifecycleMode"], "Ephemeral");
    let log = fs::read_to_string(node.klet.log_path())?;
    assert!(!log.contains("open sesame"), "no secret is logged");

    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)?;
    assert_eq!(driver.requests::<NodeUnpublishVolumeRequest>().len(), 1);
    assert!(driver.mounts_of(volume)?.is_empty());
    Ok(())
}

#[test]
fn a_driver_that_takes_groups_is_given_them_and_a_reader_cannot_write() -> Result<()> {
    let node = Node::start()?;
    let mut driver = driver(&node, &[NodeCapability::VolumeMountGroup])?;
    driver.register()?;
    let script = "echo x >/data/x || echo read-only";
    let reader = pod("reader", script, json!({"readOnly": true}))
        .spec("securityContext", json!({"fsGroup": 99}));
    node.manifests.put_pod(&reader)?;
    let uid = node.wait_running("reader")?.uid;
    node.wait_word("reader", "main", "read-only")?;
    let asked = driver.requests::<NodePublishVolumeRequest>().pop().context("it was asked")?;
    assert!(asked.readonly);
    let capability = asked.volume_capability.context("a capability")?;
    let Some(AccessType::Mount(mount)) = capability.access_type else {
        bail!("it is asked for no file system");
    };
    assert_eq!(mount.volume_mount_group, "99");
    node.manifests.remove_pod("reader")?;
    node.wait_no_trace("reader", &uid)
}

#[test]
fn errors_are_told_and_tried_again() -> Result<()> {
    let node = Node::start()?;
    let mut driver = driver(&node, &[])?;
    driver.register()?;
    // Each is tried again after half a second, then one, two, four.
    for fault in [
        Fault::fail(Code::Internal),
        Fault::fail(Code::Internal),
        Fault::fail(Code::Aborted),
        Fault::crash(),
    ] {
        driver.inject(Rpc::NodePublishVolume, fault);
    }
    node.manifests.put_pod(&pod("web", "echo up", json!({})))?;
    let said = |code: &str| {
        format!("MountVolume.SetUp failed for volume \"data\" : rpc error: code = {code} desc = ")
    };
    wait_problem(&node, "web", &format!("{}as the test wants it", said("Internal")))?;
    wait_problem(&node, "web", &said("Aborted"))?;
    let uid = wait_problem(&node, "web", &said("Unavailable"))?;
    node.wait_says(&["why", "web"], &["CSI driver answered"])?;
    driver.restart()?;
    node.wait_word("web", "main", "up")?;
    assert_eq!(driver.requests::<NodePublishVolumeRequest>().len(), 5);

    // What cannot be unmounted keeps the pod, until it can.
    driver.inject(Rpc::NodeUnpublishVolume, Fault::fail(Code::Internal));
    driver.inject(Rpc::NodeUnpublishVolume, Fault::fail(Code::Unavailable).once_done());
    node.manifests.remove_pod("web")?;
    node.wait_klet_logs("UnmountVolume.TearDown failed for volume \\\"data\\\"")?;
    node.wait_no_trace("web", &uid)?;
    assert_eq!(driver.requests::<NodeUnpublishVolumeRequest>().len(), 3);
    Ok(())
}

#[test]
fn a_mount_whose_answer_was_lost_is_undone() -> Result<()> {
    let node = Node::start()?;
    let mut driver = driver(&node, &[])?;
    driver.register()?;
    for _ in 0..20 {
        let lost = Fault::fail(Code::DeadlineExceeded).once_done();
        driver.inject(Rpc::NodePublishVolume, lost);
    }
    node.manifests.put_pod(&pod("web", "echo up", json!({})))?;
    let uid = wait_problem(&node, "web", "code = DeadlineExceeded")?;
    let asked = driver.requests::<NodePublishVolumeRequest>().pop().context("it was asked")?;
    assert_eq!(driver.mounts_of(&asked.volume_id)?.len(), 1);
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)?;
    assert!(driver.mounts_of(&asked.volume_id)?.is_empty());
    Ok(())
}

#[test]
fn a_klet_that_was_killed_finds_its_volumes_again() -> Result<()> {
    let mut node = Node::start()?;
    let mut driver = driver(&node, &[])?;
    driver.register()?;
    let stays = pod("stays", "echo life >>/data/lives", json!({}));
    node.manifests.put_pod(&stays)?;
    let stays_uid = node.wait_running("stays")?.uid;
    node.wait_pod("stays", "to have its volume", |pod| pod.is("Ready"))?;
    let before = node.instances()?;

    // Killed while the driver mounts: the mount is there, the answer never comes.
    driver.inject(Rpc::NodePublishVolume, Fault::hang().once_done());
    node.manifests.put_pod(&pod("torn", "echo up", json!({})))?;
    let torn = node.eventually("the driver to be asked", || {
        let asked = driver.requests::<NodePublishVolumeRequest>();
        let torn = asked.into_iter().find(|asked| !asked.target_path.contains(&stays_uid));
        let torn = torn.context("not yet")?;
        ensure!(driver.mounts_of(&torn.volume_id)?.len() == 1, "not mounted yet");
        Ok(torn)
    })?;
    let torn_uid = node.pod("torn")?.uid;
    node.klet.kill9()?;
    driver.deregister();
    node.manifests.remove_pod("torn")?;
    node.klet.restart()?;
    // The driver is away: what it mounted stays, and klet says what it waits for.
    node.wait_klet_logs("UnmountVolume.TearDown failed for volume \\\"data\\\"")?;
    node.wait_klet_logs(MISSING)?;
    assert_eq!(driver.mounts_of(&torn.volume_id)?.len(), 1);
    driver.register()?;
    node.wait_no_trace("torn", &torn_uid)?;
    assert!(driver.mounts_of(&torn.volume_id)?.is_empty());

    // The other pod's volume was asked for again, and nothing of it was touched.
    node.eventually("klet to find the volume that stays", || {
        let asked = driver.requests::<NodePublishVolumeRequest>();
        let of = |asked: &&NodePublishVolumeRequest| asked.target_path.contains(&stays_uid);
        ensure!(asked.iter().filter(of).count() == 2, "{} calls", asked.len());
        Ok(())
    })?;
    let after = node.instances()?;
    assert!(before.iter().all(|(id, instance)| after.get(id) == Some(instance)));
    assert_eq!(node.run_in("stays", "main", "cat /data/lives")?.trim(), "life");

    // A pod that goes while klet is away.
    node.klet.kill9()?;
    node.manifests.clear()?;
    node.klet.restart()?;
    node.wait_no_trace("stays", &stays_uid)?;
    let calls = driver.calls();
    let mut unpublished = calls.iter().filter(|call| call.rpc == Rpc::NodeUnpublishVolume);
    assert!(unpublished.all(|call| call.outcome == Outcome::Answered(Code::Ok)));
    Ok(())
}

#[test]
fn a_driver_that_comes_again_is_found_again() -> Result<()> {
    let node = Node::start()?;
    let mut driver = driver(&node, &[])?;
    driver.inject(Rpc::NodeGetInfo, Fault::fail(Code::Unavailable));
    driver.register()?;
    node.wait_klet_logs("plugin not registered; trying again")?;
    node.manifests.put_pod(&pod("first", "echo up", json!({})))?;
    node.wait_word("first", "main", "up")?;
    driver.deregister();
    node.wait_klet_logs("CSI driver has gone")?;
    node.manifests.put_pod(&pod("second", "echo up", json!({})))?;
    wait_problem(&node, "second", MISSING)?;
    assert_eq!(node.run_in("first", "main", "ls /data | wc -l")?.trim(), "0", "it goes on");
    driver.register()?;
    node.wait_word("second", "main", "up")?;
    let uids = [node.pod("first")?.uid, node.pod("second")?.uid];
    node.manifests.clear()?;
    node.wait_no_trace("first", &uids[0])?;
    node.wait_no_trace("second", &uids[1])
}

/// A PersistentVolume and the claim that names it.
fn put_claim(node: &Node) -> Result<()> {
    let volume = json!({"driver": DRIVER, "volumeHandle": "vol-1"});
    node.manifests.put_claim("Filesystem", "csi", volume)
}

fn claimant(name: &str, script: &str) -> PodManifest {
    PodManifest::script(name, &format!("{script}; exec sleep 1000"))
        .with("volumeMounts", json!([{"name": "data", "mountPath": "/data"}]))
        .spec("volumes", json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]))
}

/// Waits until the last pod is gone, and the volume is mounted nowhere.
fn wait_unstaged(node: &Node, driver: &CsiDriver, pod: &str, uid: &str) -> Result<()> {
    node.wait_no_trace(pod, uid)?;
    let mounts = driver.mounts_of("vol-1")?;
    ensure!(mounts.is_empty(), "still mounted: {mounts:?}");
    let dir = node.klet.root_dir().join("plugins/kubernetes.io/csi").join(DRIVER);
    let left: Vec<_> = fs::read_dir(&dir)?.collect::<Result<_, _>>()?;
    ensure!(left.is_empty(), "{} still holds {left:?}", dir.display());
    Ok(())
}

#[test]
fn pods_share_a_persistent_volume() -> Result<()> {
    let mut node = Node::start()?;
    let can = [NodeCapability::StageUnstageVolume, NodeCapability::GetVolumeStats];
    let mut driver = driver(&node, &can)?;
    driver.register()?;
    let mounts = json!([{"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/part", "subPath": "a/b"}]);
    let writer = claimant("writer", "echo hello >/data/word; echo x >/part/x");
    node.manifests.put_pod(&writer.with("volumeMounts", mounts))?;
    wait_problem(&node, "writer", "persistentvolumeclaim \"data\" not found")?;
    put_claim(&node)?;
    let writer = node.wait_running("writer")?.uid;
    node.eventually("the writer to write to a part", || {
        Ok(fs::metadata(driver.volume_dir("vol-1").join("a/b/x")).map(drop)?)
    })?;
    let parts = node.klet.root_dir().join("pods").join(&writer).join("volume-subpaths");
    assert!(parts.join("pv/main/1").is_dir(), "parts are bound under the volume's name");
    let read = "until [ -e /data/word ]; do sleep 0.1; done; cat /data/word";
    node.manifests.put_pod(&claimant("reader", read))?;
    node.wait_word("reader", "main", "hello")?;
    let reader = node.pod("reader")?.uid;
    assert_eq!(driver.requests::<NodeStageVolumeRequest>().len(), 1, "once for the node");
    assert_eq!(driver.mounts_of("vol-1")?.len(), 3, "the node's, and one for each pod");

    let told = node.klet_says(&["volumes"])?;
    let row = "default/reader-n1 data persistentVolumeClaim Ready ";
    ensure!(told.contains(row) && !told.contains("<none>"), "the driver tells: {told}");
    let asked = driver.requests::<NodeGetVolumeStatsRequest>();
    ensure!(asked.iter().all(|one| one.volume_id == "vol-1") && asked.len() == 2, "{asked:?}");

    node.manifests.remove_pod("writer")?;
    node.wait_no_trace("writer", &writer)?;
    assert_eq!(driver.mounts_of("vol-1")?.len(), 2);
    assert_eq!(node.run_in("reader", "main", "cat /data/word")?.trim(), "hello");
    // The last pod goes while klet is away.
    node.klet.kill9()?;
    node.manifests.remove_pod("reader")?;
    node.klet.restart()?;
    wait_unstaged(&node, &driver, "reader", &reader)?;
    assert_eq!(fs::read_to_string(driver.volume_dir("vol-1").join("word"))?, "hello\n");
    Ok(())
}

#[test]
fn a_volume_grows_while_a_pod_uses_it() -> Result<()> {
    let mut node = Node::start()?;
    let can = [
        NodeCapability::StageUnstageVolume,
        NodeCapability::GetVolumeStats,
        NodeCapability::ExpandVolume,
    ];
    let mut driver = driver(&node, &can)?;
    driver.register()?;
    let sized = |size: &str| {
        let csi = json!({"driver": DRIVER, "volumeHandle": "vol-1",
            "volumeAttributes": {"size": (1 << 20).to_string()}});
        node.manifests.put_sized_claim("Filesystem", "csi", csi, size)
    };
    sized("1Mi")?;
    node.manifests.put_pod(&claimant("grower", "echo hello >/data/word"))?;
    let pod = node.wait_running("grower")?;
    let asked = || -> Vec<i64> {
        let all = driver.requests::<NodeExpandVolumeRequest>().into_iter();
        all.map(|one| one.capacity_range.unwrap_or_default().required_bytes).collect()
    };
    node.eventually("the driver to be told the size", || {
        ensure!(asked() == [1 << 20], "asked for {:?}", asked());
        Ok(())
    })?;
    sized("3Mi")?;
    node.eventually("klet to say that it has grown", || {
        let told = node.klet_says(&["events"])?;
        ensure!(told.contains("FileSystemResizeSuccessful"), "told: {told}");
        Ok(())
    })?;
    ensure!(asked() == [1 << 20, 3 << 20], "asked for {:?}", asked());
    let told = node.klet_says(&["volumes"])?;
    ensure!(told.contains("of 3.0Mi"), "the driver tells: {told}");
    let metrics = testkit::http::get_ok(node.klet.read_only_port(), "/metrics")?;
    let capacity = "kubelet_volume_stats_capacity_bytes{namespace=\"default\",\
                    persistentvolumeclaim=\"data\"} 3145728";
    ensure!(metrics.contains(capacity), "metrics: {metrics}");
    ensure!(node.run_in("grower", "main", "cat /data/word")?.trim() == "hello", "it is the same");
    // Another life of klet asks once more, which changes nothing, and says nothing.
    node.klet.kill9()?;
    node.klet.restart()?;
    node.eventually("the driver to be told again", || {
        ensure!(asked() == [1 << 20, 3 << 20, 3 << 20], "asked for {:?}", asked());
        Ok(())
    })?;
    ensure!(node.pod("grower")?.uid == pod.uid, "it is the same pod");
    node.manifests.remove_pod("grower")?;
    wait_unstaged(&node, &driver, "grower", &pod.uid)
}

#[test]
fn a_klet_killed_between_staging_and_publishing_leaves_nothing() -> Result<()> {
    let mut node = Node::start()?;
    let mut driver = driver(&node, &[NodeCapability::StageUnstageVolume])?;
    driver.register()?;
    put_claim(&node)?;
    driver.inject(Rpc::NodePublishVolume, Fault::hang());
    node.manifests.put_pod(&claimant("web", "echo up"))?;
    node.eventually("the driver to be asked", || {
        ensure!(!driver.requests::<NodePublishVolumeRequest>().is_empty(), "not yet");
        Ok(())
    })?;
    let uid = node.pod("web")?.uid;
    node.klet.kill9()?;
    assert_eq!(driver.mounts_of("vol-1")?.len(), 1, "staged, and not published");
    node.manifests.remove_pod("web")?;
    node.klet.restart()?;
    wait_unstaged(&node, &driver, "web", &uid)
}

#[test]
fn a_stage_that_fails_is_told_and_tried_again() -> Result<()> {
    let node = Node::start()?;
    let mut driver = driver(&node, &[NodeCapability::StageUnstageVolume])?;
    driver.register()?;
    put_claim(&node)?;
    driver.inject(Rpc::NodeStageVolume, Fault::fail(Code::Internal));
    driver.inject(Rpc::NodeStageVolume, Fault::fail(Code::Aborted).once_done());
    driver.inject(Rpc::NodePublishVolume, Fault::fail(Code::Internal));
    node.manifests.put_pod(&claimant("web", "echo up"))?;
    let said = |step: &str, code: &str| {
        format!("MountVolume.{step} failed for volume \"pv\" : rpc error: code = {code} desc = ")
    };
    wait_problem(&node, "web", &said("MountDevice", "Internal"))?;
    wait_problem(&node, "web", &said("MountDevice", "Aborted"))?;
    let uid = wait_problem(&node, "web", &said("SetUp", "Internal"))?;
    node.wait_word("web", "main", "up")?;
    // The node's mount is made once, though the pod's failed after it.
    assert_eq!(driver.requests::<NodeStageVolumeRequest>().len(), 3);

    driver.inject(Rpc::NodeUnstageVolume, Fault::fail(Code::Internal));
    driver.inject(Rpc::NodeUnstageVolume, Fault::fail(Code::Unavailable).once_done());
    node.manifests.remove_pod("web")?;
    node.wait_klet_logs("attacher.UnmountDevice failed")?;
    wait_unstaged(&node, &driver, "web", &uid)
}

#[test]
fn a_driver_that_hangs_is_given_up_and_asked_again() -> Result<()> {
    let node = Node::start()?;
    let mut driver = driver(&node, &[])?;
    driver.register()?;
    driver.inject(Rpc::NodePublishVolume, Fault::hang());
    node.manifests.put_pod(&pod("stuck", "echo up", json!({})))?;
    node.eventually("the driver to be asked", || {
        ensure!(!driver.requests::<NodePublishVolumeRequest>().is_empty(), "not yet");
        Ok(())
    })?;
    node.manifests.put_pod(&pod("other", "echo up", json!({})))?;
    node.wait_word("other", "main", "up").context("another pod does not wait for it")?;
    // A call has two minutes.
    let told = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    let uid = node.within(Duration::from_secs(150), "the call to be given up", || {
        let pod = node.pod("stuck")?;
        let message = &pod.condition("PodReadyToStartContainers")?.message;
        ensure!(message.contains(told), "it says {message}");
        Ok(pod.uid)
    })?;
    node.wait_word("stuck", "main", "up")?;
    node.manifests.remove_pod("stuck")?;
    node.wait_no_trace("stuck", &uid)
}

#[test]
fn the_examples_run() -> Result<()> {
    let mut node = Node::start()?;
    let name = "hostpath.csi.k8s.io".to_owned();
    let options = CsiOptions { name, capabilities: BTreeSet::new(), ..CsiOptions::default() };
    let mut driver = CsiDriver::start(&node.klet.root_dir().canonicalize()?, options)?;
    driver.register()?;
    let names = ["csi-inline", "csi-claim"];
    names.iter().try_for_each(|name| node.manifests.put_example(name, &[]))?;
    node.wait_word("csi-claim", "count", "1")?;
    let starts = || fs::read_to_string(driver.volume_dir("notes").join("starts"));
    assert_eq!(starts()?.lines().count(), 1);
    node.wait_running("csi-inline")?;
    node.eventually("the other to write", || {
        ensure!(node.run_in("csi-inline", "write", "wc -l </data/started")?.trim() == "1", "no");
        Ok(())
    })?;
    node.outlive_examples(&names, |node| {
        let kept = node.run_in("csi-inline", "write", "wc -l </data/started")?;
        assert_eq!(kept.trim(), "1");
        let kept = node.run_in("csi-claim", "count", "cat /notes/starts")?;
        assert_eq!((kept.lines().count(), kept), (1, starts()?));
        Ok(())
    })?;
    assert_eq!(starts()?.lines().count(), 1, "a claim's data outlives the pod");
    Ok(())
}
