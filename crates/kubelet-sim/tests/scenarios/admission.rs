//! Pods that the node has no room for.

use std::time::Duration;

use kubelet_sim::{PodTemplate, Program, Restart, SimWorld};

use crate::SOON;

/// A node for so many pods.
fn node_for(pods: i64) -> SimWorld {
    let mut node = SimWorld::new(1).settings(|settings| {
        let own = settings.admission.own_node.as_mut().expect("a node of its own");
        own.allocatable.insert("pods".to_owned(), pods);
    });
    node.start_agent();
    node
}

/// Phase and reason of a pod as the agent reports them.
fn told(node: &SimWorld, name: &str) -> (String, Option<String>) {
    let pods = node.reported();
    let pod = pods.iter().find(|pod| pod.name.starts_with(name)).expect("it is reported");
    (pod.phase.clone(), pod.reason.clone())
}

fn refused() -> (String, Option<String>) {
    // Static pods are critical: they are refused because nobody can make room for them.
    ("Failed".to_owned(), Some("UnexpectedAdmissionError".to_owned()))
}

#[test]
fn of_two_pods_for_one_place_one_runs() {
    let mut node = node_for(1);
    node.put("a.json", &PodTemplate::steady("a"));
    node.run_for(SOON);
    node.put("b.json", &PodTemplate::steady("b"));
    node.run_for(SOON);
    assert_eq!((node.running("a").len(), node.running("b").len()), (1, 0));
    assert_eq!(told(&node, "b"), refused());
    assert_eq!(node.sandboxes("b"), 0, "nothing of it was made");
}

#[test]
fn what_ran_before_the_agent_keeps_its_place() {
    let mut node = node_for(1);
    node.put("z.json", &PodTemplate::steady("z"));
    node.run_for(SOON);
    node.put("a.json", &PodTemplate::steady("a"));
    node.run_for(SOON);
    let before = node.running("z");
    for _ in 0..3 {
        node.crash_agent();
        node.start_agent();
        node.run_for(SOON);
        assert_eq!(node.running("z"), before);
        assert_eq!(told(&node, "a"), refused());
    }
}

#[test]
fn a_place_is_free_when_its_pod_has_gone() {
    let mut node = node_for(1);
    node.put("a.json", &PodTemplate::steady("a"));
    node.run_for(SOON);
    node.delete("a.json");
    node.put("b.json", &PodTemplate::steady("b"));
    node.run_for(SOON);
    assert_eq!(node.running("b").len(), 1);
    // Another version of a pod takes the place of the one before.
    node.put("b.json", &PodTemplate::steady("b").with_deadline(10_000));
    node.run_for(Duration::from_secs(120));
    assert_eq!(node.running("b").len(), 1);
}

#[test]
fn a_pod_that_has_done_its_work_holds_no_place() {
    let mut node = node_for(1);
    let job = PodTemplate::steady("job")
        .program(Program::Exit { code: 0, after_ms: 100 })
        .restart(Restart::Never);
    node.put("job.json", &job);
    node.run_for(SOON);
    assert_eq!(told(&node, "job").0, "Succeeded");
    node.put("web.json", &PodTemplate::steady("web"));
    node.run_for(SOON);
    let before = node.running("web");
    assert_eq!(before.len(), 1);
    // Nor does it after a restart, and nobody says that it was refused.
    node.crash_agent();
    node.start_agent();
    node.run_for(SOON);
    assert_eq!(node.running("web"), before);
    assert_eq!(told(&node, "job"), ("Succeeded".to_owned(), None));
}
