//! Pulls while they run: how far they are, how many at once, how many a second;
//! and whose pull lets whom use an image.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, iter};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::slow_proxy::{Pace, SlowProxy};
use testkit::{Image, Node, NodeOptions, PodManifest, Registry, registry};

const SECOND: Duration = Duration::from_secs(1);

/// An image that holds so many bytes which nothing can make fewer.
fn noisy(bytes: usize, seed: u32) -> Image {
    let mut state = seed;
    let noise = iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    Image::pause().file("noise", 0o644, noise.take(bytes).collect())
}

fn pod(name: &str, image: &str) -> PodManifest {
    PodManifest::pause(name).with("image", json!(image))
}

/// A registry that is reached by a way whose pace the test sets.
struct Slow {
    registry: Registry,
    proxy: SlowProxy,
}

impl Slow {
    fn start(node: &Node, pace: Pace) -> Result<Self> {
        let registry = Registry::start(node.containerd.dir(), false)?;
        let proxy = SlowProxy::start(registry.port(), pace)?;
        Ok(Self { registry, proxy })
    }

    /// Pushes an image; its name leads through the proxy.
    fn push(&self, image: &Image, repository: &str) -> Result<String> {
        self.registry.push(image, repository, "1")?;
        Ok(format!("127.0.0.1:{}/{repository}:1", self.proxy.port()))
    }

    /// Repositories that were asked for, and when first, without repetitions in a row.
    fn turns(&self) -> Vec<(String, Instant)> {
        let mut turns: Vec<(String, Instant)> = Vec::new();
        for question in self.proxy.asked() {
            let path = question.line.split_once("/v2/team/").map(|(_, rest)| rest.split('/'));
            let Some(name) = path.and_then(|mut parts| parts.next()) else { continue };
            if turns.last().is_none_or(|(last, _)| last != name) {
                turns.push((name.to_owned(), question.at));
            }
        }
        turns
    }

    fn names(&self) -> Vec<String> {
        self.turns().into_iter().map(|(name, _)| name).collect()
    }
}

#[test]
fn progress_is_told() -> Result<()> {
    let node = Node::start()?;
    // At this pace it takes half a minute, and is told of long before.
    let slow = Slow::start(&node, Pace::BytesPerSecond(500_000))?;
    let image = slow.push(&noisy(12_000_000, 1), "team/some-rather-long-name-of-an-image")?;
    node.manifests.put_pod(&pod("plain", &image))?;
    let pulling = format!("Pulling image \"{image}\": ");
    let told = node.wait_pod("plain", "to tell of its pull", |pod| {
        let main = pod.container("main");
        main.is_ok_and(|main| {
            let far = main.message.strip_prefix(&pulling).unwrap_or("0.0 MB");
            main.reason == "ContainerCreating" && !far.starts_with("0.0 MB")
        })
    })?;
    let message = &told.container("main")?.message;
    assert!(message.ends_with(" MB of 12.0 MB"), "{message}");
    assert_eq!(told.phase, "Pending");
    // The table too, however long the image's name is.
    node.wait_says(&["pods"], &["ContainerCreating (pulling ", " MB of 12.0 MB)"])?;
    let why = node.klet_says(&["why", "plain"])?;
    assert!(why.contains(" MB of 12.0 MB"), "{why}");
    slow.proxy.set_pace(Pace::Free);
    let done = node.wait_running("plain").with_context(|| slow.registry.log_tail())?;
    assert_eq!(done.container("main")?.message, "");

    // An init container's image is told of as well.
    slow.proxy.set_pace(Pace::BytesPerSecond(500_000));
    let image = slow.push(&noisy(8_000_000, 2), "team/first")?;
    let first = PodManifest::new("first").init("before", "").with("image", json!(image));
    let first = first.with("command", json!(["/pause"])).container("main", "exec sleep 1000");
    node.manifests.put_pod(&first)?;
    node.wait_says(&["pods"], &["first-n1 0/1 Init:0/1 (pulling ", " MB of 8.0 MB)"])?;
    slow.proxy.set_pace(Pace::Free);
    node.wait_pod("first", "to begin", |pod| {
        pod.container("before").is_ok_and(|before| before.state == "running")
    })?;
    Ok(())
}

#[test]
fn progress_is_told_of_volumes_and_of_what_starts_again() -> Result<()> {
    let node = Node::start()?;
    let slow = Slow::start(&node, Pace::Free)?;
    let image = slow.push(&noisy(1_000, 3), "team/again")?;
    let again = pod("again", &image).with("imagePullPolicy", json!("Always"));
    node.manifests.put_pod(&again)?;
    let running = node.wait_running("again").with_context(|| slow.registry.log_tail())?;

    // Behind the same name there is now another image, and its program dies.
    slow.proxy.set_pace(Pace::BytesPerSecond(500_000));
    slow.push(&noisy(8_000_000, 4), "team/again")?;
    let id = running.container("main")?.id.clone();
    node.containerd.ctr(&["tasks", "kill", "--signal", "SIGKILL", &id])?;
    node.wait_says(&["pods"], &["again-n1 0/1 Error (pulling ", " MB of 8.0 MB)"])?;
    assert_eq!(node.pod("again")?.container("main")?.state, "terminated");
    let call = format!("In flight: PullImage {image}: ");
    node.wait_says(&["why", "again"], &[&call, " MB of 8.0 MB, for "])?;
    let call = format!("PullImage {image}: ");
    node.wait_says(&["pods", "-o", "wide"], &["DOING", &call, " MB of 8.0 MB, for "])?;
    slow.proxy.set_pace(Pace::Free);
    node.wait_pod("again", "to run again", |pod| {
        pod.container("main").is_ok_and(|main| main.state == "running" && main.restarts == 1)
    })?;

    // A volume's image is pulled before the container is made, on any runtime.
    slow.proxy.set_pace(Pace::BytesPerSecond(500_000));
    let image = slow.push(&noisy(6_000_000, 5), "team/data")?;
    let volumes = json!([{"name": "data", "image": {"reference": image}}]);
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let data = PodManifest::pause("data").with("volumeMounts", mounts).spec("volumes", volumes);
    node.manifests.put_pod(&data)?;
    let pulling = format!("Pulling image \"{image}\" of volume data: ");
    node.wait_pod("data", "to tell of its volume", |pod| {
        let main = pod.container("main");
        main.is_ok_and(|main| {
            let far = main.message.strip_prefix(&pulling);
            main.reason == "ContainerCreating" && far.is_some_and(|far| far.ends_with(" of 6.0 MB"))
        })
    })?;
    node.wait_says(&["pods"], &["data-n1 0/1 ContainerCreating (pulling ", " MB of 6.0 MB)"])?;
    Ok(())
}

/// Puts pods whose pulls are blocked, and waits until klet has begun with each.
fn put_blocked(node: &Node, slow: &Slow, names: &[&str]) -> Result<()> {
    for (seed, name) in (10..).zip(names) {
        let image = slow.push(&noisy(1_000, seed), &format!("team/{name}"))?;
        node.manifests.put_pod(&pod(name, &image))?;
    }
    for name in names {
        node.wait_says(&["events", name], &["Pulling image"])?;
    }
    Ok(())
}

#[test]
fn one_after_the_other_and_so_many_a_second() -> Result<()> {
    let config = json!({"serializeImagePulls": true, "registryPullQPS": 1, "registryBurst": 1});
    let node = Node::start_configured(config)?;
    let slow = Slow::start(&node, Pace::Blocked)?;
    let names = ["a", "b", "c"];
    put_blocked(&node, &slow, &names)?;
    // A token is there for the second.
    node.eventually("the first to be under way for a second", || {
        let turns = slow.turns();
        ensure!(turns.first().is_some_and(|(_, at)| at.elapsed() > SECOND), "{turns:?}");
        Ok(())
    })?;
    assert_eq!(slow.names().len(), 1, "{:?}", slow.proxy.asked());
    slow.proxy.set_pace(Pace::Free);
    for name in names {
        node.wait_running(name)?;
    }
    // None came between the questions of another.
    let mut all = slow.names();
    all.sort();
    assert_eq!(all, names, "{:?}", slow.proxy.asked());
    // The third was there with the second, and had to wait for the next token.
    let turns = slow.turns();
    for pair in turns.windows(2) {
        let apart = pair[1].1 - pair[0].1;
        // A question takes a moment from its token to its registry.
        assert!(apart > SECOND / 2, "{apart:?} from one to the next: {turns:?}");
    }
    Ok(())
}

#[test]
fn so_many_at_once() -> Result<()> {
    let config = json!({"serializeImagePulls": false, "maxParallelImagePulls": 2});
    let node = Node::start_configured(config)?;
    let slow = Slow::start(&node, Pace::Blocked)?;
    let names = ["a", "b", "c"];
    put_blocked(&node, &slow, &names)?;
    node.eventually("two pulls at once", || {
        ensure!(slow.names().len() == 2, "{:?}", slow.proxy.asked());
        Ok(())
    })?;
    slow.proxy.set_pace(Pace::Free);
    for name in names {
        node.wait_running(name)?;
    }
    // The third began when one of the others was done: that one never asks again.
    let turns = slow.names();
    let third = turns.iter().find(|name| !turns[..2].contains(name)).context("there is a third")?;
    let begun = turns.iter().position(|name| name == third).context("it was found")?;
    let after = &turns[begun..];
    let done = turns[..2].iter().filter(|name| !after.contains(name)).count();
    assert!(done >= 1, "three at once: {:?}", slow.proxy.asked());
    Ok(())
}

fn only_file(dir: &Path) -> Result<PathBuf> {
    let files: Vec<_> = fs::read_dir(dir)?.flatten().map(|entry| entry.path()).collect();
    let [file] = files.as_slice() else { anyhow::bail!("{} holds {files:?}", dir.display()) };
    Ok(file.clone())
}

#[test]
fn what_a_secret_opened_is_closed_to_others() -> Result<()> {
    let mut node = Node::start_with(NodeOptions { klet_absent: true, ..NodeOptions::default() })?;
    let registry = Registry::start(node.containerd.dir(), true)?;
    let image = registry.push(&Image::pause(), "secret/app", "1")?;
    let logins = node.klet.root_dir().join("config.json");
    fs::create_dir_all(node.klet.root_dir())?;
    let config = json!({"auths": {registry.host(): {"auth": registry::LOGIN_BASE64}}});
    fs::write(&logins, config.to_string())?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    node.manifests.put_pod(&pod("owner", &image))?;
    let owner = node.wait_running("owner").with_context(|| registry.log_tail())?;

    // As if the login had come from a secret of that pod's, and not from the node.
    node.klet.kill9()?;
    fs::remove_file(&logins)?;
    let path = only_file(&node.klet.root_dir().join("image_manager/pulled"))?;
    let mut record: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let name = format!("{}/secret/app", registry.host());
    assert_eq!(record["credentialMapping"][&name], json!({"nodePodsAccessible": true}));
    let secret = json!({
        "uid": "0b5f", "namespace": "default", "name": "pull", "credentialHash": "f00d",
    });
    record["credentialMapping"][&name] = json!({"kubernetesSecrets": [secret]});
    fs::write(&path, record.to_string())?;
    node.klet.restart()?;

    node.manifests.put_pod(&pod("other", &image))?;
    let never = pod("never", &image).with("imagePullPolicy", json!("Never"));
    node.manifests.put_pod(&never)?;
    let reason = |name: &str, reasons: &[&str]| {
        node.wait_pod(name, "to be refused", |pod| {
            pod.container("main").is_ok_and(|main| reasons.contains(&main.reason.as_str()))
        })
    };
    // The image is here, but who wants it must show that it could be pulled.
    let other = reason("other", &["ErrImagePull", "ImagePullBackOff"])?;
    assert!(other.container("main")?.message.contains("auth"), "{other:?}");
    let never = reason("never", &["ErrImageNeverPull"])?;
    let want = format!("Container image \"{image}\" is not present with pull policy of Never");
    assert_eq!(never.container("main")?.message, want);
    assert_eq!(node.wait_running("owner")?.container("main")?.id, owner.container("main")?.id);

    // A node that trusts its pods does not ask.
    node.klet.configure(json!({"imagePullCredentialsVerificationPolicy": "NeverVerify"}))?;
    node.klet.restart()?;
    node.wait_running("other")?;
    node.wait_running("never")?;
    Ok(())
}
