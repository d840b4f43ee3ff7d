//! Reading files of a volume that others write, on the running kernel. Needs root.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use mounts::mount::{Tmpfs, tmpfs};
use mounts::{Beginning, read_inside};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::{Enemy, World};

const ROUNDS_MAX: usize = 500_000;
const SEEN_MIN: usize = 200;

fn read(volume: &Path, path: &str) -> Result<String, String> {
    let read = read_inside(volume, Path::new(path), 100).map_err(|error| error.to_string())?;
    assert!(read.whole, "{path}");
    Ok(String::from_utf8(read.data).unwrap())
}

#[test]
fn files_are_read_up_to_a_limit() {
    let Some(world) = World::new() else { return };
    let volume = world.dir("volume");
    world.file("volume/a/file", "content");
    for path in ["a/file", "/a/file", "./a//file"] {
        assert_eq!(read(&volume, path).as_deref(), Ok("content"), "{path}");
    }
    let begins = |limit| read_inside(&volume, Path::new("a/file"), limit).unwrap();
    assert_eq!(begins(7), Beginning { data: b"content".to_vec(), whole: true });
    assert_eq!(begins(6), Beginning { data: b"conten".to_vec(), whole: false });
    assert_eq!(begins(0), Beginning { data: Vec::new(), whole: false });
    let missing = read_inside(&volume, Path::new("a/none"), 1).unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    assert!(missing.to_string().contains("volume/a/none"), "{missing}");
}

#[test]
fn links_see_the_volume_as_the_root_of_everything() {
    let Some(world) = World::new() else { return };
    let (volume, canary) = (world.dir("volume"), world.canary());
    world.file("volume/a/file", "mine");
    for (name, target) in [
        ("absolute", "/a/file"),
        ("relative", "a/file"),
        ("up", "../../../../../a/file"),
        ("chain", "up"),
    ] {
        symlink(target, volume.join(name)).unwrap();
        assert_eq!(read(&volume, name).as_deref(), Ok("mine"), "{name}");
    }
    symlink(canary.root.join("file"), volume.join("out")).unwrap();
    symlink("../canary/file", volume.join("beside")).unwrap();
    symlink("/proc/self/root", volume.join("proc")).unwrap();
    symlink("loop", volume.join("loop")).unwrap();
    for path in ["out", "beside", "proc/etc/passwd", "loop", "../canary/file"] {
        let error = read(&volume, path).unwrap_err();
        assert!(error.starts_with("cannot open "), "{path}: {error}");
    }
    // A link in the place of the volume itself.
    let link = world.at("link");
    symlink(&canary.root, &link).unwrap();
    assert!(read(&link, "file").is_err());
    canary.assert_untouched();
}

#[test]
fn only_files_are_opened() {
    let Some(world) = World::new() else { return };
    let volume = world.dir("volume");
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, volume.join("pipe"), FileType::Fifo, mode, 0).unwrap();
    let zero = rustix::fs::makedev(1, 5);
    mknodat(CWD, volume.join("device"), FileType::CharacterDevice, mode, zero).unwrap();
    let _socket = UnixListener::bind(volume.join("socket")).unwrap();
    fs::create_dir(volume.join("dir")).unwrap();
    let mount = world.dir("volume/mount");
    tmpfs(&mount, Tmpfs::default()).unwrap();
    fs::write(mount.join("file"), "another file system's").unwrap();
    // On a thread of its own: a pipe that is opened would never answer.
    let (sender, answers) = mpsc::channel();
    std::thread::spawn(move || {
        for path in ["pipe", "device", "socket", "dir", "mount/file"] {
            sender.send((path, read(&volume, path))).unwrap();
        }
    });
    for wanted in [
        "is not a regular file",
        "is not a regular file",
        "is not a regular file",
        "is not a regular file",
        "leads to another mount",
    ] {
        let (path, answer) = answers.recv_timeout(Duration::from_secs(30)).expect("an answer");
        assert!(answer.is_err_and(|error| error.contains(wanted)), "{path}");
    }
}

#[test]
fn a_swapped_link_never_leads_out() {
    let Some(world) = World::new() else { return };
    let (volume, canary) = (world.dir("volume"), world.canary());
    world.file("volume/dir/file", "mine");
    let link = volume.join("link");
    symlink(&canary.root, &link).unwrap();
    let swapper = Enemy::swapping(volume.join("dir"), link).started();
    let (mut mine, mut refused) = (0, 0);
    for _ in 0..ROUNDS_MAX {
        match read(&volume, "dir/file") {
            Ok(text) => {
                assert_eq!(text, "mine");
                mine += 1;
            }
            Err(_) => refused += 1,
        }
        if mine >= SEEN_MIN && refused >= SEEN_MIN {
            canary.assert_untouched();
            return;
        }
    }
    panic!("no race was run: {mine} reads, {refused} refused, {} swaps", swapper.hits());
}
