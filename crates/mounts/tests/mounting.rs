//! File systems, binds and unmounts on the running kernel. Needs root.

mod support;

use std::fs;
use std::num::NonZeroU64;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use mounts::mount::{Device, HugePages, Tmpfs, can_refuse_swap, device, hugetlbfs, tmpfs};
use mounts::table::{Mount, below, is_mount_point, read};
use mounts::{
    Bind, MountsError, Place, Unmounted, bind, make_dir, make_shared, space, unmount, usage,
};
use support::{World, mode};

fn mount_at(path: &Path) -> Option<Mount> {
    read().unwrap().into_iter().rev().find(|mount| mount.point == path)
}

#[test]
fn memory_has_its_size_and_mode_and_goes_again() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("memory");
    let size = NonZeroU64::new(1 << 20);
    let noswap = tmpfs(&dir, Tmpfs { size, mode: Some(0o750) }).unwrap();
    assert_eq!(mode(&dir), 0o750);
    assert_eq!(space(&dir).unwrap().capacity, 1 << 20);
    let mount = mount_at(&dir).unwrap();
    assert_eq!((mount.fs_type.as_str(), mount.source.to_str()), ("tmpfs", Some("tmpfs")));
    assert_eq!(mount.super_options.contains("noswap"), noswap);
    assert_eq!(can_refuse_swap().unwrap(), noswap);
    assert!(is_mount_point(&dir).unwrap());
    assert_eq!(below(world.path()).unwrap(), std::slice::from_ref(&dir));
    assert_eq!(unmount(&dir).unwrap(), Unmounted::Done);
    assert_eq!(unmount(&dir).unwrap(), Unmounted::WasNot);
    assert_eq!(unmount(&world.at("absent/path")).unwrap(), Unmounted::WasNot);
    assert!(!is_mount_point(&dir).unwrap());
}

#[test]
fn making_a_directory_leaves_alone_what_is_mounted_there() {
    let Some(world) = World::new() else { return };
    let (users, dir) = (world.dir("users"), world.dir("volume"));
    fs::set_permissions(&users, fs::Permissions::from_mode(0o1777)).unwrap();
    make_dir(&dir, 0o700).unwrap();
    bind(&Place::follow(&users).unwrap(), &dir, Bind::default()).unwrap();
    make_dir(&dir, 0o750).unwrap();
    assert_eq!(mode(&users), 0o1777);
    assert_eq!(unmount(&dir).unwrap(), Unmounted::Done);
    assert_eq!(mode(&dir), 0o700);
}

#[test]
fn a_mount_in_use_is_told_apart() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("memory");
    tmpfs(&dir, Tmpfs::default()).unwrap();
    let open = fs::File::create(dir.join("open")).unwrap();
    assert_eq!(unmount(&dir).unwrap_err(), MountsError::Busy { path: dir.clone() });
    drop(open);
    assert_eq!(unmount(&dir).unwrap(), Unmounted::Done);
}

#[test]
fn links_are_neither_mounted_upon_nor_unmounted_through() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("memory");
    tmpfs(&dir, Tmpfs::default()).unwrap();
    let link = world.at("link");
    symlink(&dir, &link).unwrap();
    assert!(!is_mount_point(&link).unwrap());
    assert_eq!(unmount(&link).unwrap(), Unmounted::WasNot);
    tmpfs(&link, Tmpfs::default()).unwrap_err();
    let source = Place::follow(&dir).unwrap();
    bind(&source, &link, Bind::default()).unwrap_err();
    assert_eq!(below(world.path()).unwrap(), [dir]);
}

#[test]
fn what_the_kernel_says_of_an_option_is_told() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("disk");
    let options = ["nonsense=1".to_owned()];
    let how =
        Device { source: Path::new("none"), fs_type: "tmpfs", options: &options, read_only: false };
    let text = device(&dir, &how).unwrap_err().to_string();
    assert!(text.starts_with(&format!("cannot mount tmpfs on {}", dir.display())), "{text}");
    assert!(text.contains("nonsense") && text.contains("check the mount options"), "{text}");
    let how = Device { fs_type: "no-such-fs", options: &[], ..how };
    let text = device(&dir, &how).unwrap_err().to_string();
    assert!(text.contains("load the kernel module"), "{text}");
    assert_eq!(below(world.path()).unwrap(), [] as [PathBuf; 0]);
}

#[test]
fn huge_pages_have_their_page_size() {
    let Some(world) = World::new() else { return };
    if !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists() {
        eprintln!("SKIPPED, nothing was tested: no huge pages of 2 MiB");
        return;
    }
    let dir = world.dir("huge");
    let page_size = NonZeroU64::new(2 << 20).unwrap();
    hugetlbfs(&dir, HugePages { page_size, size: NonZeroU64::new(4 << 20) }).unwrap();
    let mount = mount_at(&dir).unwrap();
    assert_eq!((mount.fs_type.as_str(), mount.source.to_str()), ("hugetlbfs", Some("nodev")));
    assert!(mount.options.contains("nodev"), "{mount:?}");
    assert!(mount.super_options.contains("pagesize=2M"), "{mount:?}");
    assert_eq!(unmount(&dir).unwrap(), Unmounted::Done);
}

/// A loop device, let go when dropped.
struct Loop(String);

impl Loop {
    fn new(image: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        (made.status.success() && !name.is_empty()).then_some(Self(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_device_is_mounted_with_its_options() {
    let Some(world) = World::new() else { return };
    let image = world.file("image", "");
    fs::File::options().write(true).open(&image).unwrap().set_len(8 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status();
    let disk = made.is_ok_and(|status| status.success()).then(|| Loop::new(&image)).flatten();
    let Some(disk) = disk else {
        eprintln!("SKIPPED, nothing was tested: no loop device or no mkfs.ext4");
        return;
    };
    let dir = world.dir("disk");
    let options = ["noexec", "errors=continue"].map(str::to_owned);
    let how =
        Device { source: Path::new(&disk.0), fs_type: "ext4", options: &options, read_only: false };
    device(&dir, &how).unwrap();
    fs::write(dir.join("file"), "kept").unwrap();
    let mount = mount_at(&dir).unwrap();
    assert!(mount.options.contains("noexec"), "{mount:?}");
    assert_eq!(mount.source.to_str(), Some(disk.0.as_str()));
    unmount(&dir).unwrap();
    device(&dir, &Device { read_only: true, ..how }).unwrap();
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "kept");
    fs::write(dir.join("file"), "changed").unwrap_err();
    unmount(&dir).unwrap();
}

#[test]
fn a_bind_shows_the_source_and_may_be_read_only() {
    let Some(world) = World::new() else { return };
    let (source, target) = (world.dir("source"), world.dir("target"));
    tmpfs(&world.dir("source/inner"), Tmpfs::default()).unwrap();
    world.file("source/inner/file", "inner");
    let place = Place::follow(&source).unwrap();
    bind(&place, &target, Bind::default()).unwrap();
    assert!(!target.join("inner/file").exists(), "mounts below stay away");
    fs::write(target.join("new"), "").unwrap();
    unmount(&target).unwrap();
    bind(&place, &target, Bind { recursive: true, read_only: true }).unwrap();
    assert_eq!(fs::read_to_string(target.join("inner/file")).unwrap(), "inner");
    fs::write(target.join("new"), "x").unwrap_err();
    fs::write(source.join("new"), "x").expect("the source stays writable");
}

#[test]
fn a_read_only_bind_keeps_other_restrictions() {
    let Some(world) = World::new() else { return };
    let (source, target) = (world.dir("source"), world.dir("target"));
    let options = ["nosuid", "nodev", "noexec"].map(str::to_owned);
    let how =
        Device { source: Path::new("x"), fs_type: "tmpfs", options: &options, read_only: false };
    device(&source, &how).unwrap();
    let bound = Bind { recursive: false, read_only: true };
    bind(&Place::follow(&source).unwrap(), &target, bound).unwrap();
    let mount = mount_at(&target).unwrap();
    for option in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(mount.options.split(',').any(|have| have == option), "{option}: {mount:?}");
    }
}

#[test]
fn files_bind_to_files_only() {
    let Some(world) = World::new() else { return };
    let (file, target, dir) = (world.file("a", "a"), world.file("b", ""), world.dir("d"));
    let place = Place::follow(&file).unwrap();
    bind(&place, &target, Bind::default()).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "a");
    let error = bind(&place, &dir, Bind::default()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot bind to {}", dir.display())), "{error}");
}

#[test]
fn the_root_directory_becomes_shared_once() {
    let Some(world) = World::new() else { return };
    let outer = world.dir("outer");
    tmpfs(&outer, Tmpfs::default()).unwrap();
    rustix::mount::mount_change(&outer, rustix::mount::MountPropagationFlags::PRIVATE).unwrap();
    let root = world.dir("outer/root");
    let inner = world.dir("outer/root/inner");
    tmpfs(&inner, Tmpfs::default()).unwrap();
    rustix::mount::mount_change(&inner, rustix::mount::MountPropagationFlags::PRIVATE).unwrap();
    assert!(make_shared(&root).unwrap());
    assert!(mount_at(&root).unwrap().shared.is_some());
    assert!(mount_at(&inner).unwrap().shared.is_some(), "mounts below came along");
    assert!(!make_shared(&root).unwrap());
}

#[test]
fn usage_stays_in_its_mount() {
    let Some(world) = World::new() else { return };
    world.file("volume/file", "x");
    let volume = world.at("volume");
    let before = usage(&world.dir("volume")).unwrap();
    let inner = world.dir("volume/inner");
    let empty = usage(&inner).unwrap();
    tmpfs(&inner, Tmpfs::default()).unwrap();
    fs::write(inner.join("big"), vec![1; 1 << 20]).unwrap();
    let bound = world.dir("volume/bound");
    let other = world.dir("other");
    fs::write(other.join("big"), vec![1; 1 << 20]).unwrap();
    bind(&Place::follow(&other).unwrap(), &bound, Bind::default()).unwrap();
    let after = usage(&volume).unwrap();
    assert_eq!(after, before, "neither mount counts, not even of the same device");
    unmount(&inner).unwrap();
    unmount(&bound).unwrap();
    let after = usage(&volume).unwrap();
    assert_eq!(after.inodes, before.inodes + 2 * empty.inodes);
}
