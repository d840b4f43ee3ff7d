//! Sub paths on the running kernel. Needs root.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use mounts::mount::{Tmpfs, tmpfs};
use mounts::sub_path::{SubPath, bind, clean};
use mounts::table::{below, is_mount_point};
use mounts::{MountsError, unmount};
use support::{World, mode};

struct Pod {
    world: World,
    volume: PathBuf,
    root: PathBuf,
}

impl Pod {
    fn new() -> Option<Self> {
        let world = World::new()?;
        let volume = world.dir("volume");
        let root = world.at("pod/volume-subpaths");
        Some(Self { world, volume, root })
    }

    fn bind(&self, path: &str, index: &str) -> Result<PathBuf, MountsError> {
        bind(&SubPath {
            volume: &self.volume,
            path: Path::new(path),
            root: &self.root,
            target: ["vol", "web", index],
        })
    }

    fn nothing_is_left(&self) {
        assert!(!self.root.exists());
        assert_eq!(below(self.world.path()).unwrap(), [] as [PathBuf; 0]);
    }
}

#[test]
fn directories_and_files_are_bound_and_cleaned() {
    let Some(pod) = Pod::new() else { return };
    pod.world.file("volume/a/b/file", "content");
    let dir = pod.bind("a/b", "0").unwrap();
    let file = pod.bind("./a//b/file", "1").unwrap();
    assert_eq!(dir, pod.root.join("vol/web/0"));
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "content");
    assert_eq!(fs::read_to_string(&file).unwrap(), "content");
    let inner = pod.world.dir("volume/a/b/inner");
    tmpfs(&inner, Tmpfs::default()).unwrap();
    fs::write(inner.join("kept"), "").unwrap();
    clean(&pod.root, "vol").unwrap();
    assert!(!pod.root.exists());
    assert!(inner.join("kept").exists() && pod.world.at("volume/a/b/file").exists());
    clean(&pod.root, "vol").expect("absent is fine");
}

#[test]
fn targets_have_upstreams_modes() {
    let Some(pod) = Pod::new() else { return };
    pod.world.file("volume/file", "");
    let (dir, file) = (pod.bind("", "0").unwrap(), pod.bind("file", "1").unwrap());
    unmount(&dir).unwrap();
    unmount(&file).unwrap();
    assert_eq!((mode(&dir), mode(&file)), (0o750, 0o640));
    assert_eq!(mode(&pod.root.join("vol/web")), 0o750);
    clean(&pod.root, "vol").unwrap();
    pod.nothing_is_left();
}

#[test]
fn missing_directories_get_the_mode_of_the_volume() {
    let Some(pod) = Pod::new() else { return };
    fs::set_permissions(&pod.volume, fs::Permissions::from_mode(0o2777)).unwrap();
    pod.world.dir("volume/real");
    symlink("real", pod.volume.join("link")).unwrap();
    pod.bind("link/new/er", "0").unwrap();
    for path in ["volume/real/new", "volume/real/new/er"] {
        assert_eq!(mode(&pod.world.at(path)), 0o2777, "{path}");
    }
    assert_ne!(mode(&pod.world.at("volume/real")), 0o2777);
}

#[test]
fn links_that_stay_inside_are_followed() {
    let Some(pod) = Pod::new() else { return };
    pod.world.file("volume/a/file", "here");
    pod.world.dir("volume/b/c");
    symlink("../../a", pod.volume.join("b/c/up")).unwrap();
    symlink("b/c/up/file", pod.volume.join("file")).unwrap();
    assert_eq!(fs::read_to_string(pod.bind("b/c/up/file", "0").unwrap()).unwrap(), "here");
    assert_eq!(fs::read_to_string(pod.bind("file", "1").unwrap()).unwrap(), "here");
}

#[test]
fn the_volume_itself_may_be_a_link() {
    let Some(mut pod) = Pod::new() else { return };
    pod.world.file("volume/file", "here");
    symlink("volume", pod.world.at("alias")).unwrap();
    pod.volume = pod.world.at("alias");
    assert_eq!(fs::read_to_string(pod.bind("file", "0").unwrap()).unwrap(), "here");
}

#[test]
fn what_leads_out_is_refused_and_leaves_nothing() {
    let Some(pod) = Pod::new() else { return };
    let canary = pod.world.canary();
    symlink(&canary.root, pod.volume.join("absolute")).unwrap();
    symlink("../canary", pod.volume.join("relative")).unwrap();
    symlink(canary.root.join("new"), pod.volume.join("dangling")).unwrap();
    symlink("inside-but-absent", pod.volume.join("nowhere")).unwrap();
    symlink("loop", pod.volume.join("loop")).unwrap();
    for path in ["absolute", "relative", "absolute/deep", "relative/new/dir", "dangling", ".."] {
        let error = pod.bind(path, "0").unwrap_err();
        assert!(matches!(error, MountsError::LeavesVolume { .. }), "{path}: {error}");
    }
    for path in ["nowhere", "loop", "nowhere/a", "/etc", "a\0b"] {
        pod.bind(path, "0").unwrap_err();
    }
    pod.nothing_is_left();
    assert!(!pod.volume.join("inside-but-absent").exists());
    canary.assert_untouched();
}

#[test]
fn targets_are_plain_names() {
    let Some(pod) = Pod::new() else { return };
    for name in ["", ".", "..", "a/b"] {
        let sub_path = SubPath {
            volume: &pod.volume,
            path: Path::new(""),
            root: &pod.root,
            target: ["vol", name, "0"],
        };
        assert!(matches!(bind(&sub_path), Err(MountsError::BadPath { .. })), "{name:?}");
        assert!(matches!(clean(&pod.root, name), Err(MountsError::BadPath { .. })), "{name:?}");
    }
    pod.nothing_is_left();
}

#[test]
fn the_same_is_bound_once_and_another_replaces_it() {
    let Some(pod) = Pod::new() else { return };
    pod.world.file("volume/a/name", "a");
    pod.world.file("volume/b", "b");
    let mounts = || below(pod.world.path()).unwrap().len();
    let target = pod.bind("a", "0").unwrap();
    assert_eq!((pod.bind("a", "0").unwrap(), mounts()), (target.clone(), 1));
    pod.bind("b", "0").unwrap();
    assert_eq!((fs::read_to_string(&target).unwrap().as_str(), mounts()), ("b", 1));
    pod.bind("a", "0").unwrap();
    assert_eq!(fs::read_to_string(target.join("name")).unwrap(), "a");
    assert_eq!(mounts(), 1);
}

#[test]
fn clean_up_leaves_other_volumes_and_content_it_did_not_make() {
    let Some(pod) = Pod::new() else { return };
    pod.world.file("volume/file", "");
    let target = pod.bind("", "0").unwrap();
    pod.world.file("pod/volume-subpaths/other/web/0/precious", "kept");
    clean(&pod.root, "vol").unwrap();
    assert!(!target.exists() && !is_mount_point(&target).unwrap());
    let error = clean(&pod.root, "other").unwrap_err().to_string();
    assert!(error.contains("cannot remove") && error.contains("move away"), "{error}");
    assert!(pod.root.join("other/web/0/precious").exists());
}

#[test]
fn pipes_do_not_block() {
    let Some(pod) = Pod::new() else { return };
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, pod.volume.join("pipe"), mode).unwrap();
    let target = pod.bind("pipe", "0").unwrap();
    use std::os::unix::fs::FileTypeExt;
    assert!(target.metadata().unwrap().file_type().is_fifo());
}
