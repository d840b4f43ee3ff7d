//! Hostile containers against volumes: whatever they put where klet works, the
//! host outside of their volumes stays as it is. Named after the holes that were
//! found upstream, where there was one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api_client::{Call, path};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Value, json};
use testkit::{Canary, Cluster, Node, PodManifest};

fn canary(node: &Node) -> Result<Canary> {
    Canary::new(node.containerd.dir())
}

fn mounts(list: &[(&str, &str)]) -> Value {
    list.iter().map(|(name, path)| json!({"name": name, "mountPath": path})).collect()
}

fn config_map(data: Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": data})
        .to_string()
}

fn volume_dir(node: &Node, uid: &str, plugin: &str, name: &str) -> PathBuf {
    let pods = node.klet.root_dir().join("pods");
    pods.join(uid).join("volumes").join(format!("kubernetes.io~{plugin}")).join(name)
}

#[test]
fn cve_2017_1002101_and_cve_2021_25741_a_sub_path_that_becomes_a_link() -> Result<()> {
    race_sub_paths(&Node::start()?, &json!({"emptyDir": {}}))
}

/// The same race in a directory of the host, where nothing is the agent's own.
#[test]
fn a_sub_path_of_the_host_that_becomes_a_link() -> Result<()> {
    let node = Node::start()?;
    let shared = node.containerd.dir().join("shared");
    let source = json!({"hostPath": {"path": shared, "type": "DirectoryOrCreate"}});
    race_sub_paths(&node, &source)?;
    ensure!(shared.is_dir(), "it is the host's, and stays");
    Ok(())
}

/// A container swaps a directory of the volume for a link out of it, for ever, while
/// klet binds that directory for other containers.
fn race_sub_paths(node: &Node, source: &Value) -> Result<()> {
    let canary = canary(node)?;
    let mut volume = source.clone();
    volume["name"] = json!("v");
    // What klet makes where nothing is at the moment is replaced in the next round.
    let race = format!(
        "cd /v; mkdir real; ln -s {} link; while true; do \
         mv -fT real dir; mv -fT dir real; mv -fT link dir; mv -fT dir link; done 2>/dev/null",
        canary.root.display()
    );
    let look = "echo looked >>/seen/looks; cat /part/word >>/seen/stolen; exit 1";
    let mut pod = PodManifest::new("evil")
        .spec("volumes", json!([volume, {"name": "seen", "emptyDir": {}}]))
        .grace(0)
        .container("racer", &race)
        .with("volumeMounts", mounts(&[("v", "/v")]));
    for at in 0..12 {
        let part = json!({"name": "v", "mountPath": "/part", "subPath": "dir"});
        let seen = json!({"name": "seen", "mountPath": "/seen"});
        pod = pod.container(&format!("victim{at}"), look).with("volumeMounts", json!([part, seen]));
    }
    node.manifests.put_pod(&pod)?;
    let uid = node.eventually("the race to be won and lost", || {
        let uid = node.pod("evil")?.uid;
        let seen = volume_dir(node, &uid, "empty-dir", "seen");
        let looks = fs::read_to_string(seen.join("looks"))?.lines().count();
        let log = fs::read_to_string(node.klet.log_path())?;
        let refused = log.matches("sub path not bound").count();
        ensure!(looks >= 3 && refused >= 3, "{looks} looked, {refused} were refused");
        Ok(uid)
    })?;
    let stolen = volume_dir(node, &uid, "empty-dir", "seen").join("stolen");
    assert_eq!(fs::read_to_string(stolen)?, "", "what lies outside of the volume was read");
    canary.check()?;
    node.manifests.remove_pod("evil")?;
    node.wait_no_trace("evil", &uid)?;
    canary.check()
}

/// Directories of published files: not the links that somebody puts beside them.
fn versions(dir: &Path) -> Result<BTreeSet<OsString>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // One may have gone since.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.insert(entry.file_name());
        }
    }
    Ok(found)
}

/// Somebody who can write where klet publishes files keeps putting links there.
#[test]
fn cve_2017_1002102_links_appear_while_files_are_published() -> Result<()> {
    let node = Node::start()?;
    let canary = canary(&node)?;
    node.manifests.put("conf.json", config_map(json!({"word": "0", "other": "x"})))?;
    let victim = PodManifest::script("victim", "exec sleep 1000")
        .grace(0)
        .with("volumeMounts", mounts(&[("conf", "/conf")]))
        .spec("volumes", json!([{"name": "conf", "configMap": {"name": "conf"}}]));
    node.manifests.put_pod(&victim)?;
    let uid = node.wait_running("victim")?.uid;
    let dir = volume_dir(&node, &uid, "configmap", "conf");
    let root = canary.root.display();
    let race = format!(
        "cd /t; while true; do for name in ..data ..data_tmp word other ..2020_01_01_00_00_00.1; do \
         rm -f $name; ln -s {root} $name; done; done 2>/dev/null"
    );
    let evil = PodManifest::script("evil", &race)
        .grace(0)
        .with("volumeMounts", mounts(&[("t", "/t")]))
        .spec("volumes", json!([{"name": "t", "hostPath": {"path": dir}}]));
    node.manifests.put_pod(&evil)?;
    let evil_uid = node.wait_running("evil")?.uid;
    let mut seen = BTreeSet::new();
    for round in 1..=20 {
        let mut data = json!({"word": format!("{round}")});
        if round % 2 == 0 {
            data["other"] = json!("x");
        }
        node.manifests.put("conf.json", config_map(data))?;
        std::thread::sleep(Duration::from_millis(150));
        seen.append(&mut versions(&dir)?);
    }
    ensure!(seen.len() >= 5, "the race was about {} versions only", seen.len());
    canary.check()?;
    node.manifests.remove_pod("evil")?;
    node.wait_no_trace("evil", &evil_uid)?;
    node.manifests.put("conf.json", config_map(json!({"word": "last"})))?;
    node.eventually("the victim to see the last files", || {
        let seen = node.run_in("victim", "main", "cat /conf/word")?;
        ensure!(seen.trim() == "last", "it sees {seen:?}");
        Ok(())
    })?;
    canary.check()?;
    symlink(&canary.root, dir.join("..2021_01_01_00_00_00.1"))?;
    node.manifests.remove_pod("victim")?;
    node.wait_no_trace("victim", &uid)?;
    canary.check()
}

/// Names reach no shell, and those that lead somewhere else reach nothing.
#[test]
fn cve_2023_3955_names_are_names() -> Result<()> {
    let node = Node::start()?;
    let canary = canary(&node)?;
    let mark = canary.root.join("pwned");
    let odd = format!("a b'\"; $(touch {}) `id` && \\n", mark.display());
    let pod = |name: &str, volumes: Value, mount: Value| {
        PodManifest::script(name, "ls /v; echo seen; exec sleep 1000")
            .grace(0)
            .with("volumeMounts", json!([mount]))
            .spec("volumes", volumes)
    };
    let at = |name: &str| json!({"name": name, "mountPath": "/v"});
    let path = |path: &str| json!([{"name": "v", "hostPath": {"path": path}}]);
    let items = |path: &str| json!([{"name": "v", "configMap": {"name": "conf", "items": [{"key": "k", "path": path}]}}]);
    let up = format!("{}/../canary", node.containerd.dir().join("x").display());
    let dir = json!([{"name": "v", "emptyDir": {}}]);
    for (name, volumes, mount) in [
        ("volume", json!([{"name": "a/../b", "emptyDir": {}}]), at("a/../b")),
        ("shell", json!([{"name": "$(id)", "emptyDir": {}}]), at("$(id)")),
        ("host", path(&up), at("v")),
        ("item", items("../../word"), at("v")),
        ("data", items("..data/word"), at("v")),
        ("absolute", items("/word"), at("v")),
        ("part", dir.clone(), json!({"name": "v", "mountPath": "/v", "subPath": "../../x"})),
        ("whole", dir.clone(), json!({"name": "v", "mountPath": "/v", "subPath": "/etc"})),
    ] {
        node.manifests.put_pod(&pod(name, volumes, mount))?;
    }
    node.manifests.put_pod(&pod("uid", dir.clone(), at("v")).uid("../../../canary"))?;
    let literal = json!({"name": "v", "mountPath": "/v", "subPath": odd});
    node.manifests.put_pod(&pod("literal", dir.clone(), literal))?;
    let variable = json!({"name": "v", "mountPath": "/v", "subPathExpr": "$(WHERE)"});
    let climbs = pod("variable", dir, variable)
        .with("env", json!([{"name": "WHERE", "value": "../../../canary"}]));
    node.manifests.put_pod(&climbs)?;

    let view = node.wait_running("literal")?;
    let made = volume_dir(&node, &view.uid, "empty-dir", "v").join(&odd);
    assert!(made.is_dir(), "{} is a directory's name", made.display());
    node.wait_pod("variable", "to be refused", |pod| {
        pod.container("main").is_ok_and(|main| {
            main.reason == "CreateContainerConfigError" && main.message.contains("must not contain")
        })
    })?;
    for name in ["volume", "shell", "host", "item", "data", "absolute", "part", "whole", "uid"] {
        let file = node.manifests.path().join(format!("{name}.json"));
        node.wait_klet_logs(&format!("has no good version file={file:?}"))?;
        assert_eq!(node.in_runtime(name)?, (vec![], vec![]), "{name} runs");
    }
    assert!(!mark.exists());
    canary.check()
}

/// Keys that would be the canary's file, or the publisher's own names.
fn climbing_keys(canary: &Canary) -> [String; 5] {
    let word = canary.root.join("word").display().to_string();
    let up = format!("{}{}", "..".to_owned() + &"/..".repeat(20), word);
    ["..".to_owned(), "../x".to_owned(), "..data".to_owned(), word, up]
}

fn conf_pod(name: &str, map: &str) -> PodManifest {
    PodManifest::script(name, "echo $(cat /conf/word); exec sleep 1000")
        .grace(0)
        .with("volumeMounts", mounts(&[("conf", "/conf")]))
        .spec("volumes", json!([{"name": "conf", "configMap": {"name": map}}]))
}

/// Keys become names of files: a file of them all is refused, and its pod waits.
#[test]
fn a_config_map_key_that_climbs() -> Result<()> {
    let node = Node::start()?;
    let canary = canary(&node)?;
    node.manifests.put_pod(&conf_pod("web", "conf"))?;
    for (number, key) in climbing_keys(&canary).into_iter().enumerate() {
        let name = format!("conf-{number}.json");
        node.manifests.put(&name, config_map(json!({ key.clone(): "pwned" })))?;
        let file = node.manifests.path().join(&name);
        node.wait_klet_logs(&format!("has no good version file={file:?}"))?;
        canary.check()?;
        assert_eq!(node.in_runtime("web")?, (vec![], vec![]), "{key:?} was mounted");
    }
    node.manifests.put("conf.json", config_map(json!({"word": "good"})))?;
    node.wait_word("web", "main", "good")?;
    let uid = node.pod("web")?.uid;
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)?;
    canary.check()
}

/// The same from an API server that lets any key pass, as this small one does.
#[test]
fn a_config_map_key_of_the_api_server_that_climbs() -> Result<()> {
    let cluster = Cluster::start()?;
    let canary = canary(&cluster.node)?;
    let mut pods = Vec::new();
    for (number, key) in climbing_keys(&canary).into_iter().enumerate() {
        let name = format!("map-{number}");
        let data = json!({ key: "pwned" });
        cluster.create("configmaps", json!({"metadata": {"name": name}, "data": data}))?;
        pods.push((cluster.create_pod(&conf_pod(&name, &name))?, name));
    }
    for (uid, name) in &pods {
        cluster.node.eventually(&format!("{name} to say why it waits"), || {
            let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
            let all = events["items"].as_array().cloned().unwrap_or_default();
            let told = all.iter().any(|event| {
                event["involvedObject"]["uid"] == uid.as_str() && event["reason"] == "FailedMount"
            });
            ensure!(told, "{all:#?}");
            Ok(())
        })?;
        assert_eq!(cluster.node.in_runtime(name)?.1, vec![], "{name} has a container");
        canary.check()?;
        cluster.delete_pod(name, Some(0))?;
    }
    pods.iter().try_for_each(|(uid, name)| cluster.wait_no_trace(name, uid))?;
    canary.check()
}

/// A pipe blocks whoever opens it, a device may do anything.
#[test]
fn pipes_and_devices_in_the_place_of_files_hold_nobody_up() -> Result<()> {
    let node = Node::start()?;
    let make = "mkfifo /v/pipe; mknod /v/zero c 1 5; mkdir /v/dir; ln -s dir /v/link";
    let part = |name: &str| json!({"name": "v", "mountPath": format!("/{name}"), "subPath": name});
    let pod = PodManifest::new("odd")
        .spec("volumes", json!([{"name": "v", "emptyDir": {}}]))
        .grace(0)
        .init("make", make)
        .with("volumeMounts", mounts(&[("v", "/v")]))
        .container("main", "stat -c %F /pipe /zero /dir /link; exec sleep 1000")
        .with("volumeMounts", json!([part("pipe"), part("zero"), part("dir"), part("link")]));
    node.manifests.put_pod(&pod)?;
    let uid = node.wait_running("odd")?.uid;
    node.wait_word("odd", "main", "fifo")?;
    node.wait_word("odd", "main", "character special file")?;
    let dir = volume_dir(&node, &uid, "empty-dir", "v");
    assert!(dir.join("pipe").symlink_metadata()?.file_type().is_fifo());
    // As a path of the host that should be a file.
    let wrong = PodManifest::script("wrong", "exec sleep 1000")
        .with("volumeMounts", mounts(&[("f", "/f")]))
        .spec(
            "volumes",
            json!([{"name": "f", "hostPath": {"path": dir.join("pipe"), "type": "File"}}]),
        );
    node.manifests.put_pod(&wrong)?;
    node.wait_pod("wrong", "to tell what is wrong", |pod| {
        let condition = pod.condition("PodReadyToStartContainers");
        condition.is_ok_and(|condition| condition.message.contains("pipe is not a file"))
    })?;
    node.manifests.remove_pod("odd")?;
    node.wait_no_trace("odd", &uid)
}

/// A link where klet made a directory leads its removal nowhere.
#[test]
fn an_empty_directory_that_became_a_link() -> Result<()> {
    let node = Node::start()?;
    let canary = canary(&node)?;
    let pod = PodManifest::script("web", "exec sleep 1000")
        .grace(0)
        .with("volumeMounts", mounts(&[("v", "/v")]))
        .spec("volumes", json!([{"name": "v", "emptyDir": {}}]));
    node.manifests.put_pod(&pod)?;
    let uid = node.wait_running("web")?.uid;
    node.run_in("web", "main", &format!("ln -s {} /v/link", canary.root.display()))?;
    let dir = volume_dir(&node, &uid, "empty-dir", "v");
    fs::rename(&dir, dir.with_file_name("w"))?;
    symlink(&canary.root, &dir)?;
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)?;
    canary.check()
}

/// A container that may mount leaves something of the host in its volume.
#[test]
fn what_a_container_mounted_in_its_volume_is_kept() -> Result<()> {
    let node = Node::start()?;
    let canary = canary(&node)?;
    let script = "mkdir /v/in && mount -o bind /canary /v/in && echo mounted; exec sleep 1000";
    let pod = PodManifest::script("web", script)
        .grace(0)
        .with("securityContext", json!({"privileged": true}))
        .with(
            "volumeMounts",
            json!([
                {"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"},
                {"name": "canary", "mountPath": "/canary"},
            ]),
        )
        .spec(
            "volumes",
            json!([
                {"name": "v", "emptyDir": {}},
                {"name": "canary", "hostPath": {"path": canary.root}},
            ]),
        );
    node.manifests.put_pod(&pod)?;
    let uid = node.wait_running("web")?.uid;
    node.wait_word("web", "main", "mounted")?;
    let point = volume_dir(&node, &uid, "empty-dir", "v").join("in");
    let seen = point.join("word").exists();
    node.manifests.remove_pod("web")?;
    let told = node.wait_klet_logs(&format!("will not remove {}", point.display()));
    let kept = canary.check();
    unmount(&point, UnmountFlags::DETACH).context("cannot unmount")?;
    assert!(seen, "the mount reached the host");
    told?;
    kept?;
    node.wait_no_trace("web", &uid)?;
    canary.check()
}
