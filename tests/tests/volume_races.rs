//! Hostile containers that race klet's work on their volumes, for many rounds: whoever
//! wins, the host outside of their volumes stays as it is, and nobody is held up.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Value, json};
use testkit::hostile::{PartRace, mounter, swaps_for_a_link, wait_part_race};
use testkit::{Node, PodManifest, host};

/// Pods that go while somebody races for each of them.
const VICTIMS: usize = 12;

/// The container swaps a directory of the volume for a link out of it while klet binds
/// that directory for other containers. Layers: one lookup by the kernel that leaves the
/// volume by no link, and a bind of what it opened rather than of a path. With the first
/// gone this fails; with the second gone the moment is too short for a shell, and
/// `cve_2021_25741_*` of crates/mounts fail.
fn race_sub_paths(node: &Node, source: Value, part: Value, env: Value) -> Result<()> {
    let canary = node.canary()?;
    let name = if part["subPath"].is_null() { "\"$NAME\"" } else { "dir" };
    let race = PartRace {
        source,
        racer: &swaps_for_a_link(name, &canary.root),
        look: "echo looked >>/seen/looks; cat /part/word >>/seen/stolen",
        part,
        env,
    };
    node.manifests.put_pod(&race.pod())?;
    let (uid, _) = wait_part_race(node, 5, 5)?;
    canary.check()?;
    let volume = node.volume_dir(&uid, "empty-dir", "v");
    ensure!(!volume.join("pwned").exists(), "a name was run");
    node.manifests.remove_pod("evil")?;
    node.wait_no_trace("evil", &uid)?;
    canary.check()
}

#[test]
fn cve_2017_1002101_and_cve_2021_25741_a_sub_path_that_becomes_a_link() -> Result<()> {
    let part = json!({"subPath": "dir"});
    race_sub_paths(&Node::start()?, json!({"emptyDir": {}}), part, json!([]))
}

/// The same race in a directory of the host, where nothing is the agent's own.
#[test]
fn cve_2021_25741_a_sub_path_of_the_host_that_becomes_a_link() -> Result<()> {
    let node = Node::start()?;
    let shared = node.containerd.dir().join("shared");
    let source = json!({"hostPath": {"path": shared, "type": "DirectoryOrCreate"}});
    race_sub_paths(&node, source, json!({"subPath": "dir"}), json!([]))?;
    ensure!(shared.is_dir(), "it is the host's, and stays");
    Ok(())
}

/// A name that a shell would run is swapped for a link under klet's hands.
#[test]
fn cve_2023_3955_a_name_that_becomes_a_link() -> Result<()> {
    let odd = "a b'\"; $(touch pwned) `touch pwned` && \\n";
    // A dollar sign is written twice to be one.
    let env = json!([{"name": "NAME", "value": odd.replace('$', "$$")}]);
    let part = json!({"subPathExpr": "$(NAME)"});
    race_sub_paths(&Node::start()?, json!({"emptyDir": {}}), part, env)
}

/// A pipe, a device, a directory and a link take turns where klet looks for a part, and
/// where it looks for a file of the host.
#[test]
fn pipes_devices_and_links_take_turns() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
    let racer = format!(
        "cd /v; mkfifo pipe; mknod zero c 1 5; mkdir real; ln -s {} link; while true; do \
         for kind in pipe zero real link; do mv -fT $kind part; mv -fT part $kind; done; done \
         2>/dev/null",
        canary.root.display()
    );
    let race = PartRace {
        source: json!({"emptyDir": {}}),
        racer: &racer,
        look: "stat -c %F /part >>/seen/looks; cat /part/word >>/seen/stolen & sleep 0.2",
        part: json!({"subPath": "part"}),
        env: json!([]),
    };
    node.manifests.put_pod(&race.pod())?;
    let at = node.eventually("the racer's volume", || {
        let at = node.volume_dir(&node.pod("evil")?.uid, "empty-dir", "v");
        ensure!(at.exists(), "it is not there yet");
        Ok(at)
    })?;
    let file = |name: &str, kind: &str| {
        let path = json!({"path": at.join("part"), "type": kind});
        PodManifest::script(name, "exec sleep 1000")
            .grace(0)
            .mounts(&[("f", "/f")])
            .spec("volumes", json!([{"name": "f", "hostPath": path}]))
    };
    for (name, kind) in [("file", "File"), ("socket", "Socket"), ("block", "BlockDevice")] {
        node.manifests.put_pod(&file(name, kind))?;
    }
    let (uid, seen) = wait_part_race(&node, 8, 3)?;
    let odd = ["fifo", "character special file", "directory"];
    ensure!(seen.lines().all(|line| odd.contains(&line)), "they saw {seen}");
    ensure!(seen.lines().any(|line| line != "directory"), "they saw directories only: {seen}");
    for name in ["file", "socket", "block"] {
        assert_eq!(node.in_runtime(name)?.1, vec![], "{name} was none, ever");
    }
    // Nothing holds klet up: another pod starts.
    node.manifests.put_pod(&PodManifest::script("calm", "echo calm; exec sleep 1000").grace(0))?;
    node.wait_word("calm", "main", "calm")?;
    node.manifests.clear()?;
    node.wait_no_trace("evil", &uid)?;
    canary.check()
}

fn wait_containers_gone(node: &Node, name: &str) -> Result<()> {
    node.eventually(&format!("the containers of {name} to be gone"), || {
        let (sandboxes, containers) = node.in_runtime(name)?;
        ensure!(sandboxes.is_empty() && containers.is_empty(), "{sandboxes:?} {containers:?}");
        Ok(())
    })
}

/// Somebody who can write where klet keeps volumes swaps them for links while their pods
/// go. Each step of the removal passes no link; the moment between two steps is too short
/// for a shell, and is met by `cve_2022_21658_*` of crates/mounts.
#[test]
fn empty_directories_become_links_while_they_are_removed() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
    let names: Vec<String> = (0..VICTIMS).map(|at| format!("victim{at}")).collect();
    for name in &names {
        let script = format!(
            "mkdir -p /v/a/b; echo x >/v/a/b/word; ln -s {} /v/a/b/out; touch /v/armed; \
             exec sleep 1000",
            canary.root.display()
        );
        let pod = PodManifest::script(name, &script)
            .grace(0)
            .mounts(&[("v", "/v")])
            .spec("volumes", json!([{"name": "v", "emptyDir": {}}]));
        node.manifests.put_pod(&pod)?;
    }
    let mut uids = Vec::new();
    for name in &names {
        let uid = node.wait_running(name)?.uid;
        node.eventually(&format!("{name} to be armed"), || {
            Ok(fs::metadata(node.volume_dir(&uid, "empty-dir", "v").join("armed")).map(drop)?)
        })?;
        uids.push(uid);
    }
    let race = format!(
        "echo racing; while true; do for uid in {}; do cd /pods/$uid/volumes/*/ || continue; \
         mv -T v w; ln -s {} v; touch /seen/$uid; rm -f v; mv -T w v; \
         mv -T v/a v/c; ln -s {} v/a; rm -f v/a; mv -T v/c v/a; done; done 2>/dev/null",
        uids.join(" "),
        canary.root.display(),
        canary.root.display()
    );
    let pods = node.klet.root_dir().join("pods");
    let evil = PodManifest::script("evil", &race)
        .grace(0)
        .mounts(&[("pods", "/pods"), ("seen", "/seen")])
        .spec(
            "volumes",
            json!([{"name": "pods", "hostPath": {"path": pods}}, {"name": "seen", "emptyDir": {}}]),
        );
    node.manifests.put_pod(&evil)?;
    node.wait_word("evil", "main", "racing")?;
    let evil = node.pod("evil")?.uid;
    node.eventually("each to be swapped", || {
        let swapped = fs::read_dir(node.volume_dir(&evil, "empty-dir", "seen"))?.count();
        ensure!(swapped == VICTIMS, "{swapped} were");
        Ok(())
    })?;
    names.iter().try_for_each(|name| node.manifests.remove_pod(name))?;
    // While somebody moves them about, klet may not get rid of all of them.
    names.iter().try_for_each(|name| wait_containers_gone(&node, name))?;
    canary.check()?;
    node.manifests.remove_pod("evil")?;
    node.wait_no_trace("evil", &evil)?;
    for (name, uid) in names.iter().zip(&uids) {
        put_away(&node, name, uid)?;
        node.wait_no_trace(name, uid)?;
    }
    canary.check()
}

/// A volume that was elsewhere while klet undid the pod's volumes, and came back before the
/// pod's directory was removed, is not undone anew: klet keeps its data, says where, and the
/// pod stays until somebody removes it, as here. Once klet undoes volumes again after a
/// refused removal, this is to go.
fn put_away(node: &Node, name: &str, uid: &str) -> Result<()> {
    let volume = node.volume_dir(uid, "empty-dir", "v");
    let kind = volume.parent().context("a volume is in a directory")?.to_owned();
    let pod = node.klet.root_dir().join("pods").join(uid);
    node.eventually(&format!("{name} to be gone, or what is left of it told"), || {
        if !pod.try_exists()? {
            return Ok(());
        }
        let log = fs::read_to_string(node.klet.log_path())?;
        let told = |line: &str| line.contains("will not remove") && line.contains(uid);
        ensure!(log.lines().any(told), "klet has not told of {uid}");
        // No link is followed.
        fs::remove_dir_all(&kind).or_else(|error| match error.kind() {
            ErrorKind::NotFound => Ok(()),
            _ => Err(error.into()),
        })
    })
}

/// Containers mount and unmount something of the host in their volumes while their pods
/// go: nothing of it is removed, whatever klet meets.
#[test]
fn mounts_come_and_go_while_volumes_are_removed() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
    let script = "mkdir -p /v/a/in /v/b/in; mount -o bind /canary /v/b/in; umount /v/b/in; \
                  echo racing; while true; do for at in /v/a/in /v/b/in; do \
                  mkdir -p $at; mount -o bind /canary $at; done; umount /v/a/in /v/b/in; done \
                  2>/dev/null";
    let names: Vec<String> = (0..VICTIMS).map(|at| format!("racer{at}")).collect();
    for name in &names {
        node.manifests.put_pod(&mounter(name, script, &canary))?;
    }
    let mut dirs = Vec::new();
    for name in &names {
        node.wait_word(name, "main", "racing")?;
        let uid = node.pod(name)?.uid;
        dirs.push((name, node.klet.root_dir().join("pods").join(&uid), uid));
    }
    node.manifests.clear()?;
    names.iter().try_for_each(|name| wait_containers_gone(&node, name))?;
    canary.check()?;
    // What a container left mounted is kept until somebody takes it away.
    let mut kept = 0;
    for (_, dir, _) in &dirs {
        for point in host::mounts_below(dir)? {
            ensure!(point.join("word").exists(), "{} is what was mounted", point.display());
            unmount(&point, UnmountFlags::DETACH).context("cannot unmount")?;
            kept += 1;
        }
    }
    println!("{kept} mounts outlived their containers, of {VICTIMS} pods");
    for (name, _, uid) in &dirs {
        node.wait_no_trace(name, uid)?;
    }
    canary.check()
}

/// Every way to name what is not in the volume: refused, or not found.
#[test]
fn paths_of_the_host_do_not_climb() -> Result<()> {
    let node = Node::start()?;
    let canary = node.canary()?;
    let shared = node.containerd.dir().join("shared");
    fs::create_dir_all(shared.join("real"))?;
    fs::write(shared.join("real/word"), "mine\n")?;
    symlink("../canary", shared.join("relative"))?;
    symlink(&canary.root, shared.join("absolute"))?;
    symlink("real/../../canary", shared.join("winding"))?;
    symlink("relative", shared.join("twice"))?;
    symlink("real", shared.join("within"))?;
    let pod = |name: &str, path: &str, part: Value| {
        let mut mount = json!({"name": "v", "mountPath": "/v"});
        for (key, value) in part.as_object().into_iter().flatten() {
            mount[key] = value.clone();
        }
        PodManifest::script(name, "cat /v/word; echo looked; exec sleep 1000")
            .grace(0)
            .with(
                "env",
                json!([{"name": "UP", "value": "../canary"},
                {"name": "LINK", "value": "absolute"}]),
            )
            .with("volumeMounts", json!([mount]))
            .spec("volumes", json!([{"name": "v", "hostPath": {"path": path}}]))
    };
    let at = shared.display().to_string();
    let climbs = [
        ("path", format!("{at}/../canary"), json!({})),
        ("path-end", format!("{at}/real/.."), json!({})),
        ("part", at.clone(), json!({"subPath": "../canary"})),
        ("part-deep", at.clone(), json!({"subPath": "real/../../canary"})),
        ("expr", at.clone(), json!({"subPathExpr": "../canary"})),
    ];
    for (name, path, part) in &climbs {
        node.manifests.put_pod(&pod(name, path, part.clone()))?;
    }
    let variable = json!({"subPathExpr": "$(UP)"});
    node.manifests.put_pod(&pod("variable", &at, variable))?;
    let links = [
        ("relative", json!({"subPath": "relative"})),
        ("absolute", json!({"subPath": "absolute"})),
        ("winding", json!({"subPath": "winding"})),
        ("twice", json!({"subPath": "twice"})),
        ("through", json!({"subPath": "absolute/deep"})),
        ("new", json!({"subPath": "relative/new/directory"})),
        ("by-name", json!({"subPathExpr": "$(LINK)/deep"})),
    ];
    for (name, part) in &links {
        node.manifests.put_pod(&pod(name, &at, part.clone()))?;
    }
    node.manifests.put_pod(&pod("within", &at, json!({"subPath": "within"})))?;

    for (name, _, _) in &climbs {
        let file = node.manifests.path().join(format!("{name}.json"));
        node.wait_klet_logs(&format!("has no good version file={file:?}"))?;
        assert_eq!(node.in_runtime(name)?, (vec![], vec![]), "{name} runs");
    }
    let refused = |name: &str, words: &str| {
        node.wait_pod(name, "to be refused", |pod| {
            pod.container("main").is_ok_and(|main| {
                main.reason == "CreateContainerConfigError" && main.message.contains(words)
            })
        })
    };
    refused("variable", "must not contain")?;
    for (name, _) in &links {
        refused(name, "failed to prepare subPath for volumeMount \"v\" of container \"main\"")?;
        assert_eq!(node.in_runtime(name)?.1, vec![], "{name} has a container");
    }
    node.wait_word("within", "main", "mine")?;
    canary.check()?;
    let within = node.pod("within")?.uid;
    let uids = links.each_ref().map(|(name, _)| (*name, node.pod(name)));
    node.manifests.clear()?;
    node.wait_no_trace("within", &within)?;
    for (name, pod) in uids {
        node.wait_no_trace(name, &pod?.uid)?;
    }
    canary.check()
}
