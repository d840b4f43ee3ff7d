//! A whole node for a test: containerd, klet, a directory of manifests.
//!
//! Whatever a test waits for in vain is reported with the ends of both logs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cri::v1;

use crate::binaries;
use crate::canary::Canary;
use crate::container_log::ContainerLog;
use crate::containerd::{Containerd, ContainerdOptions};
use crate::cri_client::Cri;
use crate::host;
use crate::klet::{Klet, KletOptions};
use crate::manifest::ManifestDir;
use crate::pods::PodView;
use crate::process;
use crate::volume_traces;
use crate::wait::eventually;

/// Longest a test waits for anything ordinary.
const LIMIT: Duration = Duration::from_secs(120);

/// How a test's node differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Have containerd down, without so much as a socket, for the test to restart.
    pub runtime_absent: bool,
    /// Watch this file of the manifest directory instead of the directory.
    pub single_file: Option<String>,
    /// Leave klet to be launched by the test.
    pub klet_absent: bool,
    /// See [`ContainerdOptions::registry_hosts`].
    pub registry_hosts: Option<PathBuf>,
}

/// What never changes of a container that is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// When it was made, in nanoseconds of the runtime's clock.
    pub created_at: i64,
    /// When it was started.
    pub started_at: i64,
    /// How many there were before it.
    pub attempt: u32,
    /// `ContainerState`, as a number.
    pub state: i32,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    // In this order: klet ends before its runtime does.
    /// The node agent.
    pub klet: Klet,
    /// Its runtime.
    pub containerd: Containerd,
    /// Its manifests.
    pub manifests: ManifestDir,
    cri: Cri,
}

impl Node {
    /// A node with both processes running and no pods.
    pub fn start() -> Result<Self> {
        Self::start_with(NodeOptions::default())
    }

    /// A node whose klet has further fields in its configuration.
    pub fn start_configured(config: serde_json::Value) -> Result<Self> {
        let mut node = Self::start_with(NodeOptions { klet_absent: true, ..Default::default() })?;
        node.klet.configure(config)?;
        node.klet.launch()?;
        node.klet.wait_healthy()?;
        Ok(node)
    }

    /// A node that differs from the usual one.
    pub fn start_with(options: NodeOptions) -> Result<Self> {
        let binary = binaries::klet_binary()?;
        let mut containerd = Containerd::start(ContainerdOptions {
            registry_hosts: options.registry_hosts,
            ..ContainerdOptions::with_usual_images()?
        })?;
        if options.runtime_absent {
            containerd.kill()?;
            containerd.remove_socket()?;
        }
        let manifests = ManifestDir::new(&containerd.dir().join("manifests"))?;
        let watched = match &options.single_file {
            Some(file) => manifests.path().join(file),
            None => manifests.path().to_owned(),
        };
        let mut klet = Klet::prepare(KletOptions {
            binary,
            dir: containerd.dir().join("klet"),
            endpoint: containerd.endpoint(),
            manifests: watched,
            cgroup_root: containerd.cgroup_root(),
            node_name: "n1".to_owned(),
            ports: None,
        })?;
        if !options.klet_absent {
            klet.launch()?;
            klet.wait_healthy()?;
        }
        let cri = containerd.cri()?;
        Ok(Self { klet, containerd, manifests, cri })
    }

    /// A connection to the runtime.
    pub fn cri(&self) -> &Cri {
        &self.cri
    }

    /// Waits for `attempt` to succeed; a failure carries the ends of both logs.
    pub fn eventually<T>(&self, what: &str, attempt: impl FnMut() -> Result<T>) -> Result<T> {
        self.within(LIMIT, what, attempt)
    }

    /// [`Self::eventually`] with a limit of one's own.
    pub fn within<T>(
        &self,
        limit: Duration,
        what: &str,
        attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        eventually(limit, what, attempt).with_context(|| self.logs())
    }

    fn logs(&self) -> String {
        format!(
            "containerd's log ends:\n{}\n\nklet's log ends:\n{}\n",
            self.containerd.log_tail(),
            self.klet.log_tail()
        )
    }

    /// The pod made from the manifest of that name.
    pub fn pod(&self, manifest: &str) -> Result<PodView> {
        let name = format!("{manifest}-{}", self.klet.node_name());
        let pods = self.klet.pods()?;
        // A pod of an API server keeps its name.
        let found = pods.iter().find(|pod| pod.name == name || pod.name == manifest);
        found.cloned().with_context(|| format!("/pods has no {name}, only {pods:?}"))
    }

    /// Waits until every container of the pod runs, and returns the pod.
    pub fn wait_running(&self, manifest: &str) -> Result<PodView> {
        self.eventually(&format!("{manifest} to run"), || {
            let pod = self.pod(manifest)?;
            let all = !pod.containers.is_empty()
                && pod.containers.iter().all(|container| container.state == "running");
            ensure!(pod.phase == "Running" && all, "it is {pod:?}");
            Ok(pod)
        })
    }

    /// Waits until the pod looks as `check` wants it, and returns the pod.
    pub fn wait_pod(
        &self,
        manifest: &str,
        what: &str,
        check: impl Fn(&PodView) -> bool,
    ) -> Result<PodView> {
        self.eventually(&format!("{manifest} {what}"), || {
            let pod = self.pod(manifest)?;
            ensure!(check(&pod), "it is {pod:?}");
            Ok(pod)
        })
    }

    /// Where klet keeps a pod's volume, `plugin` being such as `empty-dir`.
    pub fn volume_dir(&self, uid: &str, plugin: &str, name: &str) -> PathBuf {
        let volumes = self.klet.root_dir().join("pods").join(uid).join("volumes");
        volumes.join(format!("kubernetes.io~{plugin}")).join(name)
    }

    /// A directory of the host that nothing may touch.
    pub fn canary(&self) -> Result<Canary> {
        Canary::new(self.containerd.dir())
    }

    /// The log of one run of a pod's container, which outlives the pod once open.
    pub fn log(&self, manifest: &str, container: &str, run: u32) -> Result<ContainerLog> {
        let pod = self.pod(manifest)?;
        let log = format!("{}_{}_{}/{container}/{run}.log", pod.namespace, pod.name, pod.uid);
        ContainerLog::open(&self.klet.pod_logs_dir().join(log))
    }

    /// Waits until a container has written a line, and returns its log.
    pub fn wait_word(&self, manifest: &str, container: &str, word: &str) -> Result<ContainerLog> {
        self.eventually(&format!("{container} of {manifest} to say {word}"), || {
            let log = self.log(manifest, container, 0)?;
            log.time_of(word)?;
            Ok(log)
        })
    }

    /// The runtime's details of a pod's container.
    pub fn container_status(&self, manifest: &str, name: &str) -> Result<v1::ContainerStatus> {
        let pod = self.pod(manifest)?;
        self.cri.container_status(&pod.container(name)?.id)
    }

    /// What the runtime was sent to make a pod's container of.
    pub fn sent_config(&self, manifest: &str, name: &str) -> Result<serde_json::Value> {
        let pod = self.pod(manifest)?;
        self.cri.sent_config(&pod.container(name)?.id)
    }

    /// Runs a shell script in a pod's container, once klet says that it runs.
    pub fn run_in(&self, manifest: &str, container: &str, script: &str) -> Result<String> {
        let id = self.eventually(&format!("{container} of {manifest} to run"), || {
            let pod = self.pod(manifest)?;
            let found = pod.container(container)?;
            ensure!(found.state == "running" && !found.id.is_empty(), "it is {found:?}");
            Ok(found.id.clone())
        })?;
        self.cri.run_in(&id, script)
    }

    /// What a command of klet's says on its output, with single spaces between words.
    pub fn klet_says(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(binaries::klet_binary()?);
        command.args(args).env("KLET_SOCKET", self.klet.root_dir().join("klet.sock"));
        let text = process::run(&mut command)?;
        Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Waits until the command's output holds all of these; returns it.
    pub fn wait_says(&self, args: &[&str], needles: &[&str]) -> Result<String> {
        self.eventually(&format!("klet {args:?} to say {needles:?}"), || {
            let text = self.klet_says(args)?;
            let missing: Vec<_> = needles.iter().filter(|word| !text.contains(**word)).collect();
            ensure!(missing.is_empty(), "{missing:?} is missing from: {text}");
            Ok(text)
        })
    }

    /// Waits until neither klet nor the runtime knows the pod.
    pub fn wait_gone(&self, manifest: &str) -> Result<()> {
        self.eventually(&format!("{manifest} to be gone"), || {
            ensure!(self.pod(manifest).is_err(), "/pods still has {:?}", self.pod(manifest));
            let (sandboxes, containers) = self.in_runtime(manifest)?;
            ensure!(sandboxes.is_empty(), "the runtime still has {sandboxes:?}");
            ensure!(containers.is_empty(), "the runtime still has {containers:?}");
            Ok(())
        })
    }

    /// Waits until the pod is gone, and neither its directory nor a mount in it nor a
    /// control group of it is left; nor anything of its volumes outside of it.
    pub fn wait_no_trace(&self, manifest: &str, uid: &str) -> Result<()> {
        self.wait_gone(manifest)?;
        let dir = self.klet.root_dir().join("pods").join(uid);
        self.eventually(&format!("{manifest} to leave no trace"), || {
            let mounts = host::mounts_below(&dir)?;
            ensure!(mounts.is_empty(), "still mounted: {mounts:?}");
            ensure!(!dir.exists(), "{} is still there", dir.display());
            let left = volume_traces::left_of(&self.klet.root_dir(), uid)?;
            ensure!(left.is_empty(), "its volumes left {left:?}");
            let groups = host::pod_cgroups_below(&self.containerd.cgroup_root(), uid)?;
            ensure!(groups.is_empty(), "control groups are still there: {groups:?}");
            Ok(())
        })
    }

    /// Waits until klet's own log has these words.
    pub fn wait_klet_logs(&self, words: &str) -> Result<()> {
        self.eventually(&format!("klet to log {words:?}"), || {
            let log = std::fs::read_to_string(self.klet.log_path())?;
            ensure!(log.contains(words), "it said\n{}", self.klet.log_tail());
            Ok(())
        })
    }

    /// Kills klet, starts it anew and waits until it tells of what runs; fails unless
    /// every container is as it was.
    pub fn survive_kill(&mut self) -> Result<()> {
        let before = self.instances()?;
        self.wait_told(&before)?;
        self.klet.kill9()?;
        self.klet.restart()?;
        self.wait_told(&before)?;
        let after = self.instances()?;
        ensure!(before == after, "containers were {before:?} and are {after:?}");
        Ok(())
    }

    /// Kills klet, which these examples of volumes do not notice, and `check`s what they
    /// hold; then takes them away while there is no klet, and waits until nothing of them
    /// is left.
    pub fn outlive_examples(
        &mut self,
        names: &[&str],
        check: impl Fn(&Self) -> Result<()>,
    ) -> Result<()> {
        self.survive_kill()?;
        check(self).context("after klet was killed")?;
        let pods = names.iter().map(|name| self.pod(name)).collect::<Result<Vec<_>>>()?;
        self.klet.kill9()?;
        names.iter().try_for_each(|name| self.manifests.remove_example(name))?;
        self.klet.restart()?;
        names.iter().zip(pods).try_for_each(|(name, pod)| self.wait_no_trace(name, &pod.uid))
    }

    /// Waits until klet tells of every one of these that runs.
    fn wait_told(&self, instances: &BTreeMap<String, Instance>) -> Result<()> {
        let running = v1::ContainerState::ContainerRunning as i32;
        self.eventually("klet to know its containers", || {
            let pods = self.klet.pods()?;
            let told = |id: &String| {
                let mut all = pods.iter().flat_map(|pod| pod.init.iter().chain(&pod.containers));
                all.any(|container| container.id == *id)
            };
            let mut untold = instances.iter().filter(|(id, one)| one.state == running && !told(id));
            ensure!(untold.next().is_none(), "it tells of {pods:?}");
            Ok(())
        })
    }

    /// Sandboxes and containers the runtime has of a pod.
    pub fn in_runtime(&self, manifest: &str) -> Result<(Vec<v1::PodSandbox>, Vec<v1::Container>)> {
        let name = format!("{manifest}-{}", self.klet.node_name());
        let own = |labels: &BTreeMap<String, String>| {
            let label = labels.get("io.kubernetes.pod.name");
            label.is_some_and(|label| *label == name || label == manifest)
        };
        let mut sandboxes = self.cri.sandboxes()?;
        sandboxes.retain(|sandbox| own(&sandbox.labels));
        let mut containers = self.cri.containers()?;
        containers.retain(|container| own(&container.labels));
        Ok((sandboxes, containers))
    }

    /// Every container in the runtime, by id: to show that nobody touched them.
    pub fn instances(&self) -> Result<BTreeMap<String, Instance>> {
        let mut found = BTreeMap::new();
        for container in self.cri.containers()? {
            let status = self.cri.container_status(&container.id)?;
            let instance = Instance {
                created_at: status.created_at,
                started_at: status.started_at,
                attempt: container.metadata.map_or(0, |metadata| metadata.attempt),
                state: status.state,
            };
            found.insert(container.id, instance);
        }
        Ok(found)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}
