//! What containers answered to probes and hooks, as the agent got it.
//!
//! Owns the tally; the rules ask it whether a stop can be explained by answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::container_template::{ProbeRole, ProbeTemplate};
use crate::hooks::{Command, Hook, HookWay};
use crate::runtime::Container;
use crate::world::State;

/// Longer than any start that an agent may have to judge by its age: the budgets
/// of simulated startup probes, and the time that tells an older container.
const LONG: Duration = Duration::from_secs(60);

/// How long after a start the address for its hook may still be asked for: the call's
/// own limit, and delays before it.
const ADDRESS_TAKES: Duration = Duration::from_secs(130);

/// All answers so far.
#[derive(Default)]
pub(crate) struct Answers {
    /// Failures in a row per pod and port. The agent counts on when an instance
    /// takes over from another.
    rows: BTreeMap<(String, u16), u32>,
    /// Instances that failed a probe at a port.
    failed: BTreeSet<(String, u16)>,
    /// Sandbox and container name of every instance that was found started.
    started: BTreeSet<(String, String)>,
    /// Whose address an address is or was.
    owners: BTreeMap<String, String>,
    /// Instances whose postStart hook failed.
    pub(crate) hook_failed: BTreeSet<String>,
}

impl Answers {
    /// An address is given to a pod.
    pub(crate) fn own(&mut self, ip: &str, uid: &str) {
        self.owners.insert(ip.to_owned(), uid.to_owned());
    }

    /// Nothing is left of a container in a sandbox.
    pub(crate) fn forget_start(&mut self, key: &(String, String)) {
        self.started.remove(key);
    }

    /// Did a probe find some instance of a container started, in this sandbox?
    pub(crate) fn has_started(&self, sandbox: &str, name: &str) -> bool {
        self.started.contains(&(sandbox.to_owned(), name.to_owned()))
    }
}

impl State {
    /// Is an instance well by its own program?
    pub(crate) fn is_well(&self, container: &Container) -> bool {
        let age = self.now().saturating_sub(container.ran_at);
        container.is_running() && container.program().is_well(age)
    }

    /// Has it been well for long, and does its start lie in the past by the wall
    /// clock, too? One that seems to start in the future cannot be told from a new one.
    pub(crate) fn is_long_well(&self, container: &Container) -> bool {
        let age = self.now().saturating_sub(container.ran_at);
        let by_wall = self.wall_ns().saturating_sub(container.started_ns);
        self.is_well(container)
            && container.program().is_steady(age, LONG)
            && by_wall > i64::try_from(LONG.as_nanos()).unwrap_or(i64::MAX)
    }

    /// A probe asks over the network; true if it is answered well, and not too `late`.
    pub(crate) fn answer_at(&mut self, host: &str, port: u16, late: bool) -> bool {
        let rate = self.faults.probe_lost;
        let lost = self.chance(rate) || late || self.endpoints.unwell.contains(&port);
        let listener =
            self.listener(host, |name| ProbeRole::ALL.iter().any(|role| role.port(name) == port));
        let well = !lost && listener.is_some_and(|c| self.is_well(c));
        let id = listener.map(|c| c.id.clone());
        if let Some(uid) = self.answers.owners.get(host).cloned() {
            self.note_answer(&uid, port, id.as_deref(), well);
        }
        well
    }

    fn listener(&self, host: &str, has_port: impl Fn(&str) -> bool) -> Option<&Container> {
        let listens = |c: &&Container| {
            let of = self.objects.sandboxes.get(&c.sandbox);
            c.is_running() && of.is_some_and(|s| s.ip == host) && has_port(c.name())
        };
        self.objects.containers.values().find(listens)
    }

    /// Whoever hears a hook's request.
    pub(crate) fn hook_listener(&self, host: &str, port: u16) -> Option<&Container> {
        self.listener(host, |name| Hook::port(name) == port)
    }

    /// The agent got an answer from an instance, or from nobody.
    pub(crate) fn note_answer(&mut self, uid: &str, port: u16, id: Option<&str>, well: bool) {
        let row = self.answers.rows.entry((uid.to_owned(), port)).or_default();
        *row = if well { 0 } else { *row + 1 };
        let Some(container) = id.and_then(|id| self.objects.containers.get(id)) else { return };
        if !well {
            let text = format!("{} answers a probe badly at {port}", container.name());
            let (key, pod) = ((container.id.clone(), port), container.pod().to_owned());
            self.answers.failed.insert(key);
            self.note(&pod, text);
        } else if port == ProbeRole::Startup.port(container.name()) {
            let key = (container.sandbox.clone(), container.name().to_owned());
            self.answers.started.insert(key);
        }
    }

    /// The agent got the outcome of a command in a container, or of a hook's request.
    pub(crate) fn note_exec(&mut self, id: &str, command: Command, well: bool) {
        let Some(container) = self.objects.containers.get(id) else { return };
        let (uid, name) = (container.uid().to_owned(), container.name().to_owned());
        match command {
            Command::Probe(role) => self.note_answer(&uid, role.port(&name), Some(id), well),
            Command::PostStart(_) if !well => {
                self.answers.hook_failed.insert(id.to_owned());
            }
            Command::PostStart(_) | Command::PreStop(_) | Command::Other => {}
        }
    }

    /// The agent could not ask for a sandbox's address. A request of a postStart hook
    /// that needs it fails, and with it the container's start: runHTTPHandler upstream.
    pub(crate) fn note_no_address(&mut self, sandbox: &str) {
        let Some(revision) = self.objects.sandboxes.get(sandbox).map(|s| s.revision()) else {
            return;
        };
        for id in self.containers_in(sandbox) {
            let container = &self.objects.containers[&id];
            let in_hook = container.ran_at + ADDRESS_TAKES >= self.now();
            let requests = self.oracle.kin_templates(revision).any(|template| {
                let hook = template.container(container.name()).and_then(|(_, c)| c.post_start);
                hook.is_some_and(|hook| hook.way == HookWay::Http)
            });
            if container.is_running() && in_hook && requests {
                self.answers.hook_failed.insert(id);
            }
        }
    }

    /// Has an instance failed a probe that calls for its restart?
    pub(crate) fn probes_explain_stop(&self, container: &Container, revision: u64) -> bool {
        !self.condemning_probes(container, revision).is_empty()
    }

    /// The probes that may call for an instance's restart, by every text that its pod
    /// may follow.
    pub(crate) fn probes_of(&self, container: &Container, revision: u64) -> Vec<ProbeTemplate> {
        let templates = self.oracle.kin_templates(revision);
        let found = templates.filter_map(|template| template.container(container.name()));
        let roles = [ProbeRole::Liveness, ProbeRole::Startup];
        found.flat_map(|(_, c)| roles.into_iter().filter_map(|role| c.probe_of(role))).collect()
    }

    /// The probes that call for an instance's restart, by every text that its pod may
    /// follow.
    pub(crate) fn condemning_probes(
        &self,
        container: &Container,
        revision: u64,
    ) -> Vec<ProbeTemplate> {
        let failing = [ProbeRole::Liveness, ProbeRole::Startup].into_iter().filter_map(|role| {
            let port = role.port(container.name());
            let row = self.answers.rows.get(&(container.uid().to_owned(), port)).copied();
            let failed = self.answers.failed.contains(&(container.id.clone(), port));
            failed.then_some((role, row.unwrap_or(0)))
        });
        let condemning = failing.flat_map(|(role, row)| {
            let templates = self.oracle.kin_templates(revision);
            let probes = templates.filter_map(move |template| {
                template.container(container.name()).and_then(|(_, c)| c.probe_of(role))
            });
            probes.filter(move |probe| row >= probe.failures)
        });
        condemning.collect()
    }
}
