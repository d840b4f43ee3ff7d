//! One container of a manifest: what it runs, how it is probed, its hooks, its
//! own restart rules.
//!
//! Plain data. Commands of probes are words that the simulated runtime
//! understands; ports tell which probe of which container asks.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use serde_json::{Value, json};

use crate::hooks::{Hook, HookRules};
use crate::manifest::Restart;
use crate::runtime::Program;
use crate::sizes::Size;

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeRole {
    /// Has it started?
    Startup,
    /// May it be sent traffic?
    Readiness,
    /// Must it be restarted?
    Liveness,
}

impl ProbeRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// As an exec probe's command says it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }

    /// The port at which this probe of a container asks. Names of one pod's
    /// containers are so few that their ports differ.
    pub fn port(self, container: &str) -> u16 {
        let sum: u16 = container.bytes().map(u16::from).fold(0, u16::wrapping_add);
        8_000 + (sum % 2_000) * 4 + self as u16
    }
}

/// How a probe asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A command in the container.
    Exec,
    /// An HTTP request.
    Http,
    /// A connection.
    Tcp,
    /// A gRPC health check.
    Grpc,
}

/// A probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeTemplate {
    /// How it asks.
    pub way: Way,
    /// How often.
    pub period_secs: u32,
    /// Failures in a row that count.
    pub failures: u32,
    /// How long after the container's start it begins.
    pub delay_secs: u32,
    /// Successes in a row that count; only readiness may ask for more than one.
    pub successes: u32,
    /// The grace of a container that it condemns, where that is not the pod's.
    pub grace_secs: Option<u32>,
}

impl ProbeTemplate {
    /// One that begins at once and believes the first success.
    pub fn new(way: Way, period_secs: u32, failures: u32) -> Self {
        Self { way, period_secs, failures, delay_secs: 0, successes: 1, grace_secs: None }
    }

    fn random(rng: &mut StdRng, role: ProbeRole) -> Self {
        let ways = [Way::Exec, Way::Http, Way::Tcp, Way::Grpc];
        let way = ways[rng.random_range(0..ways.len())];
        let mut probe = Self::new(way, rng.random_range(1..=4), rng.random_range(1..=3));
        if rng.random_bool(0.3) {
            probe.delay_secs = rng.random_range(1..=10);
        }
        if role == ProbeRole::Readiness {
            probe.successes = rng.random_range(1..=3);
        } else if rng.random_bool(0.3) {
            probe.grace_secs = Some(rng.random_range(1..=15));
        }
        probe
    }

    fn to_json(self) -> Value {
        let mut value = json!({"periodSeconds": self.period_secs,
                               "failureThreshold": self.failures,
                               "successThreshold": self.successes,
                               "initialDelaySeconds": self.delay_secs});
        if let Some(grace) = self.grace_secs {
            value["terminationGracePeriodSeconds"] = json!(grace);
        }
        value
    }
}

/// A container's own restart policy with one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnRestart {
    /// The policy for every other exit code.
    pub policy: Restart,
    /// The exit code of the rule.
    pub code: u8,
    /// Does that code restart the whole pod, or just this container?
    pub all: bool,
}

impl OwnRestart {
    pub(crate) fn random(rng: &mut StdRng) -> Self {
        let policies = [Restart::Always, Restart::OnFailure, Restart::Never];
        Self {
            policy: policies[rng.random_range(0..3)],
            code: rng.random_range(1..=4),
            all: rng.random_bool(0.4),
        }
    }
}

/// One container of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerTemplate {
    /// Name.
    pub name: String,
    /// What it does.
    pub program: Program,
    /// Among the init containers: does it run on beside the others?
    pub sidecar: bool,
    /// Probes by role.
    pub probes: Vec<(ProbeRole, ProbeTemplate)>,
    /// After its start.
    pub post_start: Option<Hook>,
    /// Before its stop.
    pub pre_stop: Option<Hook>,
    /// Its own restart policy.
    pub own_restart: Option<OwnRestart>,
    /// Its requests and limits.
    pub size: Option<Size>,
}

/// Which features the manifests of a run use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Init containers.
    pub init: bool,
    /// Restartable init containers.
    pub sidecars: bool,
    /// Probes of every kind.
    pub probes: bool,
    /// Hooks.
    pub hooks: bool,
    /// Restart policies and rules of single containers.
    pub rules: bool,
    /// Requests and limits, and edits of them.
    pub sizes: bool,
    /// Volumes.
    pub volumes: bool,
    /// How long a pod may be active.
    pub deadlines: bool,
    /// A ConfigMap that pods mount.
    pub objects: bool,
    /// Volumes of a CSI driver.
    pub csi: bool,
    /// Disks of the node and of a Fibre Channel network, devices, and with `objects` a
    /// Secret.
    pub disks: bool,
}

impl Features {
    /// Each with even odds.
    pub fn swarm(rng: &mut impl Rng) -> Self {
        Self {
            init: rng.random_bool(0.5),
            sidecars: rng.random_bool(0.5),
            probes: rng.random_bool(0.5),
            hooks: rng.random_bool(0.5),
            rules: rng.random_bool(0.5),
            sizes: rng.random_bool(0.5),
            volumes: rng.random_bool(0.5),
            deadlines: rng.random_bool(0.3),
            // Drawn apart, so that old seeds keep their courses.
            objects: false,
            csi: false,
            disks: false,
        }
    }
}

impl ContainerTemplate {
    /// A container with nothing but a program.
    pub fn new(name: &str, program: Program) -> Self {
        Self {
            name: name.to_owned(),
            program,
            sidecar: false,
            probes: Vec::new(),
            post_start: None,
            pre_stop: None,
            own_restart: None,
            size: None,
        }
    }

    /// The same as a sidecar.
    pub fn as_sidecar(mut self) -> Self {
        self.sidecar = true;
        self
    }

    /// The same with one more probe.
    pub fn probe(mut self, role: ProbeRole, way: Way, period_secs: u32, failures: u32) -> Self {
        self.probes.push((role, ProbeTemplate::new(way, period_secs, failures)));
        self
    }

    /// Its probe of a role.
    pub fn probe_of(&self, role: ProbeRole) -> Option<ProbeTemplate> {
        self.probes.iter().find(|(of, _)| *of == role).map(|(_, probe)| *probe)
    }

    /// Does an exit with this code start the whole pod over?
    pub fn restarts_all(&self, code: i32) -> bool {
        self.own_restart.is_some_and(|own| own.all && i32::from(own.code) == code)
    }

    /// Is it started again after an exit with this code?
    pub fn restarts(&self, of_pod: Restart, code: i32) -> bool {
        match self.own_restart {
            _ if self.sidecar => true,
            Some(own) if i32::from(own.code) == code => true,
            Some(own) => own.policy.restarts(code),
            None => of_pod.restarts(code),
        }
    }

    /// Is it never started again, but for its rule?
    pub fn never_restarts(&self, of_pod: Restart) -> bool {
        let policy = self.own_restart.map_or(of_pod, |own| own.policy);
        !self.sidecar && policy == Restart::Never
    }

    /// A random container with its program; a server where probes look at it.
    pub(crate) fn random(
        rng: &mut StdRng,
        name: &str,
        features: Features,
        program: Program,
    ) -> Self {
        let mut template = Self::new(name, program);
        if features.probes && rng.random_bool(0.6) {
            template.add_random_probes(rng);
        }
        if features.hooks {
            template.post_start = rng.random_bool(0.3).then(|| Hook::random(rng, 20_000));
            template.pre_stop = rng.random_bool(0.5).then(|| Hook::random(rng, 40_000));
            if let Some(hook) = template.pre_stop.as_mut().filter(|_| rng.random_bool(0.3)) {
                hook.takes_ms = Hook::HANGS;
            }
        }
        if features.rules && rng.random_bool(0.4) {
            template.own_restart = Some(OwnRestart::random(rng));
        }
        template
    }

    pub(crate) fn add_random_probes(&mut self, rng: &mut StdRng) {
        for role in ProbeRole::ALL {
            if rng.random_bool(0.5) {
                self.probes.push((role, ProbeTemplate::random(rng, role)));
            }
        }
    }

    /// The container as a JSON object. On the host's network ports may clash, so
    /// that probes ask by command.
    pub(crate) fn to_json(&self, rules: HookRules) -> Value {
        let mut container = json!({"name": self.name, "image": self.program.image(),
                                   "imagePullPolicy": "IfNotPresent"});
        for (role, probe) in &self.probes {
            let mut value = probe.to_json();
            let port = role.port(&self.name);
            let way = if rules.host_network { Way::Exec } else { probe.way };
            let (key, handler) = match way {
                Way::Exec => ("exec", json!({"command": ["probe", role.word()]})),
                Way::Http => ("httpGet", json!({"port": port, "path": "/"})),
                Way::Tcp => ("tcpSocket", json!({"port": port})),
                Way::Grpc => ("grpc", json!({"port": port})),
            };
            value[key] = handler;
            container[format!("{}Probe", role.word())] = value;
        }
        if let Some(hook) = self.post_start {
            container["lifecycle"]["postStart"] = hook.to_json("post-start", &self.name, rules);
        }
        if let Some(hook) = self.pre_stop {
            container["lifecycle"]["preStop"] = hook.to_json("pre-stop", &self.name, rules);
        }
        if let Some(size) = self.size {
            size.add_to(&mut container);
        }
        if self.sidecar {
            container["restartPolicy"] = json!("Always");
        } else if let Some(own) = self.own_restart {
            container["restartPolicy"] = json!(own.policy.as_str());
            let action = if own.all { "RestartAllContainers" } else { "Restart" };
            container["restartPolicyRules"] = json!([{
                "action": action, "exitCodes": {"operator": "In", "values": [own.code]}}]);
        }
        container
    }
}
