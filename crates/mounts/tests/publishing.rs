//! Publishing into a directory, as users and crashes see it. Needs root.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mounts::MountsError;
use mounts::ownership::FsGroup;
use mounts::publish::{Payload, PayloadFile, Published, publish};
use support::{World, gid, mode};

const NOW: Duration = Duration::from_secs(1_454_338_999);

fn payload(files: &[(&str, &str)]) -> Payload {
    let file = |text: &str| PayloadFile { data: text.into(), mode: 0o604, owner: None };
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), file(text)));
    Payload::new(files).unwrap()
}

fn now() -> SystemTime {
    UNIX_EPOCH + NOW
}

fn put(dir: &Path, files: &[(&str, &str)]) -> Published {
    publish(dir, &payload(files), None, now()).unwrap()
}

/// What a user sees: names that do not begin with "..", links followed.
fn seen(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut queue = vec![dir.to_owned()];
    while let Some(path) = queue.pop() {
        for entry in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            if path == dir && name.starts_with("..") {
                continue;
            }
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => queue.push(entry),
                Ok(_) => drop(found.insert(name, fs::read_to_string(&entry).unwrap())),
                Err(_) => drop(found.insert(name, "dangling".to_owned())),
            }
        }
    }
    found
}

fn map(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn versions(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).unwrap().map(|entry| PathBuf::from(entry.unwrap().file_name()));
    all.filter(|name| name.to_str().unwrap().starts_with("..2")).collect()
}

#[test]
fn the_layout_is_upstreams() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("v");
    let files = [("a", "1"), ("sub/b", "2"), ("sub/deep/c", "3")];
    assert_eq!(put(&dir, &files), Published::Written { owned: None });
    assert_eq!(seen(&dir), map(&files));
    let version = fs::read_link(dir.join("..data")).unwrap();
    let name = version.to_str().unwrap();
    let digits = name.strip_prefix("..2016_02_01_15_03_19.").expect(name);
    digits.parse::<u32>().unwrap();
    assert_eq!(fs::read_link(dir.join("sub")).unwrap(), Path::new("..data/sub"));
    let version = dir.join(version);
    assert_eq!((mode(&version), mode(&version.join("sub/deep"))), (0o755, 0o755));
    assert_eq!(mode(&version.join("a")), 0o604);
    assert_eq!(versions(&dir).len(), 1);
}

#[test]
fn updates_replace_everything_and_leave_no_trace() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("v");
    for files in [
        &[("a", "1"), ("b/c", "2"), ("d", "")][..],
        &[("a", "1"), ("b/c", "2")],
        &[("a", "1"), ("b/x", "2")],
        &[("a/now/a/directory", "1")],
        &[],
        &[("a", "again")],
    ] {
        assert_eq!(put(&dir, files), Published::Written { owned: None }, "{files:?}");
        assert_eq!(seen(&dir), map(files));
        assert_eq!(versions(&dir).len(), 1);
        assert_eq!(put(&dir, files), Published::Unchanged, "{files:?}");
    }
    let names = fs::read_dir(&dir).unwrap().count();
    assert_eq!(names, 3, "the link, the version and a");
}

#[test]
fn no_write_when_equal_yet_missing_links_come_back() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("v");
    put(&dir, &[("a", "1"), ("b/c", "2")]);
    let before = fs::read_link(dir.join("..data")).unwrap();
    fs::remove_file(dir.join("b")).unwrap();
    let mut other_mode = Payload::new([(
        "a".to_owned(),
        PayloadFile { data: b"1".to_vec(), mode: 0o600, owner: None },
    )])
    .unwrap();
    assert_eq!(put(&dir, &[("a", "1"), ("b/c", "2")]), Published::Unchanged);
    assert_eq!(seen(&dir), map(&[("a", "1"), ("b/c", "2")]));
    assert_eq!(fs::read_link(dir.join("..data")).unwrap(), before);
    put(&dir, &[("a", "1")]);
    assert_eq!(publish(&dir, &other_mode, None, now()).unwrap(), Published::Unchanged);
    other_mode = payload(&[("a", "2")]);
    assert_ne!(publish(&dir, &other_mode, None, now()).unwrap(), Published::Unchanged);
}

#[test]
fn what_is_not_ours_stays() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("v");
    world.file("v/mountpoint/file", "theirs");
    world.file("v/plain", "theirs");
    symlink("plain", dir.join("their-link")).unwrap();
    put(&dir, &[("a", "1"), ("plain", "ours")]);
    put(&dir, &[("b", "1")]);
    let kept =
        [("b", "1"), ("mountpoint/file", "theirs"), ("plain", "theirs"), ("their-link", "theirs")];
    assert_eq!(seen(&dir), map(&kept));
}

#[test]
fn leftovers_of_a_crash_are_no_obstacle() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("v");
    world.file("v/..2015_01_01_00_00_00.77/half", "written");
    symlink("..2015_01_01_00_00_00.77", dir.join("..data_tmp")).unwrap();
    put(&dir, &[("a", "1")]);
    assert_eq!((seen(&dir), versions(&dir).len()), (map(&[("a", "1")]), 1));
    assert!(!dir.join("..data_tmp").is_symlink());
    // The version the link names is gone.
    fs::remove_dir_all(dir.join(fs::read_link(dir.join("..data")).unwrap())).unwrap();
    put(&dir, &[("a", "1")]);
    assert_eq!(seen(&dir), map(&[("a", "1")]));
}

#[test]
fn owners_and_groups_are_set_before_anyone_sees_the_files() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("v");
    let token = PayloadFile { data: b"t".to_vec(), mode: 0o600, owner: Some(1234) };
    let payload = Payload::new([("dir/token".to_owned(), token)]).unwrap();
    let group = Some(FsGroup { gid: 4321, read_only: true });
    let published = publish(&dir, &payload, group, now()).unwrap();
    let Published::Written { owned: Some(owned) } = published else { panic!("{published:?}") };
    assert_eq!((owned.processed, owned.failed), (4, 0), "root, version, dir and token");
    let token = fs::metadata(dir.join("dir/token")).unwrap();
    assert_eq!((token.uid(), token.gid(), token.mode() & 0o7777), (1234, 4321, 0o640));
    assert_eq!((gid(&dir), mode(&dir) & 0o2550), (4321, 0o2550));
    assert_eq!(gid(&dir.join("dir")), 4321, "new links inherit the group");
    assert_eq!(dir.join("dir").symlink_metadata().unwrap().uid(), 1234);
}

#[test]
fn content_in_the_way_is_not_read_beyond_its_size() {
    let Some(world) = World::new() else { return };
    let dir = world.dir("v");
    put(&dir, &[("a", "1"), ("b", "2")]);
    let version = dir.join(fs::read_link(dir.join("..data")).unwrap());
    for plant in ["pipe", "sparse", "link"] {
        let version = dir.join(fs::read_link(dir.join("..data")).unwrap());
        fs::remove_file(version.join("a")).unwrap();
        match plant {
            "pipe" => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mkfifoat(rustix::fs::CWD, version.join("a"), mode).unwrap();
            }
            "sparse" => {
                fs::File::create(version.join("a")).unwrap().set_len(1 << 40).unwrap();
            }
            _ => symlink("b", version.join("a")).unwrap(),
        }
        let published = put(&dir, &[("a", "1"), ("b", "2")]);
        assert_ne!(published, Published::Unchanged, "{plant}");
        assert_eq!(seen(&dir), map(&[("a", "1"), ("b", "2")]), "{plant}");
    }
    assert!(!version.exists());
}

#[test]
fn a_directory_that_is_absent_or_a_link_is_refused() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    symlink(&canary.root, world.at("link")).unwrap();
    for name in ["absent", "link"] {
        let result = publish(&world.at(name), &payload(&[("a", "1")]), None, now());
        assert!(matches!(result, Err(MountsError::Call { .. })), "{name}: {result:?}");
    }
    canary.assert_untouched();
}
