//! Images that are here, come late, or never come.

use std::time::Duration;

use kubelet_sim::{PodTemplate, Program, SimWorld, Twist};

use crate::{SOON, web};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A node that has no image, unless it is brought there.
fn bare_node() -> SimWorld {
    let mut node = SimWorld::new(1);
    node.with_faults(|faults| faults.images_absent = true);
    node
}

#[test]
fn a_registry_that_hangs_holds_up_nobody_else() {
    for serialize in [true, false] {
        let mut node = bare_node().settings(|settings| {
            settings.images.serialize_pulls = serialize;
            (settings.images.pull_qps, settings.lanes) = (0, 16);
        });
        for number in 0..16 {
            node.twist("PullImage", Twist::HangBefore(seconds(600)));
            // Equal pulls would be one.
            let program = Program::Run { term_ms: 1_000 + number };
            let pod = PodTemplate::steady(&format!("slow{number}")).program(program);
            node.put(&format!("slow{number}.json"), &pod);
        }
        node.start_agent();
        let all_pull = |node: &SimWorld| node.calls("RunPodSandbox") == 16;
        node.wait_until("sixteen pods to be at their images", seconds(10), all_pull);
        node.run_for(seconds(1));
        node.add_image(&Program::Run { term_ms: 200 }.image());
        node.put("web.json", &PodTemplate::steady("web"));
        node.wait_until("web to run", seconds(5), |node| !node.running("web").is_empty());
    }
}

/// Every call costs a hundred pods that start at once.
#[test]
fn a_start_takes_as_few_calls_as_it_can() {
    let mut node = bare_node();
    node.add_image(&Program::Run { term_ms: 200 }.image());
    node.start_agent();
    node.put("web.json", &PodTemplate::steady("web"));
    node.settle(SOON);
    let calls = ["RunPodSandbox", "ImageStatus", "PullImage", "CreateContainer", "StartContainer"];
    assert_eq!(calls.map(|name| node.calls(name)), [1, 1, 0, 1, 1]);
}

#[test]
fn a_failed_pull_is_told_first_and_then_its_back_off() {
    let mut node = bare_node();
    node.with_faults(|faults| faults.pull_error = 1.0);
    node.start_agent();
    node.put("web.json", &PodTemplate::steady("web"));
    let waits = |reason: &'static str| move |node: &SimWorld| node.waiting("web") == [reason];
    for tries in 1..=3 {
        node.wait_until("the failure to show", seconds(60), waits("ErrImagePull"));
        assert_eq!(node.calls("PullImage"), tries);
        node.wait_until("the back-off to show", seconds(11), waits("ImagePullBackOff"));
        assert_eq!(node.calls("PullImage"), tries, "it is not tried before its time");
    }
    // What comes by another way is found without a pull.
    node.run_for(seconds(1));
    node.add_image(&Program::Run { term_ms: 200 }.image());
    node.settle(seconds(60));
    web(&node);
    assert_eq!(node.calls("PullImage"), 3);
}

#[test]
fn an_image_volume_is_pulled_and_mounted() {
    let mut node = bare_node();
    node.start_agent();
    let pod = PodTemplate::steady("web").with_image_volume("sim/data:v1");
    node.put("web.json", &pod);
    node.settle(SOON);
    web(&node);
    assert_eq!(node.image_mounts("web"), ["/data sha256:sim.data a"]);
    assert_eq!(node.calls("PullImage"), 2, "its own image and the volume's");
}

#[test]
fn a_volume_whose_image_is_missing_holds_its_container_back() {
    let mut node = bare_node();
    node.add_image(&Program::Run { term_ms: 200 }.image());
    node.with_faults(|faults| faults.pull_error = 1.0);
    node.start_agent();
    node.put("web.json", &PodTemplate::steady("web").with_image_volume("sim/data:v1"));
    let waits = |node: &SimWorld| node.waiting("web") == ["ErrImagePull"];
    node.wait_until("the volume's failure to show", seconds(30), waits);
    assert_eq!(node.calls("CreateContainer"), 0);
    node.with_faults(|faults| faults.pull_error = 0.0);
    node.settle(seconds(60));
    assert_eq!(node.image_mounts("web").len(), 1);
}
