//! Images from a registry: pulled, not found, not allowed, pulled once for two.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{Image, Node, NodeOptions, PodManifest, PodView, Registry, registry};

fn pod(name: &str, image: &str, policy: &str) -> PodManifest {
    PodManifest::pause(name).with("image", json!(image)).with("imagePullPolicy", json!(policy))
}

fn wait_reason(node: &Node, name: &str, reasons: &[&str]) -> Result<PodView> {
    node.eventually(&format!("{name} to wait for its image"), || {
        let pod = node.pod(name)?;
        ensure!(reasons.contains(&pod.container("main")?.reason.as_str()), "it is {pod:?}");
        Ok(pod)
    })
}

fn records(node: &Node, kind: &str) -> Result<usize> {
    let dir = node.klet.root_dir().join("image_manager").join(kind);
    Ok(std::fs::read_dir(&dir).with_context(|| format!("no {}", dir.display()))?.count())
}

#[test]
fn an_image_is_pulled_once_for_two_pods() -> Result<()> {
    let node = Node::start()?;
    let registry = Registry::start(node.containerd.dir(), false)?;
    let image = registry.push(&Image::pause(), "team/app", "1")?;
    for name in ["one", "two"] {
        node.manifests.put_pod(&pod(name, &image, "IfNotPresent"))?;
    }
    for name in ["one", "two"] {
        node.wait_running(name).with_context(|| registry.log_tail())?;
    }
    assert_eq!(registry.looks("team/app", "1")?, 1, "{}", registry.log_tail());
    assert_eq!((records(&node, "pulled")?, records(&node, "pulling")?), (1, 0));
    // Always asks the registry again.
    node.manifests.put_pod(&pod("three", &image, "Always"))?;
    node.wait_running("three")?;
    assert_eq!(registry.looks("team/app", "1")?, 2);
    Ok(())
}

#[test]
fn an_absent_image_is_explained() -> Result<()> {
    let node = Node::start()?;
    let registry = Registry::start(node.containerd.dir(), false)?;
    let absent = format!("{}/team/none:1", registry.host());
    node.manifests.put_pod(&pod("pulled", &absent, "IfNotPresent"))?;
    node.manifests.put_pod(&pod("never", &absent, "Never"))?;
    node.manifests.put_pod(&pod("nonsense", "Not An Image", "IfNotPresent"))?;

    wait_reason(&node, "pulled", &["ErrImagePull", "ImagePullBackOff"])?;
    let pulled = wait_reason(&node, "pulled", &["ImagePullBackOff"])?;
    let message = &pulled.container("main")?.message;
    let start = format!("Back-off pulling image \"{absent}\": ErrImagePull: ");
    assert!(message.starts_with(&start) && message.ends_with("not found"), "{message}");

    let never = wait_reason(&node, "never", &["ErrImageNeverPull"])?;
    let want = format!("Container image \"{absent}\" is not present with pull policy of Never");
    assert_eq!(never.container("main")?.message, want);

    let nonsense = wait_reason(&node, "nonsense", &["InvalidImageName"])?;
    let message = &nonsense.container("main")?.message;
    assert!(message.starts_with("Failed to apply default image tag \"Not An Image\""), "{message}");

    // The back-off ends in a new try: what was missing is found.
    registry.push(&Image::pause(), "team/none", "1")?;
    node.wait_running("pulled")?;
    Ok(())
}

#[test]
fn a_login_from_the_docker_configuration_opens_the_registry() -> Result<()> {
    let node = Node::start()?;
    let registry = Registry::start(node.containerd.dir(), true)?;
    let config = json!({"auths": {registry.host(): {"auth": registry::LOGIN_BASE64}}});
    let path = node.klet.root_dir().join("config.json");
    std::fs::write(&path, config.to_string()).context("cannot write the docker configuration")?;
    let image = registry.push(&Image::pause(), "secret/app", "1")?;
    // The same registry by a name that nobody has a login for.
    let closed = image.replace("127.0.0.1", "localhost");
    node.manifests.put_pod(&pod("open", &image, "IfNotPresent"))?;
    node.manifests.put_pod(&pod("closed", &closed, "IfNotPresent"))?;
    node.wait_running("open").with_context(|| registry.log_tail())?;
    let refused = wait_reason(&node, "closed", &["ImagePullBackOff"])?;
    let message = &refused.container("main")?.message;
    assert!(message.contains("authorization") || message.contains("auth"), "{message}");
    Ok(())
}

#[test]
fn a_login_from_a_plugin_opens_the_registry() -> Result<()> {
    let mut node = Node::start_with(NodeOptions { klet_absent: true, ..NodeOptions::default() })?;
    let registry = Registry::start(node.containerd.dir(), true)?;
    let host = registry.host();
    let answer = json!({
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "auth": {host.clone(): {"username": registry::USER, "password": registry::PASSWORD}},
    });
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "giver",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "matchImages": [host],
            "defaultCacheDuration": "0s",
        }],
    });
    let dir = node.containerd.dir().join("plugins");
    std::fs::create_dir(&dir).context("cannot make a directory")?;
    let (plugin, file) = (dir.join("giver"), dir.join("config.json"));
    // It is told which image, on its input; this one gives to all alike.
    let script = format!("#!/bin/sh\ngrep -q '\"image\":' || exit 1\necho '{answer}'\n");
    std::fs::write(&plugin, script)?;
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(&file, config.to_string())?;
    node.klet.add_flag("image-credential-provider-bin-dir", &dir);
    node.klet.add_flag("image-credential-provider-config", &file);
    node.klet.launch()?;
    node.klet.wait_healthy()?;

    let image = registry.push(&Image::pause(), "secret/app", "1")?;
    node.manifests.put_pod(&pod("open", &image, "IfNotPresent"))?;
    node.wait_running("open").with_context(|| registry.log_tail())?;
    Ok(())
}

#[test]
fn containerd_tells_what_it_downloads() -> Result<()> {
    let node = Node::start()?;
    let downloads = || node.cri().block_on(async |runtime| runtime.downloads().await);
    assert_eq!(downloads()?, []);
    let socket = node.containerd.endpoint().replace("unix://", "");
    let mut ingest = Command::new("ctr")
        .args(["--address", &socket, "--namespace", "k8s.io"])
        .args(["content", "ingest", "--expected-size", "1000", "half-a-layer"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run ctr")?;
    let mut input = ingest.stdin.take().context("ctr has an input")?;
    input.write_all(&[7; 400]).context("cannot feed ctr")?;
    let seen = node.eventually("the download to show", || {
        let all = downloads()?;
        let [one] = all.as_slice() else { anyhow::bail!("there are {all:?}") };
        Ok(one.clone())
    });
    drop(input);
    ingest.wait().context("cannot wait for ctr")?;
    let seen = seen?;
    assert_eq!((seen.name.as_str(), seen.total), ("half-a-layer", 1000));
    assert!(seen.done <= 400, "{seen:?}");
    Ok(())
}
