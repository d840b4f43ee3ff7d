//! `make run`: the example pods on a private containerd, until interrupted.
//!
//! Owns a containerd, a klet and a copy of the manifests. At the end it empties
//! the copy first, so that klet itself takes the pods down.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::{Containerd, ContainerdOptions, Klet, KletOptions, ManifestDir, PodView};

use crate::interrupt::Interrupt;

/// How long the pods may take to go at the end.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);

/// The kubelet's usual ports, for health and for /pods.
const USUAL_PORTS: (u16, u16) = (10248, 10255);

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// Directory of pod manifests; they are copied, so edit the copy it names.
    #[arg(long, default_value = "examples/pods")]
    manifests: PathBuf,
    /// The klet to run; built if not given.
    #[arg(long)]
    klet: Option<PathBuf>,
}

/// Runs until interrupted, then takes everything down.
pub fn run(options: &Options) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let binary = match &options.klet {
        Some(path) => path.clone(),
        None => testkit::binaries::klet_binary()?,
    };
    say(format_args!("starting a private containerd"));
    let containerd = Containerd::start(ContainerdOptions::with_usual_images()?)
        .context("cannot start a private containerd (`make setup` installs what it needs)")?;
    let manifests = ManifestDir::new(&containerd.dir().join("manifests"))?;
    let files = copy(&options.manifests, &manifests)?;
    let programs = fs::canonicalize(&binary).unwrap_or_else(|_| binary.clone());
    let mut klet = Klet::start(KletOptions {
        binary,
        dir: containerd.dir().join("klet"),
        endpoint: containerd.endpoint(),
        manifests: manifests.path().to_owned(),
        cgroup_root: containerd.cgroup_root(),
        node_name: host_name(),
        ports: Some(USUAL_PORTS),
    })?;
    say(format_args!("klet is healthy: http://127.0.0.1:{}/healthz", klet.health_port()));
    say(format_args!("its pods:        http://127.0.0.1:{}/pods", klet.read_only_port()));
    say(format_args!("their logs:      {}", klet.pod_logs_dir().display()));
    say(format_args!(
        "{files} manifests in {}: add, edit or remove some",
        manifests.path().display()
    ));
    say(format_args!("its own log:     {}", klet.log_path().display()));
    say(format_args!("to ask it, in another shell (then `klet pods`, `klet why POD`):"));
    say(format_args!("  export PATH={}:$PATH", programs.parent().unwrap_or(&programs).display()));
    say(format_args!("  export KLET_SOCKET={}", klet.root_dir().join("klet.sock").display()));
    say(format_args!("its flags, as for `klet check`:"));
    say(format_args!("  {}", klet.flags().join(" ")));
    say(format_args!("Ctrl-C ends everything\n"));

    let watched = watch(&mut klet, &interrupt);
    say(format_args!("\nremoving the pods"));
    manifests.clear()?;
    let removed = watched.and_then(|()| wait_removed(&containerd));
    klet.stop()?;
    say(format_args!("stopping containerd"));
    containerd.remove()?;
    removed
}

/// Prints a line. Nobody may be there to read it: the terminal closes first and
/// the clean-up must go on.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn copy(from: &Path, to: &ManifestDir) -> Result<usize> {
    let entries = fs::read_dir(from).with_context(|| {
        format!("cannot list {}; name a directory with --manifests", from.display())
    })?;
    let mut count = 0;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", from.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_file() && !name.starts_with('.') {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            to.put(&name, text)?;
            count += 1;
        }
    }
    ensure!(count > 0, "{} holds no manifests", from.display());
    Ok(count)
}

/// Prints a line whenever a pod's state changes. A klet that somebody kills is started
/// again, as a service manager would.
fn watch(klet: &mut Klet, interrupt: &Interrupt) -> Result<()> {
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    while !interrupt.is_set() {
        if klet.check_alive().is_err() {
            say(format_args!("klet has ended, see its log; starting it again, containers go on"));
            klet.restart()?;
        }
        let now: BTreeMap<String, String> =
            klet.pods()?.iter().map(|pod| (pod.name.clone(), describe(pod))).collect();
        for (name, line) in &now {
            if shown.get(name) != Some(line) {
                say(format_args!("{name:<24} {line}"));
            }
        }
        for name in shown.keys().filter(|name| !now.contains_key(*name)) {
            say(format_args!("{name:<24} gone"));
        }
        shown = now;
        for _ in 0..10 {
            if interrupt.is_set() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// `Running 10.88.0.5 restarts=2 main: CrashLoopBackOff`.
fn describe(pod: &PodView) -> String {
    let mut words = vec![format!("{:<10}", pod.phase)];
    words.push(format!("{:<12}", pod.ip.as_deref().unwrap_or("-")));
    let restarts: i64 = pod.containers.iter().map(|container| container.restarts).sum();
    if restarts > 0 {
        words.push(format!("restarts={restarts}"));
    }
    for container in pod.containers.iter().filter(|container| !container.reason.is_empty()) {
        words.push(format!("{}: {}", container.name, container.reason));
    }
    words.join(" ").trim_end().to_owned()
}

fn wait_removed(containerd: &Containerd) -> Result<()> {
    let cri = containerd.cri()?;
    let start = Instant::now();
    loop {
        let left = cri.sandboxes()?.len();
        if left == 0 {
            return Ok(());
        }
        ensure!(
            start.elapsed() < REMOVAL_LIMIT,
            "{left} pods were still there after {REMOVAL_LIMIT:?} and are removed by force"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_lowercase();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_one_line() {
        let list = r#"{"kind":"PodList","apiVersion":"v1","items":[{
            "metadata":{"name":"crash-n1"},
            "status":{"phase":"Running","podIP":"10.88.0.2","containerStatuses":[
              {"name":"main","restartCount":2,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}]}"#;
        let pods = testkit::pods::parse(list).unwrap();
        assert_eq!(describe(&pods[0]), "Running    10.88.0.2    restarts=2 main: CrashLoopBackOff");
    }
}
