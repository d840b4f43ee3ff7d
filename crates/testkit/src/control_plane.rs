//! A stock control plane for one test: etcd, kube-apiserver and, where they are,
//! kube-controller-manager and kube-scheduler.
//!
//! Owns the processes and their files. The binaries are those of the directory that
//! `KUBEBUILDER_ASSETS` names; without it such tests say that they were skipped. Listens
//! on loopback only.

mod etcd;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apiserver::certificates::Authority;
use apiserver::serve::{Credentials, kubeconfig};
use serde_json::{Value, json};

use crate::cluster::condition;
use crate::klet::reserve_port;
use crate::node::{Node, NodeOptions};
use crate::process::{self, Process};
use crate::upstream;
use crate::wait::eventually;
use etcd::Etcd;

/// Names the directory of the binaries.
pub const VARIABLE: &str = "KUBEBUILDER_ASSETS";
/// The service addresses; nobody routes them.
const SERVICES: &str = "10.96.0.0/16";
/// How long the API server may take to be ready.
const START_LIMIT: Duration = Duration::from_secs(120);

/// The directory of the binaries, if it is named; says so if it is not.
pub fn binaries(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    if dir.is_none() {
        eprintln!(
            "SKIPPED {test}: set {VARIABLE} to a directory that holds kube-apiserver, etcd and \
             kubectl"
        );
    }
    dir
}

/// A control plane that ends when dropped.
pub struct ControlPlane {
    // In this order: whoever asks a server ends before it.
    others: Vec<Process>,
    apiserver: Process,
    etcd: Etcd,
    binaries: PathBuf,
    dir: PathBuf,
    authority: Authority,
    url: String,
}

impl ControlPlane {
    /// Starts one from the binaries of a directory; everything else goes into `dir`.
    pub fn start(binaries: &Path, dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let now = jiff::Timestamp::now();
        let authority = Authority::generate("kubernetes", now)?;
        // Held until all are chosen, so that they differ.
        let ports = [reserve_port(0)?, reserve_port(0)?, reserve_port(0)?, reserve_port(0)?];
        let ports = ports.map(|(_, port)| port);
        let [clients, peers, secure, scheduler] = ports;
        let etcd = Etcd::start(find(binaries, "etcd"), dir, clients, peers)?;
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        };
        let ca = write("ca.crt", authority.pem())?;
        let names = ["localhost", "kubernetes", "kubernetes.default.svc", "127.0.0.1", "10.96.0.1"];
        let names: Vec<String> = names.map(str::to_owned).into();
        let server = authority.server("kube-apiserver", &names, now)?;
        let to_nodes =
            authority.client("kube-apiserver-kubelet-client", Some("system:masters"), now)?;
        let tokens = authority.client("service-accounts", None, now)?;
        let token_key = write("tokens.key", &tokens.key)?;
        let mut command = Command::new(find(binaries, "kube-apiserver"));
        command
            .arg(format!("--etcd-servers={}", etcd.url()))
            .arg(format!("--secure-port={secure}"))
            .args(["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"])
            .arg(format!("--service-cluster-ip-range={SERVICES}"))
            .args(["--authorization-mode=Node,RBAC", "--allow-privileged=true"])
            .args(["--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth"])
            .args(["--service-account-issuer=https://kubernetes.default.svc"])
            .args(["--kubelet-preferred-address-types=InternalIP"]);
        for (flag, path) in [
            ("client-ca-file", &ca),
            ("tls-cert-file", &write("server.crt", &server.certificate)?),
            ("tls-private-key-file", &write("server.key", &server.key)?),
            // Of the key it takes the public half only from a certificate.
            ("service-account-key-file", &write("tokens.crt", &tokens.certificate)?),
            ("service-account-signing-key-file", &token_key),
            ("kubelet-client-certificate", &write("to-nodes.crt", &to_nodes.certificate)?),
            ("kubelet-client-key", &write("to-nodes.key", &to_nodes.key)?),
        ] {
            command.arg(format!("--{flag}={}", path.display()));
        }
        let apiserver = Process::spawn("kube-apiserver", &mut command, &dir.join("apiserver.log"))?;
        let mut plane = Self {
            others: Vec::new(),
            apiserver,
            etcd,
            binaries: binaries.to_owned(),
            dir: dir.to_owned(),
            authority,
            url: format!("https://127.0.0.1:{secure}"),
        };
        plane.wait_ready()?;
        let ca_key = write("ca.key", &plane.authority.key_pem())?;
        plane.start_controllers(&token_key, [&ca, &ca_key], scheduler)?;
        Ok(plane)
    }

    fn wait_ready(&mut self) -> Result<()> {
        self.kubeconfig("kubernetes-admin", Some("system:masters"))?;
        eventually(START_LIMIT, "the API server to be ready", || {
            self.apiserver.check_alive()?;
            ensure!(self.kubectl(&["get", "--raw", "/readyz"])? == "ok", "it is not");
            self.kubectl(&["get", "namespace", "default", "-o", "name"]).map(drop)
        })
    }

    /// Those that are there: not every test needs them.
    fn start_controllers(
        &mut self,
        token_key: &Path,
        [ca, ca_key]: [&Path; 2],
        port: u16,
    ) -> Result<()> {
        let log = |name: &str| self.dir.join(format!("{name}.log"));
        let manager = self.binaries.join("kube-controller-manager");
        if manager.exists() {
            let config = self.kubeconfig("system:kube-controller-manager", None)?;
            let mut command = Command::new(manager);
            command
                .arg(format!("--kubeconfig={}", config.display()))
                .arg(format!("--service-account-private-key-file={}", token_key.display()))
                .arg(format!("--root-ca-file={}", ca.display()))
                .arg(format!("--cluster-signing-cert-file={}", ca.display()))
                .arg(format!("--cluster-signing-key-file={}", ca_key.display()))
                .args(["--use-service-account-credentials", "--leader-elect=false"])
                .args(["--secure-port=0"]);
            let name = "kube-controller-manager";
            self.others.push(Process::spawn(name, &mut command, &log("controllers"))?);
        }
        let scheduler = self.binaries.join("kube-scheduler");
        if scheduler.exists() {
            let config = self.kubeconfig("system:kube-scheduler", None)?;
            let mut command = Command::new(scheduler);
            command
                .arg(format!("--kubeconfig={}", config.display()))
                .args(["--leader-elect=false", "--bind-address=127.0.0.1"])
                .arg(format!("--secure-port={port}"));
            self.others.push(Process::spawn("kube-scheduler", &mut command, &log("scheduler"))?);
        }
        Ok(())
    }

    /// Ends etcd for that long. What was stored is there again afterwards.
    pub fn restart_etcd(&mut self, away: Duration) -> Result<()> {
        self.etcd.stop()?;
        std::thread::sleep(away);
        self.etcd.restart()?;
        self.wait_ready()
    }

    /// Whether pods are scheduled and controllers at work.
    pub fn is_whole(&self) -> bool {
        self.others.len() == 2
    }

    /// Writes a kubeconfig with a client certificate of a user.
    pub fn kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let issued = self.authority.client(user, group, jiff::Timestamp::now())?;
        self.write_kubeconfig(&user.replace(':', "-"), &Credentials::Certificate(issued))
    }

    /// The kubeconfig of somebody who may do anything.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.join("kubernetes-admin.kubeconfig")
    }

    /// `kubectl`, as somebody who may do anything.
    pub fn kubectl_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(find(&self.binaries, "kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.admin_kubeconfig())
            .arg("--cache-dir")
            .arg(self.dir.join("kubectl"));
        command.args(args);
        command
    }

    /// What `kubectl` says.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        process::run(&mut self.kubectl_command(args)).map(|text| text.trim().to_owned())
    }

    /// An object, such as `("pod", "a")`, of the default namespace.
    pub fn get(&self, kind: &str, name: &str) -> Result<Value> {
        let text = self.kubectl(&["get", kind, name, "-o", "json"])?;
        serde_json::from_str(&text).context("kubectl's JSON")
    }

    /// The same, once it is there.
    pub fn eventually_has(&self, kind: &str, name: &str, node: &Node) -> Result<Value> {
        node.eventually(&format!("{kind} {name}"), || self.get(kind, name))
    }

    /// The same, once it is ready.
    pub fn wait_until_ready(&self, kind: &str, name: &str, node: &Node) -> Result<Value> {
        node.eventually(&format!("{kind} {name} to be ready"), || {
            let object = self.get(kind, name)?;
            let ready = condition(&object, "Ready") == Some("True");
            ensure!(ready, "its status is {:#}", object["status"]);
            Ok(object)
        })
    }

    /// A kubeconfig with a token.
    pub fn token_kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        let credentials = Credentials::Token(token.to_owned());
        self.write_kubeconfig(name, &credentials)
    }

    fn write_kubeconfig(&self, name: &str, credentials: &Credentials) -> Result<PathBuf> {
        let text = kubeconfig(&self.url, self.authority.pem(), credentials);
        let path = self.dir.join(format!("{name}.kubeconfig"));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Creates or changes an object.
    pub fn apply(&self, object: &Value) -> Result<()> {
        let path = self.dir.join("apply.json");
        fs::write(&path, object.to_string())?;
        let path = path.to_string_lossy().into_owned();
        self.kubectl(&["apply", "-f", &path]).map(drop)
    }

    /// A node that belongs here but was not launched: containerd runs, and klet or the
    /// upstream kubelet may be started with the same flags and files.
    pub fn prepare_node(&self) -> Result<Node> {
        self.prepare_node_with(NodeOptions::default())
    }

    /// [`Self::prepare_node`] with more options.
    pub fn prepare_node_with(&self, options: NodeOptions) -> Result<Node> {
        let mut node = Node::start_with(NodeOptions { klet_absent: true, ..options })?;
        node.containerd.make_cgroup_root()?;
        let name = node.klet.node_name().to_owned();
        let kubeconfig = self.kubeconfig(&format!("system:node:{name}"), Some("system:nodes"))?;
        node.klet.add_flag("kubeconfig", &kubeconfig);
        node.klet.add_flag("cert-dir", &node.containerd.dir().join("pki"));
        node.klet.configure(json!({
            "port": reserve_port(0)?.1,
            "authentication": {
                "x509": {"clientCAFile": self.dir.join("ca.crt")},
                "webhook": {"enabled": true},
                "anonymous": {"enabled": false},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "cluster.local",
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": upstream::no_eviction(),
        }))?;
        Ok(node)
    }
}

/// Of that directory, or, for etcd of a distribution, of the path.
fn find(binaries: &Path, name: &str) -> PathBuf {
    let own = binaries.join(name);
    if own.exists() { own } else { name.into() }
}
