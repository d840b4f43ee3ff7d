//! One container of a manifest: what it runs, how it is probed, its hooks, its
//! own restart rules.
//!
//! Plain data. Commands of probes and hooks are words that the simulated
//! runtime understands; ports tell which probe of which container asks.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use serde_json::{Value, json};

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
}

/// A hook: a command that ends with `code` after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// Exit code.
    pub code: u8,
    /// How long it takes; [`Hook::HANGS`] for ever.
    pub takes_ms: u32,
}

impl Hook {
    /// A hook that never ends.
    pub const HANGS: u32 = u32::MAX;

    /// One that succeeds at once.
    pub const OK: Self = Self { code: 0, takes_ms: 0 };

    fn to_json(self, when: &str) -> Value {
        json!({"exec": {"command": [when, self.code.to_string(), self.takes_ms.to_string()]}})
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
        self.probes.push((role, ProbeTemplate { way, period_secs, failures }));
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
            template.post_start = rng.random_bool(0.3).then(|| random_hook(rng, 20_000));
            template.pre_stop = rng.random_bool(0.5).then(|| random_hook(rng, 40_000));
            if let Some(hook) = template.pre_stop.as_mut().filter(|_| rng.random_bool(0.3)) {
                hook.takes_ms = Hook::HANGS;
            }
        }
        if features.rules && rng.random_bool(0.4) {
            template.own_restart = Some(OwnRestart {
                policy: [Restart::Always, Restart::OnFailure, Restart::Never]
                    [rng.random_range(0..3)],
                code: rng.random_range(1..=4),
                all: rng.random_bool(0.4),
            });
        }
        template
    }

    pub(crate) fn add_random_probes(&mut self, rng: &mut StdRng) {
        for role in ProbeRole::ALL {
            if rng.random_bool(0.5) {
                let ways = [Way::Exec, Way::Http, Way::Tcp, Way::Grpc];
                self.probes.push((
                    role,
                    ProbeTemplate {
                        way: ways[rng.random_range(0..ways.len())],
                        period_secs: rng.random_range(1..=4),
                        failures: rng.random_range(1..=3),
                    },
                ));
            }
        }
    }

    /// The container as a JSON object. On the host's network ports may clash, so
    /// that probes ask by command.
    pub(crate) fn to_json(&self, host_network: bool) -> Value {
        let mut container = json!({"name": self.name, "image": self.program.image(),
                                   "imagePullPolicy": "IfNotPresent"});
        for (role, probe) in &self.probes {
            let mut value = json!({"periodSeconds": probe.period_secs,
                                   "failureThreshold": probe.failures});
            let port = role.port(&self.name);
            let way = if host_network { Way::Exec } else { probe.way };
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
            container["lifecycle"]["postStart"] = hook.to_json("post-start");
        }
        if let Some(hook) = self.pre_stop {
            container["lifecycle"]["preStop"] = hook.to_json("pre-stop");
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

fn random_hook(rng: &mut StdRng, takes_max_ms: u32) -> Hook {
    let code = if rng.random_bool(0.25) { rng.random_range(1..=3) } else { 0 };
    let takes_ms = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..takes_max_ms) };
    Hook { code, takes_ms }
}

/// A command of a probe or hook, as the runtime gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// A probe.
    Probe(ProbeRole),
    /// The hook after the start.
    PostStart(Hook),
    /// The hook before the stop.
    PreStop(Hook),
    /// Anything else succeeds at once.
    Other,
}

impl Command {
    pub(crate) fn parse(words: &[String]) -> Self {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let hook = |code: &str, takes: &str| {
            Some(Hook { code: code.parse().ok()?, takes_ms: takes.parse().ok()? })
        };
        let found = match words[..] {
            ["probe", role] => {
                ProbeRole::ALL.into_iter().find(|r| r.word() == role).map(Self::Probe)
            }
            ["post-start", code, takes] => hook(code, takes).map(Self::PostStart),
            ["pre-stop", code, takes] => hook(code, takes).map(Self::PreStop),
            _ => None,
        };
        found.unwrap_or(Self::Other)
    }

    /// How long the command takes; `None` for ever.
    pub(crate) fn takes(self) -> Option<Duration> {
        match self {
            Self::PostStart(hook) | Self::PreStop(hook) => {
                (hook.takes_ms != Hook::HANGS).then(|| Duration::from_millis(hook.takes_ms.into()))
            }
            Self::Probe(_) | Self::Other => Some(Duration::ZERO),
        }
    }
}
