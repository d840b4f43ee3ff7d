//! Counting on real file systems, each in a file of its own.
//!
//! Needs root, loop devices, mkfs and a kernel with project quotas; says SKIPPED where
//! one of them is missing. Once a file system is mounted, nothing is excused.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use quota::{Counting, Kernel, Linux, Project, ProjectFiles, Quotas, Support, Uncounted, Used};

/// A file system in a file, unmounted at the end.
struct Mounted {
    root: PathBuf,
    _temp: tempfile::TempDir,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.root).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{}", self.root.display());
    }
}

/// Makes and mounts one; `None`, and a line that says why, where that is impossible.
fn mounted(mkfs: &[&str], bytes: u64, options: &str) -> Option<Mounted> {
    let temp = tempfile::tempdir().unwrap();
    let (image, root) = (temp.path().join("image"), temp.path().join("root"));
    fs::File::create(&image).unwrap().set_len(bytes).unwrap();
    fs::create_dir(&root).unwrap();
    let kind = mkfs[0].trim_start_matches("mkfs.");
    let mut make = Command::new(mkfs[0]);
    make.args(&mkfs[1..]).arg(&image);
    let mut mount = Command::new("mount");
    mount.args(["-t", kind, "-o", &format!("loop{options}")]).arg(&image).arg(&root);
    for command in [&mut make, &mut mount] {
        let why = match command.output() {
            Ok(output) if output.status.success() => continue,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        println!("SKIPPED: no project quotas of {kind} here: {command:?}: {why}");
        return None;
    }
    Some(Mounted { root, _temp: temp })
}

fn open(path: &Path) -> fs::File {
    fs::File::open(path).unwrap()
}

fn quotas_of(mounted: &Mounted) -> Quotas {
    let at = |name: &str| mounted.root.join(name);
    Quotas::new(Box::new(Linux), ProjectFiles::new(at("projects"), at("projid")))
}

/// What the file system has counted, which has to be what a walk finds.
fn counted(quotas: &Quotas, path: &Path) -> (u64, u64) {
    // Blocks that are only reserved yet are not told of a single file.
    rustix::fs::syncfs(open(path)).unwrap();
    let walked = mounts::usage(path).unwrap();
    let walked = Used { bytes: walked.bytes, inodes: walked.inodes };
    let used = || quotas.used(open(path).as_fd(), path).unwrap().expect("it is counted");
    settled(used, walked);
    (walked.bytes, walked.inodes)
}

/// Waits until a file system has counted so much: xfs removes files a little later.
fn settled(used: impl Fn() -> Used, expected: Used) {
    for _ in 0..100 {
        if used() == expected {
            return;
        }
        sleep(Duration::from_millis(100));
    }
    assert_eq!(used(), expected);
}

fn check(mounted: &Mounted) {
    let quotas = quotas_of(mounted);
    let volume = mounted.root.join("pods/uid/volumes/kubernetes.io~empty-dir/data");
    let other = mounted.root.join("other");
    fs::create_dir_all(&volume).unwrap();
    fs::create_dir(&other).unwrap();
    let dir = open(&volume);
    let first = match quotas.count(dir.as_fd(), &volume, true).unwrap() {
        Counting::Counted(id) => id,
        Counting::Not(why) => panic!("{why}"),
    };
    assert_eq!(first.number(), 1_048_577);
    let projects = fs::read_to_string(mounted.root.join("projects")).unwrap();
    assert_eq!(projects, format!("{first}:{}\n", volume.display()));
    let (empty_bytes, inodes) = counted(&quotas, &volume);
    assert_eq!(inodes, 1, "the directory itself");

    fs::create_dir_all(volume.join("deep/er")).unwrap();
    fs::write(volume.join("deep/er/file"), vec![7; 3 << 20]).unwrap();
    fs::hard_link(volume.join("deep/er/file"), volume.join("again")).unwrap();
    fs::write(other.join("file"), vec![7; 1 << 20]).unwrap();
    let (bytes, inodes) = counted(&quotas, &volume);
    assert!(bytes >= empty_bytes + (3 << 20) && bytes < (4 << 20), "{bytes}");
    assert_eq!(inodes, 4, "hard links count once, other directories not at all");
    fs::write(volume.join("more"), vec![7; 1 << 20]).expect("no limit is in force");
    let link = fs::hard_link(other.join("file"), volume.join("smuggled"));
    assert!(link.is_err(), "nothing is in two projects");
    fs::remove_file(volume.join("more")).unwrap();
    assert_eq!(counted(&quotas, &volume), (bytes, inodes));

    // An agent that comes back, and one that finds others' files.
    let next = quotas_of(mounted);
    assert_eq!(next.count(dir.as_fd(), &volume, true).unwrap(), Counting::Counted(first));
    assert_eq!(counted(&next, &volume), (bytes, inodes));
    let said = next.count(open(&other).as_fd(), &other, true).unwrap();
    assert_eq!(said, Counting::Not(Uncounted::HasContent));
    let inner = volume.join("deep/er");
    let said = next.count(open(&inner).as_fd(), &inner, true).unwrap();
    assert_eq!(said, Counting::Not(Uncounted::Foreign(first.number())));

    // The number is free only once the files are gone.
    next.forget(Some(dir.as_fd()), &volume).unwrap();
    assert_eq!(next.used(dir.as_fd(), &volume).unwrap(), None);
    let second = mounted.root.join("second");
    fs::create_dir(&second).unwrap();
    let second_dir = open(&second);
    let said = next.count(second_dir.as_fd(), &second, false).unwrap();
    assert!(matches!(said, Counting::Counted(id) if id.number() == 1_048_578), "{said:?}");
    drop(dir);
    mounts::remove_tree(&volume).unwrap();
    next.forget(Some(second_dir.as_fd()), &second).unwrap();
    settled(|| Linux.used(second_dir.as_fd(), first).unwrap(), Used::default());
    let third = mounted.root.join("third");
    fs::create_dir(&third).unwrap();
    let third_dir = open(&third);
    assert_eq!(next.count(third_dir.as_fd(), &third, true).unwrap(), Counting::Counted(first));
    assert_eq!(counted(&next, &third).1, 1);
    let expected = Project { id: first.number(), inherited: true };
    assert_eq!(Linux.project(third_dir.as_fd()).unwrap(), expected);
    next.forget(None, &third).unwrap();
    assert_eq!(fs::read_to_string(mounted.root.join("projid")).unwrap(), "");
}

const EXT4: [&str; 6] = ["mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"];

#[test]
fn ext4_counts() {
    let Some(mounted) = mounted(&EXT4, 64 << 20, ",prjquota") else { return };
    check(&mounted);
    println!("ext4 counted");
}

#[test]
fn xfs_counts() {
    let Some(mounted) = mounted(&["mkfs.xfs", "-q"], 400 << 20, ",prjquota") else { return };
    check(&mounted);
    println!("xfs counted");
}

#[test]
fn a_file_system_without_quotas_says_so() {
    let temp = tempfile::tempdir_in("/dev/shm").unwrap();
    let support = Linux.support(open(temp.path()).as_fd()).unwrap();
    assert_eq!(support, Support::Not("it is neither ext4 nor xfs".to_owned()));
    let Some(mounted) = mounted(&["mkfs.ext4", "-q"], 16 << 20, "") else { return };
    let support = Linux.support(open(&mounted.root).as_fd()).unwrap();
    let Support::Not(why) = support else { panic!("{support:?}") };
    assert!(why.contains("prjquota") || why.contains("CONFIG_QUOTA"), "{why}");
}
