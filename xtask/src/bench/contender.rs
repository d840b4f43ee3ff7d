//! Who is measured, and how each kubelet is started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::process::Process;
use testkit::{Containerd, http, klet};

/// How long a kubelet may take to be healthy.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Who is measured.
#[derive(Debug, Clone)]
pub enum Contender {
    /// klet, at this path.
    Klet(PathBuf),
    /// The same CRI calls by a minimal client.
    Raw,
    /// The upstream kubelet, at this path.
    Upstream(PathBuf),
}

impl Contender {
    /// Name in the report.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Klet(_) => "klet",
            Self::Raw => "raw CRI",
            Self::Upstream(_) => "upstream kubelet",
        }
    }

    /// Its program, if it is one.
    pub fn binary(&self) -> Option<&Path> {
        match self {
            Self::Klet(path) | Self::Upstream(path) => Some(path),
            Self::Raw => None,
        }
    }
}

/// A running kubelet, ours or upstream's.
#[derive(Debug)]
pub struct Agent {
    process: Process,
    log: PathBuf,
    /// From just before it was started until its health port answered `ok`.
    pub healthy_after: Duration,
}

impl Agent {
    /// Starts it on the private containerd and waits until it is healthy.
    pub fn start(contender: &Contender, containerd: &Containerd, manifests: &Path) -> Result<Self> {
        let binary = contender.binary().context("raw CRI is not a process")?;
        let dir = containerd.dir().join("agent");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let health_port = klet::reserve_port(0)?.1;
        let upstream = matches!(contender, Contender::Upstream(_));
        let config = config(containerd, &dir, manifests, health_port, upstream)?;
        let path = dir.join("config.json");
        fs::write(&path, format!("{config:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;

        let mut command = Command::new(binary);
        if !upstream {
            command.arg("kubelet");
        }
        command
            .arg("--config")
            .arg(&path)
            .arg("--root-dir")
            .arg(dir.join("root"))
            .args(["--hostname-override", "bench"]);
        if upstream {
            command.arg("--cert-dir").arg(dir.join("pki"));
        }
        let log = dir.join("log");
        let start = Instant::now();
        let mut process = Process::spawn(contender.name(), &mut command, &log)?;
        loop {
            process.check_alive()?;
            if http::get(health_port, "/healthz").is_ok_and(|answer| answer.status == 200) {
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
        Ok(Self { process, log, healthy_after: start.elapsed() })
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

/// One configuration for both. What only upstream gets switches off work that
/// klet does not do, so that the comparison is in upstream's favour.
fn config(
    containerd: &Containerd,
    dir: &Path,
    manifests: &Path,
    health_port: u16,
    upstream: bool,
) -> Result<serde_json::Value> {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": manifests,
        "podLogsDir": dir.join("pod-logs"),
        "containerRuntimeEndpoint": containerd.endpoint(),
        "healthzPort": health_port,
        "readOnlyPort": klet::reserve_port(0)?.1,
        "failCgroupV1": false,
        // A standalone node has no API server to ask.
        "authentication": {"webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
    });
    if upstream {
        testkit::upstream::extend(&mut config, &testkit::upstream::settings()?);
    }
    Ok(config)
}
