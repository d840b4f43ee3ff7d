//! What holds for every plan, whatever the facts.

use std::collections::BTreeSet;
use std::time::Duration;

use kubelet_model::{
    Action, ContainerId, ContainerKind, ContainerName, ContainerState, Grace, ObservedContainer,
    RestartDecision, StopReason, restart,
};
use proptest::prelude::*;

use super::dsl::{self, Scene};
use super::model::{World, at, end};
use super::render;
use super::scenes::any_scene;
use crate::pod_plan::{Ending, PodPlan, Termination, plan_end, plan_termination};

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

/// Clearing the pod, a sandbox, three init containers that each start and pass, what
/// is regular, the end of the sidecars, and removals.
const ROUNDS_MAX: usize = 14;

/// What plans have done so far.
#[derive(Default)]
struct Done {
    started: BTreeSet<ContainerName>,
    stopped: BTreeSet<ContainerId>,
    sandboxes: usize,
}

impl Done {
    /// Nothing is started, stopped or made a second time.
    fn note(&mut self, plan: &PodPlan) -> Result<(), TestCaseError> {
        for action in plan.steps.iter().flatten() {
            let first = match action {
                // A pod that starts over does all of it again.
                Action::RemoveContainer { keep_log: true, name, .. } => {
                    self.started.remove(name);
                    true
                }
                Action::StartContainer { name, .. } => self.started.insert(name.clone()),
                Action::StopContainer { id, .. } => self.stopped.insert(id.clone()),
                Action::CreateSandbox { .. } => {
                    self.sandboxes += 1;
                    self.sandboxes == 1
                }
                _ => true,
            };
            prop_assert!(first, "done before: {action:?} in\n{}", render::plan(plan));
        }
        Ok(())
    }
}

/// Does a plan let the next one do more? It cleared a pod that starts over, brought
/// a sidecar up that others wait for, ended what kept sidecars running, or made the
/// sandbox that ephemeral containers join.
fn opens_the_way(world: &World, plan: &PodPlan) -> bool {
    let kind =
        |name: &ContainerName| world.scene.pod.container(name.as_str()).map(|(kind, _)| kind);
    let again = |name: &ContainerName| starts(plan).any(|(_, started)| started == name);
    plan.steps.iter().flatten().any(|action| match action {
        Action::RemoveContainer { keep_log, .. } => *keep_log,
        Action::StartContainer { name, .. } => kind(name) == Some(ContainerKind::Sidecar),
        Action::CreateSandbox { .. } => world.scene.pod.spec().ephemeral_containers.is_some(),
        Action::StopContainer { name, .. } => {
            kind(name) == Some(ContainerKind::Regular) && !again(name)
        }
        _ => false,
    })
}

/// Does a live plan stop what is left of a pod that has nothing else to run?
fn ends_the_pod(plan: &PodPlan) -> bool {
    let ends = |action: &Action| {
        matches!(action, Action::StopContainer { why: StopReason::PodTerminating, .. })
    };
    plan.steps.iter().flatten().any(ends)
}

pub(super) fn config() -> ProptestConfig {
    // Seeds in files would make a failure depend on the checkout.
    ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// What a plan has done, no later plan does again. More is only planned where the
    /// way was opened for it; what became old meanwhile is removed; then all is quiet.
    #[test]
    fn replanning_after_success_plans_nothing(
        scene in any_scene(),
        exit_code in prop::sample::select(vec![0, 137]),
        goes_well in any::<bool>(),
    ) {
        let mut world = World::new(scene, exit_code);
        let mut done = Done::default();
        let (mut opened, mut cleaned) = (true, false);
        for _ in 0..ROUNDS_MAX {
            opened |= goes_well && world.go_well();
            let plan = world.plan();
            if !opened {
                prop_assert!(only_removes(&plan), "planned for nothing:\n{}", render::plan(&plan));
                prop_assert!(!cleaned || plan.steps.is_empty(), "cleans again:\n{}", render::plan(&plan));
            }
            if plan.steps.is_empty() {
                return Ok(());
            }
            done.note(&plan)?;
            cleaned = only_removes(&plan);
            opened = opens_the_way(&world, &plan);
            world.perform(&plan.steps);
            // The removal of what was only created uncovers the exit before it.
            let Scene { pod, seen, .. } = &world.scene;
            opened |= restart::starts_over(pod.spec(), seen);
            if ends_the_pod(&plan) {
                // Its status is terminal now, and no live plan follows.
                let running = world.scene.seen.containers.iter().find(|c| c.state.may_run());
                prop_assert!(running.is_none(), "{running:?} outlives its pod");
                return Ok(());
            }
        }
        prop_assert!(false, "still busy:\n{}", render::plan(&world.plan()));
    }

    /// Sidecars and rules make for more rounds, but not for many.
    #[test]
    fn plans_come_to_rest(
        scene in any_scene(),
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
    fn sidecars_outlive_what_they_serve(scene in any_scene()) {
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
        scene in any_scene(),
        orders in prop::collection::vec((-5..100i64, 0..40u64, any::<bool>(), any::<bool>()), 1..6),
    ) {
        let mut world = World::new(scene, 137);
        let (mut ending, mut now, mut before) = (Ending::default(), 0, None);
        for (grace, wait, known, one_ends) in orders {
            // A first order, the same again, or another: shorter, longer, or by
            // somebody who knows the pod from the runtime only.
            let ordered = Termination { since: at(now), grace: Grace::from_secs(grace) };
            let in_force = match known {
                true => ending.order(ordered),
                false => ending.order_unknown(&world.scene.seen, ordered),
            };
            for wait in [0, wait] {
                now += wait;
                let pod = known.then_some(&world.scene.pod);
                let steps = plan_termination(pod, &world.scene.seen, in_force, at(now));
                let given: BTreeSet<Grace> = steps.iter().flatten().filter_map(stop_grace).collect();
                prop_assert!(given.len() <= 1, "one end, several graces: {given:?}");
                let Some(given) = given.first().copied() else { continue };
                prop_assert!(given >= Grace::FLOOR);
                if let Some((least, then)) = before {
                    let left = Grace::after(least, Duration::from_secs(now - then));
                    prop_assert!(given <= left, "{given:?} after {least:?} {}s ago", now - then);
                }
                before = Some((given, now));
            }
            let mut running = world.scene.seen.containers.iter_mut().filter(|c| c.state.may_run());
            if let Some(container) = running.next().filter(|_| one_ends) {
                end(container, 0);
            }
        }
    }

    /// A pod whose end is ordered while the runtime is away gets all of its grace.
    #[test]
    fn time_in_which_nothing_could_be_stopped_does_not_count(
        grace in 2..100i64,
        away in 1..1000u64,
        waits in 0..100u64,
    ) {
        let ordered = Termination { since: at(0), grace: Grace::from_secs(grace) };
        let mut ending = Ending::default();
        ending.order(ordered);
        ending.hold();
        ending.go_on(at(away));
        prop_assert_eq!(ending.order(ordered), Termination { since: at(away), ..ordered });
        // Once containers were told to end, an outage does not give them more.
        ending.begin();
        ending.hold();
        ending.go_on(at(away + waits));
        prop_assert_eq!(ending.order(ordered).since, at(away));
    }

    /// A pod that only the runtime knows gets what its annotations promise, even when
    /// the container that told of it has ended.
    #[test]
    fn what_was_promised_is_given(scene in any_scene(), grace in 0..100i64) {
        let mut seen = scene.seen;
        let ordered = Termination { since: dsl::NOW, grace: Grace::from_secs(grace) };
        let mut ending = Ending::default();
        let promised = seen.annotated_grace().unwrap_or(ordered.grace);
        prop_assert_eq!(ending.order_unknown(&seen, ordered).grace, promised);
        seen.containers.retain(|c| c.grace.is_none());
        prop_assert_eq!(ending.order_unknown(&seen, ordered).grace, promised);
    }
}

fn stop_grace(action: &Action) -> Option<Grace> {
    match action {
        Action::StopContainer { grace, .. } => Some(*grace),
        _ => None,
    }
}
