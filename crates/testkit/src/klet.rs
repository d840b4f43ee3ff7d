//! A klet process, started as a user would start it.
//!
//! Owns the process, its configuration file, its directories and its ports.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::http;
use crate::pods::{self, PodView};
use crate::process::{self, Process};
use crate::upstream;
use crate::wait::eventually;

/// How long klet may take to answer on its health port.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long klet may take to end after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// How to start klet.
#[derive(Debug, Clone)]
pub struct KletOptions {
    /// The program.
    pub binary: PathBuf,
    /// Directory for its state, configuration and log; removed by its owner.
    pub dir: PathBuf,
    /// The runtime's address.
    pub endpoint: String,
    /// A manifest, or a directory of them.
    pub manifests: PathBuf,
    /// Control group above all of its pods.
    pub cgroup_root: String,
    /// The node's name.
    pub node_name: String,
    /// Ports for health and for /pods, if they are free; else, or if `None`, any.
    pub ports: Option<(u16, u16)>,
}

/// A klet process.
#[derive(Debug)]
pub struct Klet {
    process: Option<Process>,
    options: KletOptions,
    health_port: u16,
    read_only_port: u16,
    more: Value,
    flags: Vec<String>,
    host_name: bool,
    tools: Option<PathBuf>,
    environment: Vec<(String, String)>,
}

impl Klet {
    /// Writes the configuration, starts klet and waits until it is healthy.
    pub fn start(options: KletOptions) -> Result<Self> {
        let mut klet = Self::prepare(options)?;
        klet.launch()?;
        klet.wait_healthy()?;
        Ok(klet)
    }

    /// Writes the configuration and starts nothing: [`Self::launch`] does.
    pub fn prepare(options: KletOptions) -> Result<Self> {
        fs::create_dir_all(&options.dir)
            .with_context(|| format!("cannot create {}", options.dir.display()))?;
        // Both at once, so that they differ.
        let (health, read_only) = match options.ports {
            Some((health, pods)) => (reserve_port(health)?, reserve_port(pods)?),
            None => (reserve_port(0)?, reserve_port(0)?),
        };
        let mut klet = Self {
            process: None,
            health_port: health.1,
            read_only_port: read_only.1,
            options,
            more: Value::Null,
            flags: Vec::new(),
            host_name: false,
            tools: None,
            environment: Vec::new(),
        };
        klet.configure(Value::Null)?;
        Ok(klet)
    }

    /// Sets further fields of the configuration, for the next launch.
    pub fn configure(&mut self, more: Value) -> Result<()> {
        self.more = more;
        let path = self.config_path();
        fs::write(&path, format!("{:#}\n", self.config()))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Adds a flag, for the next launch: not everything is in the configuration.
    pub fn add_flag(&mut self, flag: &str, value: &Path) {
        self.flags.push(format!("--{flag}={}", value.display()));
    }

    /// Adds a flag that is either there or not, for the next launch.
    pub fn add_switch(&mut self, flag: &str) {
        self.flags.push(format!("--{flag}"));
    }

    /// Takes a flag away, for the next launch.
    pub fn drop_flag(&mut self, flag: &str) {
        let plain = format!("--{flag}");
        self.flags.retain(|one| one.split('=').next() != Some(plain.as_str()));
    }

    /// Leaves it the machine's own name, for the next launch.
    pub fn keep_host_name(&mut self) {
        self.host_name = true;
        let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        self.options.node_name = name;
    }

    /// Has it look for programs here before anywhere else, from the next launch on.
    pub fn put_first_in_path(&mut self, dir: &Path) {
        self.tools = Some(dir.to_owned());
    }

    /// Sets a variable of its environment, from the next launch on.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    fn config(&self) -> Value {
        let mut config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": self.options.manifests,
            "podLogsDir": self.pod_logs_dir(),
            "containerRuntimeEndpoint": self.options.endpoint,
            "healthzPort": self.health_port,
            "readOnlyPort": self.read_only_port,
            "failCgroupV1": false,
            "cgroupRoot": self.options.cgroup_root,
            // A standalone node has no API server to ask.
            "authentication": {"webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
        });
        upstream::extend(&mut config, &self.more);
        config
    }

    /// The flags it is started with.
    pub fn flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--config={}", self.config_path().display()),
            format!("--root-dir={}", self.root_dir().display()),
        ];
        if !self.host_name {
            flags.push(format!("--hostname-override={}", self.options.node_name));
        }
        flags.extend_from_slice(&self.flags);
        flags
    }

    /// Starts the process and does not wait for it.
    pub fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(&self.options.binary);
        command.arg("kubelet").args(self.flags());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(tools) = &self.tools {
            let usual = std::env::var_os("PATH").unwrap_or_default();
            let all = std::iter::once(tools.clone()).chain(std::env::split_paths(&usual));
            command.env("PATH", std::env::join_paths(all)?);
        }
        self.process = Some(Process::spawn("klet", &mut command, &self.log_path())?);
        Ok(())
    }

    /// Starts the upstream kubelet in klet's place: same directories, manifests,
    /// runtime and ports.
    pub fn launch_upstream(&mut self, binary: &Path) -> Result<()> {
        let mut config = self.config();
        upstream::extend(&mut config, &upstream::settings()?);
        let path = self.options.dir.join("upstream-config.json");
        fs::write(&path, format!("{config:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let mut command = Command::new(binary);
        command
            .arg("--config")
            .arg(&path)
            .arg("--root-dir")
            .arg(self.root_dir())
            .arg("--cert-dir")
            .arg(self.options.dir.join("pki"))
            .arg("--hostname-override")
            .arg(&self.options.node_name);
        let log = self.options.dir.join("upstream.log");
        self.process = Some(Process::spawn("upstream kubelet", &mut command, &log)?);
        Ok(())
    }

    /// Starts another build of klet in this one's place, from the next launch on, too.
    pub fn launch_program(&mut self, binary: &Path) -> Result<()> {
        self.options.binary = binary.to_owned();
        self.launch()
    }

    /// Starts the upstream kubelet with exactly the flags and files that klet has.
    pub fn launch_upstream_alike(&mut self, binary: &Path) -> Result<()> {
        let mut command = Command::new(binary);
        command.args(self.flags());
        let log = self.options.dir.join("upstream.log");
        self.process = Some(Process::spawn("upstream kubelet", &mut command, &log)?);
        Ok(())
    }

    /// Waits until the health port answers `ok`.
    pub fn wait_healthy(&mut self) -> Result<()> {
        let port = self.health_port;
        let process = self.process.as_mut().context("klet is not running")?;
        let result = eventually(START_LIMIT, "klet to be healthy", || {
            process.check_alive()?;
            let body = http::get_ok(port, "/healthz")?;
            ensure!(body.trim() == "ok", "/healthz says {body:?}");
            Ok(())
        });
        result.with_context(|| format!("klet's log ends:\n{}", self.log_tail()))
    }

    /// The pods klet reports.
    pub fn pods(&self) -> Result<Vec<PodView>> {
        pods::parse(&http::get_ok(self.read_only_port, "/pods")?)
    }

    /// SIGKILL: no chance to save or to say good-bye.
    pub fn kill9(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill(),
            None => Ok(()),
        }
    }

    /// SIGTERM, and wait for the end.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let mut process = self.process.take().context("klet is not running")?;
        process.terminate(STOP_LIMIT)
    }

    /// Kills it, if it runs, starts it anew and waits until it is healthy.
    pub fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.launch()?;
        self.wait_healthy()
    }

    /// Process id, while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Fails, with the end of the log, if klet has ended by itself.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.as_mut().context("klet is not running")?.check_alive()
    }

    /// Port of /healthz.
    pub fn health_port(&self) -> u16 {
        self.health_port
    }

    /// Port of /pods and /metrics.
    pub fn read_only_port(&self) -> u16 {
        self.read_only_port
    }

    /// Where containers' logs go.
    pub fn pod_logs_dir(&self) -> PathBuf {
        self.options.dir.join("pod-logs")
    }

    /// klet's state.
    pub fn root_dir(&self) -> PathBuf {
        self.options.dir.join("root")
    }

    /// The node's name.
    pub fn node_name(&self) -> &str {
        &self.options.node_name
    }

    /// The end of klet's own log.
    pub fn log_tail(&self) -> String {
        process::tail(&self.log_path(), 60)
    }

    /// klet's own log.
    pub fn log_path(&self) -> PathBuf {
        self.options.dir.join("klet.log")
    }

    fn config_path(&self) -> PathBuf {
        self.options.dir.join("kubelet-config.json")
    }
}

/// The wanted port if nobody listens on it, else any such port. It is free again
/// when the listener is dropped.
pub fn reserve_port(wanted: u16) -> Result<(TcpListener, u16)> {
    let listener = TcpListener::bind(("127.0.0.1", wanted))
        .or_else(|_| TcpListener::bind(("127.0.0.1", 0)))
        .context("cannot find a free port")?;
    let port = listener.local_addr().context("cannot read the port")?.port();
    Ok((listener, port))
}

/// Files in the fixed directory of container logs that link into `dir`.
pub fn log_links_into(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/var/log/containers") else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| fs::read_link(path).is_ok_and(|target| target.starts_with(dir)))
        .collect()
}
