//! Hostile containers against volumes: whatever they put where klet works, the
//! host outside of their volumes stays as it is. Named after the holes that were
//! found upstream, where there was one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api_client::{Call, path};
use rustix::fs::{CWD, Mode, inotify, mkfifoat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Value, json};
use testkit::{Canary, Cluster, Node, PodManifest, hostile};

fn config_map(data: Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": data})
        .to_string()
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
    let canary = node.canary()?;
    node.manifests.put("conf.json", config_map(json!({"word": "0", "other": "x"})))?;
    let victim = PodManifest::script("victim", "exec sleep 1000")
        .grace(0)
        .mounts(&[("conf", "/conf")])
        .spec("volumes", json!([{"name": "conf", "configMap": {"name": "conf"}}]));
    node.manifests.put_pod(&victim)?;
    let uid = node.wait_running("victim")?.uid;
    let dir = node.volume_dir(&uid, "configmap", "conf");
    let root = canary.root.display();
    let race = format!(
        "cd /t; while true; do for name in ..data ..data_tmp word other ..2020_01_01_00_00_00.1; do \
         rm -f $name; ln -s {root} $name; done; done 2>/dev/null"
    );
    let evil = PodManifest::script("evil", &race)
        .grace(0)
        .mounts(&[("t", "/t")])
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

/// Names reach no shell, and those that lead somewhere else reach nothing. Layers: the
/// check of the manifest; behind it, for parts of volumes, that of the expanded path and
/// the kernel's lookup, and for files that of the payload.
#[test]
fn cve_2023_3955_names_are_names() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
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
    let made = node.volume_dir(&view.uid, "empty-dir", "v").join(&odd);
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
        .mounts(&[("conf", "/conf")])
        .spec("volumes", json!([{"name": "conf", "configMap": {"name": map}}]))
}

/// Keys become names of files: a file of them all is refused, and its pod waits. Layers:
/// the check of the object, and that of the payload's paths.
#[test]
fn a_config_map_key_that_climbs() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
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
    let canary = cluster.node.canary()?;
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
        .mounts(&[("v", "/v")])
        .container("main", "stat -c %F /pipe /zero /dir /link; exec sleep 1000")
        .with("volumeMounts", json!([part("pipe"), part("zero"), part("dir"), part("link")]));
    node.manifests.put_pod(&pod)?;
    let uid = node.wait_running("odd")?.uid;
    node.wait_word("odd", "main", "fifo")?;
    node.wait_word("odd", "main", "character special file")?;
    let dir = node.volume_dir(&uid, "empty-dir", "v");
    assert!(dir.join("pipe").symlink_metadata()?.file_type().is_fifo());
    // As a path of the host that should be a file.
    let wrong = PodManifest::script("wrong", "exec sleep 1000").mounts(&[("f", "/f")]).spec(
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
    let canary = node.canary()?;
    let pod = PodManifest::script("web", "exec sleep 1000")
        .grace(0)
        .mounts(&[("v", "/v")])
        .spec("volumes", json!([{"name": "v", "emptyDir": {}}]));
    node.manifests.put_pod(&pod)?;
    let uid = node.wait_running("web")?.uid;
    node.run_in("web", "main", &format!("ln -s {} /v/link", canary.root.display()))?;
    let dir = node.volume_dir(&uid, "empty-dir", "v");
    fs::rename(&dir, dir.with_file_name("w"))?;
    symlink(&canary.root, &dir)?;
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)?;
    canary.check()
}

/// A container that may mount leaves something of the host in its volume. Layers: the
/// search before the removal, and a removal that enters no other mount.
#[test]
fn what_a_container_mounted_in_its_volume_is_kept() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
    let script = "mkdir /v/in && mount -o bind /canary /v/in && echo mounted; exec sleep 1000";
    let pod = hostile::mounter("web", script, &canary);
    node.manifests.put_pod(&pod)?;
    let uid = node.wait_running("web")?.uid;
    node.wait_word("web", "main", "mounted")?;
    let point = node.volume_dir(&uid, "empty-dir", "v").join("in");
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

/// Tells whether anybody opened a file, for more than its name, since it began to look.
struct Opens(OwnedFd);

impl Opens {
    fn of(path: &Path) -> Result<Self> {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, path, inotify::WatchFlags::OPEN)?;
        Ok(Self(watch))
    }

    fn any(&self) -> Result<bool> {
        match rustix::io::read(&self.0, &mut [0; 4096]) {
            Err(Errno::AGAIN) => Ok(false),
            read => Ok(read? > 0),
        }
    }
}

/// A part of a volume where klet looks for a container's last words. To open a device may
/// start something, such as the watchdog that resets the machine.
#[test]
fn a_termination_message_that_is_a_pipe_a_device_or_huge() -> Result<()> {
    let node = Node::start()?;
    let make = "mkfifo /v/pipe; mknod /v/zero c 1 5; dd if=/dev/zero of=/v/huge bs=1 count=1 \
                seek=100G; ls -l /v";
    let names = ["pipe", "zero", "huge"];
    for name in names {
        let words = json!({"name": "v", "mountPath": "/dev/termination-log", "subPath": name});
        let pod = PodManifest::new(name)
            .spec("volumes", json!([{"name": "v", "emptyDir": {}}]))
            .restart("Never")
            .grace(0)
            .init("make", make)
            .mounts(&[("v", "/v")])
            .container("main", "until [ -e /v/go ]; do sleep 0.1; done; exit 3")
            .with("volumeMounts", json!([{"name": "v", "mountPath": "/v"}, words]));
        node.manifests.put_pod(&pod)?;
    }
    for name in names {
        let uid = node.wait_running(name)?.uid;
        let dir = node.volume_dir(&uid, "empty-dir", "v");
        let opens = Opens::of(&dir.join(name))?;
        fs::write(dir.join("go"), "")?;
        let view = node.wait_pod(name, "to end", |pod| {
            pod.container("main").is_ok_and(|main| main.state == "terminated")
        })?;
        let message = &view.container("main")?.message;
        if name == "huge" {
            ensure!(message.len() <= 3 * 4096, "{} bytes of it were read", message.len());
        } else {
            ensure!(message.ends_with("not a regular file"), "{name}: {message}");
            ensure!(!opens.any()?, "{name} was opened");
        }
        node.manifests.remove_pod(name)?;
        node.wait_no_trace(name, &uid)?;
    }
    Ok(())
}

/// A name in a volume, and in a pod's spec, may hold anything but a zero.
#[test]
fn names_with_newlines_and_escapes_forge_no_line_of_the_log() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
    let odd = "out\nFORGED all is well \u{1b}[2J";
    let pod = PodManifest::new("odd")
        .spec("volumes", json!([{"name": "v", "emptyDir": {}}]))
        .grace(0)
        .init("make", &format!("ln -s {} \"/v/$NAME\"", canary.root.display()))
        .with("env", json!([{"name": "NAME", "value": odd}]))
        .mounts(&[("v", "/v")])
        .container("main", "cat /part/word; exec sleep 1000")
        .with("volumeMounts", json!([{"name": "v", "mountPath": "/part", "subPath": odd}]));
    node.manifests.put_pod(&pod)?;
    node.wait_klet_logs("leads out of the volume")?;
    let uid = node.pod("odd")?.uid;
    node.manifests.remove_pod("odd")?;
    node.wait_no_trace("odd", &uid)?;
    let log = fs::read_to_string(node.klet.log_path())?;
    ensure!(!log.contains("\nFORGED") && !log.contains('\u{1b}'), "it says {log}");
    canary.check()
}

/// Deeper than any path can name, with a way out at the bottom.
#[test]
fn an_empty_directory_nested_deeper_than_any_path() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
    // From the inside out: each round puts what is there at the bottom of a new tree.
    let script = format!(
        "cd /v; part=$(printf 'directory/%.0s' $(seq 190)); mkdir top; ln -s {} top/out; \
         for round in $(seq 10); do mkdir -p new/$part; mv top new/$part; mv new top; done; \
         echo deep; exec sleep 1000",
        canary.root.display()
    );
    let pod = PodManifest::script("deep", &script)
        .grace(0)
        .mounts(&[("v", "/v")])
        .spec("volumes", json!([{"name": "v", "emptyDir": {}}]));
    node.manifests.put_pod(&pod)?;
    node.wait_word("deep", "main", "deep")?;
    let uid = node.pod("deep")?.uid;
    let below = node.volume_dir(&uid, "empty-dir", "v");
    ensure!(below.join("top").is_dir(), "nothing is in {}", below.display());
    node.manifests.remove_pod("deep")?;
    node.wait_no_trace("deep", &uid)?;
    canary.check()
}

/// Somebody who can write where klet keeps a pod's own files leads them elsewhere.
#[test]
fn a_hosts_file_that_became_a_link_or_a_pipe() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
    let pod = PodManifest::script("web", "sleep 3; exit 1").grace(0);
    node.manifests.put_pod(&pod)?;
    let uid = node.wait_running("web")?.uid;
    let hosts = node.klet.root_dir().join("pods").join(&uid).join("etc-hosts");
    let refused = |why: &str| {
        node.wait_pod("web", "to be refused", |pod| {
            pod.container("main").is_ok_and(|main| {
                let told = format!("cannot write {}", hosts.display());
                main.message.contains(&told) && main.message.contains(why)
            })
        })
    };
    fs::remove_file(&hosts)?;
    symlink(canary.root.join("word"), &hosts)?;
    refused("symbolic link")?;
    canary.check()?;
    fs::remove_file(&hosts)?;
    mkfifoat(CWD, &hosts, Mode::RUSR)?;
    refused("No such device or address")?;
    fs::remove_file(&hosts)?;
    node.wait_running("web")?;
    ensure!(hosts.symlink_metadata()?.is_file(), "it is made anew");
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)?;
    canary.check()
}
