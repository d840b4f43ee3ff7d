//! Paths of the host as volumes: every type, what is not of its type, and a klet that
//! is killed meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::disk::LoopDevice;
use testkit::{Node, PodManifest};

/// A pod with a path of the host at /v.
fn pod(name: &str, path: &str, kind: &str, script: &str) -> PodManifest {
    PodManifest::script(name, &format!("{script}; exec sleep 1000"))
        .with("volumeMounts", json!([{"name": "v", "mountPath": "/v"}]))
        .spec("volumes", json!([{"name": "v", "hostPath": {"path": path, "type": kind}}]))
}

/// What the host has besides files: a socket that somebody listens at, and a disk that
/// begins with a line.
fn devices(node: &Node, dir: &Path) -> Result<(UnixDatagram, LoopDevice)> {
    let socket = UnixDatagram::bind(dir.join("socket"))?;
    socket.set_read_timeout(Some(Duration::from_secs(120)))?;
    let image = node.containerd.dir().join("disk.img");
    Ok((socket, LoopDevice::over(&image, b"from the host\n", 1 << 20)?))
}

/// Takes pods away while there is no klet, and waits until nothing of them is left.
fn take_away(node: &mut Node, names: &[&str]) -> Result<()> {
    let pods = names.iter().map(|name| node.pod(name)).collect::<Result<Vec<_>>>()?;
    node.klet.kill9()?;
    node.manifests.clear()?;
    node.klet.restart()?;
    names.iter().zip(pods).try_for_each(|(name, pod)| node.wait_no_trace(name, &pod.uid))
}

/// A directory of the host, and paths in it as text.
fn host_dir(node: &Node) -> Result<(PathBuf, impl Fn(&str) -> String + use<>)> {
    let dir = node.containerd.dir().join("host");
    fs::create_dir_all(dir.join("dir"))?;
    fs::write(dir.join("file"), "from the host\n")?;
    let within = dir.clone();
    Ok((dir, move |name: &str| within.join(name).display().to_string()))
}

#[test]
fn directories_and_files_of_the_host() -> Result<()> {
    let mut node = Node::start()?;
    let (dir, at) = host_dir(&node)?;
    let write = "echo from the pod >/v/word; ls /v";
    node.manifests.put_pod(&pod("made", &at("made/deep"), "DirectoryOrCreate", write))?;
    node.manifests.put_pod(&pod("any", &at("dir"), "", write))?;
    fs::create_dir(dir.join("there"))?;
    fs::write(dir.join("there/before"), "from the host\n")?;
    let both = format!("cat /v/before; {write}");
    node.manifests.put_pod(&pod("there", &at("there"), "Directory", &both))?;
    node.manifests.put_pod(&pod("file", &at("file"), "File", "cat /v"))?;
    let append = "echo from the pod >>/v; cat /v";
    node.manifests.put_pod(&pod("new", &at("new-file"), "FileOrCreate", append))?;
    node.wait_word("made", "main", "word")?;
    node.wait_word("any", "main", "word")?;
    node.wait_word("there", "main", "from the host")?;
    node.wait_word("there", "main", "word")?;
    assert_eq!(fs::read_to_string(dir.join("there/word"))?, "from the pod\n");
    node.wait_word("file", "main", "from the host")?;
    node.wait_word("new", "main", "from the pod")?;
    assert_eq!(fs::read_to_string(dir.join("made/deep/word"))?, "from the pod\n");
    assert_eq!(fs::read_to_string(dir.join("new-file"))?, "from the pod\n");
    let mode = |name: &str| anyhow::Ok(fs::metadata(dir.join(name))?.permissions().mode() & 0o7777);
    assert_eq!((mode("new-file")?, mode("made/deep")?), (0o644, 0o755));

    // What is written on either side is seen on the other, whoever was killed between.
    node.survive_kill()?;
    fs::write(dir.join("dir/later"), "from the host\n")?;
    assert_eq!(node.run_in("any", "main", "cat /v/later")?, "from the host\n");
    node.run_in("new", "main", "echo more >>/v")?;
    assert_eq!(fs::read_to_string(dir.join("new-file"))?, "from the pod\nmore\n");
    fs::write(dir.join("there/later"), "from the host\n")?;
    assert_eq!(
        node.run_in("there", "main", "cat /v/later /v/word")?,
        "from the host\nfrom the pod\n"
    );
    take_away(&mut node, &["made", "any", "there", "file", "new"])?;
    assert_eq!(fs::read_to_string(dir.join("dir/word"))?, "from the pod\n");
    assert_eq!(fs::read_to_string(dir.join("dir/later"))?, "from the host\n");
    let mut kept: Vec<_> =
        fs::read_dir(dir.join("there"))?.flatten().map(|e| e.file_name()).collect();
    kept.sort();
    assert_eq!(kept, ["before", "later", "word"], "it is the host's");
    assert_eq!(fs::read_to_string(dir.join("new-file"))?, "from the pod\nmore\n");
    Ok(())
}

/// Waits for what somebody says to the host's log.
fn wait_said(socket: &UnixDatagram, word: &str) -> Result<()> {
    let mut said = [0; 1024];
    let length = socket.recv(&mut said).with_context(|| format!("nobody said {word}"))?;
    let said = String::from_utf8_lossy(&said[..length]);
    ensure!(said.contains(word), "it is {said:?}");
    Ok(())
}

#[test]
fn sockets_and_devices_of_the_host() -> Result<()> {
    let mut node = Node::start()?;
    let (dir, at) = host_dir(&node)?;
    let (socket, disk) = devices(&node, &dir)?;
    let device = disk.path().display().to_string();
    let privileged = json!({"privileged": true});
    let log = json!([{"name": "v", "mountPath": "/dev/log"}]);
    let talker = pod("socket", &at("socket"), "Socket", "logger hello");
    node.manifests.put_pod(&talker.with("volumeMounts", log))?;
    let fill = "head -c 3 /v | od -An -tx1";
    let char = pod("char", "/dev/zero", "CharDevice", fill);
    node.manifests.put_pod(&char.with("securityContext", privileged.clone()))?;
    let write = "[ -b /v ] && head -n 1 /v && printf hello | dd of=/v conv=fsync,notrunc";
    let block = pod("block", &device, "BlockDevice", &format!("{write}; echo written"));
    node.manifests.put_pod(&block.with("securityContext", privileged))?;
    wait_said(&socket, "hello")?;
    node.wait_word("char", "main", " 00 00 00")?;
    node.wait_word("block", "main", "from the host")?;
    node.wait_word("block", "main", "written")?;
    ensure!(fs::read(disk.path())?.starts_with(b"hello"), "it is on the device");

    node.survive_kill()?;
    node.run_in("socket", "main", "logger good day")?;
    wait_said(&socket, "good day")?;
    assert_eq!(node.run_in("block", "main", "head -c 5 /v")?, "hello");
    take_away(&mut node, &["socket", "char", "block"])?;
    ensure!(dir.join("socket").exists() && disk.path().exists(), "they are the host's");
    ensure!(fs::read(disk.path())?.starts_with(b"hello"), "and stay as they are");
    Ok(())
}

/// The example, with a device and a socket of this test in place of what it names.
#[test]
fn the_example_runs() -> Result<()> {
    let mut node = Node::start()?;
    let (dir, at) = host_dir(&node)?;
    let (socket, disk) = devices(&node, &dir)?;
    fs::create_dir(dir.join("www"))?;
    fs::write(dir.join("www/index.html"), "hello\n")?;
    fs::write(dir.join("release"), "ID=x\nNAME=\"of the host\"\n")?;
    let (name, device) = ("host-paths", disk.path().display().to_string());
    let changes = [
        ("/var/www", at("www")),
        ("/etc/os-release", at("release")),
        ("path: /var/tmp ", format!("path: {} ", at("www"))),
        ("/var/tmp/klet-example.log", at("new.log")),
        ("/run/systemd/journal/dev-log", at("socket")),
        ("/dev/sdx", device),
    ];
    node.manifests.put_example(name, &changes.each_ref().map(|(from, to)| (*from, &**to)))?;
    wait_said(&socket, "hello from the pod")?;
    for word in [
        "index.html",
        "/host/any",
        "NAME=\"of the host\"",
        "8 random bytes",
        "from the host",
        "done",
    ] {
        node.wait_word(name, "look", word)?;
    }
    let log = || fs::read_to_string(dir.join("new.log"));
    assert_eq!(log()?.lines().count(), 1);
    node.outlive_examples(&[name], |node| {
        node.run_in(name, "look", "echo more >>/host/app.log; cat /host/any/index.html")?;
        ensure!(log()?.ends_with("\nmore\n"), "it is the host's file");
        Ok(())
    })?;
    assert_eq!(log()?.lines().count(), 2, "it stays when the pod goes");
    ensure!(dir.join("www/index.html").exists() && dir.join("socket").exists(), "as all of it");
    Ok(())
}

#[test]
fn what_is_not_of_its_type_is_waited_for() -> Result<()> {
    let node = Node::start()?;
    let (dir, at) = host_dir(&node)?;
    let _socket = UnixListener::bind(dir.join("socket"))?;
    let wrong = [
        ("directory", "file", "Directory", "directory"),
        ("file-kind", "dir", "FileOrCreate", "file"),
        ("absent", "none", "File", "file"),
        ("socket", "file", "Socket", "socket file"),
        ("char", "socket", "CharDevice", "character device"),
        ("block", "dir", "BlockDevice", "block device"),
    ];
    for (name, path, kind, _) in wrong {
        node.manifests.put_pod(&pod(name, &at(path), kind, "true"))?;
    }
    for (name, path, _, wanted) in wrong {
        let problem = format!(
            "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: {} is not a {wanted}",
            at(path)
        );
        let view = node.wait_pod(name, "to tell what is wrong", |pod| {
            let condition = pod.condition("PodReadyToStartContainers");
            condition.is_ok_and(|condition| condition.message.contains(&problem))
        })?;
        assert_eq!(view.container("main")?.reason, "ContainerCreating");
        assert_eq!(node.in_runtime(name)?, (vec![], vec![]), "nothing is made before");
    }
    // What was missing is found once it is there.
    fs::write(dir.join("none"), "")?;
    let uid = node.wait_running("absent").context("the file is there")?.uid;
    node.manifests.remove_pod("absent")?;
    node.wait_no_trace("absent", &uid)?;
    ensure!(dir.join("none").exists(), "it is the host's");
    Ok(())
}
