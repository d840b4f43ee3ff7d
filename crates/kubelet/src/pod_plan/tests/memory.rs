//! What a worker remembers of a container, and when it forgets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_model::{ContainerName, DesiredPod, Mono, Source, WaitReason, Waiting};

use super::{dsl, render};
use crate::pod_plan::{Memory, plan_live};

/// The plan after an edit of the pod's init containers.
fn check_after_edit(text: &str, edit: fn(&mut Container), expected: Expect) {
    let mut scene = dsl::scene(text);
    let mut pod = scene.pod.pod().as_ref().clone();
    let spec = pod.spec.as_mut().expect("a spec");
    spec.init_containers.iter_mut().flatten().for_each(edit);
    scene.pod = DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod");
    scene.memory.note_definition(&scene.pod);
    let plan = plan_live(&scene.pod, &scene.seen, &scene.context(1));
    expected.assert_eq(&render::plan(&plan));
}

fn other_image(container: &mut Container) {
    container.image = Some("registry/other:2".to_owned());
}

fn other_resources(container: &mut Container) {
    let limits = BTreeMap::from([("cpu".to_owned(), Quantity("1".to_owned()))]);
    let resources =
        ResourceRequirements { limits: Some(limits), ..ResourceRequirements::default() };
    container.resources = Some(resources);
}

#[test]
fn a_new_definition_forgets_the_back_off() {
    let crashed = "web Always init=s+: s exited=1 ago=3s crashes=2; app running";
    check_after_edit(crashed, other_image, expect!["start s restarts=1"]);
    check_after_edit(crashed, other_resources, expect!["start s restarts=1"]);
    check_after_edit(
        crashed,
        |container| container.stdin = Some(true),
        expect![[r#"
            s waits: CrashLoopBackOff
            wake 17s"#]],
    );
}

#[test]
fn a_new_image_is_pulled_at_once() {
    let unpulled = "web Always init=s+: s failed=ErrImagePull retry=5s; app running";
    check_after_edit(unpulled, other_image, expect!["start s"]);
}

/// What a probe stopped counts as a crash from the second time on.
#[test]
fn replacing_what_runs_paces_the_next_time() {
    let mut scene = dsl::scene("web Always: app running liveness=failed");
    let name = ContainerName::new("app");
    let before = scene.memory.clone();
    scene.memory.note_start(&scene.seen, &name, dsl::BACKOFF, dsl::NOW);
    assert_eq!(scene.memory, before);
    let mut scene =
        dsl::scene("web Always: app exited=1 ago=9s; app running restarts=1 liveness=failed");
    scene.memory.note_start(&scene.seen, &name, dsl::BACKOFF, dsl::NOW);
    let plan = plan_live(&scene.pod, &scene.seen, &scene.context(1));
    expect!["stop app-1 30s LivenessFailed"].assert_eq(&render::plan(&plan));
}

/// What users are told: since when a container does not start for this kind of reason.
#[test]
fn failures_of_a_kind_count_from_the_first() {
    let mut memory = Memory::default();
    let name = ContainerName::new("app");
    let mut fail = |reason, second| {
        let now = Mono(Duration::from_secs(second));
        let waiting = Waiting { reason, message: String::new() };
        memory.note_failed_start(&name, waiting, Duration::from_secs(10), now);
        memory.failed_starts[&name].since.0.as_secs()
    };
    assert_eq!(fail(WaitReason::ErrImagePull, 5), 5);
    assert_eq!(fail(WaitReason::ImagePullBackOff, 15), 5, "still the image");
    assert_eq!(fail(WaitReason::RunContainerError, 25), 25, "something else");
    assert_eq!(fail(WaitReason::RunContainerError, 35), 25);
    memory.note_started(&name);
    let now = Mono(Duration::from_secs(45));
    let waiting = Waiting { reason: WaitReason::RunContainerError, message: String::new() };
    memory.note_failed_start(&name, waiting, Duration::ZERO, now);
    assert_eq!(memory.failed_starts[&name].since, now, "it has run meanwhile");
}
