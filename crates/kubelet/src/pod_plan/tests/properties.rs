//! What holds for every plan, whatever the facts.

use std::time::Duration;

use kubelet_model::{
    Action, ContainerId, ContainerKind, ContainerName, ContainerState, Grace, ObservedContainer,
    RestartDecision, restart,
};
use proptest::prelude::*;

use super::dsl;
use super::model::{World, at};
use super::render;
use super::scenes::any_scene;
use crate::pod_plan::{PodPlan, Termination, plan_end, plan_termination};

/// Every start of a plan with the number of its step.
pub(super) fn starts(plan: &PodPlan) -> impl Iterator<Item = (usize, &ContainerName)> {
    plan.steps.iter().enumerate().flat_map(|(number, step)| {
        step.iter().filter_map(move |action| match action {
            Action::StartContainer { name, .. } => Some((number, name)),
            _ => None,
        })
    })
}

/// Removals, and the stops that must come before the removal of a sandbox.
fn only_removes(plan: &PodPlan) -> bool {
    let actions = || plan.steps.iter().flatten();
    actions().all(|action| match action {
        Action::RemoveContainer { .. } | Action::RemoveSandbox { .. } => true,
        Action::LinkLog { .. } => true,
        Action::StopSandbox { id } => {
            actions().any(|a| matches!(a, Action::RemoveSandbox { id: doomed } if doomed == id))
        }
        _ => false,
    })
}

fn makes_sandbox(plan: &PodPlan) -> bool {
    plan.steps.iter().flatten().any(|action| matches!(action, Action::CreateSandbox { .. }))
}

/// Init containers run again in a new sandbox; else only what its rules let does.
fn check_restarts(world: &World, plan: &PodPlan) -> Result<(), TestCaseError> {
    let pod = &world.scene.pod;
    for (_, name) in starts(plan) {
        let current = world.scene.seen.current(name).map(|c| &c.state);
        let Some(ContainerState::Exited(exit)) = current else { continue };
        let (kind, container) = pod.container(name.as_str()).expect("it is of the pod");
        let init = kind == ContainerKind::Init;
        if init && makes_sandbox(plan) {
            continue;
        }
        let decision = restart::after_exit(pod.spec(), &container, kind, exit.code);
        prop_assert_eq!(decision, RestartDecision::Restart, "{} must not restart", name);
        prop_assert!(!init || exit.code != 0, "{name} has done its work");
    }
    Ok(())
}

fn check_stops_before_starts(world: &World, plan: &PodPlan) -> Result<(), TestCaseError> {
    for (number, name) in starts(plan) {
        for old in world.scene.seen.instances(name).filter(|c| c.state.may_run()) {
            let stopped = is_stopped(plan, number, &old.id);
            prop_assert!(stopped, "{name} starts while {} may run", old.id);
        }
    }
    Ok(())
}

/// Has the plan stopped this instance before the step?
fn is_stopped(plan: &PodPlan, step: usize, id: &ContainerId) -> bool {
    let mut earlier = plan.steps[..step].iter().flatten();
    earlier.any(|a| matches!(a, Action::StopContainer { id: stopped, .. } if stopped == id))
}

fn check_removals(world: &World, plan: &PodPlan) -> Result<(), TestCaseError> {
    let seen = &world.scene.seen;
    let numbered = plan.steps.iter().enumerate();
    for (step, action) in numbered.flat_map(|(n, step)| step.iter().map(move |a| (n, a))) {
        match action {
            Action::RemoveContainer { id, name, keep_log, .. } => {
                let doomed = seen.containers.iter().find(|c| &c.id == id).expect("it exists");
                let may_run = doomed.state.may_run() && !is_stopped(plan, step, id);
                prop_assert!(!may_run, "{id} may run");
                let kind = world.scene.pod.container(name.as_str()).map(|(kind, _)| kind);
                let init = matches!(kind, Some(ContainerKind::Init | ContainerKind::Sidecar));
                // A pod that starts over leaves nothing.
                if *keep_log || (init && makes_sandbox(plan)) {
                    continue;
                }
                let exited = |c: &&ObservedContainer| matches!(c.state, ContainerState::Exited(_));
                let newest_exited = seen.instances(name).find(exited).map(|c| &c.id);
                prop_assert_ne!(newest_exited, Some(id), "the newest exited instance goes");
            }
            Action::RemoveSandbox { id } => {
                let newest = seen.sandboxes.first().map(|s| &s.id);
                prop_assert_ne!(newest, Some(id), "the newest sandbox goes");
                let ready = seen.sandboxes.iter().any(|s| &s.id == id && s.ready);
                prop_assert!(!ready, "{id} is ready");
            }
            Action::RemovePodFiles => prop_assert!(false, "a live pod loses its files"),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn config() -> ProptestConfig {
    // Seeds in files would make a failure depend on the checkout.
    ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// What became old meanwhile is removed in a second round; then all is quiet.
    #[test]
    fn replanning_after_success_plans_nothing(
        scene in any_scene(false),
        exit_code in prop::sample::select(vec![0, 137]),
    ) {
        let mut world = World::new(scene, exit_code);
        let first = world.plan();
        world.perform(&first.steps);
        let second = world.plan();
        prop_assert!(only_removes(&second), "second plan:\n{}", render::plan(&second));
        world.perform(&second.steps);
        let third = world.plan();
        prop_assert!(third.steps.is_empty(), "third plan:\n{}", render::plan(&third));
    }

    /// Sidecars and rules make for more rounds, but not for many.
    #[test]
    fn plans_come_to_rest(
        scene in any_scene(true),
        exit_code in prop::sample::select(vec![0, 1, 137]),
    ) {
        let mut world = World::new(scene, exit_code);
        let rounds = (0..12).take_while(|_| {
            let plan = world.plan();
            world.perform(&plan.steps);
            !plan.steps.is_empty()
        });
        let rounds = rounds.count();
        prop_assert!(rounds < 12, "still busy:\n{}", render::plan(&world.plan()));
    }

    /// What a sidecar waits for: all regular containers, later sidecars, nothing else.
    #[test]
    fn sidecars_outlive_what_they_serve(scene in any_scene(true)) {
        let termination = Termination { since: dsl::NOW, grace: Grace::from_secs(30) };
        let (pod, seen) = (&scene.pod, &scene.seen);
        let steps = plan_termination(Some(pod), seen, termination, dsl::NOW);
        let place = |name: &str| {
            let init = pod.spec().init_containers.iter().flatten();
            let list = init.chain(&pod.spec().containers);
            list.map(|c| c.name.as_str()).position(|listed| listed == name)
        };
        let runs = |name: &ContainerName| seen.instances(name).any(|c| c.state.may_run());
        for action in steps.iter().flatten() {
            let Action::StopContainer { name, after, .. } = action else { continue };
            let kind = pod.container(name.as_str()).map(|(kind, _)| kind);
            if kind != Some(ContainerKind::Sidecar) {
                prop_assert!(after.is_empty(), "{name} waits for {after:?}");
                continue;
            }
            for other in pod.spec().containers.iter().map(|c| ContainerName::new(&c.name)) {
                prop_assert_eq!(after.contains(&other), runs(&other), "{} and {}", name, other);
            }
            for other in pod.spec().init_containers.iter().flatten() {
                let sidecar = ContainerKind::of_init(other) == ContainerKind::Sidecar;
                let other = ContainerName::new(&other.name);
                let later = place(other.as_str()) > place(name.as_str());
                let waits = sidecar && later && runs(&other);
                prop_assert_eq!(after.contains(&other), waits, "{} and {}", name, other);
            }
        }
    }

    #[test]
    fn what_must_not_restart_never_does(scene in any_scene(true), exit_code in 0..2i32) {
        let mut world = World::new(scene, exit_code);
        for _ in 0..3 {
            let plan = world.plan();
            check_restarts(&world, &plan)?;
            world.perform(&plan.steps);
        }
    }

    #[test]
    fn what_may_run_is_stopped_before_its_successor_starts(scene in any_scene(true)) {
        let mut world = World::new(scene, 137);
        for _ in 0..3 {
            let plan = world.plan();
            check_stops_before_starts(&world, &plan)?;
            world.perform(&plan.steps);
        }
    }

    #[test]
    fn only_the_dead_and_old_are_removed(scene in any_scene(true)) {
        let mut world = World::new(scene, 137);
        for _ in 0..3 {
            let plan = world.plan();
            check_removals(&world, &plan)?;
            world.perform(&plan.steps);
        }
    }

    /// Waiting and waking go together, and a wake-up always lies ahead.
    #[test]
    fn what_waits_is_woken(scene in any_scene(true)) {
        let mut world = World::new(scene, 137);
        let plan = world.plan();
        prop_assert_eq!(plan.waiting.is_empty(), plan.wake_at.is_none());
        prop_assert!(plan.wake_at.is_none_or(|at| at > dsl::NOW));
    }

    #[test]
    fn a_pod_told_to_end_is_gone_after_one_plan(scene in any_scene(true)) {
        let termination = Termination { since: dsl::NOW, grace: Grace::from_secs(30) };
        let mut world = World::new(scene, 137);
        let plan = |world: &World| {
            let memory = &world.scene.memory;
            let pod = Some(&world.scene.pod);
            plan_end(pod, &world.scene.seen, termination, memory, world.files_removed, dsl::NOW)
        };
        let steps = plan(&world);
        world.perform(&steps);
        prop_assert!(world.scene.seen.is_gone());
        prop_assert!(plan(&world).is_empty());
    }

    #[test]
    fn grace_never_grows(
        scene in any_scene(true),
        grace in -5..100i64,
        sooner in 0..100u64,
        wait in 0..100u64,
    ) {
        let given = Grace::from_secs(grace);
        let (early, late) = (Duration::from_secs(sooner), Duration::from_secs(sooner + wait));
        prop_assert!(given.after(late) <= given.after(early));
        prop_assert!(given.after(early) <= given.after(Duration::ZERO));
        let termination = Termination { since: dsl::NOW, grace: given };
        let graces = |now| -> Vec<Grace> {
            let steps = plan_termination(Some(&scene.pod), &scene.seen, termination, at(now));
            let stops = steps.into_iter().flatten().filter_map(|action| match action {
                Action::StopContainer { grace, .. } => Some(grace),
                _ => None,
            });
            stops.collect()
        };
        let (first, second) = (graces(sooner), graces(sooner + wait));
        prop_assert_eq!(first.len(), second.len());
        for (first, second) in first.iter().zip(&second) {
            prop_assert!(second <= first);
            prop_assert!(*second >= Grace::FLOOR);
        }
    }
}
