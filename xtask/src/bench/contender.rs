//! Who is measured, and how each kubelet is started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::{Containerd, http, klet, upstream};

use super::Plan;
use super::site::Site;

/// Every contender's name as a node.
pub const NODE: &str = "bench";

/// How long a kubelet may take to be healthy.
const START_LIMIT: Duration = Duration::from_secs(60);

/// klet's count of its full listings of the runtime.
const LISTINGS: &str = "klet_pleg_relists_total";

/// Who is measured.
#[derive(Debug, Clone)]
pub enum Contender {
    /// klet, at this path.
    Klet(PathBuf),
    /// klet, at this path, that lists the runtime each second, as it does where
    /// the runtime streams no events.
    Listing(PathBuf),
    /// klet, at this path, whose pods have five volumes each.
    Volumes(PathBuf),
    /// klet, at this path, as a node of a cluster.
    Joined(PathBuf),
    /// The same CRI calls by a minimal client.
    Raw,
    /// The same with five mounts per container.
    RawVolumes,
    /// The upstream kubelet, at this path.
    Upstream(PathBuf),
    /// The upstream kubelet, at this path, as a node of a cluster.
    UpstreamJoined(PathBuf),
}

impl Contender {
    /// Name in the report.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Klet(_) => "klet",
            Self::Listing(_) => "klet, listing",
            Self::Volumes(_) => "klet, volumes",
            Self::Joined(_) => "klet, joined",
            Self::Raw => "raw CRI",
            Self::RawVolumes => "raw CRI, volumes",
            Self::Upstream(_) => "upstream kubelet",
            Self::UpstreamJoined(_) => "upstream, joined",
        }
    }

    /// Its program, if it is one.
    pub fn binary(&self) -> Option<&Path> {
        match self {
            Self::Klet(path)
            | Self::Listing(path)
            | Self::Volumes(path)
            | Self::Joined(path)
            | Self::Upstream(path)
            | Self::UpstreamJoined(path) => Some(path),
            Self::Raw | Self::RawVolumes => None,
        }
    }

    /// Numbers of pods it is measured with at rest. Listing, and volumes, only matter
    /// where there is much of it; what a cluster costs by itself shows without pods.
    pub fn loads(&self, plan: &Plan) -> Vec<u32> {
        match self {
            Self::Raw | Self::RawVolumes => Vec::new(),
            Self::Listing(_) | Self::Volumes(_) => vec![plan.pods],
            Self::Joined(_) | Self::UpstreamJoined(_) => vec![0, plan.pods],
            Self::Klet(_) | Self::Upstream(_) => vec![0, plan.pods / 2, plan.pods],
        }
    }

    /// Its pods have volumes.
    pub fn has_volumes(&self) -> bool {
        matches!(self, Self::Volumes(_) | Self::RawVolumes)
    }

    /// Whether it is a node of a cluster.
    pub fn joins(&self) -> bool {
        matches!(self, Self::Joined(_) | Self::UpstreamJoined(_))
    }

    fn is_upstream(&self) -> bool {
        matches!(self, Self::Upstream(_) | Self::UpstreamJoined(_))
    }

    /// Whether its size and start are figures of their own: the other klets are the
    /// same program.
    pub fn is_distinct(&self) -> bool {
        matches!(self, Self::Klet(_) | Self::Upstream(_))
    }

    /// Whether it is measured after exits.
    pub fn reacts(&self) -> bool {
        matches!(self, Self::Klet(_) | Self::Listing(_) | Self::Upstream(_))
    }

    /// Whether it is measured at work: listing makes no difference there, and what a
    /// cluster promises is how little a node does at rest.
    pub fn works(&self) -> bool {
        !matches!(self, Self::Listing(_)) && !self.joins()
    }
}

/// A running kubelet, ours or upstream's.
#[derive(Debug)]
pub struct Agent {
    process: Process,
    log: PathBuf,
    read_only_port: u16,
    /// It tells its full listings.
    tells_listings: bool,
    /// From just before it was started until its health port answered `ok`.
    pub healthy_after: Duration,
}

impl Agent {
    /// Starts it on its site and waits until it is healthy.
    pub fn start(contender: &Contender, site: &Site) -> Result<Self> {
        let (containerd, manifests) = (&site.containerd, site.manifests.path());
        let binary = contender.binary().context("raw CRI is not a process")?;
        let dir = containerd.dir().join("agent");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        // Both at once, so that they differ.
        let (health, read_only) = (klet::reserve_port(0)?, klet::reserve_port(0)?);
        let ports = (health.1, read_only.1);
        drop((health, read_only));
        let is_upstream = contender.is_upstream();
        let mut config = config(containerd, &dir, manifests, ports);
        upstream::extend(&mut config, &settings(contender)?);
        if let Some(server) = &site.server {
            upstream::extend(&mut config, &server.settings()?);
        }
        let path = dir.join("config.json");
        fs::write(&path, format!("{config:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;

        let mut command = Command::new(binary);
        if !is_upstream {
            command.arg("kubelet");
        }
        command
            .arg("--config")
            .arg(&path)
            .arg("--root-dir")
            .arg(dir.join("root"))
            .args(["--hostname-override", NODE]);
        if let Some(server) = &site.server {
            command.arg("--kubeconfig").arg(server.kubeconfig());
        }
        if is_upstream || site.server.is_some() {
            command.arg("--cert-dir").arg(dir.join("pki"));
        }
        let log = dir.join("log");
        let start = Instant::now();
        let mut process = Process::spawn(contender.name(), &mut command, &log)?;
        loop {
            process.check_alive()?;
            if http::get(ports.0, "/healthz").is_ok_and(|answer| answer.status == 200) {
                break;
            }
            ensure!(
                start.elapsed() < START_LIMIT,
                "{} is not healthy after {START_LIMIT:?}; its log ends:\n{}",
                contender.name(),
                testkit::process::tail(&log, 40)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let (read_only_port, tells_listings) = (ports.1, !is_upstream);
        let healthy_after = start.elapsed();
        Ok(Self { process, log, read_only_port, tells_listings, healthy_after })
    }

    /// Full listings of the runtime so far, as klet counts them.
    pub fn listings(&self) -> Result<Option<u64>> {
        if !self.tells_listings {
            return Ok(None);
        }
        let text = http::get_ok(self.read_only_port, "/metrics")?;
        counter(&text, LISTINGS).with_context(|| format!("/metrics has no {LISTINGS}")).map(Some)
    }

    /// Where it shows its pods.
    pub fn read_only_port(&self) -> u16 {
        self.read_only_port
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Fails, with the end of the log, if it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.check_alive()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        testkit::process::tail(&self.log, 40)
    }
}

/// One configuration for all.
fn config(containerd: &Containerd, dir: &Path, manifests: &Path, ports: (u16, u16)) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": manifests,
        "podLogsDir": dir.join("pod-logs"),
        "containerRuntimeEndpoint": containerd.endpoint(),
        "healthzPort": ports.0,
        "readOnlyPort": ports.1,
        "failCgroupV1": false,
        "cgroupRoot": containerd.cgroup_root(),
        // A standalone node has no API server to ask.
        "authentication": {"webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
    })
}

/// What one contender gets besides. For upstream it switches off work that klet
/// does not do, so that the comparison is in upstream's favour.
fn settings(contender: &Contender) -> Result<Value> {
    match contender {
        Contender::Upstream(_) | Contender::UpstreamJoined(_) => upstream::settings(),
        Contender::Listing(_) => Ok(json!({"featureGates": {"EventedPLEG": false}})),
        _ => Ok(json!({})),
    }
}

/// The value of an unlabelled counter in the text form of metrics.
fn counter(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "# HELP a_total b\n# TYPE a_total counter\na_totals 1\na_total 27\n";
        assert_eq!(counter(text, "a_total"), Some(27));
        assert_eq!(counter(text, "b_total"), None);
    }
}
