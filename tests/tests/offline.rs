//! A node that does without its API server: pods that it was given start again after a
//! reboot, and the server's word wins once it is back. A real containerd.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use plugin_apis::csi::NodeStageVolumeRequest;
use serde_json::{Value, json};
use testkit::controllers::{DRIVER, attach, bind, driver, node, unique_name, wait_in_use};
use testkit::csi::CsiOptions;
use testkit::{ApiOptions, Cluster, Fault, Front, PodManifest};

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Notes that it began where pods keep things, says what it was given, and stays.
fn reader(name: &str) -> PodManifest {
    let script = "echo began >> /data/began; echo var $WORD; cat /etc/map/key; cat /etc/secret/w; \
                  trap 'exit 0' TERM; while true; do sleep 0.1; done";
    PodManifest::script(name, script)
        .with(
            "env",
            json!([{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "w"}}}]),
        )
        .with(
            "volumeMounts",
            json!([{"name": "map", "mountPath": "/etc/map"},
                {"name": "secret", "mountPath": "/etc/secret"},
                {"name": "maybe", "mountPath": "/etc/maybe"},
                {"name": "claim", "mountPath": "/claim"},
                {"name": "data", "mountPath": "/data"}]),
        )
        .spec(
            "volumes",
            json!([{"name": "map", "configMap": {"name": "m"}},
                {"name": "secret", "secret": {"secretName": "s"}},
                {"name": "maybe", "configMap": {"name": "absent", "optional": true}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "data", "emptyDir": {}}]),
        )
}

fn idle(name: &str) -> PodManifest {
    PodManifest::script(name, "trap 'exit 0' TERM; while true; do sleep 0.1; done")
}

fn kept(cluster: &Cluster) -> Result<Vec<String>> {
    let dir = cluster.node.klet.root_dir().join("klet/offline");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        ensure!(entry.metadata()?.permissions().mode() & 0o7777 == 0o600, "{entry:?}");
        names.push(entry.file_name().to_string_lossy().trim_end_matches(".json").to_owned());
    }
    names.sort();
    Ok(names)
}

fn wait_kept(cluster: &Cluster, uids: &[&String]) -> Result<()> {
    let mut wanted: Vec<String> = uids.iter().map(|uid| (*uid).clone()).collect();
    wanted.sort();
    cluster.node.eventually("pods to be kept", || {
        let kept = kept(cluster)?;
        ensure!(kept == wanted, "kept are {kept:?}, not {wanted:?}");
        Ok(())
    })
}

#[test]
fn pods_start_again_without_a_server_and_its_word_wins() -> Result<()> {
    let front = Front::default();
    let options =
        ApiOptions { mounts_tokens: true, faults: Some(front.faults()), ..ApiOptions::default() };
    let mut cluster = Cluster::start_switched(options, Value::Null, &["offline-autonomy"])?;
    cluster.create("configmaps", json!({"metadata": {"name": "m"}, "data": {"key": "one\n"}}))?;
    cluster.create("secrets", json!({"metadata": {"name": "s"}, "data": {"w": "c2VjcmV0"}}))?;
    let place = cluster.node.containerd.dir().join("claimed");
    std::fs::create_dir(&place)?;
    std::fs::write(place.join("file"), "claimed\n")?;
    let (modes, size) = (json!(["ReadWriteOnce"]), json!({"storage": "1Mi"}));
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": modes,
        "volumeName": "pv", "resources": {"requests": size}}});
    let claim = cluster.create("persistentvolumeclaims", claim)?;
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"accessModes": modes,
        "capacity": size, "hostPath": {"path": place},
        "claimRef": {"namespace": "default", "name": "c", "uid": claim["metadata"]["uid"]}}});
    cluster.api.ask(Call::post("/api/v1/persistentvolumes", volume))?;
    // As the cluster's controllers do.
    let bound = path("api/v1", "default", &["persistentvolumeclaims", "c", "status"]);
    let phase = json!({"status": {"phase": "Bound"}});
    cluster.api.ask(Call::patch(&bound, Patch::Merge, phase))?;
    let ports = json!([{"port": 80}]);
    let service =
        json!({"metadata": {"name": "db"}, "spec": {"clusterIP": "10.9.8.7", "ports": ports}});
    cluster.create("services", service)?;
    let stays = cluster.create_pod(&reader("stays"))?;
    let goes = cluster.create_pod(&idle("goes"))?;
    let changes = cluster.create_pod(&idle("changes"))?;
    let old = cluster.create_pod(&idle("renewed"))?;
    let done = cluster.create_pod(&PodManifest::script("done", "exit 0").restart("Never"))?;
    for name in ["stays", "goes", "changes", "renewed"] {
        cluster.wait_ready(name)?;
    }
    cluster.wait_pod("done", "to end", |pod| pod["status"]["phase"] == "Succeeded")?;
    wait_kept(&cluster, &[&stays, &goes, &changes, &old, &done])?;
    let dir = cluster.node.klet.root_dir().join("klet/offline");
    let file = dir.join(format!("{stays}.json"));
    cluster.node.eventually("its objects to be kept", || {
        let text = std::fs::read_to_string(&file)?;
        ensure!(text.contains("c2VjcmV0") && text.contains("\"absent\""), "{text}");
        Ok(())
    })?;
    cluster.node.eventually("the end to be kept", || {
        let text = std::fs::read_to_string(dir.join(format!("{done}.json")))?;
        ensure!(text.contains("\"Succeeded\""), "{text}");
        Ok(())
    })?;

    // Without a reboot nothing is touched.
    let before = cluster.node.instances()?;
    cluster.api.pause()?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.node.wait_says(&["why", "node"], &["5 pods run from the copies kept"])?;
    cluster.node.wait_running("stays")?;
    assert_eq!(cluster.node.instances()?, before);

    cluster.power_off()?;
    cluster.node.klet.launch()?;
    cluster.node.klet.wait_healthy()?;
    for name in ["stays", "goes", "changes", "renewed"] {
        cluster.node.wait_running(name)?;
    }
    let said = "cat /etc/map/key /etc/secret/w; echo; echo $WORD $DB_SERVICE_HOST; \
                ls /etc/maybe; cat /claim/file /data/began";
    let said = cluster.node.run_in("stays", "main", said)?;
    assert_eq!(said, "one\nsecret\nsecret 10.9.8.7\nclaimed\nbegan\nbegan\n");
    let files = "ls /var/run/secrets/kubernetes.io/serviceaccount";
    let files = cluster.node.run_in("stays", "main", files)?;
    assert!(files.contains("ca.crt") && !files.contains("token"), "no token is kept: {files}");
    cluster.node.wait_says(&["why", "stays"], &["copy kept on this node", "tokens are missing"])?;
    assert!(cluster.node.in_runtime("done")?.1.is_empty(), "what has ended does not run again");
    let running = cluster.node.instances()?;

    // The server changes its mind while the node cannot hear it.
    front.set(Fault::Answers(500));
    cluster.api.resume()?;
    cluster.delete_pod("goes", Some(0))?;
    let place = path("api/v1", "default", &["pods", "changes"]);
    let deadline = json!({"spec": {"activeDeadlineSeconds": 1}});
    cluster.api.ask(Call::patch(&place, Patch::Merge, deadline))?;
    cluster.delete_pod("renewed", Some(0))?;
    let renewed = cluster.create_pod(&idle("renewed"))?;
    assert_ne!(renewed, old);
    assert_eq!(cluster.node.instances()?, running);
    front.set(Fault::None);
    cluster.node.wait_gone("goes")?;
    cluster.node.eventually("the new pod to take the old one's place", || {
        let (sandboxes, _) = cluster.node.in_runtime("renewed")?;
        let uid = |one: &cri::v1::PodSandbox| one.labels.get("io.kubernetes.pod.uid").cloned();
        let uids: Vec<_> = sandboxes.iter().filter_map(uid).collect();
        ensure!(uids == [renewed.clone()], "{uids:?}");
        Ok(())
    })?;
    let pod = cluster.wait_pod("changes", "to end", |pod| pod["status"]["phase"] == "Failed")?;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    for name in ["stays", "renewed"] {
        cluster.wait_ready(name)?;
    }
    cluster.node.eventually("the token", || {
        cluster.node.run_in("stays", "main", &format!("test -s {TOKEN}")).map(drop)
    })?;
    let id = cluster.node.pod("stays")?.container("main")?.id.clone();
    let after = cluster.node.instances()?;
    assert_eq!(after.get(&id), running.get(&id), "the server's return is not its concern");
    let pod = cluster.pod("done").context("the server has it")?;
    assert_eq!(pod["status"]["phase"], "Succeeded");
    wait_kept(&cluster, &[&stays, &changes, &renewed, &done])?;
    let why = cluster.node.klet_says(&["why", "node"])?;
    assert!(!why.contains("copies kept"), "{why}");
    Ok(())
}

/// Notes in the volume of a claim that it began, and stays.
fn claimant(name: &str, claim: &str) -> PodManifest {
    let script = "echo began >>/data/word; trap 'exit 0' TERM; while true; do sleep 0.1; done";
    PodManifest::script(name, script)
        .with("volumeMounts", json!([{"name": "data", "mountPath": "/data"}]))
        .spec("volumes", json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]))
}

/// What the cluster attaches, and what only nodes with certain labels have, is used again
/// by those who used it, as the cluster last knew it.
#[test]
fn claims_are_mounted_again_without_a_server() -> Result<()> {
    let mut cluster =
        Cluster::start_switched(ApiOptions::default(), Value::Null, &["offline-autonomy"])?;
    let mut driver = driver(&cluster, CsiOptions::default())?;
    driver.register()?;
    let host = cluster.node.eventually("the node's label of its host", || {
        let host = node(&cluster)?["metadata"]["labels"]["kubernetes.io/hostname"].clone();
        ensure!(host.is_string(), "{host}");
        Ok(host)
    })?;
    let here = json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
        [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}]}});
    let place = cluster.node.containerd.dir().join("near");
    std::fs::create_dir(&place)?;
    let local = json!({"csi": null, "local": {"path": place}, "nodeAffinity": here});
    bind(&cluster, "far", "pv-far", "vol-1", json!({"nodeAffinity": here}))?;
    bind(&cluster, "near", "pv-near", "-", local)?;
    let far = cluster.create_pod(&claimant("far", "far"))?;
    let near = cluster.create_pod(&claimant("near", "near"))?;
    wait_in_use(&cluster, &[&unique_name("vol-1")])?;
    attach(&cluster, "pv-far", "vol-1")?;
    for name in ["far", "near"] {
        cluster.wait_ready(name)?;
    }
    wait_kept(&cluster, &[&far, &near])?;
    let dir = cluster.node.klet.root_dir().join("klet/offline");
    let attached = format!("\"attached\":{{\"{}\"", unique_name("vol-1"));
    cluster.node.eventually("what is known of the volumes to be kept", || {
        for (uid, words) in [(&far, attached.as_str()), (&near, "\"labels\":{")] {
            let text = std::fs::read_to_string(dir.join(format!("{uid}.json")))?;
            ensure!(text.contains(words) && text.contains("PersistentVolume"), "{text}");
        }
        Ok(())
    })?;

    let staged = driver.requests::<NodeStageVolumeRequest>().len();
    cluster.api.pause()?;
    cluster.power_off()?;
    cluster.node.klet.launch()?;
    cluster.node.klet.wait_healthy()?;
    for name in ["far", "near"] {
        cluster.node.wait_running(name)?;
        assert_eq!(cluster.node.run_in(name, "main", "cat /data/word")?, "began\nbegan\n");
    }
    let again = driver.requests::<NodeStageVolumeRequest>();
    ensure!(again.len() > staged, "it was staged anew");
    let last = again.last().context("it was staged")?;
    assert_eq!(last.publish_context.get("device").map(String::as_str), Some("sdz"));
    let running = cluster.node.instances()?;

    cluster.api.resume()?;
    for name in ["far", "near"] {
        cluster.wait_ready(name)?;
    }
    wait_in_use(&cluster, &[&unique_name("vol-1")])?;
    let name = cluster.node.klet.node_name();
    let listed = cluster.api.object("csinodes.storage.k8s.io", "", name).context("none")?;
    assert_eq!(listed["spec"]["drivers"][0]["name"], DRIVER);
    assert_eq!(cluster.node.instances()?, running, "the server's return is not their concern");
    for (name, uid) in [("far", &far), ("near", &near)] {
        cluster.delete_pod(name, None)?;
        cluster.wait_no_trace(name, uid)?;
    }
    Ok(())
}

#[test]
fn a_torn_copy_is_refused_and_nothing_is_kept_unasked() -> Result<()> {
    let mut cluster =
        Cluster::start_switched(ApiOptions::default(), Value::Null, &["offline-autonomy"])?;
    let uid = cluster.create_pod(&idle("web"))?;
    cluster.wait_ready("web")?;
    wait_kept(&cluster, &[&uid])?;
    let file = cluster.node.klet.root_dir().join(format!("klet/offline/{uid}.json"));
    cluster.api.pause()?;
    cluster.power_off()?;
    let text = std::fs::read(&file)?;
    std::fs::write(&file, &text[..text.len() / 2])?;
    cluster.node.klet.launch()?;
    cluster.node.klet.wait_healthy()?;
    cluster.node.wait_klet_logs("kept pod refused")?;
    cluster.node.wait_says(&["why", "node"], &["it is torn"])?;
    assert!(cluster.node.instances()?.is_empty());
    cluster.api.resume()?;
    cluster.wait_ready("web")?;
    cluster.node.eventually("it to be kept anew", || {
        ensure!(std::fs::read(&file)?.len() > text.len() / 2, "it is torn");
        Ok(())
    })?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.drop_flag("offline-autonomy");
    cluster.node.klet.launch()?;
    cluster.node.klet.wait_healthy()?;
    cluster.node.eventually("what was kept to go", || {
        ensure!(!file.exists(), "it is there");
        Ok(())
    })
}
