//! The machine is shut down: pods end in order, and new ones are refused.

use std::time::Duration;

use kubelet::node_shutdown::ShutdownPlan;
use kubelet_sim::{PodTemplate, Program, SimWorld, VolumeSet};

use crate::SOON;

fn node() -> SimWorld {
    let plan = ShutdownPlan::of_periods(Duration::from_secs(30), Duration::from_secs(10));
    let mut node = SimWorld::new(1).settings(|settings| settings.shutdown = plan);
    node.start_agent();
    node
}

fn told(node: &SimWorld, name: &str) -> (String, Option<String>) {
    let pods = node.reported();
    let pod = pods.iter().find(|pod| pod.name.starts_with(name)).expect("it is reported");
    (pod.phase.clone(), pod.reason.clone())
}

fn failed(reason: &str) -> (String, Option<String>) {
    ("Failed".to_owned(), Some(reason.to_owned()))
}

#[test]
fn pods_end_and_new_ones_are_refused() {
    let mut node = node();
    let disk = VolumeSet { disk: true, ..VolumeSet::default() };
    node.put("web.json", &PodTemplate::steady("web").with_volumes(disk));
    node.put("slow.json", &PodTemplate::steady("slow").program(Program::Run { term_ms: 4_000 }));
    node.settle(SOON);
    assert_eq!(node.shutdown_locks(), 1);
    node.shut_down(true);
    node.run_for(Duration::from_secs(2));
    assert_eq!((node.running("web").len(), node.running("slow").len()), (0, 1));
    assert_eq!(node.shutdown_locks(), 1, "the machine waits");
    node.put("late.json", &PodTemplate::steady("late"));
    node.run_for(Duration::from_secs(20));
    assert_eq!(node.shutdown_locks(), 0, "the machine may go");
    assert_eq!(told(&node, "web"), failed("Terminated"));
    assert_eq!(told(&node, "slow"), failed("Terminated"));
    assert_eq!(told(&node, "late"), failed("NodeShutdown"));
    assert_eq!((node.sandboxes("late"), node.mounts()), (0, 0));
}

#[test]
fn a_shutdown_that_is_called_off_lets_pods_start_again() {
    let mut node = node();
    node.put("web.json", &PodTemplate::steady("web"));
    node.settle(SOON);
    node.shut_down(true);
    node.run_for(SOON);
    node.shut_down(false);
    node.run_for(Duration::from_secs(2));
    assert_eq!(node.shutdown_locks(), 1, "the next one has to wait again");
    node.put("late.json", &PodTemplate::steady("late"));
    node.settle(SOON);
    assert_eq!(node.running("late").len(), 1);
    assert_eq!(told(&node, "web"), failed("Terminated"), "what has failed has failed");
}
