//! Removing trees and giving them to a group, on the running kernel. Needs root.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use mounts::mount::{Tmpfs, tmpfs};
use mounts::ownership::{ChangePolicy, FsGroup, Owned, own};
use mounts::{Bind, MountsError, Place, bind, remove_tree, unmount};
use support::{World, facts, gid, mode};

const GROUP: FsGroup = FsGroup { gid: 4321, read_only: false };

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn own_all(dir: &Path, group: FsGroup) -> Owned {
    own(dir, group, ChangePolicy::Always, &mut |_| {}).unwrap()
}

#[test]
fn trees_files_and_links_are_removed_and_absence_is_fine() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    world.file("tree/a/b/c", "");
    symlink(&canary.root, world.at("tree/a/link")).unwrap();
    symlink(&canary.root, world.at("link")).unwrap();
    let file = world.file("file", "");
    for path in ["tree", "link", "file", "absent", "absent/below"] {
        remove_tree(&world.at(path)).unwrap();
        assert!(world.at(path).symlink_metadata().is_err(), "{path}");
    }
    assert!(!file.exists());
    canary.assert_untouched();
}

#[test]
fn a_directory_of_many_names_is_removed() {
    let Some(world) = World::new() else { return };
    for number in 0..2_000 {
        world.file(&format!("tree/{number}"), "");
    }
    remove_tree(&world.at("tree")).unwrap();
    assert!(!world.at("tree").exists());
}

#[test]
fn names_that_the_removal_wants_are_no_obstacle() {
    let Some(world) = World::new() else { return };
    let deep: String = (0..80).map(|_| "d/").collect();
    world.dir(&format!("tree/{deep}"));
    world.file("tree/.removing-0", "taken");
    world.file("tree/.removing-1/taken", "too");
    remove_tree(&world.at("tree")).unwrap();
    assert!(!world.at("tree").exists());
}

#[test]
fn a_mount_stops_a_removal_before_it_begins() {
    let Some(world) = World::new() else { return };
    world.file("tree/a/file", "");
    let inner = world.dir("tree/b/inner");
    tmpfs(&inner, Tmpfs::default()).unwrap();
    fs::write(inner.join("file"), "").unwrap();
    let before = facts(&world.at("tree"));
    for path in ["tree", "tree/b", "tree/b/inner"] {
        let error = remove_tree(&world.at(path)).unwrap_err();
        assert_eq!(error, MountsError::MountInside { path: inner.clone() });
    }
    assert_eq!(facts(&world.at("tree")), before);
    unmount(&inner).unwrap();
    remove_tree(&world.at("tree")).unwrap();
}

#[test]
fn a_mount_stops_the_removal_of_large_and_of_deep_trees_before_it_begins() {
    let Some(world) = World::new() else { return };
    let deep: String = (0..60).map(|_| "d/").collect();
    for number in 0..600 {
        world.file(&format!("wide/{number}/file"), "");
    }
    world.file("deep/file", "");
    for (tree, inner) in [("wide", "wide/9/inner"), ("deep", &format!("deep/{deep}inner"))] {
        let inner = world.dir(inner);
        tmpfs(&inner, Tmpfs::default()).unwrap();
        let before = facts(&world.at(tree));
        let error = remove_tree(&world.at(tree)).unwrap_err();
        assert_eq!(error, MountsError::MountInside { path: inner.clone() });
        assert_eq!(facts(&world.at(tree)), before);
        unmount(&inner).unwrap();
        remove_tree(&world.at(tree)).unwrap();
        assert!(!world.at(tree).exists());
    }
}

#[test]
fn binds_of_the_same_device_and_of_files_are_mounts_too() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let dir = world.dir("tree/dir");
    let file = world.file("tree/file", "");
    bind(&Place::follow(&canary.root).unwrap(), &dir, Bind::default()).unwrap();
    remove_tree(&world.at("tree")).unwrap_err();
    unmount(&dir).unwrap();
    bind(&Place::follow(&canary.root.join("file")).unwrap(), &file, Bind::default()).unwrap();
    for path in ["tree", "tree/file"] {
        let error = remove_tree(&world.at(path)).unwrap_err();
        assert_eq!(error, MountsError::MountInside { path: file.clone() }, "{path}");
    }
    canary.assert_untouched();
}

#[test]
fn a_group_gets_files_directories_and_links_and_nobody_else_loses() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let dir = world.dir("volume");
    let (file, script) = (world.file("volume/sub/file", ""), world.file("volume/script", ""));
    chmod(&file, 0o604);
    chmod(&script, 0o4711);
    chmod(&world.at("volume/sub"), 0o701);
    chown(&file, Some(77), Some(88)).unwrap();
    symlink(canary.root.join("file"), world.at("volume/link")).unwrap();
    let mut heard = Vec::new();
    let owned = own(&dir, GROUP, ChangePolicy::Always, &mut |count| heard.push(count)).unwrap();
    assert_eq!(owned, Owned { processed: 5, ..Owned::default() });
    assert_eq!(heard, [1, 2, 3, 4, 5]);
    for (path, wanted) in [("", 0o2775), ("sub", 0o2771), ("sub/file", 0o664), ("script", 0o4771)] {
        let path = dir.join(path);
        assert_eq!((gid(&path), mode(&path)), (4321, wanted), "{}", path.display());
    }
    assert_eq!(gid(&dir.join("link")), 4321);
    assert_eq!(file.metadata().unwrap().uid(), 77);
    canary.assert_untouched();
}

#[test]
fn a_group_that_only_reads_gets_no_more() {
    let Some(world) = World::new() else { return };
    let file = world.file("volume/file", "");
    chmod(&file, 0o600);
    chmod(&world.at("volume"), 0o700);
    own_all(&world.at("volume"), FsGroup { read_only: true, ..GROUP });
    assert_eq!((mode(&file), mode(&world.at("volume"))), (0o640, 0o2750));
}

#[test]
fn a_root_that_matches_vouches_for_the_rest() {
    let Some(world) = World::new() else { return };
    let (dir, file) = (world.dir("volume"), world.file("volume/file", ""));
    let careful = |read_only| {
        let group = FsGroup { read_only, ..GROUP };
        own(&dir, group, ChangePolicy::OnRootMismatch, &mut |_| {}).unwrap().skipped
    };
    assert!(!careful(false));
    assert_eq!(gid(&file), 4321);
    chown(&file, None, Some(1)).unwrap();
    assert!(careful(false) && careful(true));
    assert_eq!(gid(&file), 1);
    for (mode, group) in [(0o2750, 4321), (0o770, 4321), (0o2770, 1)] {
        chown(&dir, None, Some(group)).unwrap();
        chmod(&dir, mode);
        assert!(!careful(false), "{mode:o} {group}");
    }
}

#[test]
fn ownership_stays_in_its_mount() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let (dir, inner) = (world.dir("volume"), world.dir("volume/inner"));
    let file = world.file("volume/file", "");
    bind(&Place::follow(&canary.root).unwrap(), &inner, Bind::default()).unwrap();
    bind(&Place::follow(&canary.root.join("file")).unwrap(), &file, Bind::default()).unwrap();
    assert_eq!(own_all(&dir, GROUP).processed, 1);
    canary.assert_untouched();
}

#[test]
fn what_cannot_be_changed_is_counted_and_told() {
    let Some(world) = World::new() else { return };
    let (source, dir) = (world.dir("source"), world.dir("volume"));
    world.file("source/file", "");
    let read_only = Bind { recursive: false, read_only: true };
    bind(&Place::follow(&source).unwrap(), &dir, read_only).unwrap();
    let owned = own_all(&dir, GROUP);
    assert_eq!((owned.processed, owned.failed), (2, 2));
    let text = owned.first_failure.unwrap().to_string();
    let wanted = format!("cannot change the group of {}", dir.join("file").display());
    assert!(text.starts_with(&wanted) && text.contains("read-only"), "{text}");
}

#[test]
fn progress_is_heard_on_the_way() {
    let Some(world) = World::new() else { return };
    for number in 0..100 {
        world.file(&format!("volume/{number}"), "");
    }
    let mut heard = Vec::new();
    own(&world.at("volume"), GROUP, ChangePolicy::Always, &mut |count| heard.push(count)).unwrap();
    assert_eq!(heard, (1..=101).collect::<Vec<u64>>());
}

/// The table of mounts writes some bytes of a name as numbers, and others as they are.
#[test]
fn a_mount_with_an_odd_name_is_found_in_small_large_and_deep_trees() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let deep = "d/".repeat(40);
    for name in ["a\nb", "a b\t", "\\012", "\x1b[2J", "#a", "(deleted)", "é\u{feff}"] {
        for (files, above) in [(0, ""), (600, ""), (0, deep.as_str())] {
            let dir = world.dir("tree");
            (0..files).for_each(|file| drop(world.file(&format!("tree/{file}"), "")));
            let point = world.dir(&format!("tree/{above}{name}"));
            bind(&Place::follow(&canary.root).unwrap(), &point, Bind::default()).unwrap();
            let error = remove_tree(&dir).unwrap_err();
            assert_eq!(error, MountsError::MountInside { path: point.clone() }, "{name:?}");
            assert!(!error.to_string().contains(char::is_control), "{name:?}");
            assert!(files == 0 || world.at("tree/0").exists(), "nothing went before");
            unmount(&point).unwrap();
            remove_tree(&dir).unwrap();
            canary.assert_untouched();
        }
    }
}

/// What a container with every privilege can leave behind.
#[test]
fn pipes_sockets_and_devices_are_measured_given_and_removed() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let Some(world) = World::new() else { return };
    let dir = world.dir("tree/deep");
    let mode = Mode::from_raw_mode(0o600);
    for (name, kind, device) in [
        ("pipe", FileType::Fifo, 0),
        ("terminals", FileType::CharacterDevice, makedev(5, 2)),
        ("none", FileType::BlockDevice, makedev(4_000, 1)),
    ] {
        mknodat(CWD, dir.join(name), kind, mode, device).unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    assert_eq!(own_all(&world.at("tree"), GROUP).processed, 6);
    assert_eq!(mounts::usage(&world.at("tree")).unwrap().inodes, 6);
    remove_tree(&world.at("tree")).unwrap();
    assert!(!world.at("tree").exists());
}
