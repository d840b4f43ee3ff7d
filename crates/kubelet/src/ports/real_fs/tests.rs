//! The promises of the port, against the kernel.
#![allow(clippy::disallowed_methods)] // tests may touch the real world

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use futures_util::StreamExt;

use super::*;

/// Long enough for a loaded machine; reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(20);

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn reads_regular_files_up_to_a_limit() {
    let dir = dir();
    let path = dir.path().join("a");
    std::fs::write(&path, b"12345").unwrap();
    assert_eq!(RealFs.read(&path, 5).unwrap(), b"12345");
    let error = RealFs.read(&path, 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    // A file whose size the kernel reports as 0.
    assert_eq!(
        RealFs.read(Path::new("/proc/self/status"), 3).unwrap_err().kind(),
        ErrorKind::FileTooLarge
    );
}

#[test]
fn writing_in_place_keeps_the_file_and_sets_its_mode() {
    let dir = dir();
    let path = dir.path().join("a");
    RealFs.write_in_place(&path, b"long content", 0o666).unwrap();
    let mounted = File::open(&path).unwrap();
    RealFs.write_in_place(&path, b"short", 0o644).unwrap();
    assert_eq!(std::io::read_to_string(mounted).unwrap(), "short");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    let (link, pipe) = (dir.path().join("link"), dir.path().join("fifo"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    fifo(&pipe);
    assert!(RealFs.write_in_place(&link, b"x", 0o644).is_err());
    assert!(RealFs.write_in_place(&pipe, b"x", 0o644).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"short");
}

#[test]
fn reading_a_fifo_or_device_fails_at_once() {
    let dir = dir();
    let path = dir.path().join("fifo");
    fifo(&path);
    assert_eq!(RealFs.read(&path, 10).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(
        RealFs.read(Path::new("/dev/zero"), 10).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert!(RealFs.read(dir.path(), 10).is_err());
}

#[test]
fn lists_by_name_and_follows_links() {
    let dir = dir();
    std::fs::write(dir.path().join("b"), "x").unwrap();
    std::fs::create_dir(dir.path().join("a")).unwrap();
    std::os::unix::fs::symlink("b", dir.path().join("c")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("d")).unwrap();
    fifo(&dir.path().join("e"));
    let found: Vec<_> = RealFs
        .list(dir.path())
        .unwrap()
        .into_iter()
        .map(|entry| {
            (entry.name.into_string().unwrap(), entry.is_file, entry.is_dir, entry.stamp.size)
        })
        .collect();
    let expected =
        [("a", false, true), ("b", true, false), ("c", true, false), ("e", false, false)];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((found.0.as_str(), found.1, found.2), expected);
    }
    assert_eq!(found[2].3, 1);
}

#[test]
fn writes_replace_whole_files() {
    let dir = dir();
    let path = dir.path().join("state.json");
    // A draft left by a crash, even one that is a link, is in nobody's way.
    std::fs::write(dir.path().join("victim"), "keep").unwrap();
    std::os::unix::fs::symlink("victim", super::draft_of(&path).unwrap()).unwrap();
    RealFs.write(&path, b"one").unwrap();
    let before = RealFs.stat(&path).unwrap().stamp;
    RealFs.write(&path, b"two").unwrap();
    assert_ne!(before, RealFs.stat(&path).unwrap().stamp);
    assert_eq!(std::fs::read(&path).unwrap(), b"two");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read(dir.path().join("victim")).unwrap(), b"keep");
    assert_eq!(RealFs.list(dir.path()).unwrap().len(), 2);
    assert!(RealFs.write(&dir.path().join("no/such/dir"), b"x").is_err());
}

#[test]
fn links_are_replaced_not_followed() {
    let dir = dir();
    let link = dir.path().join("link");
    RealFs.symlink(Path::new("/one"), &link).unwrap();
    RealFs.symlink(Path::new("/two"), &link).unwrap();
    assert_eq!(RealFs.read_link(&link).unwrap(), Path::new("/two"));
    RealFs.remove_file(&link).unwrap();
    RealFs.remove_file(&link).unwrap();
}

#[test]
fn removes_trees_without_following_links() {
    let dir = dir();
    let outside = dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("keep"), "x").unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::write(tree.join("a/b/f"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, tree.join("a/link")).unwrap();
    fifo(&tree.join("fifo"));
    RealFs.remove_dir_all(&tree).unwrap();
    assert!(!tree.exists() && outside.join("keep").exists());
    RealFs.remove_dir_all(&tree).unwrap();
    std::os::unix::fs::symlink(&outside, &tree).unwrap();
    RealFs.remove_dir_all(&tree).expect("a link is removed itself");
    assert!(!tree.is_symlink() && outside.join("keep").exists());
}

#[test]
fn removes_trees_deeper_than_any_path() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(&tree, flags, Mode::empty()).unwrap();
    for _ in 0..3_000 {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap();
    }
    drop(at);
    RealFs.remove_dir_all(&tree).unwrap();
    assert!(!tree.exists());
}

#[test]
fn removal_stops_at_a_mount() {
    let dir = dir();
    let tree = dir.path().join("tree");
    let (source, target) = (dir.path().join("source"), tree.join("volume"));
    std::fs::create_dir_all(&source).unwrap();
    std::fs::create_dir_all(&target).unwrap();
    std::fs::write(source.join("data"), "precious").unwrap();
    // A bind mount of the same device: only the mount's id tells it apart.
    if rustix::mount::mount_bind(&source, &target).is_err() {
        // Mounting needs root; without it there is no mount to stop at.
        return;
    }
    let nested = RealFs.remove_dir_all(&tree);
    let direct = RealFs.remove_dir_all(&target);
    let kept = source.join("data").exists();
    rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
    assert!(kept, "removal went through a mount");
    assert_eq!(nested.unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert_eq!(direct.unwrap_err().kind(), ErrorKind::ResourceBusy);
    RealFs.remove_dir_all(&tree).unwrap();
}

/// Waits for a notice.
async fn noticed(stream: &mut ChangeStream) -> Option<()> {
    tokio::time::timeout(PATIENCE, stream.next()).await.expect("a change is noticed")
}

type Change<'t> = Box<dyn Fn() + 't>;

#[tokio::test]
async fn a_watched_directory_notices_every_kind_of_change() {
    let dir = dir();
    let path = dir.path().join("a");
    let changes: [(&str, Change<'_>); 4] = [
        ("written", Box::new(|| std::fs::write(&path, "x").unwrap())),
        (
            "made unreadable",
            Box::new(|| std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap()),
        ),
        ("renamed", Box::new(|| std::fs::rename(&path, dir.path().join("b")).unwrap())),
        ("removed", Box::new(|| std::fs::remove_file(dir.path().join("b")).unwrap())),
    ];
    for (what, change) in changes {
        let mut stream = RealFs.watch(dir.path()).unwrap();
        change();
        assert_eq!(noticed(&mut stream).await, Some(()), "{what}");
    }
}

#[tokio::test]
async fn a_watched_file_may_be_replaced_again_and_again() {
    let dir = dir();
    let path = dir.path().join("pod.yaml");
    let mut stream = RealFs.watch(&path).unwrap();
    for content in ["one", "two"] {
        std::fs::write(dir.path().join("draft"), content).unwrap();
        std::fs::rename(dir.path().join("draft"), &path).unwrap();
        assert_eq!(noticed(&mut stream).await, Some(()));
    }
}

#[tokio::test]
async fn a_watch_ends_with_its_directory() {
    let dir = dir();
    let path = dir.path().join("manifests");
    std::fs::create_dir(&path).unwrap();
    let mut stream = RealFs.watch(&path).unwrap();
    std::fs::remove_dir(&path).unwrap();
    assert_eq!(noticed(&mut stream).await, None);
    // Now the parent announces its return, once.
    let mut stream = RealFs.watch(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(noticed(&mut stream).await, Some(()));
    assert_eq!(noticed(&mut stream).await, None);
}

#[tokio::test]
async fn an_alarm_tells_of_one_write_only() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    let append = |name: &str| {
        let mut file = File::options().append(true).open(at(name)).unwrap();
        file.write_all(b"x").unwrap();
    };
    for name in ["a", "b", "c", "d"] {
        std::fs::write(at(name), "").unwrap();
    }
    let mut alarms = RealFs.write_alarms().unwrap();
    let [a, b, _c, d] = ["a", "b", "c", "d"].map(|name| alarms.arm(&at(name)).unwrap());
    alarms.disarm(b);
    (0..1_000).for_each(|_| append("a"));
    append("b");
    // A file that is gone will not be written to; whoever set the alarm learns it.
    std::fs::remove_file(at("d")).unwrap();
    let mut next = async || tokio::time::timeout(PATIENCE, alarms.next()).await.unwrap().unwrap();
    assert_eq!([next().await, next().await], [a, d]);
    let again = alarms.arm(&at("a")).unwrap();
    alarms.disarm(a);
    append("a");
    assert_eq!(alarms.next().await, Some(again));
    assert_eq!(alarms.arm(&at("none")).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(futures_util::poll!(alarms.next()).is_pending(), "one notice of each");
}

#[test]
fn an_open_file_is_read_on_wherever_it_goes() {
    let dir = dir();
    let (path, moved) = (dir.path().join("a"), dir.path().join("b"));
    std::fs::write(&path, b"12345").unwrap();
    let file = RealFs.open(&path, Links::Refuse).unwrap();
    RealFs.rename(&path, &moved).unwrap();
    assert_eq!(file.read_at(1, 3).unwrap(), b"234");
    assert_eq!(file.stamp().unwrap(), RealFs.stat(&moved).unwrap().stamp);
    RealFs.remove_file(&moved).unwrap();
    assert_eq!(file.read_at(3, 100).unwrap(), b"45");
    assert_eq!(file.read_at(100, 3).unwrap(), b"");
}

#[test]
fn opening_waits_for_nobody_and_follows_links_only_if_told() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("file"), b"x").unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    fifo(&at("fifo"));
    let opens = |name: &str, links| RealFs.open(&at(name), links).is_ok();
    assert!(opens("file", Links::Refuse) && opens("link", Links::Follow));
    assert!(
        !opens("link", Links::Refuse) && !opens("fifo", Links::Follow) && !opens("", Links::Follow)
    );
    assert!(RealFs.create(&at("link"), 0o600).is_err());
    assert!(RealFs.create(&at("fifo"), 0o600).is_err());
    assert_eq!(std::fs::read(at("file")).unwrap(), b"x");
}

#[test]
fn a_new_file_is_written_piece_by_piece() {
    let dir = dir();
    let path = dir.path().join("a");
    std::fs::write(&path, b"something longer").unwrap();
    RealFs.remove_file(&path).unwrap();
    for _ in 0..2 {
        let mut file = RealFs.create(&path, 0o640).unwrap();
        file.append(b"one ").unwrap();
        file.append(b"two").unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"one two");
    let mode = RealFs.open(&path, Links::Refuse).unwrap().mode().unwrap();
    assert_eq!(mode & !0o040, 0o600, "no more than was asked for");
}
