//! The API server fails in every way there is; pods must not notice, and all that was
//! missed is made up for.

use std::time::Duration;

use jiff::SignedDuration;
use kubelet_sim::{
    ApiFaults, ContainerTemplate, PodTemplate, Program, Restart, SimWorld, VolumeSet,
};

use crate::{SOON, expect_untouched, web};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A node in a cluster, with one settled pod `web`.
fn node_with(template: &PodTemplate) -> (SimWorld, PodTemplate) {
    let mut node = SimWorld::new(1).in_cluster();
    node.start_agent();
    let pod = node.create_pod(template);
    node.settle(SOON);
    (node, pod)
}

fn phase(node: &SimWorld, name: &str) -> String {
    node.stored(name).map(|pod| pod.phase).unwrap_or_default()
}

fn uid(pod: &PodTemplate) -> &str {
    pod.fixed_uid.as_deref().expect("the server gave it one")
}

#[test]
fn a_pod_comes_runs_and_goes() {
    let (mut node, pod) = node_with(&PodTemplate::steady("web"));
    assert_eq!(phase(&node, "web"), "Running");
    assert_eq!(web(&node).uid, uid(&pod));
    node.delete_pod("web", false);
    node.wait_until("its end", MINUTE, |node| node.stored("web").is_none());
    node.settle(SOON);
    assert_eq!(node.sandboxes("web"), 0);
}

/// An hour without a server: what runs runs on, what crashes restarts, and the server
/// learns of all of it when it is back.
#[test]
fn a_server_that_is_away_for_an_hour() {
    for silent in [false, true] {
        let (mut node, _) = node_with(&PodTemplate::steady("web"));
        let crashing =
            PodTemplate::steady("crash").program(Program::Exit { code: 1, after_ms: 30_000 });
        node.create_pod(&crashing);
        let once = PodTemplate::steady("once").restart(Restart::Never);
        node.create_pod(&once.program(Program::Exit { code: 0, after_ms: 120_000 }));
        node.create_pod(&PodTemplate::steady("gone"));
        node.settle(SOON);
        let before = web(&node);
        node.take_api(HOUR, silent);
        node.delete_pod("gone", false);
        node.create_pod(&PodTemplate::steady("new"));
        // What it began with backs off within a minute or two.
        node.run_for(MINUTE * 2);
        node.most_requests();
        node.run_for(HOUR - MINUTE * 3);
        let (most, what) = node.most_requests();
        assert!(most <= NO_ANSWERS, "{most} requests in a minute: {what}");
        expect_untouched(&node, &before);
        assert_eq!(phase(&node, "once"), "Running", "nobody could tell the server");
        assert!(node.running("new").is_empty(), "nobody could tell the node");
        node.run_for(MINUTE * 3);
        node.settle(MINUTE);
        expect_untouched(&node, &before);
        assert_eq!(phase(&node, "once"), "Succeeded");
        assert_eq!(node.stored("gone").map(|pod| pod.uid), None);
        assert_eq!(phase(&node, "new"), "Running");
    }
}

#[test]
fn the_agent_restarts_while_the_server_is_away() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    let before = web(&node);
    node.take_api(HOUR, false);
    for pause in [0, 5, 600] {
        node.crash_agent();
        node.run_for(Duration::from_secs(pause));
        node.start_agent();
        node.run_for(MINUTE * 5);
        expect_untouched(&node, &before);
    }
    node.run_for(HOUR);
    node.settle(MINUTE);
    expect_untouched(&node, &before);
    assert_eq!(phase(&node, "web"), "Running");
}

/// Requests of one minute to a server that answers nothing, once what it began with has
/// backed off, with three pods. The node's status is tried five times in 10 s, which makes
/// 30; the lease at most 10 times, pods' statuses together as often, four followers twice
/// each, and events of what crashes 10 times.
const NO_ANSWERS: u32 = 70;
/// The same for a server that can be read, but takes no write or says so of none. The lease
/// is tried five times in 10 s and, once read anew, five times more, and read before each:
/// 126. The node's status is tried five times in 10 s, and read: 60. Pods' statuses: 24.
const REFUSED_WRITES: u32 = 210;
/// The same where watches end after a second: four followers begin anew each second, and
/// nothing else is in trouble: lease, node's status and pods' statuses 20.
const CUT_WATCHES: u32 = 260;
/// What comes on top in the minute in which node and three pods start: registration, lists
/// and watches 20, statuses of each pod 4, events of each 8, and half of that again for the
/// first tries, which pause half a second only.
const BEGINNING: u32 = 84;

/// Every fault alone, at full strength for ten minutes.
#[test]
fn each_fault_alone() {
    type Fault = (&'static str, u32, fn(&mut ApiFaults));
    let faults: [Fault; 11] = [
        ("unreachable", NO_ANSWERS, |f| f.unreachable = 1.0),
        ("429", NO_ANSWERS, |f| f.too_many = 1.0),
        ("409", REFUSED_WRITES, |f| f.conflict = 1.0),
        ("410", NO_ANSWERS, |f| f.expired = 1.0),
        ("500", NO_ANSWERS, |f| f.internal = 1.0),
        ("401", NO_ANSWERS, |f| f.unauthorized = 1.0),
        ("no credentials", NO_ANSWERS, |f| f.no_credentials = 1.0),
        ("lost answers", REFUSED_WRITES, |f| f.lost_answer = 1.0),
        ("no answer in time", NO_ANSWERS, |f| f.silent = 1.0),
        ("watches last a second", CUT_WATCHES, |f| f.watch_cut = Some(Duration::from_secs(1))),
        ("watches end at once", NO_ANSWERS, |f| f.watch_cut = Some(Duration::ZERO)),
    ];
    for (name, limit, fault) in faults {
        let (mut node, _) = node_with(&PodTemplate::steady("web"));
        node.create_pod(&PodTemplate::steady("gone"));
        let once = PodTemplate::steady("once").restart(Restart::Never);
        node.create_pod(&once.program(Program::Exit { code: 3, after_ms: 90_000 }));
        node.settle(SOON);
        let before = web(&node);
        node.with_faults(|faults| fault(&mut faults.api));
        node.most_requests();
        node.delete_pod("gone", false);
        node.run_for(MINUTE * 2);
        let (most, what) = node.most_requests();
        assert!(most <= limit + BEGINNING, "{name}: {most} requests in a minute first: {what}");
        node.run_for(MINUTE * 8);
        let (most, what) = node.most_requests();
        assert!(most <= limit, "{name}: {most} requests in a minute: {what}");
        expect_untouched(&node, &before);
        node.with_faults(|faults| faults.api = ApiFaults::none());
        node.run_for(MINUTE * 2);
        node.settle(MINUTE);
        expect_untouched(&node, &before);
        assert_eq!(phase(&node, "once"), "Failed", "{name}");
        assert!(node.stored("gone").is_none(), "{name}");
    }
}

/// The node may not ask for an hour, and its agent restarts meanwhile: what runs runs on,
/// and with a new certificate all that was missed is made up for.
#[test]
fn a_certificate_that_is_expired_for_an_hour() {
    for missing in [false, true] {
        let (mut node, _) = node_with(&PodTemplate::steady("web"));
        node.create_pod(&PodTemplate::steady("gone"));
        node.settle(SOON);
        let before = web(&node);
        node.lock_out(HOUR, missing);
        node.restart_api();
        node.delete_pod("gone", false);
        node.create_pod(&PodTemplate::steady("new"));
        node.run_for(MINUTE * 20);
        node.crash_agent();
        node.start_agent();
        node.run_for(MINUTE * 2);
        node.most_requests();
        node.run_for(MINUTE * 37);
        let (most, what) = node.most_requests();
        assert!(most <= NO_ANSWERS, "{most} requests in a minute: {what}");
        expect_untouched(&node, &before);
        node.run_for(MINUTE * 4);
        node.settle(MINUTE);
        expect_untouched(&node, &before);
        assert!(node.stored("gone").is_none());
        assert_eq!(phase(&node, "new"), "Running");
    }
}

/// A server that has lost its answers must not be told everything over and over.
#[test]
fn one_patch_for_each_change() {
    let (mut node, pod) = node_with(&PodTemplate::steady("web"));
    let before = node.status_patches(uid(&pod));
    // Pending, then running, then ready, with what is learnt in between.
    assert!(before <= 4, "{before} patches for a pod that has just started");
    node.run_for(HOUR);
    assert_eq!(node.status_patches(uid(&pod)), before, "nothing has changed");
}

#[test]
fn the_server_restarts_and_remembers_nothing() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    let before = web(&node);
    for _ in 0..3 {
        node.restart_api();
        node.create_pod(&PodTemplate::steady("other"));
        node.run_for(MINUTE).settle(SOON);
        expect_untouched(&node, &before);
        node.restart_api();
        node.delete_pod("other", false);
        node.run_for(MINUTE).settle(SOON);
    }
}

/// etcd is restored from a backup while the server is stopped: pods that were deleted are
/// there again, pods that were made since are not. Revisions rise, as they should; or they
/// go back, and then the server keeps watches from later ones open and tells nothing.
#[test]
fn the_servers_store_is_restored() {
    for bump in [1_000_000_000, 0] {
        let (mut node, _) = node_with(&PodTemplate::steady("web"));
        let before = web(&node);
        let old = node.create_pod(&PodTemplate::steady("old"));
        node.put_config(Some(1));
        let config = VolumeSet { config: true, ..VolumeSet::default() };
        node.create_pod(&PodTemplate::steady("reader").with_volumes(config));
        node.settle(SOON);
        let backup = node.api_revision();
        node.run_for(HOUR);
        node.delete_pod("old", false);
        node.settle(SOON);
        node.create_pod(&PodTemplate::steady("new"));
        node.put_config(Some(2));
        node.settle(SOON);
        node.take_api(MINUTE, false);
        node.restore_api(backup, bump);
        node.most_requests();
        node.run_for(MINUTE * 5).settle(SOON);
        expect_untouched(&node, &before);
        assert!(node.stored("new").is_none() && node.running("new").is_empty());
        let returned = node.running("old");
        assert_eq!(returned.iter().map(|c| c.uid.as_str()).collect::<Vec<_>>(), [uid(&old)]);
        let (most, what) = node.most_requests();
        assert!(most < 100, "{most} requests in a minute: {what}");
    }
}

#[test]
fn clocks_that_disagree() {
    for ahead in [-3_600, 3_600] {
        let (mut node, _) = node_with(&PodTemplate::steady("web"));
        let before = web(&node);
        node.skew_api(SignedDuration::from_secs(ahead));
        node.create_pod(&PodTemplate::steady("other"));
        node.run_for(MINUTE).settle(SOON);
        let slow = Program::Run { term_ms: 3_000 };
        let app = ContainerTemplate::new("app", slow);
        node.create_pod(&PodTemplate::steady("slow").with_app(|first| *first = app));
        node.settle(SOON);
        node.delete_pod("other", false);
        node.delete_pod("slow", false);
        node.wait_until("both ends", MINUTE, |node| {
            node.stored("other").is_none() && node.stored("slow").is_none()
        });
        node.settle(SOON);
        expect_untouched(&node, &before);
    }
}
