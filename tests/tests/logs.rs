//! Container logs on a real runtime: rotation that keeps up, and following across it.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use kubelet::container_logs::{self, LogOptions};
use kubelet::ports::RealFs;
use serde_json::json;
use testkit::{Node, PodManifest, binaries, klet};

const MI: u64 = 1 << 20;

/// A node that rotates logs of a mebibyte and keeps three files of each container.
fn node() -> Result<Node> {
    Node::start_configured(json!({"containerLogMaxSize": "1Mi", "containerLogMaxFiles": 3}))
}

/// Counts up in steps, with a pause after each.
fn counting(steps: u32, step: u32, pause: &str) -> String {
    format!(
        "sleep 2; n=0; while [ $n -lt {} ]; do seq $((n+1)) $((n+{step})); n=$((n+{step})); \
         sleep {pause}; done",
        steps * step
    )
}

fn log_of(node: &Node, manifest: &str) -> Result<PathBuf> {
    let pod = node.wait_running(manifest)?;
    let dir = format!("default_{}_{}/main/0.log", pod.name, pod.uid);
    Ok(node.klet.pod_logs_dir().join(dir))
}

fn files_beside(log: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(log.parent().context("a log is in a directory")?)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Follows a log on a thread of its own until told that the container has ended.
fn follow(log: PathBuf, ended: Arc<AtomicBool>) -> thread::JoinHandle<Result<String>> {
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let options = LogOptions { follow: true, ..LogOptions::default() };
            let running = Arc::new(move || !ended.load(Ordering::Relaxed));
            let mut stream = container_logs::read(Arc::new(RealFs), log, options, running)?;
            let mut text = Vec::new();
            while let Some(chunk) = stream.next().await {
                text.extend(chunk?.bytes);
            }
            Ok(String::from_utf8(text)?)
        })
    })
}

fn wait_done(node: &Node, manifest: &str, mut meanwhile: impl FnMut()) -> Result<()> {
    node.within(Duration::from_secs(240), &format!("{manifest} to be done"), || {
        meanwhile();
        let pod = node.pod(manifest)?;
        ensure!(pod.phase == "Succeeded", "it is {pod:?}");
        Ok(())
    })
}

#[test]
fn a_fast_log_is_rotated_in_time() -> Result<()> {
    let node = node()?;
    // 400,000 lines are some 20 MB of log.
    let pod = PodManifest::script("fast", &counting(200, 2_000, "0.1")).restart("Never");
    node.manifests.put_pod(&pod)?;
    let log = log_of(&node, "fast")?;
    let (mut first, mut largest) = (0, 0);
    wait_done(&node, "fast", || {
        let rotated = files_beside(&log).is_ok_and(|files| files.len() > 1);
        let size = fs::metadata(&log).map_or(0, |found| found.len());
        let seen = if rotated { &mut largest } else { &mut first };
        *seen = size.max(*seen);
    })?;
    // It is silent at first; its first line is noticed, and then its growth.
    assert!(first < 3 * MI, "the log reached {first} bytes before it was first rotated");
    assert!(largest < 3 * MI, "the log reached {largest} bytes");
    let files = files_beside(&log)?;
    assert_eq!(files.len(), 3, "{files:?}");
    assert!(files[0] == "0.log" && files[1].ends_with(".gz"), "{files:?}");
    assert!(files[2].starts_with("0.log.20") && !files[2].ends_with(".gz"), "{files:?}");
    let gzipped = fs::read(log.with_file_name(&files[1]))?;
    assert_eq!(gzipped[..2], [0x1f, 0x8b], "not gzip");
    Ok(())
}

#[test]
fn following_goes_on_across_rotation() -> Result<()> {
    let node = node()?;
    let pod = PodManifest::script("steady", &counting(80, 1_000, "0.25")).restart("Never");
    node.manifests.put_pod(&pod)?;
    let log = log_of(&node, "steady")?;
    let ended = Arc::new(AtomicBool::new(false));
    let reader = follow(log.clone(), Arc::clone(&ended));
    // And as users do it, who are told by klet that it has ended.
    let mut command = Command::new(binaries::klet_binary()?);
    command
        .args(["logs", "-f", "steady"])
        .env("KLET_SOCKET", node.klet.root_dir().join("klet.sock"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().context("no output")?;
    let user = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    wait_done(&node, "steady", || {})?;
    ended.store(true, Ordering::Relaxed);
    let text = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    assert!(files_beside(&log)?.len() > 2, "it was not rotated: {:?}", files_beside(&log)?);
    let expected: String = (1..=80_000).map(|n| format!("{n}\n")).collect();
    assert!(text == expected, "{} bytes instead of {}", text.len(), expected.len());
    let text = user.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    ensure!(child.wait()?.success(), "klet logs failed");
    assert!(text == expected, "klet logs: {} bytes instead of {}", text.len(), expected.len());
    Ok(())
}

#[test]
fn a_failed_container_speaks_through_its_log() -> Result<()> {
    let node = node()?;
    let put = |name: &str, policy: &str| {
        // One stream: the runtime gives no order between two.
        let script = "exec >&2; echo starting; echo 'no database'; exit 3";
        let pod = PodManifest::script(name, script).with("terminationMessagePolicy", json!(policy));
        node.manifests.put_pod(&pod.restart("Never"))
    };
    put("talks", "FallbackToLogsOnError")?;
    put("silent", "File")?;
    for (name, message) in [("talks", "starting\nno database\n"), ("silent", "")] {
        node.eventually(&format!("{name} to have failed"), || {
            let pod = node.pod(name)?;
            let main = pod.container("main")?;
            ensure!(main.state == "terminated", "it is {pod:?}");
            ensure!(main.message == message, "it says {:?}", main.message);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_container_speaks_through_its_file() -> Result<()> {
    let node = node()?;
    let script = "echo output; printf 'out of cheese' > /dev/termination-log; exit 4";
    node.manifests.put_pod(&PodManifest::script("writes", script).restart("Never"))?;
    node.eventually("writes to have failed", || {
        let pod = node.pod("writes")?;
        let main = pod.container("main")?;
        ensure!(main.state == "terminated", "it is {pod:?}");
        ensure!(main.message == "out of cheese", "it says {:?}", main.message);
        Ok(())
    })
}

#[test]
fn last_words_have_a_limit() -> Result<()> {
    let node = node()?;
    let file = "{ printf %01000d 0; printf %04096d 0 | tr 0 1; } >/dev/termination-log; exit 1";
    node.manifests.put_pod(&PodManifest::script("file", file).restart("Never"))?;
    let four = ["a", "b", "c", "d"];
    let many = four.iter().fold(PodManifest::new("many"), |pod, name| pod.container(name, file));
    node.manifests.put_pod(&many.restart("Never"))?;
    let by_log = |name: &str, script: &str| {
        let pod = PodManifest::script(name, script).restart("Never");
        pod.with("terminationMessagePolicy", json!("FallbackToLogsOnError"))
    };
    node.manifests.put_pod(&by_log("lines", "seq 100; exit 1"))?;
    node.manifests.put_pod(&by_log("bytes", "printf %03000d 0; exit 1"))?;
    let words = |name: &str, container: &str| -> Result<String> {
        let pod = node.wait_pod(name, "to have failed", |pod| pod.phase == "Failed")?;
        Ok(pod.container(container)?.message.clone())
    };
    // The end counts more than the beginning.
    assert_eq!(words("file", "main")?, "1".repeat(4096));
    for name in four {
        assert_eq!(words("many", name)?, "1".repeat(12 * 1024 / 4), "{name}: a pod's share");
    }
    let lines: String = (21..=100).map(|n| format!("{n}\n")).collect();
    assert_eq!(words("lines", "main")?, lines);
    assert_eq!(words("bytes", "main")?, "0".repeat(2048));
    Ok(())
}

/// Runs that number themselves. The first ones fail; the one of that number stays.
fn numbered(name: &str, last: u32) -> PodManifest {
    let script = format!(
        "n=$(cat /count/n 2>/dev/null || echo 0); echo $((n+1)) >/count/n; echo run $n; \
         trap 'exit 0' TERM; while [ $n -ge {last} ]; do sleep 0.1; done; exit 1"
    );
    PodManifest::script(name, &script)
        .with("volumeMounts", json!([{"name": "count", "mountPath": "/count"}]))
        .spec("volumes", json!([{"name": "count", "emptyDir": {}}]))
}

#[test]
fn logs_go_with_their_containers() -> Result<()> {
    let config = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}});
    let node = Node::start_configured(config)?;
    node.manifests.put_pod(&numbered("often", 3))?;
    let pod = node.wait_pod("often", "to run for the fourth time", |pod| {
        pod.container("main").is_ok_and(|main| main.restarts == 3 && main.state == "running")
    })?;
    // What runs and what ran before it; older containers are gone, and their logs with them.
    let dir = node.klet.pod_logs_dir().join(format!("default_{}_{}", pod.name, pod.uid));
    let links = || klet::log_links_into(&dir).len();
    node.eventually("old logs to be removed", || {
        let files = files_beside(&dir.join("main/3.log"))?;
        ensure!(files == ["2.log", "3.log"], "there are {files:?}");
        ensure!(links() == 2, "there are {} links", links());
        Ok(())
    })?;
    node.wait_says(&["logs", "often"], &["run 3"])?;
    assert_eq!(node.klet_says(&["logs", "often"])?, "run 3");
    assert_eq!(node.klet_says(&["logs", "--previous", "often"])?, "run 2");
    node.manifests.remove_pod("often")?;
    node.wait_gone("often")?;
    node.eventually("the last logs to be removed", || {
        ensure!(!dir.exists() && links() == 0, "{}, {} links", dir.display(), links());
        Ok(())
    })
}

#[test]
fn restarts_are_counted_when_the_runtime_forgot() -> Result<()> {
    let mut node = Node::start()?;
    node.manifests.put_pod(&numbered("lost", 0))?;
    let before = node.wait_running("lost")?;
    node.wait_word("lost", "main", "run 0")?;
    node.klet.kill9()?;
    for sandbox in node.in_runtime("lost")?.0 {
        node.cri().block_on(async |runtime| {
            runtime.stop_pod_sandbox(&sandbox.id).await?;
            runtime.remove_pod_sandbox(&sandbox.id).await
        })?;
    }
    assert!(node.in_runtime("lost")?.1.is_empty(), "the runtime knows nothing of it");
    node.klet.restart()?;
    let after = node.wait_running("lost")?;
    assert_eq!((after.container("main")?.restarts, &after.uid), (1, &before.uid));
    node.wait_says(&["logs", "lost"], &["run 1"])?;
    assert_eq!(node.klet_says(&["logs", "--previous", "lost"])?, "run 0");
    Ok(())
}
