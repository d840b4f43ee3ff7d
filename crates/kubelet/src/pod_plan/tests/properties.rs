//! What holds for every plan, whatever the facts.

use std::time::Duration;

use kubelet_model::{Action, ContainerName, ContainerState, Grace, ObservedPod, PodUid, SandboxId};
use proptest::prelude::*;

use super::dsl::{self, Scene};
use super::model::{World, at};
use super::render;
use crate::pod_plan::{Memory, Termination, plan_end, plan_termination, restart_policy};
use crate::pod_plan::{PodPlan, should_start};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn state() -> impl Strategy<Value = ContainerState> {
    prop_oneof![
        1 => Just(ContainerState::Created),
        3 => Just(ContainerState::Running { started_at: dsl::wall() }),
        1 => Just(ContainerState::Unknown),
        3 => dead(),
    ]
}

fn dead() -> impl Strategy<Value = ContainerState> {
    (prop::sample::select(vec![0, 1, 137]), 0..400u64).prop_map(|(code, ago)| {
        let mut exit = dsl::exit(code);
        exit.finished_at = dsl::wall() - Duration::from_secs(ago);
        ContainerState::Exited(exit)
    })
}

/// Instances of one container, oldest first; only the newest may run.
fn instances() -> impl Strategy<Value = Vec<(ContainerState, bool, usize)>> {
    let old = prop_oneof![3 => dead(), 1 => Just(ContainerState::Created)];
    let old = prop::collection::vec((old, any::<bool>(), 0..3usize), 0..3);
    let newest = prop::option::of((state(), prop::bool::weighted(0.7), 0..3usize));
    (old, newest).prop_map(|(mut all, newest)| {
        all.extend(newest);
        all
    })
}

/// How often each container crashed before.
fn crashes() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..4u32, NAMES.len())
}

fn sandboxes() -> impl Strategy<Value = Vec<(bool, bool, bool)>> {
    prop::collection::vec(
        (any::<bool>(), prop::bool::weighted(0.8), prop::bool::weighted(0.1)),
        0..3,
    )
}

prop_compose! {
    fn any_scene()(
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
        wanted in 1..=NAMES.len(),
        hostnet in prop::bool::weighted(0.2),
        grace in 0..60i64,
        sandboxes in sandboxes(),
        instances in prop::collection::vec(instances(), NAMES.len()),
        crashes in crashes(),
    ) -> Scene {
        let mut seen = ObservedPod::absent(PodUid::new("u1"), dsl::NOW);
        for (attempt, (ready, address, wrong_network)) in sandboxes.iter().enumerate() {
            let host_network = hostnet != *wrong_network;
            let ips = if *address && !host_network { vec!["10.0.0.1".into()] } else { Vec::new() };
            seen.sandboxes.push(kubelet_model::ObservedSandbox {
                id: SandboxId::new(format!("s{attempt}")),
                attempt: u32::try_from(attempt).expect("few sandboxes"),
                ready: *ready,
                created_at: dsl::wall(),
                host_network,
                ips,
            });
        }
        let mut memory = Memory::default();
        for ((name, instances), crashes) in NAMES.iter().zip(&instances).zip(crashes) {
            for (count, (state, same_hash, sandbox)) in instances.iter().enumerate() {
                let mut instance = dsl::instance(name, 0);
                instance.restart_count = u32::try_from(count).expect("few instances");
                instance.id = format!("{name}-{count}").as_str().into();
                let sandbox = *sandbox % sandboxes.len().max(1);
                instance.sandbox = SandboxId::new(format!("s{sandbox}"));
                instance.hash = instance.hash.filter(|_| *same_hash);
                instance.state = state.clone();
                seen.containers.push(instance);
            }
            let past = dsl::NOW - Duration::from_secs(30);
            for _ in 0..crashes {
                memory.note_start(&seen, &ContainerName::new(*name), dsl::BACKOFF, past);
            }
        }
        seen.sort();
        Scene { pod: dsl::pod("web", policy, &NAMES[..wanted], hostnet, grace), seen, memory }
    }
}

/// Every start of a plan with the number of its step.
fn starts(plan: &PodPlan) -> impl Iterator<Item = (usize, &ContainerName)> {
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

fn check_restarts(world: &World, plan: &PodPlan) -> Result<(), TestCaseError> {
    let policy = restart_policy(world.scene.pod.spec());
    for (_, name) in starts(plan) {
        let newest = world.scene.seen.newest(name).map(|c| &c.state);
        let ended = matches!(newest, Some(ContainerState::Exited(_)));
        prop_assert!(!ended || should_start(policy, newest), "{name} must not restart");
    }
    Ok(())
}

fn check_stops_before_starts(world: &World, plan: &PodPlan) -> Result<(), TestCaseError> {
    for (number, name) in starts(plan) {
        for old in world.scene.seen.instances(name).filter(|c| c.state.may_run()) {
            let mut earlier = plan.steps[..number].iter().flatten();
            let stopped =
                earlier.any(|a| matches!(a, Action::StopContainer { id, .. } if id == &old.id));
            prop_assert!(stopped, "{name} starts while {} may run", old.id);
        }
    }
    Ok(())
}

fn check_removals(world: &World, plan: &PodPlan) -> Result<(), TestCaseError> {
    let seen = &world.scene.seen;
    for action in plan.steps.iter().flatten() {
        match action {
            Action::RemoveContainer { id, name, .. } => {
                let doomed = seen.containers.iter().find(|c| &c.id == id).expect("it exists");
                prop_assert!(!doomed.state.may_run(), "{id} may run");
                let exited = |c: &&kubelet_model::ObservedContainer| {
                    matches!(c.state, ContainerState::Exited(_))
                };
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

fn config() -> ProptestConfig {
    // Seeds in files would make a failure depend on the checkout.
    ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// What became old meanwhile is removed in a second round; then all is quiet.
    #[test]
    fn replanning_after_success_plans_nothing(
        scene in any_scene(),
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

    #[test]
    fn what_must_not_restart_never_does(scene in any_scene(), exit_code in 0..2i32) {
        let mut world = World::new(scene, exit_code);
        for _ in 0..3 {
            let plan = world.plan();
            check_restarts(&world, &plan)?;
            world.perform(&plan.steps);
        }
    }

    #[test]
    fn what_may_run_is_stopped_before_its_successor_starts(scene in any_scene()) {
        let mut world = World::new(scene, 137);
        for _ in 0..3 {
            let plan = world.plan();
            check_stops_before_starts(&world, &plan)?;
            world.perform(&plan.steps);
        }
    }

    #[test]
    fn only_the_dead_and_old_are_removed(scene in any_scene()) {
        let mut world = World::new(scene, 137);
        for _ in 0..3 {
            let plan = world.plan();
            check_removals(&world, &plan)?;
            world.perform(&plan.steps);
        }
    }

    /// Waiting and waking go together, and a wake-up always lies ahead.
    #[test]
    fn what_waits_is_woken(scene in any_scene()) {
        let mut world = World::new(scene, 137);
        let plan = world.plan();
        prop_assert_eq!(plan.waiting.is_empty(), plan.wake_at.is_none());
        prop_assert!(plan.wake_at.is_none_or(|at| at > dsl::NOW));
    }

    #[test]
    fn a_pod_told_to_end_is_gone_after_one_plan(scene in any_scene()) {
        let termination = Termination { since: dsl::NOW, grace: Grace::from_secs(30) };
        let mut world = World::new(scene, 137);
        let plan = |world: &World| {
            let memory = &world.scene.memory;
            plan_end(&world.scene.seen, termination, memory, world.files_removed, dsl::NOW)
        };
        let steps = plan(&world);
        world.perform(&steps);
        prop_assert!(world.scene.seen.is_gone());
        prop_assert!(plan(&world).is_empty());
    }

    #[test]
    fn grace_never_grows(
        scene in any_scene(),
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
            let steps = plan_termination(&scene.seen, termination, at(now));
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
