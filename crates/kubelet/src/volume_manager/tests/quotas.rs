//! Volumes that their file system counts, with a kernel that is made up.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use kubelet_model::DesiredPod;
use mounts::Usage;
use quota::{Kernel, Project, ProjectFiles, ProjectId, Quotas, Support, Used};
use rustix::io::Errno;

use super::super::desired::Quota;
use super::super::inventory::VolumeFacts;
use super::super::{VolumeState, Volumes};
use super::bed::Bed;
use super::{name, pod, until, volumes_of};
use crate::ports::RealVolumeHost;
use crate::volume_manager::desired::Wanted;

/// Projects of directories by path; every project holds the same.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lacks: bool,
    refuses: bool,
    projects: BTreeMap<PathBuf, Project>,
}

const COUNTED: Usage = Usage { bytes: 123_456, inodes: 78 };

fn path_of(dir: BorrowedFd<'_>) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).unwrap()
}

impl Kernel for Fake {
    fn support(&self, _: BorrowedFd<'_>) -> Result<Support, Errno> {
        Ok(match self.0.lock().unwrap().lacks {
            true => Support::Not("no".to_owned()),
            false => Support::Counts { limit_max: 1 << 40 },
        })
    }
    fn project(&self, dir: BorrowedFd<'_>) -> Result<Project, Errno> {
        Ok(self.0.lock().unwrap().projects.get(&path_of(dir)).copied().unwrap_or_default())
    }
    fn set_project(&self, dir: BorrowedFd<'_>, id: ProjectId) -> Result<(), Errno> {
        let mut state = self.0.lock().unwrap();
        if state.refuses {
            return Err(Errno::PERM);
        }
        state.projects.insert(path_of(dir), Project { id: id.number(), inherited: true });
        Ok(())
    }
    fn used(&self, _: BorrowedFd<'_>, id: ProjectId) -> Result<Used, Errno> {
        let state = self.0.lock().unwrap();
        let known = state.projects.values().any(|project| project.id == id.number());
        let counted = Used { bytes: COUNTED.bytes, inodes: COUNTED.inodes };
        Ok(if known { counted } else { Used::default() })
    }
    fn set_limit(&self, _: BorrowedFd<'_>, _: ProjectId, _: u64) -> Result<(), Errno> {
        Ok(())
    }
}

struct Bench {
    bed: Bed,
    kernel: Fake,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self { bed: Bed::new(), kernel: Fake::default() };
        bench.restart();
        bench
    }

    /// An agent that knows nothing of what was before.
    fn restart(&mut self) {
        let at = |name: &str| self.bed.root().join(name);
        let files = ProjectFiles::new(at("projects"), at("projid"));
        let quotas = Quotas::new(Box::new(self.kernel.clone()), files);
        self.bed.ports.volumes = Arc::new(RealVolumeHost::default().with_quotas(quotas));
    }

    fn volumes(&self, pod: &DesiredPod) -> Volumes {
        self.bed.life(&[pod])
    }

    fn projects(&self) -> String {
        fs::read_to_string(self.bed.root().join("projects")).unwrap_or_default()
    }

    fn dir(&self) -> PathBuf {
        self.bed.root().join("pods/u1/volumes/kubernetes.io~empty-dir/v")
    }
}

const OWN_USERS: &str = r#","hostUsers":false"#;

fn with_volume(spec: &str) -> DesiredPod {
    pod("", spec, r#"{"name":"v","emptyDir":{"sizeLimit":"1Mi"}}"#)
}

/// Makes the volume and tells what it holds.
async fn made(volumes: &Volumes, pod: &DesiredPod) -> Usage {
    volumes.want(pod);
    until(volumes, pod.uid(), |state| matches!(state, VolumeState::Ready(_))).await;
    let all: Vec<VolumeFacts> = volumes.inventory();
    volumes.measure(&all[0]).await.expect("measured").expect("known").used
}

#[test]
fn only_disks_of_pods_with_own_users_are_counted() {
    let limits = r#","resources":{"limits":{"ephemeral-storage":"1Gi"}}"#;
    for (container, spec, source, expected) in [
        ("", "", "", None),
        (limits, "", r#""sizeLimit":"1Mi""#, None),
        ("", r#","hostUsers":true"#, "", None),
        ("", OWN_USERS, "", Some(false)),
        ("", OWN_USERS, r#""sizeLimit":"0""#, Some(false)),
        ("", OWN_USERS, r#""sizeLimit":"1Mi""#, Some(true)),
        (limits, OWN_USERS, "", Some(true)),
        ("", OWN_USERS, r#""medium":"Memory","sizeLimit":"1Mi""#, None),
    ] {
        let volume = format!(r#"{{"name":"v","emptyDir":{{{source}}}}}"#);
        let wanted = volumes_of(&pod(container, spec, &volume)).expect("a volume").volumes;
        let Wanted::EmptyDir { quota, .. } = &wanted[&name("v")] else { panic!("{wanted:?}") };
        let expected = expected.map(|limited| Quota { limited });
        assert_eq!(*quota, expected, "{container} {spec} {source}");
    }
}

#[tokio::test]
async fn a_counted_volume_is_measured_by_its_file_system_until_it_goes() {
    let mut bench = Bench::new();
    let pod = with_volume(OWN_USERS);
    let volumes = bench.volumes(&pod);
    assert_eq!(made(&volumes, &pod).await, COUNTED);
    let line = format!("1048577:{}\n", bench.dir().display());
    assert_eq!(bench.projects(), line);

    fs::write(bench.dir().join("file"), "by a container").expect("written");
    bench.restart();
    let volumes = bench.volumes(&pod);
    assert_eq!(made(&volumes, &pod).await, COUNTED, "the next agent goes on");
    assert_eq!(bench.projects(), line);

    volumes.release(pod.uid());
    until(&volumes, pod.uid(), |state| *state == VolumeState::Gone).await;
    assert!(!bench.dir().exists());
    assert_eq!(bench.projects(), "");
}

#[tokio::test]
async fn what_is_not_counted_is_measured_by_a_walk() {
    for (spec, lacks, refuses) in
        [("", false, false), (OWN_USERS, true, false), (OWN_USERS, false, true)]
    {
        let bench = Bench::new();
        {
            let mut state = bench.kernel.0.lock().unwrap();
            (state.lacks, state.refuses) = (lacks, refuses);
        }
        let pod = with_volume(spec);
        let volumes = bench.volumes(&pod);
        let used = made(&volumes, &pod).await;
        assert_eq!(used.inodes, 1, "{spec} {lacks} {refuses}");
        assert_eq!(bench.projects(), "");
        volumes.release(pod.uid());
        until(&volumes, pod.uid(), |state| *state == VolumeState::Gone).await;
    }
}

#[tokio::test]
async fn a_volume_that_left_its_project_is_measured_by_a_walk() {
    let bench = Bench::new();
    let pod = with_volume(OWN_USERS);
    let volumes = bench.volumes(&pod);
    assert_eq!(made(&volumes, &pod).await, COUNTED);
    bench.kernel.0.lock().unwrap().projects.clear();
    for _ in 0..2 {
        let all = volumes.inventory();
        let used = volumes.measure(&all[0]).await.expect("measured").expect("known").used;
        assert_eq!(used.inodes, 1);
    }
}

#[tokio::test]
async fn what_another_agent_had_counted_is_given_back() {
    let bench = Bench::new();
    let pod = with_volume("");
    let volumes = bench.volumes(&pod);
    made(&volumes, &pod).await;
    let line = format!("1048577:{}\n", bench.dir().display());
    fs::write(bench.bed.root().join("projects"), format!("5:/srv\n{line}")).expect("written");
    volumes.release(pod.uid());
    until(&volumes, pod.uid(), |state| *state == VolumeState::Gone).await;
    assert_eq!(bench.projects(), "5:/srv\n");
}
