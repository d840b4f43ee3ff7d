//! Whole lives of pods: whatever happens, in whatever order, init containers
//! run in theirs, and a pod whose containers behave gets to run.

use std::collections::BTreeSet;

use kubelet_model::{
    Action, ContainerKind, ContainerName, ContainerState, ObservedContainer, ObservedPod, PodUid,
    ProbeKind, ProbeResult, ProbeResults, RestartDecision, restart,
};
use proptest::prelude::*;

use super::dsl::{self, Scene};
use super::model::{World, end};
use super::properties::{config, starts};
use super::render;
use super::scenes::head;
use crate::pod_plan::{Memory, PodPlan};

/// Something that happens to a pod.
#[derive(Debug, Clone)]
enum Event {
    /// A running container ends.
    Exit { which: usize, code: i32 },
    /// A probe of a running container has a result.
    Probe { which: usize, kind: ProbeKind, result: ProbeResult },
    /// The newest sandbox dies with all in it.
    SandboxDies,
}

fn event() -> impl Strategy<Value = Event> {
    let kind = prop::sample::select(vec![ProbeKind::Startup, ProbeKind::Liveness]);
    let result = prop::sample::select(vec![ProbeResult::Success, ProbeResult::Failure]);
    prop_oneof![
        6 => (0..6usize, prop::sample::select(vec![0, 0, 1, 2]))
            .prop_map(|(which, code)| Event::Exit { which, code }),
        4 => (0..6usize, kind, result)
            .prop_map(|(which, kind, result)| Event::Probe { which, kind, result }),
        1 => Just(Event::SandboxDies),
    ]
}

/// A pod's life, and which init containers have done their part in this sandbox.
struct Life {
    world: World,
    passed: BTreeSet<ContainerName>,
}

impl Life {
    fn new(head: &str) -> Self {
        let seen = ObservedPod::absent(PodUid::new("u1"), dsl::NOW);
        let (memory, probes) = (Memory::default(), ProbeResults::default());
        let scene = Scene { pod: dsl::pod(head), seen, memory, probes, actuated: None };
        Self { world: World::new(scene, 137), passed: BTreeSet::new() }
    }

    fn happen(&mut self, event: &Event) {
        let Scene { seen, probes, .. } = &mut self.world.scene;
        let running =
            |c: &&mut ObservedContainer| matches!(c.state, ContainerState::Running { .. });
        match event {
            Event::Exit { which, code } => {
                if let Some(c) = seen.containers.iter_mut().filter(running).nth(*which) {
                    end(c, *code);
                }
            }
            Event::Probe { which, kind, result } => {
                if let Some(c) = seen.containers.iter_mut().filter(running).nth(*which) {
                    probes.set(&c.id, *kind, *result);
                }
            }
            Event::SandboxDies => {
                seen.sandboxes.iter_mut().for_each(|s| s.ready = false);
                seen.containers.iter_mut().filter(running).for_each(|c| end(c, 137));
            }
        }
    }

    /// Looks, plans and performs once; true if there was something to do.
    fn turn(&mut self) -> Result<bool, TestCaseError> {
        self.look();
        let plan = self.world.plan();
        self.check_order(&plan)?;
        let starts_over = |action: &Action| {
            matches!(
                action,
                Action::CreateSandbox { .. } | Action::RemoveContainer { keep_log: true, .. }
            )
        };
        if plan.steps.iter().flatten().any(starts_over) {
            self.passed.clear();
        }
        self.world.perform(&plan.steps);
        Ok(!plan.steps.is_empty())
    }

    fn look(&mut self) {
        let Scene { pod, seen, probes, .. } = &self.world.scene;
        for init in pod.spec().init_containers.iter().flatten() {
            let name = ContainerName::new(&init.name);
            let Some(current) = seen.current(&name) else { continue };
            let sidecar = ContainerKind::of_init(init) == ContainerKind::Sidecar;
            let startup = probes.get(&current.id, ProbeKind::Startup);
            let up = init.startup_probe.is_none() || startup == Some(ProbeResult::Success);
            let passes = match &current.state {
                ContainerState::Running { .. } => sidecar && up,
                ContainerState::Exited(exit) => !sidecar && exit.code == 0,
                _ => false,
            };
            if passes {
                self.passed.insert(name);
            }
        }
    }

    /// What starts comes after all that must have passed before it. Only the
    /// first may start in a sandbox that is yet to be made.
    fn check_order(&self, plan: &PodPlan) -> Result<(), TestCaseError> {
        let init = self.world.scene.pod.spec().init_containers.as_deref().unwrap_or_default();
        let fresh = plan.steps.iter().flatten();
        let fresh = fresh.into_iter().any(|a| matches!(a, Action::CreateSandbox { .. }));
        for (_, name) in starts(plan) {
            let place = init.iter().position(|c| c.name == name.as_str()).unwrap_or(init.len());
            prop_assert!(!fresh || place == 0, "{name} starts in a fresh sandbox");
            for before in &init[..place] {
                let passed = self.passed.contains(&ContainerName::new(&before.name));
                prop_assert!(
                    passed,
                    "{name} starts before {}:\n{}",
                    before.name,
                    render::plan(plan)
                );
            }
        }
        Ok(())
    }

    /// Regular containers run, wait for their back-off, or must not run.
    fn check_runs(&mut self) -> Result<(), TestCaseError> {
        let plan = self.world.plan();
        let Scene { pod, seen, .. } = &self.world.scene;
        prop_assert!(plan.steps.is_empty(), "still busy:\n{}", render::plan(&plan));
        let ends = |kind: ContainerKind, c: &k8s_openapi::api::core::v1::Container| {
            let current = seen.current(&ContainerName::new(&c.name)).map(|c| &c.state);
            let Some(ContainerState::Exited(exit)) = current else { return false };
            restart::after_exit(pod.spec(), c, kind, exit.code) == RestartDecision::Stay
        };
        let mut init = pod.spec().init_containers.iter().flatten();
        let failed = init.any(|c| {
            let done = self.passed.contains(&ContainerName::new(&c.name));
            ContainerKind::of_init(c) == ContainerKind::Init
                && !done
                && ends(ContainerKind::Init, c)
        });
        // Policy Never gets no second sandbox.
        let lost = !seen.sandboxes.iter().any(|s| s.ready);
        if failed || lost || !plan.waiting.is_empty() {
            return Ok(());
        }
        for container in &pod.spec().containers {
            let current = seen.current(&ContainerName::new(&container.name)).map(|c| &c.state);
            let runs = matches!(current, Some(ContainerState::Running { .. }));
            prop_assert!(runs || ends(ContainerKind::Regular, container), "{current:?}");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn init_containers_keep_their_order_and_pods_get_to_run(
        head in head(),
        events in prop::collection::vec((event(), 0..4usize), 0..12),
    ) {
        let mut life = Life::new(&head);
        for (event, turns) in &events {
            for _ in 0..*turns {
                life.turn()?;
            }
            life.happen(event);
        }
        // Three init containers, each a turn to start and a turn to pass.
        let mut quiet = 0;
        for _ in 0..60 {
            life.world.go_well();
            quiet = if life.turn()? { 0 } else { quiet + 1 };
            if quiet == 2 {
                break;
            }
        }
        prop_assert_eq!(quiet, 2, "it never came to rest");
        life.look();
        life.check_runs()?;
    }
}
