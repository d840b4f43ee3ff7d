//! The private containerd: it works, it leaves nothing, and a killed owner's
//! remains are found.

// Real processes, real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cri::v1;
use testkit::{Containerd, ContainerdOptions, Image, image, process};

fn sandbox(name: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            uid: format!("uid-{name}"),
            attempt: 0,
        }),
        linux: Some(v1::LinuxPodSandboxConfig::default()),
        ..Default::default()
    }
}

/// Starts a sandbox with one pause container in it; returns both ids.
fn start_pod(containerd: &Containerd, name: &str) -> Result<[String; 2]> {
    containerd.cri()?.block_on(async |runtime| {
        let pod = runtime.run_pod_sandbox(sandbox(name), "").await?;
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: image::PAUSE.to_owned(), ..Default::default() }),
            ..Default::default()
        };
        let container = runtime.create_container(&pod, config, sandbox(name)).await?;
        runtime.start_container(&container).await?;
        Ok([pod, container])
    })
}

/// Control groups on this host named after one of the ids.
fn control_groups(ids: &[String]) -> Vec<PathBuf> {
    fn walk(dir: &Path, ids: &[String], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if ids.iter().any(|id| entry.file_name() == id.as_str()) {
                    found.push(entry.path());
                }
                walk(&entry.path(), ids, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), ids, &mut found);
    found
}

/// Path of the sandbox's network namespace, as the runtime recorded it.
fn network_namespace(containerd: &Containerd, sandbox: &str) -> Result<PathBuf> {
    let info: serde_json::Value =
        serde_json::from_str(&containerd.ctr(&["containers", "info", sandbox])?)?;
    let namespaces = info["Spec"]["linux"]["namespaces"].as_array().cloned().unwrap_or_default();
    let network = namespaces.iter().find(|namespace| namespace["type"] == "network");
    let path = network.and_then(|namespace| namespace["path"].as_str());
    path.map(PathBuf::from).context("the sandbox has a network namespace")
}

fn firewall_rules() -> String {
    process::run(Command::new("iptables-save").args(["-t", "nat"])).unwrap_or_default()
}

fn bridge(dir: &Path) -> PathBuf {
    Path::new("/sys/class/net").join(format!("klet{}", dir.file_name().unwrap().display()))
}

fn network(dir: &Path) -> String {
    format!("klet-testkit-{}\\\"", dir.file_name().unwrap().display())
}

#[test]
fn a_pod_runs_and_nothing_of_it_stays() -> Result<()> {
    let containerd = Containerd::start(ContainerdOptions::with_usual_images()?)?;
    let dir = containerd.dir().to_owned();
    let ids = start_pod(&containerd, "one")?;

    let cri = containerd.cri()?;
    assert_eq!(cri.container_status(&ids[1])?.state(), v1::ContainerState::ContainerRunning);
    assert!(cri.sandbox_status(&ids[0])?.network.is_some_and(|net| net.ip.starts_with("10.")));
    assert!(!control_groups(&ids).is_empty());
    let namespace = network_namespace(&containerd, &ids[0])?;
    assert!(namespace.exists());
    assert!(bridge(&dir).exists());
    assert!(firewall_rules().contains(&network(&dir)));
    assert!(containerd.ctr(&["images", "list", "-q"])?.contains(image::BUSYBOX));

    drop(containerd);
    assert!(!dir.exists());
    assert!(!bridge(&dir).exists());
    assert_eq!(control_groups(&ids), Vec::<PathBuf>::new());
    assert!(process::started_below(&dir).is_empty());
    assert!(!firewall_rules().contains(&network(&dir)));
    assert!(!namespace.exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    assert!(!mounts.contains(&format!("{}/", dir.display())));
    Ok(())
}

#[test]
fn containers_outlive_their_daemon_and_a_hang() -> Result<()> {
    let mut containerd = Containerd::start(ContainerdOptions {
        images: vec![Image::pause()],
        registry_hosts: None,
    })?;
    let [_, container] = start_pod(&containerd, "two")?;
    let started = containerd.cri()?.container_status(&container)?.started_at;

    containerd.kill()?;
    assert!(containerd.cri()?.containers().is_err(), "a dead daemon answers nothing");
    containerd.restart()?;
    let status = containerd.cri()?.container_status(&container)?;
    assert_eq!(status.state(), v1::ContainerState::ContainerRunning);
    assert_eq!(status.started_at, started);

    containerd.pause()?;
    let listing = std::thread::spawn({
        let cri = containerd.cri()?;
        move || cri.containers()
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!listing.is_finished(), "a stopped daemon does not answer");
    containerd.resume()?;
    assert_eq!(listing.join().expect("the listing does not panic")?.len(), 1);
    Ok(())
}

#[test]
fn a_killed_owners_remains_are_reaped() -> Result<()> {
    let mut owner =
        Command::new(env!("CARGO_BIN_EXE_testkit-hold")).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let output = owner.stdout.take().context("its output is piped")?;
    let read = BufReader::new(output).read_line(&mut line);
    let dir = PathBuf::from(line.trim());
    // Another test may reap it, and take the slot, but not with this file in it.
    let mark = dir.join("owner");
    let marked = read.and_then(|_| fs::write(&mark, ""));
    owner.kill()?;
    owner.wait()?;
    marked.with_context(|| format!("the owner started no containerd but said {line:?}"))?;
    testkit::slot::reap_stale()?;
    ensure!(!mark.exists(), "{} was not reaped", dir.display());
    Ok(())
}
