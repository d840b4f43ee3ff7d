//! A runtime in which every action succeeds.

use std::time::Duration;

use jiff::Timestamp;
use kubelet_model::{
    Action, ContainerKind, ContainerState, Exit, Mono, ObservedContainer, ObservedSandbox,
    PodResources, ProbeKind, ProbeResult, SandboxId, Steps,
};

use super::dsl::{self, BACKOFF, NOW, Scene};
use crate::pod_plan::{PodPlan, plan_live};

/// A pod's world: its facts, a clock, and what a stopped container exits with.
pub(super) struct World {
    pub scene: Scene,
    pub exit_code: i32,
    pub files_removed: bool,
    made: u32,
}

impl World {
    pub fn new(scene: Scene, exit_code: i32) -> Self {
        Self { scene, exit_code, files_removed: false, made: 0 }
    }

    pub fn plan(&mut self) -> PodPlan {
        self.scene.memory.note_observation(&self.scene.seen, NOW);
        plan_live(&self.scene.pod, &self.scene.seen, &self.scene.context(1))
    }

    /// Performs all steps as the worker does, and looks at the result.
    pub fn perform(&mut self, steps: &Steps) {
        let before = self.scene.seen.clone();
        for action in steps.iter().flatten() {
            if let Action::StartContainer { name, .. } = action {
                self.scene.memory.note_start(&before, name, BACKOFF, NOW);
            }
            self.apply(action);
            if let Action::StartContainer { name, .. } = action {
                self.scene.memory.note_started(name);
            }
            self.scene.seen.sort();
        }
    }

    /// Every startup probe succeeds, nothing fails its liveness any more, and every
    /// plain init container does its work; true if that is news.
    pub fn go_well(&mut self) -> bool {
        let Scene { pod, seen, probes, .. } = &mut self.scene;
        let before = (seen.clone(), probes.clone());
        for container in &mut seen.containers {
            let kind = pod.container(container.name.as_str()).map(|(kind, _)| kind);
            if !matches!(container.state, ContainerState::Running { .. }) {
                continue;
            }
            probes.forget(&container.id, ProbeKind::Liveness);
            probes.set(&container.id, ProbeKind::Startup, ProbeResult::Success);
            if kind == Some(ContainerKind::Init) {
                end(container, 0);
            }
        }
        (&before.0, &before.1) != (seen, probes)
    }

    fn apply(&mut self, action: &Action) {
        let code = self.exit_code;
        self.made += 1;
        let seen = &mut self.scene.seen;
        match action {
            Action::CreateSandbox { attempt } => {
                assert!(!seen.may_run(), "a sandbox is made while an old one runs");
                let host_network = self.scene.pod.spec().host_network == Some(true);
                let id = SandboxId::new(format!("new-{}", self.made));
                let ips = if host_network { Vec::new() } else { vec!["10.9.9.9".to_owned()] };
                let created_at = later(self.made);
                let attempt = *attempt;
                let sandbox =
                    ObservedSandbox { id, attempt, ready: true, created_at, host_network, ips };
                seen.sandboxes.push(sandbox);
            }
            Action::StartContainer { name, restart_count } => {
                let sandbox = seen.sandboxes.first().expect("a container needs a sandbox");
                assert!(sandbox.ready, "{name} starts in a stopped sandbox");
                let twin = seen.instances(name).find(|c| c.state.may_run());
                assert!(twin.is_none(), "{name} starts while {twin:?} may run");
                let container = ObservedContainer {
                    id: format!("new-{}", self.made).as_str().into(),
                    sandbox: sandbox.id.clone(),
                    restart_count: restart_count.unwrap_or(0),
                    created_at: later(self.made),
                    state: ContainerState::Running { started_at: later(self.made) },
                    ..dsl::instance(name.as_str(), 0)
                };
                seen.containers.push(container);
                let given = PodResources::in_force(self.scene.pod.spec());
                if let Some(own) = given.containers.get(name.as_str()) {
                    let now = self.scene.actuated.get_or_insert_default();
                    now.containers.insert(name.to_string(), own.clone());
                }
            }
            Action::StopContainer { id, .. } => {
                seen.containers.iter_mut().filter(|c| &c.id == id).for_each(|c| end(c, code));
            }
            Action::StopSandbox { id } => {
                self.scene.memory.stopped_sandboxes.insert(id.clone());
                seen.sandboxes.iter_mut().filter(|s| &s.id == id).for_each(|s| s.ready = false);
                let inside = seen.containers.iter_mut().filter(|c| &c.sandbox == id);
                inside.filter(|c| c.state.may_run()).for_each(|c| end(c, code));
            }
            Action::RemoveContainer { id, .. } => seen.containers.retain(|c| &c.id != id),
            Action::RemoveSandbox { id } => {
                seen.sandboxes.retain(|s| &s.id != id);
                seen.containers.retain(|c| &c.sandbox != id);
            }
            Action::LinkLog { id, .. } => {
                self.scene.memory.linked_logs.insert(id.clone());
            }
            Action::RemovePodFiles => self.files_removed = true,
            Action::Resize { memory, cpu, .. } => {
                let now = self.scene.actuated.get_or_insert_default();
                for change in memory.iter().chain(cpu) {
                    let own = change.to.requirements();
                    now.containers.insert(change.name.to_string(), own);
                }
                now.whole = self.scene.pod.spec().resources.clone();
            }
            Action::RemovePodCgroup => {}
        }
    }
}

pub(super) fn end(container: &mut ObservedContainer, code: i32) {
    container.state = ContainerState::Exited(Exit { finished_at: dsl::wall(), ..dsl::exit(code) });
}

fn later(made: u32) -> Timestamp {
    dsl::wall() + Duration::from_secs(u64::from(made))
}

/// Times for the properties of grace.
pub(super) fn at(seconds: u64) -> Mono {
    NOW + Duration::from_secs(seconds)
}
