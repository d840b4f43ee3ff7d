//! Plans as tables, wanted volumes of pods, and a task against real directories.

mod attach;
mod bed;
mod block;
mod claims;
mod clean;
mod credentials;
mod csi;
mod disks;
mod figures;
mod growth;
mod network;
mod payload;
mod quotas;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, Mono, PodUid, Source};

use super::desired::{self, Medium, NodeFacts, PodVolumes, Wanted};
use super::layout::{PluginName, VolumeName};
use super::plan::{Contents, Doing, Found, Goal, Lack, Observed, Op, Outcome, plan};
use super::selinux::NodeLabels;
use super::{Step, VolumeMountable, VolumeState, Volumes};
use crate::container_manager::Rules;
use crate::container_manager::allocatable::Allocatable;
use crate::ports::Ports;
use bed::Bed;

/// A pod whose container mounts every volume but `unused`.
fn pod(container: &str, spec: &str, volumes: &str) -> DesiredPod {
    let json = format!(
        r#"{{"metadata":{{"name":"web","namespace":"ns","uid":"u1"}},"spec":{{"containers":[
            {{"name":"app","image":"i","volumeMounts":[{{"name":"v","mountPath":"/v"}},
             {{"name":"w","mountPath":"/w"}}]{container}}}],"volumes":[{volumes}]{spec}}}}}"#
    );
    let mut pod: Pod = serde_json::from_str(&json).expect("test pod");
    kubelet_model::manifest::default_pod(&mut pod);
    DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
}

const NODE: Allocatable = Allocatable { cpu_milli: 1_000, memory_bytes: 1 << 30, storage_bytes: 0 };

fn volumes_of(pod: &DesiredPod) -> Option<PodVolumes> {
    desired::of_pod(
        pod,
        NodeFacts { allocatable: NODE, rules: &Rules::default(), labels: NodeLabels::default() },
    )
}

fn name(text: &str) -> VolumeName {
    VolumeName::new(text).expect("a good name")
}

fn wanted(container: &str, source: &str) -> Wanted {
    let pod = pod(container, "", &format!(r#"{{"name":"v",{source}}}"#));
    volumes_of(&pod).expect("a volume").volumes.remove(&name("v")).expect("the volume")
}

#[test]
fn only_volumes_that_are_mounted_count() {
    let volumes = r#"{"name":"v","emptyDir":{}},{"name":"unused","emptyDir":{}},
        {"name":"w","image":{"reference":"r"}}"#;
    let found = volumes_of(&pod("", "", volumes)).expect("a volume");
    assert_eq!(found.volumes.keys().map(VolumeName::as_str).collect::<Vec<_>>(), ["v"]);
    assert_eq!(volumes_of(&pod("", "", r#"{"name":"unused","emptyDir":{}}"#)), None);
    assert_eq!(volumes_of(&pod("", "", "")), None);
    let grouped = pod("", r#","securityContext":{"fsGroup":7}"#, r#"{"name":"v","emptyDir":{}}"#);
    let expected = Wanted::EmptyDir { medium: Medium::Disk, fs_group: Some(7), quota: None };
    assert_eq!(volumes_of(&grouped).expect("a volume").volumes[&name("v")], expected);
}

#[test]
fn a_volume_whose_name_leads_elsewhere_is_told_and_waited_for() {
    let odd = "a/../b";
    let container = format!(
        r#"}},{{"name":"two","image":"i","volumeMounts":[
        {{"name":"{odd}","mountPath":"/b"}},{{"name":"..","mountPath":"/c"}}]"#
    );
    let source = format!(
        r#"{{"name":"v","emptyDir":{{}}}},{{"name":"{odd}","emptyDir":{{}}}},
           {{"name":"..","emptyDir":{{}}}}"#
    );
    let found = volumes_of(&pod(&container, "", &source)).expect("volumes");
    let names: Vec<&str> = found.volumes.keys().map(VolumeName::as_str).collect();
    assert_eq!(names, ["_", "a_.._b", "v"]);
    let goal = Goal::Mount(Arc::new(found));
    let rests = plan(&goal, &Observed::default(), &Contents::new(), at(0));
    assert_eq!(rests.ops, [Op::SetUp(name("v"))]);
    let VolumeState::Waiting { problems, .. } = rests.state else { panic!("it waits") };
    let told = |text: &str| {
        format!(
            "MountVolume.SetUp failed for volume \"{}\" : \"{text}\" is no name of a volume: it \
             has to be one part of a path, of 255 bytes at most; name it anew",
            VolumeName::stand_in(text)
        )
    };
    let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(messages, [told(".."), told(odd)]);
    let long = "ä".repeat(300);
    assert!(VolumeName::new(&long).is_none() && VolumeName::stand_in(&long).as_str().len() < 255);
}

#[test]
fn memory_has_the_smallest_of_its_limits() {
    let limits = r#","resources":{"limits":{"memory":"64Mi","cpu":"1"}}"#;
    for (container, source, expected) in [
        ("", r#""emptyDir":{"medium":"Memory"}"#, 1 << 30),
        ("", r#""emptyDir":{"medium":"Memory","sizeLimit":"3Mi"}"#, 3 << 20),
        ("", r#""emptyDir":{"medium":"Memory","sizeLimit":"3Gi"}"#, 1 << 30),
        ("", r#""emptyDir":{"medium":"Memory","sizeLimit":"0"}"#, 1 << 30),
        (limits, r#""emptyDir":{"medium":"Memory"}"#, 64 << 20),
        (limits, r#""emptyDir":{"medium":"Memory","sizeLimit":"1Mi"}"#, 1 << 20),
    ] {
        let medium = Medium::Memory(NonZeroU64::new(expected));
        let expected = Wanted::EmptyDir { medium, fs_group: None, quota: None };
        assert_eq!(wanted(container, source), expected, "{container} {source}");
    }
}

#[test]
fn huge_pages_are_those_the_pod_requests() {
    let with = |list: &str| format!(r#","resources":{{"limits":{{{list},"cpu":"1"}}}}"#);
    let (small, large) = (r#""hugepages-2Mi":"4Mi""#, r#""hugepages-1Gi":"1Gi""#);
    let both = with(&format!("{small},{large}"));
    let pages = |medium: &str| format!(r#""emptyDir":{{"medium":"{medium}"}}"#);
    let of = |size: u64| {
        let medium = Medium::HugePages(NonZeroU64::new(size).expect("a size"));
        Wanted::EmptyDir { medium, fs_group: None, quota: None }
    };
    assert_eq!(wanted(&with(small), &pages("HugePages")), of(2 << 20));
    assert_eq!(wanted(&both, &pages("HugePages-1Gi")), of(1 << 30));
    for (container, medium, why) in [
        (
            both.as_str(),
            "HugePages",
            "can't be used if container requests multiple huge page sizes",
        ),
        ("", "HugePages", "there is no resource request for huge pages"),
        ("", "HugePages-2Mi", "there is no resource request for huge pages"),
        ("", "HugePages-x", "is no size of pages"),
        ("", "Tape", "unknown storage medium \"Tape\""),
    ] {
        let Wanted::Refused(text) = wanted(container, &pages(medium)) else {
            panic!("{medium} is not refused");
        };
        assert!(text.contains(why), "{text}");
    }
    assert!(matches!(wanted("", r#""flexVolume":{"driver":"d/e"}"#), Wanted::Refused(_)));
}

fn made(path: &str) -> VolumeMountable {
    VolumeMountable {
        host_path: path.into(),
        read_only: false,
        managed: true,
        persistent: None,
        device: None,
        gid: None,
    }
}

fn at(milliseconds: u64) -> Mono {
    Mono(Duration::from_millis(milliseconds))
}

#[test]
fn what_fails_is_tried_again_later_and_later() {
    let two = pod("", "", r#"{"name":"v","emptyDir":{}},{"name":"w","emptyDir":{}}"#);
    let goal = Goal::Mount(Arc::new(volumes_of(&two).expect("volumes")));
    let mut observed = Observed::default();
    let (v, w) = (Op::SetUp(name("v")), Op::SetUp(name("w")));
    assert_eq!(plan(&goal, &observed, &Contents::new(), at(0)).ops, [v.clone(), w.clone()]);
    let disk = Wanted::EmptyDir { medium: Medium::Disk, fs_group: None, quota: None };
    observed.note(v.clone(), Outcome::Made(disk.clone(), made("/v"), None), at(0));
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..10 {
        observed.note(w.clone(), Outcome::Failed("no".to_owned()), at(now));
        let rests = plan(&goal, &observed, &Contents::new(), at(now));
        assert_eq!(rests.ops, []);
        let wake = rests.wake_at.expect("it is tried again").0.as_millis() as u64;
        let VolumeState::Waiting { volumes, problems, .. } = rests.state else { panic!("waits") };
        assert_eq!(volumes, ["w"]);
        assert_eq!(problems[0].message, "MountVolume.SetUp failed for volume \"w\" : no");
        assert_eq!(
            plan(&goal, &observed, &Contents::new(), at(wake)).ops,
            std::slice::from_ref(&w)
        );
        pauses.push(wake - now);
        now = wake;
    }
    assert_eq!(pauses[..4], [500, 1_000, 2_000, 4_000]);
    assert_eq!(pauses[8..], [122_000, 122_000]);
    observed.note(w, Outcome::Made(disk, made("/w"), None), at(now));
    let ready = plan(&goal, &observed, &Contents::new(), at(now));
    assert_eq!((ready.ops, ready.wake_at), (vec![], None));
    let VolumeState::Ready(all) = ready.state else { panic!("all are there") };
    assert_eq!(all.keys().collect::<Vec<_>>(), ["v", "w"]);
}

#[test]
fn a_volume_that_the_node_has_no_room_for_is_waited_for_a_while() {
    let source = r#"{"name":"v","persistentVolumeClaim":{"claimName":"c"}}"#;
    let goal = Goal::Mount(Arc::new(volumes_of(&pod("", "", source)).expect("volumes")));
    let mut observed = Observed::default();
    observed.note_wait(true, at(1_000));
    let step = |observed: &Observed, full: Option<&str>, now| {
        let lack = Lack::new(Some(Doing::VerifyAttached), "not yet".to_owned());
        let lack = Lack { full: full.map(str::to_owned), ..lack };
        let contents = Contents::from([(name("v"), Err(lack))]);
        let found = plan(&goal, observed, &contents, at(now));
        assert_eq!(found.ops, []);
        (found.problems[0].step, found.wake_at)
    };
    assert_eq!(step(&observed, None, 900_000), (Step::AwaitAttach, None));
    let until = Some(at(124_000));
    assert_eq!(step(&observed, Some("d"), 123_999), (Step::AwaitAttach, until));
    assert_eq!(step(&observed, Some("d"), 124_000), (Step::AttachLimit, None));
    observed.note_wait(true, at(200_000));
    assert_eq!(step(&observed, Some("d"), 200_000), (Step::AttachLimit, None), "it still waits");
    observed.note_wait(false, at(200_000));
    observed.note_wait(true, at(300_000));
    assert_eq!(step(&observed, Some("d"), 300_000).0, Step::AwaitAttach, "it waits anew");
}

#[test]
fn what_can_never_be_made_is_not_tried() {
    let odd = pod("", "", r#"{"name":"v","emptyDir":{"medium":"Tape"}}"#);
    let goal = Goal::Mount(Arc::new(volumes_of(&odd).expect("volumes")));
    let rests = plan(&goal, &Observed::default(), &Contents::new(), at(0));
    assert_eq!((rests.ops, rests.wake_at), (vec![], None));
    let VolumeState::Waiting { problems, .. } = rests.state else { panic!("it waits") };
    let expected = "MountVolume.SetUp failed for volume \"v\" : unknown storage medium \"Tape\"";
    assert_eq!(problems[0].message, expected);
}

#[test]
fn a_release_undoes_what_was_begun_and_what_is_found() {
    let one = pod("", "", r#"{"name":"v","emptyDir":{}}"#);
    let mount = Goal::Mount(Arc::new(volumes_of(&one).expect("volumes")));
    let mut observed = Observed::default();
    let set_up = Op::SetUp(name("v"));
    observed.note_begun(&set_up, &mount, &Contents::new());
    observed.note(set_up, Outcome::Failed("still under way".to_owned()), at(0));
    observed.turn_to_release();
    let goal = Goal::Release;
    assert_eq!(plan(&goal, &observed, &Contents::new(), at(0)).ops, [Op::Look]);
    let part = Found { name: name("host"), plugin: None, device: false };
    observed.note(Op::Look, Outcome::Left(BTreeSet::from([part.clone()])), at(0));
    let begun = Found { name: name("v"), plugin: Some(PluginName::empty_dir()), device: false };
    let ops = [Op::TearDown(part.clone()), Op::TearDown(begun.clone())];
    assert_eq!(plan(&goal, &observed, &Contents::new(), at(0)).ops, ops);
    observed.note(ops[0].clone(), Outcome::Undone, at(0));
    observed.note(ops[1].clone(), Outcome::Failed("busy".to_owned()), at(0));
    let rests = plan(&goal, &observed, &Contents::new(), at(0));
    let VolumeState::Waiting { volumes, problems, retry_at } = rests.state else { panic!("waits") };
    assert_eq!((volumes, retry_at), (vec!["v".to_owned()], Some(at(500))));
    assert_eq!(problems[0].message, "UnmountVolume.TearDown failed for volume \"v\" : busy");
    observed.note(ops[1].clone(), Outcome::Undone, at(600));
    assert_eq!(plan(&goal, &observed, &Contents::new(), at(600)).state, VolumeState::Gone);
}

/// What another agent left of a kind that nobody here knows may hold data.
#[tokio::test]
async fn what_is_left_of_an_unknown_kind_is_removed_only_if_it_is_empty() {
    let bed = Bed::new();
    let dir = bed.root().join("pods/u1/volumes/example.com~flex");
    for made in ["empty", "used"] {
        std::fs::create_dir_all(dir.join(made)).expect("directories");
    }
    let data = dir.join("used/precious");
    std::fs::write(&data, "data").expect("a file");
    let volumes = bed.life(&[]);
    let uid = PodUid::new("u1");
    volumes.release(&uid);
    let left = |state: &VolumeState| {
        matches!(state, VolumeState::Waiting { volumes, problems, .. }
            if volumes == &["used"] && !problems.is_empty())
    };
    let state = until(&volumes, &uid, left).await;
    let VolumeState::Waiting { problems, .. } = state else { panic!("it waits") };
    let wanted =
        format!("{} is what is left of a volume of example.com/flex", dir.join("used").display());
    assert!(problems[0].message.contains(&wanted), "{problems:?}");
    assert!(data.exists() && !dir.join("empty").exists());
    let mut registry = prometheus_client::registry::Registry::default();
    volumes.metrics().register(&mut registry);
    let mut counted = String::new();
    prometheus_client::encoding::text::encode(&mut counted, &registry).expect("text");
    for line in
        ["reconstruct_volume_operations_total 2", "reconstruct_volume_operations_errors_total 2"]
    {
        assert!(counted.lines().any(|found| found == line), "{line} is not in {counted}");
    }
    // It may have been tried again meanwhile.
    assert!(!counted.contains("force_cleaned_failed_volume_operation_errors_total 0"), "{counted}");
    std::fs::remove_file(&data).expect("removed");
    until(&volumes, &uid, |state| *state == VolumeState::Gone).await;
    assert!(!dir.join("used").exists());
}

/// Ports around a runtime that nobody asks.
fn ports() -> Ports {
    let config = cri::ClientConfig {
        runtime_endpoint: "unix:///nowhere.sock".to_owned(),
        image_endpoint: None,
        request_timeout: Duration::from_secs(1),
    };
    Ports::around(Arc::new(cri::CriClient::new(config).expect("a client")))
}

/// Waits for a state.
async fn until(volumes: &Volumes, uid: &PodUid, is: impl Fn(&VolumeState) -> bool) -> VolumeState {
    let mut watch = volumes.follow(uid);
    loop {
        let state = volumes.state(uid).expect("volumes of the pod");
        if is(&state) {
            return state;
        }
        let changed = tokio::time::timeout(Duration::from_secs(20), watch.changed());
        changed.await.unwrap_or_else(|_| panic!("it stays {state:?}"));
    }
}

#[tokio::test]
async fn directories_come_and_go_with_the_pod() {
    let bed = Bed::new();
    let recorder = &bed.recorder;
    let host = bed.root().join("host");
    let source = format!(
        r#"{{"name":"v","emptyDir":{{}}}},{{"name":"w","hostPath":{{"path":"{}","type":"Directory"}}}}"#,
        host.display()
    );
    let pod = pod("", "", &source);
    let uid = pod.uid();
    let volumes = bed.life(&[&pod]);
    assert_eq!(volumes.state(uid), None);
    volumes.want(&pod);
    let waits = |state: &VolumeState| matches!(state, VolumeState::Waiting { problems, .. } if !problems.is_empty());
    until(&volumes, uid, waits).await;
    let events = recorder.all();
    let text = format!(
        "MountVolume.SetUp failed for volume \"w\" : hostPath type check failed: {} is not a directory",
        host.display()
    );
    assert_eq!((events.len(), events[0].reason, &events[0].message), (1, "FailedMount", &text));
    while recorder.all()[0].count < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::create_dir(&host).expect("a directory");
    volumes.want(&pod);
    let ready = until(&volumes, uid, |state| matches!(state, VolumeState::Ready(_))).await;
    let VolumeState::Ready(all) = ready else { panic!("ready") };
    assert_eq!((&all["w"].host_path, all["w"].managed), (&host, false));
    let data = all["v"].host_path.join("data");
    std::fs::write(&data, "x").expect("a file");

    // Another life knows nothing of it, and changes nothing in it.
    let other = bed.life(&[&pod]);
    other.want(&pod);
    until(&other, uid, |state| matches!(state, VolumeState::Ready(_))).await;
    assert!(data.exists());
    let third = bed.life(&[&pod]);
    third.release(uid);
    until(&third, uid, |state| *state == VolumeState::Gone).await;
    let dir = |below: &str| bed.root().join("pods/u1").join(below);
    assert!(!dir("volumes/kubernetes.io~empty-dir/v").exists());
    assert!(!dir("plugins/kubernetes.io~empty-dir/v").exists());
    assert!(host.exists(), "what is the host's stays");
    third.forget(uid);
    assert_eq!(third.state(uid), None);
}
