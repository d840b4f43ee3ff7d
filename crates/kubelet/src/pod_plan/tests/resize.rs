//! Resizes: what changes in place, what restarts, in which order.

use std::time::Duration;

use cgroups::Limits;

use super::dsl::{NOW, scene};
use super::model::World;
use super::render;
use crate::pod_plan::{Resource, Stage, is_resizing, stages};

/// The plan, and then what is planned once it succeeded.
fn check(text: &str, expected: &str) {
    let mut world = World::new(scene(text), 0);
    let plan = world.plan();
    assert_eq!(render::plan(&plan), expected, "{text}");
    world.perform(&plan.steps);
    let Scenes { again, resizing } = after(&mut world);
    assert_eq!(again, "nothing", "planned again after success: {text}");
    assert!(!resizing, "{text}");
}

struct Scenes {
    again: String,
    resizing: bool,
}

fn after(world: &mut World) -> Scenes {
    let ids: Vec<_> = world.scene.seen.containers.iter().map(|c| c.id.clone()).collect();
    world.scene.memory.linked_logs.extend(ids);
    let again = world.plan();
    // Dead instances are removed in passing; that is no resize.
    world.perform(&again.steps);
    let again = render::plan(&world.plan());
    let scene = &world.scene;
    Scenes { again, resizing: is_resizing(&scene.pod, &scene.seen, scene.actuated.as_ref()) }
}

#[test]
fn a_container_as_it_was_given_is_left_alone() {
    check(
        "web Always size=app/100m/1/32Mi/64Mi: app running had=0.1/1000m/32Mi/65536Ki",
        "nothing",
    );
    check("web Always: app running", "nothing");
    // Nobody kept what it was given, and it asks for nothing.
    check("web Always size=app/-/-/-/-: app running", "nothing");
}

#[test]
fn what_changed_is_updated_in_place() {
    let app = |now: &str, had: &str| format!("web Always size=app/{now}: app running had={had}");
    check(&app("100m/1/32Mi/64Mi", "100m/2/32Mi/64Mi"), "resize cpu=app");
    check(&app("100m/1/32Mi/64Mi", "200m/1/32Mi/64Mi"), "resize cpu=app");
    check(&app("100m/1/32Mi/64Mi", "100m/1/32Mi/32Mi"), "resize memory=app");
    check(&app("100m/1/32Mi/64Mi", "100m/1/16Mi/64Mi"), "resize memory=app");
    check(&app("1/2/32Mi/64Mi", "100m/1/16Mi/32Mi"), "resize memory=app cpu=app");
    // One of unknown size gets it once more, whatever its policy says.
    check(
        "web Always size=app/1/2/32Mi/64Mi resize=app/cpu: app running",
        "resize memory=app cpu=app",
    );
}

#[test]
fn those_that_shrink_make_room_first() {
    check(
        "web Always a,b,c size=a/1/1/1Gi/1Gi size=b/1/1/1Gi/1Gi size=c/1/1/1Gi/1Gi: \
         a running had=500m/500m/1Gi/1Gi; b running had=2/2/1Gi/2Gi; c running had=3/3/1Gi/1Gi",
        "resize memory=b cpu=c cpu=b cpu=a",
    );
}

#[test]
fn a_policy_may_want_a_restart() {
    let app = |policy: &str, had: &str| {
        format!("web Always size=app/1/2/32Mi/64Mi resize=app/{policy}: app running had={had}")
    };
    let restarts = "stop app-0 30s Resized\nresize pod\nstart app restarts=1";
    check(&app("memory", "1/2/32Mi/128Mi"), restarts);
    check(&app("memory", "1/2/64Mi/64Mi"), restarts);
    check(&app("cpu", "1/2/32Mi/128Mi"), "resize memory=app");
    check(&app("cpu", "2/2/32Mi/64Mi"), restarts);
    check(&app("cpu", "2/2/64Mi/64Mi"), restarts);
    // A sidecar restarts too, and whatever is resized beside it waits for its end.
    check(
        "web Always init=proxy+ size=proxy/1/1/1Gi/1Gi size=app/2/2/1Gi/1Gi resize=proxy/memory: \
         proxy running had=1/1/2Gi/2Gi; app running had=1/1/1Gi/1Gi",
        "stop proxy-0 30s Resized\nresize cpu=app pod\nstart proxy restarts=1",
    );
}

#[test]
fn a_crashed_container_starts_with_its_new_size() {
    check(
        "web Always size=app/1/2/32Mi/64Mi: app exited=1 ago=60s had=1/1/32Mi/64Mi",
        "resize pod\nstart app restarts=1",
    );
    check(
        "web Always size=app/1/2/32Mi/64Mi: app exited=1 ago=60s had=1/2/32Mi/64Mi",
        "start app restarts=1",
    );
}

#[test]
fn init_containers_that_run_are_resized_too() {
    let text = "web Always init=setup size=setup/1/2/32Mi/64Mi: setup running had=1/1/32Mi/64Mi";
    check(text, "resize cpu=setup");
    let scene = scene(text);
    assert!(!is_resizing(&scene.pod, &scene.seen, scene.actuated.as_ref()), "nobody is told");
}

#[test]
fn a_failed_resize_rests_and_holds_nothing_up() {
    let text = "web Always app,db size=app/1/2/32Mi/64Mi: \
                app running had=1/1/32Mi/64Mi; db exited=1 ago=60s";
    let mut world = World::new(scene(text), 0);
    assert_eq!(render::plan(&world.plan()), "resize cpu=app\nstart db restarts=1");
    let memory = &mut world.scene.memory;
    memory.note_failed_resize("no".to_owned(), Duration::from_secs(10), NOW);
    assert_eq!(render::plan(&world.plan()), "start db restarts=1\nwake 10s");
    world.scene.memory.retry_at_once(NOW);
    assert_eq!(render::plan(&world.plan()), "resize cpu=app\nstart db restarts=1");
}

#[test]
fn a_pod_grows_before_its_containers_and_shrinks_after_them() {
    use Stage::{Containers, PodLimit, PodRequest};
    let cpu = |shares: u64, quota: i64| Limits {
        cpu_shares: Some(shares),
        cpu_quota_us: Some(quota),
        ..Limits::default()
    };
    let memory = |bytes: i64| Limits { memory_bytes: Some(bytes), ..Limits::default() };
    for (resource, now, wanted, expected) in [
        (Resource::Cpu, cpu(10, 10), cpu(20, 20), vec![PodLimit, PodRequest, Containers]),
        (Resource::Cpu, cpu(20, 20), cpu(10, 10), vec![Containers, PodRequest, PodLimit]),
        (Resource::Cpu, cpu(20, 10), cpu(10, 20), vec![PodLimit, Containers, PodRequest]),
        (Resource::Cpu, cpu(10, 10), cpu(10, 10), vec![Containers]),
        (Resource::Cpu, cpu(10, -1), cpu(10, 10), vec![Containers, PodLimit]),
        (Resource::Cpu, cpu(10, 10), cpu(10, -1), vec![PodLimit, Containers]),
        (Resource::Cpu, cpu(10, 10), cpu(10, 0), vec![Containers]),
        (Resource::Memory, memory(10), memory(20), vec![PodLimit, Containers]),
        (Resource::Memory, memory(20), memory(10), vec![Containers, PodLimit]),
        (Resource::Memory, memory(-1), memory(10), vec![Containers, PodLimit]),
        (Resource::Memory, memory(10), Limits::default(), vec![Containers]),
        (Resource::Memory, cpu(10, 10), cpu(20, 20), vec![Containers]),
    ] {
        assert_eq!(stages(resource, &now, &wanted), expected, "{resource:?} {now:?} {wanted:?}");
    }
}
