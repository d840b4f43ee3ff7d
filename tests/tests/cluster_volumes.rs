//! Volumes of CSI drivers on a node of a cluster. The test is the controller that binds
//! claims and attaches volumes; everything else is real.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use apiserver::store::Key;
use plugin_apis::csi::{
    NodeGetInfoRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use serde_json::{Value, json};
use testkit::cluster::condition;
use testkit::controllers::{
    DRIVER, STORAGE, attach, bind, claimant, driver, node, set_attached, sha256, unique_name,
    wait_event, wait_in_use,
};
use testkit::csi::CsiOptions;
use testkit::{ApiOptions, Cluster};

#[test]
fn a_volume_is_attached_mounted_and_let_go() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let topology = BTreeMap::from([("topology.klet.test/rack".to_owned(), "r7".to_owned())]);
    let options = CsiOptions { topology, volumes_max: 7, ..CsiOptions::default() };
    let mut driver = driver(&cluster, options)?;
    driver.register()?;
    let name = cluster.node.klet.node_name().to_owned();
    let csi_node = || cluster.api.object("csinodes.storage.k8s.io", "", &name).context("none");
    let told = cluster.node.eventually("the CSINode to list the driver", || {
        let object = csi_node()?;
        ensure!(object["spec"]["drivers"][0]["name"] == DRIVER, "{object:#}");
        Ok(object)
    })?;
    let entry = &told["spec"]["drivers"][0];
    assert_eq!((&entry["nodeID"], &entry["allocatable"]["count"]), (&json!("node-1"), &json!(7)));
    assert_eq!(entry["topologyKeys"], json!(["topology.klet.test/rack"]));
    let of_node = node(&cluster)?;
    assert_eq!(told["metadata"]["ownerReferences"][0]["uid"], of_node["metadata"]["uid"]);
    let ids = &of_node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"];
    assert_eq!(ids, &json!(format!("{{\"{DRIVER}\":\"node-1\"}}")));
    assert_eq!(of_node["metadata"]["labels"]["topology.klet.test/rack"], "r7");

    bind(&cluster, "data", "pv-1", "vol-1", json!({}))?;
    let source = json!({"persistentVolumeClaim": {"claimName": "data"}});
    let uid = cluster.create_pod(&claimant("web", source))?;
    wait_in_use(&cluster, &[&unique_name("vol-1")])?;
    cluster.node.wait_says(
        &["why", "web"],
        &["VerifyControllerAttachedVolume", "is not yet in node's status"],
    )?;
    assert!(driver.requests::<NodeStageVolumeRequest>().is_empty(), "it is not attached");
    attach(&cluster, "pv-1", "vol-1")?;
    cluster.wait_ready("web")?;
    let staged = driver.requests::<NodeStageVolumeRequest>().pop().context("it was staged")?;
    assert_eq!(staged.publish_context.get("device").map(String::as_str), Some("sdz"));
    let asked = driver.requests::<NodePublishVolumeRequest>().pop().context("it was published")?;
    assert_eq!(asked.publish_context.get("device").map(String::as_str), Some("sdz"));
    assert_eq!(asked.volume_context.get("colour").map(String::as_str), Some("blue"));
    assert!(!asked.volume_context.contains_key("csi.storage.k8s.io/pod.name"), "nobody asked");

    let word = cluster.node.run_in("web", "main", "cat /data/word")?;
    ensure!(!word.is_empty(), "it is what the pod wrote");
    let kept = driver.volume_dir("vol-1").join("word");
    assert_eq!(fs::read_to_string(&kept)?, word);

    // Another life of the agent goes on telling what is in use, and disturbs nothing.
    cluster.node.survive_kill()?;
    cluster.wait_ready("web")?;
    wait_in_use(&cluster, &[&unique_name("vol-1")])?;
    assert_eq!(cluster.node.run_in("web", "main", "cat /data/word")?, word);

    cluster.delete_pod("web", None)?;
    cluster.wait_no_trace("web", &uid)?;
    assert_eq!(fs::read_to_string(&kept)?, word, "data outlives the pod");
    wait_in_use(&cluster, &[])?;
    assert_eq!(driver.requests::<NodeUnpublishVolumeRequest>().len(), 1);
    assert_eq!(driver.requests::<NodeUnstageVolumeRequest>().len(), 1, "before it was told");
    assert!(driver.mounts_of("vol-1")?.is_empty());
    set_attached(&cluster, json!([]))?;

    driver.deregister();
    cluster.node.eventually("the driver to be listed no more", || {
        let object = cluster.api.object("csinodes.storage.k8s.io", "", &name).context("none")?;
        let none = object["spec"]["drivers"].as_array().is_none_or(Vec::is_empty);
        ensure!(none, "{object:#}");
        let annotations = node(&cluster)?["metadata"]["annotations"].clone();
        ensure!(annotations.get("csi.volume.kubernetes.io/nodeid").is_none(), "{annotations:#}");
        Ok(())
    })?;
    assert_eq!(condition(&node(&cluster)?, "Ready"), Some("True"));
    Ok(())
}

#[test]
fn a_driver_gets_what_its_object_asks_for() -> Result<()> {
    let cluster = Cluster::start_with(ApiOptions::default(), json!({"syncFrequency": "5s"}))?;
    let mut driver = driver(&cluster, CsiOptions::default())?;
    driver.register()?;
    let spec = json!({
        "attachRequired": false, "podInfoOnMount": true, "requiresRepublish": true,
        "fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent"],
        "tokenRequests": [{"audience": "vault", "expirationSeconds": 600}],
    });
    let object = json!({"metadata": {"name": DRIVER}, "spec": spec});
    cluster.api.ask(Call::post(&path(STORAGE, "", &["csidrivers"]), object))?;

    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let pod = claimant("web", json!({"ephemeral": {"volumeClaimTemplate": template}}))
        .spec("securityContext", json!({"fsGroup": 4321}));
    let uid = cluster.create_pod(&pod)?;
    let missing = "error processing PVC default/web-data: failed to fetch PVC from API server";
    wait_event(&cluster, "FailedMount", missing)?;
    let claim = |owner: &str| {
        json!({"metadata": {"name": "web-data", "ownerReferences": [{"apiVersion": "v1",
            "kind": "Pod", "name": "web", "uid": owner, "controller": true}]},
            "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}})
    };
    cluster.create("persistentvolumeclaims", claim(&uid))?;
    wait_event(&cluster, "FailedMount", "error processing PVC default/web-data: PVC is not bound")?;
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
        [{"key": "klet.test/disk", "operator": "In", "values": ["fast"]}]}]}});
    bind(&cluster, "web-data", "pv-1", "vol-1", json!({"nodeAffinity": affinity}))?;
    let words = "MountVolume.NodeAffinity check failed for volume \"pv-1\" : no matching \
                 NodeSelectorTerms";
    wait_event(&cluster, "FailedMount", words)?;
    let place = path("api/v1", "", &["nodes", cluster.node.klet.node_name()]);
    let patch = json!({"metadata": {"labels": {"klet.test/disk": "fast"}}});
    cluster.api.ask(Call::patch(&place, Patch::Merge, patch))?;
    cluster.wait_ready("web")?;
    wait_in_use(&cluster, &[])?;

    let asked = driver.requests::<NodePublishVolumeRequest>().pop().context("it was published")?;
    let told = |key: &str| asked.volume_context.get(&format!("csi.storage.k8s.io/{key}"));
    assert_eq!(told("pod.name").map(String::as_str), Some("web"));
    assert_eq!(told("pod.uid").map(String::as_str), Some(uid.as_str()));
    assert_eq!(told("ephemeral").map(String::as_str), Some("false"));
    let tokens: Value = serde_json::from_str(told("serviceAccount.tokens").context("no tokens")?)?;
    let token = &tokens["vault"]["token"];
    assert!(tokens["vault"]["expirationTimestamp"].is_string(), "it says when it ends");
    let review = json!({"spec": {"token": token, "audiences": ["vault"]}});
    let review =
        cluster.api.ask(Call::post("/apis/authentication.k8s.io/v1/tokenreviews", review))?;
    assert_eq!(review["status"]["authenticated"], true, "{review:#}");
    let group = cluster.node.run_in("web", "main", "stat -c %g /data")?;
    assert_eq!(group.trim(), "4321", "the policy is File, and there is no fsType");
    let count = driver.requests::<NodePublishVolumeRequest>().len();
    cluster.node.eventually("the driver to be asked again", || {
        ensure!(driver.requests::<NodePublishVolumeRequest>().len() > count, "it is not");
        Ok(())
    })?;
    assert_eq!(driver.requests::<NodeStageVolumeRequest>().len(), 1);

    // A volume in the pod's own spec is none that this driver gives.
    let inline = claimant("inline", json!({"csi": {"driver": DRIVER}}));
    cluster.create_pod(&inline)?;
    wait_event(&cluster, "FailedMount", "(only supports [\"Persistent\"])")?;
    cluster.delete_pod("web", None)?;
    cluster.wait_gone("web")?;
    ensure!(driver.mounts_of("vol-1")?.is_empty(), "it is still mounted");
    Ok(())
}

/// A volume in the pod's own spec, of a driver whose object says that it gives such ones.
#[test]
fn a_driver_gives_volumes_of_pods_alone() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let options = CsiOptions { capabilities: BTreeSet::new(), ..CsiOptions::default() };
    let mut driver = driver(&cluster, options)?;
    driver.register()?;
    let spec = json!({"attachRequired": false, "podInfoOnMount": true,
        "volumeLifecycleModes": ["Ephemeral"]});
    let object = json!({"metadata": {"name": DRIVER}, "spec": spec});
    cluster.api.ask(Call::post(&path(STORAGE, "", &["csidrivers"]), object))?;
    let source = json!({"csi": {"driver": DRIVER, "volumeAttributes": {"colour": "blue"}}});
    let uid = cluster.create_pod(&claimant("web", source))?;
    cluster.wait_ready("web")?;
    let asked = driver.requests::<NodePublishVolumeRequest>().pop().context("it was published")?;
    let told = |key: &str| asked.volume_context.get(key).map(String::as_str);
    assert_eq!(told("colour"), Some("blue"));
    assert_eq!(told("csi.storage.k8s.io/ephemeral"), Some("true"));
    assert_eq!(told("csi.storage.k8s.io/pod.uid"), Some(uid.as_str()));
    let handle = format!("csi-{}", sha256(&format!("{uid}data"))?);
    assert_eq!(asked.volume_id, handle);
    assert!(driver.requests::<NodeStageVolumeRequest>().is_empty(), "it is staged for nobody");
    wait_in_use(&cluster, &[])?;
    let word = cluster.node.run_in("web", "main", "cat /data/word")?;
    ensure!(!word.is_empty(), "it is what the pod wrote");

    cluster.node.survive_kill()?;
    assert_eq!(cluster.node.run_in("web", "main", "cat /data/word")?, word);

    // A claim is none that this driver gives.
    bind(&cluster, "data", "pv-1", "vol-1", json!({}))?;
    let claim = json!({"persistentVolumeClaim": {"claimName": "data"}});
    let claimed = cluster.create_pod(&claimant("claimed", claim))?;
    wait_event(&cluster, "FailedMount", "(only supports [\"Ephemeral\"])")?;
    for (name, uid) in [("claimed", &claimed), ("web", &uid)] {
        cluster.delete_pod(name, None)?;
        cluster.wait_no_trace(name, uid)?;
    }
    let undone = driver.requests::<NodeUnpublishVolumeRequest>();
    ensure!(undone.iter().any(|request| request.volume_id == handle), "{undone:?}");
    ensure!(driver.mounts_of(&handle)?.is_empty(), "it is still mounted");
    Ok(())
}

#[test]
fn without_its_csi_node_the_node_is_not_ready() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let ready = |cluster: &Cluster, wanted: &str, words: &str| {
        cluster.node.eventually(&format!("Ready to be {wanted}"), || {
            let node = node(cluster)?;
            let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = all.into_iter().find(|one| one["type"] == "Ready").context("none")?;
            let message = found["message"].as_str().unwrap_or_default();
            ensure!(found["status"] == wanted && message.contains(words), "{found:#}");
            Ok(())
        })
    };
    ready(&cluster, "True", "")?;
    // Who may not make the object: the role says so.
    let place = path("apis/rbac.authorization.k8s.io/v1", "", &["clusterroles", "system:node"]);
    let role = cluster.api.ask(Call::get(&place))?;
    let rules = role["rules"].as_array().context("a role has rules")?;
    let rest: Vec<&Value> =
        rules.iter().filter(|rule| rule["resources"] != json!(["csinodes"])).collect();
    ensure!(rest.len() + 1 == rules.len(), "the role knows CSINodes");
    cluster.api.ask(Call::patch(&place, Patch::Merge, json!({"rules": rest})))?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    ready(&cluster, "False", "failed to initialize CSINode: ")?;
    cluster.api.ask(Call::patch(&place, Patch::Merge, json!({"rules": rules})))?;
    ready(&cluster, "True", "kubelet is posting ready status")
}

#[test]
fn without_its_server_a_node_unmounts_nothing() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let mut driver = driver(&cluster, CsiOptions::default())?;
    driver.register()?;
    bind(&cluster, "data", "pv-1", "vol-1", json!({}))?;
    let source = json!({"persistentVolumeClaim": {"claimName": "data"}});
    let uid = cluster.create_pod(&claimant("web", source))?;
    wait_in_use(&cluster, &[&unique_name("vol-1")])?;
    attach(&cluster, "pv-1", "vol-1")?;
    cluster.wait_ready("web")?;
    let (before, mounts) = (cluster.node.instances()?, driver.mounts_of("vol-1")?);
    assert_eq!(mounts.len(), 2, "the node's and the pod's");

    cluster.api.pause()?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    // Several times as long as klet takes to look for what nobody wants.
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(driver.mounts_of("vol-1")?, mounts);
    assert_eq!(cluster.node.instances()?, before, "the same container");
    assert!(driver.requests::<NodeUnpublishVolumeRequest>().is_empty(), "nobody asked for it");
    fs::read(driver.volume_dir("vol-1").join("word")).context("what it wrote is there")?;

    // The pod goes while nobody can tell the node.
    let key = Key { resource: "pods".into(), namespace: "default".into(), name: "web".into() };
    let stored = cluster.api.store().get(&key).context("the pod is stored")?;
    cluster.api.store().delete(&key, stored.revision)?;
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(driver.mounts_of("vol-1")?, mounts, "klet does not know");
    cluster.api.resume()?;
    let dir = cluster.node.klet.root_dir().join("pods").join(&uid);
    cluster.node.eventually("everything to be undone", || {
        let (sandboxes, containers) = cluster.node.in_runtime("web")?;
        ensure!(sandboxes.is_empty() && containers.is_empty(), "{sandboxes:?} {containers:?}");
        let mounts = driver.mounts_of("vol-1")?;
        ensure!(mounts.is_empty(), "{mounts:?}");
        ensure!(!dir.exists(), "{} is there", dir.display());
        Ok(())
    })?;
    wait_in_use(&cluster, &[])?;
    assert_eq!(driver.requests::<NodeUnpublishVolumeRequest>().len(), 1);
    assert_eq!(driver.requests::<NodeUnstageVolumeRequest>().len(), 1);
    Ok(())
}

/// A claim that the pod's own spec describes; the cluster makes it, and a volume for it.
#[test]
fn a_volume_that_is_made_for_its_pod() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let mut driver = driver(&cluster, CsiOptions::default())?;
    driver.register()?;
    let object = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    cluster.api.ask(Call::post(&path(STORAGE, "", &["csidrivers"]), object))?;
    let (name, claim) = ("ephemeral-claim", "ephemeral-claim-scratch");
    let uid = cluster.apply_example(name)?;
    let pod = cluster.pod(name).context("no pod")?;
    let spec = &pod["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"];
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid,
        "controller": true});
    let metadata = json!({"name": claim, "ownerReferences": [owner]});
    cluster.create("persistentvolumeclaims", json!({"metadata": metadata, "spec": spec}))?;
    let class = json!({"storageClassName": "standard"});
    bind(&cluster, claim, "pv-1", "vol-1", class)?;
    cluster.node.wait_word(name, "count", "1")?;
    cluster.wait_ready(name)?;
    let read = "cat /scratch/starts";
    assert_eq!(cluster.node.run_in(name, "count", read)?, "start\n");
    let kept = driver.volume_dir("vol-1").join("starts");
    assert_eq!(fs::read_to_string(&kept)?, "start\n");

    let mounted = driver.mounts_of("vol-1")?;
    cluster.node.survive_kill()?;
    cluster.wait_ready(name)?;
    cluster.node.run_in(name, "count", "echo later >>/scratch/starts")?;
    assert_eq!(fs::read_to_string(&kept)?, "start\nlater\n");
    assert_eq!(driver.mounts_of("vol-1")?, mounted, "no more than before");

    // The agent is killed while the pod is to go.
    cluster.delete_pod(name, None)?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.wait_no_trace(name, &uid)?;
    ensure!(driver.mounts_of("vol-1")?.is_empty(), "it is still mounted");
    Ok(())
}

/// Upstream's patience with a volume that cannot be attached is two minutes.
#[test]
fn a_pod_leaves_a_node_that_has_too_many_volumes() -> Result<()> {
    let cluster = Cluster::start()?;
    let mut driver = driver(&cluster, CsiOptions { volumes_max: 1, ..CsiOptions::default() })?;
    driver.register()?;
    let object = json!({"metadata": {"name": DRIVER},
        "spec": {"nodeAllocatableUpdatePeriodSeconds": 3600}});
    cluster.api.ask(Call::post(&path(STORAGE, "", &["csidrivers"]), object))?;
    bind(&cluster, "data", "pv-1", "vol-1", json!({}))?;
    let source = json!({"persistentVolumeClaim": {"claimName": "data"}});
    cluster.create_pod(&claimant("web", source))?;
    wait_in_use(&cluster, &[&unique_name("vol-1")])?;
    let asked = driver.requests::<NodeGetInfoRequest>().len();

    let node = cluster.node.klet.node_name();
    let name = format!("csi-{}", sha256(&format!("vol-1{DRIVER}{node}"))?);
    let object = json!({"metadata": {"name": name}, "spec": {"attacher": DRIVER,
        "nodeName": node, "source": {"persistentVolumeName": "pv-1"}}});
    cluster.api.ask(Call::post(&path(STORAGE, "", &["volumeattachments"]), object))?;
    let place = path(STORAGE, "", &["volumeattachments", &name, "status"]);
    let status = json!({"attached": false, "attachError": {"message": "no", "errorCode": 8}});
    cluster.api.ask(Call::patch(&place, Patch::Merge, json!({"status": status})))?;

    let limit = Duration::from_secs(240);
    let pod = cluster.node.within(limit, "the pod to be refused", || {
        let pod = cluster.pod("web").context("no pod")?;
        ensure!(pod["status"]["phase"] == "Failed", "{:#}", pod["status"]);
        Ok(pod)
    })?;
    assert_eq!(pod["status"]["reason"], "VolumeAttachmentLimitExceeded");
    let message = "Pod was rejected: Node has reached its volume attachment limit, rejecting pod. \
                   unmounted volumes=[data], unattached volumes=[data], failed to process \
                   volumes=[]: context deadline exceeded";
    assert_eq!(pod["status"]["message"], message);
    wait_event(&cluster, "VolumeAttachmentLimitExceeded", "has reached its volume attachment")?;
    wait_in_use(&cluster, &[])?;
    assert!(driver.requests::<NodeGetInfoRequest>().len() > asked, "the driver was asked again");
    Ok(())
}
