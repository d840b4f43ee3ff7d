//! What must not be done to volumes, and what must not be left of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet::ports::{CsiNode, Fs, IscsiDisk, RemoteDisk, VolumeHost};
use kubelet_sim::{Life, PodTemplate, Program, SimFs, SimPlugins, SimVolumes};
use mounts::mount::Tmpfs;
use plugin_apis::csi::{
    CapacityRange, NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
};

use crate::{Rogue, STEADY};

impl Rogue {
    fn ports(&self) -> (SimVolumes, SimFs, SimPlugins) {
        let (world, life) = (|| Arc::clone(&self.world), Life::new(1));
        let volumes = SimVolumes::new(world(), life.clone());
        (volumes, SimFs::new(world(), life.clone()), SimPlugins::new(world(), life))
    }

    fn expect_stale(&self, pods: &[(&str, &str)], rule: &str) {
        self.expect_kept();
        let violation = self.world.stale_volume(pods).expect("something stale");
        assert!(violation.text.contains(rule), "{violation:?}, not {rule}");
    }

    fn expect_tidy(&self, pods: &[(&str, &str)]) {
        self.expect_kept();
        let violation = self.world.stale_volume(pods);
        assert!(violation.is_none(), "{violation:?}");
    }
}

/// A pod that runs, and one that has ended.
const RUNS: &[(&str, &str)] = &[("u1", "Running")];
const ENDED: &[(&str, &str)] = &[("u1", "Succeeded")];
/// Nothing is wanted.
const NONE: &[(&str, &str)] = &[];

const NO_SIZE: Tmpfs = Tmpfs { size: None, mode: None };

const HOST_DIR: &str = "/srv/data";
const EMPTY_DIR: &str = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/disk";

/// What a container wrote must be there for the next, in whatever volume.
#[tokio::test(start_paused = true)]
async fn deleting_what_a_container_wrote() {
    for (dir, deletes) in [(EMPTY_DIR, true), (HOST_DIR, true), (EMPTY_DIR, false)] {
        let rogue = Rogue::new();
        let (volumes, files, _) = rogue.ports();
        volumes.make_dir(Path::new(dir), 0o755).await.expect("directory");
        let pod = rogue.publish(&PodTemplate::steady("web"));
        let sandbox = rogue.sandbox("u1", pod.revision).await;
        let exits = Program::Exit { code: 1, after_ms: 10 };
        let id = rogue.start_mounting(&sandbox, "u1", ("app", 0), exits, &[dir]).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        rogue.expect_kept();
        if deletes {
            let written = Path::new(dir).join(format!("by-{}", &id[..8]));
            files.remove_file(&written).expect("it was written");
        }
        rogue.start_mounting(&sandbox, "u1", ("app", 1), exits, &[dir]).await;
        if deletes { rogue.expect_broken("written before") } else { rogue.expect_kept() }
    }
}

#[tokio::test(start_paused = true)]
async fn removing_what_is_the_hosts() {
    let rogue = Rogue::new();
    let (volumes, ..) = rogue.ports();
    volumes.make_dir(Path::new(HOST_DIR), 0o755).await.expect("directory");
    rogue.expect_kept();
    volumes.remove_tree(Path::new(HOST_DIR)).await.expect("it obeys");
    rogue.expect_broken("which is the host's");
}

/// What a container uses is neither unmounted nor removed, nor is what it lies in.
#[tokio::test(start_paused = true)]
async fn undoing_a_volume_that_a_container_uses() {
    for (unmounts, ends, broken) in [
        (true, false, Some("agent unmounts")),
        (false, false, Some("agent removes")),
        (true, true, None),
        (false, true, None),
    ] {
        let rogue = Rogue::new();
        let (volumes, ..) = rogue.ports();
        let dir = Path::new(EMPTY_DIR);
        volumes.make_dir(dir, 0o755).await.expect("directory");
        if unmounts {
            volumes.tmpfs(dir, NO_SIZE).await.expect("mount");
        }
        let pod = rogue.publish(&PodTemplate::steady("web"));
        let sandbox = rogue.sandbox("u1", pod.revision).await;
        let program = if ends { Program::Exit { code: 0, after_ms: 10 } } else { STEADY };
        rogue.start_mounting(&sandbox, "u1", ("app", 0), program, &[EMPTY_DIR]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        rogue.expect_kept();
        match unmounts {
            true => volumes.unmount_all(dir).await.expect("it obeys"),
            false => volumes.remove_tree(dir.parent().expect("one")).await.expect("it obeys"),
        }
        match broken {
            Some(how) => {
                rogue.expect_broken(how);
                rogue.expect_broken("which app uses");
            }
            None => rogue.expect_kept(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leaving_something_of_a_volume() {
    let rogue = Rogue::new();
    let (volumes, ..) = rogue.ports();
    volumes.make_dir(Path::new(EMPTY_DIR), 0o755).await.expect("directory");
    rogue.expect_tidy(RUNS);
    rogue.expect_tidy(ENDED);
    rogue.expect_stale(NONE, "directory of u1 left behind");
    volumes.tmpfs(Path::new(EMPTY_DIR), NO_SIZE).await.expect("mount");
    rogue.expect_tidy(RUNS);
    rogue.expect_stale(ENDED, "disk left mounted");

    let rogue = Rogue::new();
    let (volumes, ..) = rogue.ports();
    let stray = Path::new("/var/lib/kubelet/plugins/stray");
    volumes.make_dir(stray, 0o755).await.expect("directory");
    rogue.expect_tidy(RUNS);
    volumes.tmpfs(stray, NO_SIZE).await.expect("mount");
    rogue.expect_stale(RUNS, "stray left mounted");
}

/// A pod's devices lie elsewhere than its mounts, and are as much its own.
#[tokio::test(start_paused = true)]
async fn leaving_a_device_of_a_pod() {
    let rogue = Rogue::new();
    let (volumes, ..) = rogue.ports();
    let root = Path::new("/var/lib/kubelet/plugins/kubernetes.io~local-volume/volumeDevices");
    let bound = root.join("local-raw/u1");
    volumes.make_dir(Path::new(HOST_DIR), 0o755).await.expect("directory");
    volumes.bind_file(Path::new(HOST_DIR), &bound).await.expect("bind");
    rogue.expect_tidy(RUNS);
    rogue.expect_stale(ENDED, "u1 left mounted");
    rogue.expect_stale(NONE, "u1 left mounted");
    volumes.unmount_all(&bound).await.expect("unmount");
    rogue.expect_stale(RUNS, "local-raw left behind");
}

const TARGET: &str = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/shared/mount";
const STAGING: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/sim.csi/handle/globalmount";

impl Rogue {
    /// Stages the shared volume, and publishes it to a pod.
    async fn publish_shared(&self) {
        let (volumes, files, driver) = self.ports();
        volumes.make_dir(Path::new(STAGING), 0o755).await.expect("directory");
        let dir = Path::new(TARGET).parent().expect("one");
        volumes.make_dir(dir, 0o755).await.expect("directory");
        files.write(&dir.join("vol_data.json"), b"{}").expect("note");
        let request = NodeStageVolumeRequest {
            volume_id: "shared".into(),
            staging_target_path: STAGING.into(),
            ..Default::default()
        };
        driver.stage(request).await.expect("stage");
        let request = NodePublishVolumeRequest {
            volume_id: "shared".into(),
            staging_target_path: STAGING.into(),
            target_path: TARGET.into(),
            ..Default::default()
        };
        driver.publish(request).await.expect("publish");
    }
}

#[tokio::test(start_paused = true)]
async fn leaving_a_volume_staged() {
    let rogue = Rogue::new();
    let (volumes, _, driver) = rogue.ports();
    rogue.publish_shared().await;
    rogue.expect_tidy(RUNS);
    driver.unpublish("shared", TARGET).await.expect("unpublish");
    rogue.expect_stale(RUNS, "globalmount left mounted");
    driver.unstage("shared", STAGING).await.expect("unstage");
    rogue.expect_stale(RUNS, "sim.csi/handle left behind");
    volumes.remove_tree(Path::new(STAGING).parent().expect("one")).await.expect("remove");
    rogue.expect_tidy(RUNS);
    let device = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/block";
    volumes.make_dir(Path::new(device), 0o755).await.expect("directory");
    rogue.expect_stale(RUNS, "publish/block left behind");
}

#[tokio::test(start_paused = true)]
async fn leaving_a_volume_small() {
    let rogue = Rogue::new();
    let (.., driver) = rogue.ports();
    rogue.publish_shared().await;
    let expand = |bytes| NodeExpandVolumeRequest {
        volume_id: "shared".into(),
        volume_path: TARGET.into(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, ..Default::default() }),
        ..Default::default()
    };
    rogue.world.want_bytes(2);
    rogue.expect_stale(RUNS, "shared has not grown to 2");
    driver.expand(expand(1)).await.expect("expand");
    rogue.expect_stale(RUNS, "shared has not grown to 2");
    driver.expand(expand(2)).await.expect("expand");
    rogue.expect_tidy(RUNS);
}

const GLOBAL: &str = "/var/lib/kubelet/plugins/kubernetes.io/iscsi/iface-default/some-disk";
const BOUND: &str = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~iscsi/disk";

fn disk(lun: u32) -> RemoteDisk {
    let portals = ["10.0.0.1".to_owned()];
    RemoteDisk::Iscsi(IscsiDisk::new("disk", portals, ("iqn.2003-01.sim:x", lun), None, None))
}

impl Rogue {
    /// Attaches a disk and mounts it for the node.
    async fn mount_disk(&self, lun: u32) -> PathBuf {
        let (volumes, ..) = self.ports();
        let device = volumes.attach(&disk(lun)).await.expect("attach");
        volumes.mount_disk(Path::new(GLOBAL), &device, "ext4", &[]).await.expect("mount");
        device
    }
}

#[tokio::test(start_paused = true)]
async fn leaving_a_disk() {
    let rogue = Rogue::new();
    let (volumes, ..) = rogue.ports();
    let (global, bound) = (Path::new(GLOBAL), Path::new(BOUND));
    rogue.mount_disk(0).await;
    rogue.expect_stale(RUNS, "some-disk left mounted");
    volumes.make_dir(bound, 0o755).await.expect("directory");
    volumes.bind(global, bound, false).await.expect("bind");
    rogue.expect_tidy(RUNS);
    for point in [bound, global] {
        volumes.unmount_all(point).await.expect("unmount");
    }
    rogue.expect_stale(RUNS, "left attached");
    volumes.detach(&disk(0), true).await.expect("detach");
    rogue.expect_stale(RUNS, "some-disk left behind");
    volumes.remove_empty_dir(global).await.expect("remove");
    rogue.expect_stale(RUNS, "iface-default left behind");
    volumes.remove_empty_dir(global.parent().expect("one")).await.expect("remove");
    rogue.expect_tidy(RUNS);
}

/// Neither a disk that is mounted nor its session is let go.
#[tokio::test(start_paused = true)]
async fn letting_go_of_a_disk_in_use() {
    for (lun, last, mounted, broken) in [
        (0, false, true, true),
        (0, false, false, false),
        (1, true, true, true),
        (1, false, true, false),
    ] {
        let rogue = Rogue::new();
        let (volumes, ..) = rogue.ports();
        rogue.mount_disk(0).await;
        volumes.attach(&disk(1)).await.expect("attach");
        if !mounted {
            volumes.unmount_all(Path::new(GLOBAL)).await.expect("unmount");
        }
        rogue.expect_kept();
        volumes.detach(&disk(lun), last).await.expect("it obeys");
        if broken { rogue.expect_broken("agent lets go of") } else { rogue.expect_kept() }
    }
}

#[tokio::test(start_paused = true)]
async fn unmounting_what_somebody_else_mounted() {
    let rogue = Rogue::new();
    let (volumes, ..) = rogue.ports();
    volumes.make_dir(Path::new(EMPTY_DIR), 0o755).await.expect("directory");
    let point = rogue.world.mount_foreign(Path::new(EMPTY_DIR));
    rogue.expect_tidy(RUNS);
    volumes.unmount_all(&point).await.expect("it obeys");
    rogue.expect_broken("which is not its own");
}

#[tokio::test(start_paused = true)]
async fn deleting_what_somebody_else_mounted() {
    let rogue = Rogue::new();
    let (volumes, files, _) = rogue.ports();
    volumes.make_dir(Path::new(EMPTY_DIR), 0o755).await.expect("directory");
    let point = rogue.world.mount_foreign(Path::new(EMPTY_DIR));
    rogue.expect_tidy(RUNS);
    files.remove_file(&point.join("precious")).expect("it is there");
    rogue.expect_stale(RUNS, "precious was deleted");
}
