//! Values of groups, and groups of a whole node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use cgroups::{Address, CgroupError, CgroupName, Driver, Hierarchy, Limits, Tree};
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, PodUid, Source};

use super::allocatable::{Capacity, Reserved};
use super::*;

fn pod_of(uid: &str, spec: &str) -> DesiredPod {
    let json =
        format!(r#"{{"metadata":{{"name":"p","namespace":"n","uid":"{uid}"}},"spec":{{{spec}}}}}"#);
    let mut pod: Pod = serde_json::from_str(&json).expect("test pod");
    kubelet_model::manifest::default_pod(&mut pod);
    DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
}

fn containers(resources: &[&str]) -> String {
    let all: Vec<String> = resources
        .iter()
        .enumerate()
        .map(|(at, resources)| format!(r#"{{"name":"c{at}","resources":{resources}}}"#))
        .collect();
    format!(r#""containers":[{}]"#, all.join(","))
}

const BOTH: &str = r#"{"limits":{"cpu":"1","memory":"64Mi"}}"#;
const CPU_LIMIT: &str = r#"{"limits":{"cpu":"1"},"requests":{"cpu":"250m"}}"#;
const REQUEST: &str = r#"{"requests":{"cpu":"500m","memory":"32Mi"}}"#;

#[test]
fn classes() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let init =
        |resources: &str| format!(r#","initContainers":[{{"name":"i","resources":{resources}}}]"#);
    let whole = |resources: &str| format!(r#","resources":{resources}"#);
    for (spec, class) in [
        (containers(&["{}"]), BestEffort),
        (containers(&[r#"{"requests":{"cpu":"0"},"limits":{"memory":"0"}}"#]), BestEffort),
        (containers(&[r#"{"limits":{"hugepages-2Mi":"2Mi"}}"#]), BestEffort),
        (containers(&[BOTH]), Guaranteed),
        (containers(&[BOTH, BOTH]), Guaranteed),
        (containers(&[BOTH, "{}"]), Burstable),
        (containers(&[CPU_LIMIT]), Burstable),
        (containers(&[REQUEST]), Burstable),
        (containers(&[BOTH]) + &init("{}"), Burstable),
        (containers(&[BOTH]) + &init(BOTH), Guaranteed),
        (containers(&["{}"]) + &init(REQUEST), Burstable),
        (containers(&["{}"]) + &whole(BOTH), Guaranteed),
        (containers(&[REQUEST]) + &whole(BOTH), Burstable),
        (containers(&["{}"]) + &whole(r#"{"limits":{"cpu":"1"}}"#), Burstable),
        (containers(&[BOTH]) + &whole("{}"), BestEffort),
    ] {
        assert_eq!(qos_class(pod_of("u", &spec).spec()), class, "{spec}");
    }
}

/// `shares quota memory`, a dash for what is left alone.
fn group(spec: &str, rules: &Rules) -> String {
    let limits = plan::pod_group(pod_of("u", spec).spec(), rules);
    let text = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
    let period = rules.cpu_period_us;
    assert_eq!(limits.cpu_period_us, limits.cpu_quota_us.map(|_| period));
    let shares = limits.cpu_shares.expect("shares are always set");
    format!("{shares} {} {}", text(limits.cpu_quota_us), text(limits.memory_bytes))
}

#[test]
fn pod_groups() {
    let rules = Rules::default();
    let mib = |count: i64| (count << 20).to_string();
    let overhead = r#","overhead":{"cpu":"100m","memory":"16Mi"}"#;
    let init = |policy: &str, resources: &str| {
        format!(
            r#","initContainers":[{{"name":"s",{policy}"resources":{resources}}},{{"name":"i","resources":{BOTH}}}]"#
        )
    };
    let always = r#""restartPolicy":"Always","#;
    for (spec, expected) in [
        (containers(&["{}"]), "2 - -".to_owned()),
        (containers(&["{}"]) + overhead, "2 - -".to_owned()),
        (containers(&[BOTH]), format!("1024 100000 {}", mib(64))),
        (containers(&[BOTH, BOTH]), format!("2048 200000 {}", mib(128))),
        (containers(&[BOTH]) + overhead, format!("1126 110000 {}", mib(80))),
        (containers(&[BOTH, "{}"]), "1024 - -".to_owned()),
        (containers(&[CPU_LIMIT, BOTH]), "1280 200000 -".to_owned()),
        (containers(&[REQUEST]), "512 - -".to_owned()),
        // An init container alone, or beside the sidecar before it.
        (containers(&[REQUEST]) + &init("", "{}"), "1024 - -".to_owned()),
        (containers(&[BOTH]) + &init("", BOTH), format!("1024 100000 {}", mib(64))),
        (containers(&[BOTH]) + &init(always, BOTH), format!("2048 200000 {}", mib(128))),
        (
            containers(&[REQUEST]) + r#","resources":{"limits":{"cpu":"2","memory":"1Gi"}}"#,
            format!("512 200000 {}", mib(1024)),
        ),
        (
            containers(&["{}"]) + r#","resources":{"limits":{"cpu":"2"}}"#,
            "2048 200000 -".to_owned(),
        ),
        (containers(&[r#"{"limits":{"cpu":"1m"}}"#]), "2 1000 -".to_owned()),
        (containers(&[r#"{"requests":{"cpu":"1000"}}"#]), "262144 - -".to_owned()),
    ] {
        assert_eq!(group(&spec, &rules), expected, "{spec}");
    }
    let unlimited = Rules { cpu_quota: false, ..Rules::default() };
    assert_eq!(group(&containers(&[BOTH]), &unlimited), format!("1024 -1 {}", mib(64)));
    let short = Rules { cpu_period_us: 10_000, ..Rules::default() };
    assert_eq!(group(&containers(&[BOTH]), &short), format!("1024 10000 {}", mib(64)));
}

#[test]
fn huge_pages_and_processes_of_pods() {
    let spec = containers(&[
        r#"{"limits":{"hugepages-2Mi":"4Mi"}}"#,
        r#"{"limits":{"hugepages-2Mi":"2Mi"}}"#,
    ]);
    let limits = |pids| {
        let rules = Rules { pod_pids: pids, ..Rules::default() };
        plan::pod_group(pod_of("u", &spec).spec(), &rules)
    };
    assert_eq!(limits(None).huge_pages, Some(BTreeMap::from([(2 << 20, 6 << 20)])));
    assert_eq!(limits(None).pids, None);
    assert_eq!(limits(Some(-1)).pids, None);
    assert_eq!(limits(Some(100)).pids, Some(100));
}

#[test]
fn the_burstable_tier_gets_what_its_pods_request() {
    let shares = |specs: &[String]| {
        let pods: Vec<DesiredPod> = specs.iter().map(|spec| pod_of("u", spec)).collect();
        plan::burstable_shares(pods.iter())
    };
    assert_eq!(shares(&[]), 2);
    let (burstable, guaranteed) = (containers(&[REQUEST]), containers(&[BOTH]));
    assert_eq!(shares(&[burstable.clone(), guaranteed, burstable, containers(&["{}"])]), 1024);
}

fn node(mount: &Path, root: &str, driver: Option<Driver>) -> NodeCgroups {
    let groups = NodeCgroups::new(NodeGroups {
        mount: mount.to_owned(),
        root: root.to_owned(),
        capacity: Capacity {
            cpu_milli: 2000,
            memory_bytes: 1 << 30,
            pids: None,
            huge_pages: BTreeMap::new(),
        },
        system: (Reserved { memory_bytes: Some(1 << 29), ..Reserved::default() }, "/sys".into()),
        kube: (Reserved::default(), String::new()),
        enforced: Enforced::parse(&["pods".to_owned(), "system-reserved".to_owned()]),
        huge_page_sizes: vec![2 << 20],
        systemd: vec![Address { path: mount.join("nobody.sock"), bus: true }],
    });
    if let Some(driver) = driver {
        groups.set_driver(driver);
    }
    groups
}

/// Directories as a version 2 kernel would fill them.
fn mimic(groups: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for group in ["", "kubepods", "kubepods/burstable", "kubepods/besteffort"].iter().chain(groups)
    {
        let dir = root.path().join(group);
        std::fs::create_dir_all(&dir).unwrap();
        for (file, text) in [
            ("cgroup.controllers", "cpu memory hugetlb"),
            ("cgroup.subtree_control", "cpu memory hugetlb"),
            ("cpu.weight", "100"),
            ("cpu.max", "max 100000"),
            ("memory.max", "max"),
            ("hugetlb.2MB.max", "max"),
        ] {
            std::fs::write(dir.join(file), text).unwrap();
        }
    }
    root
}

fn read(root: &tempfile::TempDir, file: &str) -> String {
    std::fs::read_to_string(root.path().join(file)).unwrap()
}

#[test]
fn a_node_of_version_2() {
    let root = mimic(&["kubepods/podg-1", "kubepods/burstable/podb-1", "sys"]);
    let cgroups = Arc::new(node(root.path(), "/", Some(Driver::Cgroupfs)));
    cgroups.prepare().unwrap();
    cgroups.enforce().unwrap();
    let [reservation] = cgroups.reservations()[..] else { panic!("one reservation") };
    cgroups.enforce_reserved(&reservation).unwrap();
    assert_eq!(read(&root, "kubepods/cpu.weight"), "79");
    assert_eq!(read(&root, "kubepods/memory.max"), (1 << 29).to_string());
    assert_eq!(read(&root, "kubepods/hugetlb.2MB.max"), "0");
    assert_eq!(read(&root, "sys/memory.max"), (1 << 29).to_string());

    let handle = PodContainers::new(cgroups, Rules::default());
    let guaranteed = pod_of("g-1", &containers(&[BOTH]));
    assert_eq!(handle.ensure(&guaranteed).unwrap(), "/kubepods/podg-1");
    assert_eq!(read(&root, "kubepods/podg-1/cpu.max"), "100000 100000");
    assert_eq!(read(&root, "kubepods/podg-1/memory.max"), (64 << 20).to_string());
    let burstable = pod_of("b-1", &containers(&[REQUEST]));
    assert_eq!(handle.ensure(&burstable).unwrap(), "/kubepods/burstable/podb-1");
    assert_eq!(read(&root, "kubepods/burstable/podb-1/cpu.weight"), "20");
    assert_eq!(read(&root, "kubepods/burstable/podb-1/cpu.max"), "max 100000");

    handle.refresh_qos([&guaranteed, &burstable].into_iter()).unwrap();
    assert_eq!(read(&root, "kubepods/burstable/cpu.weight"), "20");
    assert_eq!(read(&root, "kubepods/besteffort/cpu.weight"), "1");
    assert_eq!(read(&root, "kubepods/besteffort/hugetlb.2MB.max"), (1_u64 << 62).to_string());

    // The kernel is told a value once, and again when someone may have changed it.
    std::fs::write(root.path().join("kubepods/podg-1/cpu.max"), "5000 100000").unwrap();
    handle.ensure(&guaranteed).unwrap();
    assert_eq!(read(&root, "kubepods/podg-1/cpu.max"), "5000 100000");
    handle.set_limits(&guaranteed, Limits::default()).unwrap();
    handle.ensure(&guaranteed).unwrap();
    assert_eq!(read(&root, "kubepods/podg-1/cpu.max"), "100000 100000");

    let known = BTreeSet::from([PodUid::from("g-1")]);
    assert_eq!(handle.orphans(&known).unwrap(), [PodUid::from("b-1")]);
    handle.remove(&PodUid::from("absent")).unwrap();
    handle.remove(&PodUid::from("../not/a/name")).unwrap();
}

#[test]
fn reservations_and_the_names_of_groups() {
    let mut groups = node(Path::new("/nonexistent"), "/a/b", None).groups().clone();
    assert_eq!(NodeCgroups::new(groups.clone()).pods_group_text(), r#"["a" "b" "kubepods"]"#);
    let names = ["kube-reserved-compressible", "system-reserved-compressible", "kube-reserved"];
    groups.enforced = Enforced::parse(&names.map(str::to_owned));
    groups.kube.1 = "/kube".to_owned();
    let groups = NodeCgroups::new(groups);
    let all: Vec<_> =
        groups.reservations().iter().map(|r| (r.whose, r.compressible_only, r.group)).collect();
    assert_eq!(all, [("Kube", false, "/kube"), ("System", true, "/sys"), ("Kube", true, "/kube")]);
}

/// Each minute until both are in force; what is done is not done, or told, again.
#[tokio::test(start_paused = true)]
async fn users_are_told_what_is_enforced() {
    let root = mimic(&[]);
    let groups = node(root.path(), "/", Some(Driver::Cgroupfs));
    let (events, recorder) = crate::events::NodeEvents::for_test();
    let enforcing = worker::enforce(&groups, &events);
    let short = std::time::Duration::from_secs(90);
    assert!(tokio::time::timeout(short, enforcing).await.is_err(), "a group is missing");
    let lines = recorder.node_lines();
    assert_eq!(
        lines[0],
        "Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods"
    );
    let failure = "Warning FailedNodeAllocatableEnforcement: \
                   Failed to enforce System Reserved Cgroup Limits on \"/sys\": cannot write";
    assert!(lines[1].starts_with(failure), "{}", lines[1]);
    assert_eq!(lines.len(), 2);
    let count = recorder.all().iter().map(|event| event.count).collect::<Vec<_>>();
    assert_eq!(count, [1, 2], "tried twice in a minute and a half");

    let root = mimic(&["sys"]);
    let (events, recorder) = crate::events::NodeEvents::for_test();
    worker::enforce(&node(root.path(), "/", Some(Driver::Cgroupfs)), &events).await;
    assert_eq!(
        recorder.node_lines(),
        [
            "Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods",
            "Normal NodeAllocatableEnforced: Updated limits on system reserved cgroup /sys",
        ]
    );

    let root = mimic(&["sys"]);
    std::fs::remove_file(root.path().join("kubepods/memory.max")).unwrap();
    let (events, recorder) = crate::events::NodeEvents::for_test();
    let groups = node(root.path(), "/", Some(Driver::Cgroupfs));
    let enforcing = worker::enforce(&groups, &events);
    assert!(tokio::time::timeout(short, enforcing).await.is_err(), "a limit is refused");
    let failure = "Warning FailedNodeAllocatableEnforcement: \
                   Failed to update Node Allocatable Limits [\"kubepods\"]: cannot write";
    assert!(recorder.node_lines().iter().any(|line| line.starts_with(failure)));
}

#[test]
fn without_groups_of_pods_nothing_is_touched() {
    let cgroups = Arc::new(node(Path::new("/nonexistent"), "/", None));
    let handle = PodContainers::new(cgroups, Rules { pod_groups: false, ..Rules::default() });
    let pod = pod_of("u", &containers(&[BOTH]));
    assert_eq!(handle.ensure(&pod).unwrap(), "");
    handle.remove(pod.uid()).unwrap();
    handle.refresh_qos(std::iter::once(&pod)).unwrap();
    assert!(handle.orphans(&BTreeSet::new()).unwrap().is_empty());
}

#[test]
fn what_a_pod_is_told_when_its_group_cannot_be_made() {
    let root = mimic(&[]);
    let why = |driver, uid: &str| {
        let cgroups = Arc::new(node(root.path(), "/", driver));
        let handle = PodContainers::new(cgroups, Rules::default());
        let error = handle.ensure(&pod_of(uid, &containers(&[BOTH]))).unwrap_err();
        failed_create_message(&error)
    };
    let text = why(None, "u");
    assert!(
        text.starts_with("unable to ensure pod container exists: the runtime has not"),
        "{text}"
    );
    let text = why(Some(Driver::Cgroupfs), "../../etc");
    assert!(text.contains("cannot be part of a control group's name"), "{text}");
}

#[test]
fn under_systemd_nothing_is_done_without_it() {
    let root = mimic(&["kubepods.slice", "kubepods.slice/kubepods-podu_1.slice"]);
    let cgroups = Arc::new(node(root.path(), "/", Some(Driver::Systemd)));
    let handle = PodContainers::new(Arc::clone(&cgroups) as Arc<dyn PodCgroups>, Rules::default());
    let pod = pod_of("u-1", &containers(&[BOTH]));
    assert_eq!(handle.orphans(&BTreeSet::new()).unwrap(), [PodUid::from("u-1")]);
    for result in [
        handle.ensure(&pod).map(drop),
        handle.refresh_qos(std::iter::once(&pod)),
        handle.remove(pod.uid()),
        cgroups.enforce(),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, CgroupError::SystemdUnreachable { .. }), "{error}");
    }
    assert_eq!(read(&root, "kubepods.slice/memory.max"), "max");
}

/// Leaves nothing behind, also when the test fails.
struct Removed<'a>(&'a Tree, &'a CgroupName);
impl Drop for Removed<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove(self.1) {
            eprintln!("{error}");
        }
    }
}

/// The running kernel, below a root of the test's own.
#[test]
fn a_real_node() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED, nothing was tested: needs root");
        return;
    }
    let mount = Path::new("/sys/fs/cgroup");
    let tree = match Hierarchy::detect(mount) {
        Ok(hierarchy) => Tree::new(hierarchy, Driver::Cgroupfs),
        Err(error) => return eprintln!("SKIPPED, nothing was tested: {error}"),
    };
    let root = format!("/klet-test-node-{}", std::process::id());
    let name = CgroupName::parse(&root).unwrap();
    let cgroups = Arc::new(node(mount, &root, Some(Driver::Cgroupfs)));
    let handle = PodContainers::new(Arc::clone(&cgroups) as Arc<dyn PodCgroups>, Rules::default());
    let _removed_at_the_end = Removed(&tree, &name);
    let pods =
        ["{}", REQUEST, BOTH].map(|own| pod_of(&format!("u{}", own.len()), &containers(&[own])));
    for pod in &pods {
        let parent = handle.ensure(pod).unwrap();
        let limits = tree.read(&CgroupName::parse(&parent).unwrap()).unwrap();
        let planned = plan::pod_group(pod.spec(), &Rules::default());
        assert_eq!(limits.memory_bytes, planned.memory_bytes.or(Some(-1)), "{parent}");
        assert_eq!(limits.cpu_quota_us, planned.cpu_quota_us.or(Some(-1)), "{parent}");
    }
    cgroups.enforce().unwrap();
    handle.refresh_qos(pods.iter()).unwrap();
    let of =
        |group: &str| tree.read(&CgroupName::parse(&format!("{root}/{group}")).unwrap()).unwrap();
    let shares = |limits: Limits| limits.cpu_shares.unwrap();
    assert_eq!(of("kubepods").memory_bytes, Some(1 << 29));
    assert!(shares(of("kubepods")) > shares(of("kubepods/burstable")));
    assert_eq!(shares(of("kubepods/besteffort")), 2);
    assert_eq!(handle.orphans(&BTreeSet::new()).unwrap().len(), 3);
    for pod in &pods {
        handle.remove(pod.uid()).unwrap();
    }
    assert!(handle.orphans(&BTreeSet::new()).unwrap().is_empty());
    let [reservation] = cgroups.reservations()[..] else { panic!("one reservation") };
    let missing = cgroups.enforce_reserved(&reservation).unwrap_err();
    assert!(matches!(missing, CgroupError::Write { .. } | CgroupError::Read { .. }), "{missing}");
}
