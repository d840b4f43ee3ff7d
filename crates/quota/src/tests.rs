//! Counting with a kernel that is made up, and real files.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::*;

/// Projects of directories by inode, use and limits of projects.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lacks: Option<String>,
    refuses: bool,
    projects: BTreeMap<u64, Project>,
    used: BTreeMap<u32, Used>,
    limits: BTreeMap<u32, u64>,
}

impl Kernel for Fake {
    fn support(&self, _: BorrowedFd<'_>) -> Result<Support, Errno> {
        let lacks = self.0.lock().unwrap().lacks.clone();
        Ok(lacks.map_or(Support::Counts { limit_max: 1 << 40 }, Support::Not))
    }
    fn project(&self, dir: BorrowedFd<'_>) -> Result<Project, Errno> {
        Ok(self.0.lock().unwrap().projects.get(&inode(dir)).copied().unwrap_or_default())
    }
    fn set_project(&self, dir: BorrowedFd<'_>, id: ProjectId) -> Result<(), Errno> {
        let mut state = self.0.lock().unwrap();
        if state.refuses {
            return Err(Errno::PERM);
        }
        state.projects.insert(inode(dir), Project { id: id.number(), inherited: true });
        Ok(())
    }
    fn used(&self, _: BorrowedFd<'_>, id: ProjectId) -> Result<Used, Errno> {
        Ok(self.0.lock().unwrap().used.get(&id.number()).copied().unwrap_or_default())
    }
    fn set_limit(&self, _: BorrowedFd<'_>, id: ProjectId, bytes: u64) -> Result<(), Errno> {
        self.0.lock().unwrap().limits.insert(id.number(), bytes);
        Ok(())
    }
}

fn inode(dir: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstat(dir).unwrap().st_ino
}

struct Bench {
    temp: tempfile::TempDir,
    kernel: Fake,
    quotas: Quotas,
}

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let kernel = Fake::default();
        let quotas = quotas(&kernel, temp.path());
        Self { temp, kernel, quotas }
    }

    fn dir(&self, name: &str) -> (PathBuf, fs::File) {
        let path = self.temp.path().join(name);
        fs::create_dir_all(&path).unwrap();
        let open = fs::File::open(&path).unwrap();
        (path, open)
    }

    fn texts(&self) -> (String, String) {
        let text = |name: &str| fs::read_to_string(self.temp.path().join(name)).unwrap_or_default();
        let place = format!("{}/", self.temp.path().display());
        (text("projects").replace(&place, ""), text("projid"))
    }
}

fn quotas(kernel: &Fake, at: &Path) -> Quotas {
    let files = ProjectFiles::new(at.join("projects"), at.join("projid"));
    Quotas::new(Box::new(kernel.clone()), files)
}

fn counted(number: u32) -> Result<Counting, QuotaError> {
    Ok(Counting::Counted(ProjectId::new(number).unwrap()))
}

#[test]
fn a_directory_is_counted_until_it_goes() {
    let bench = Bench::new();
    let (path, dir) = bench.dir("a");
    let (other, other_dir) = bench.dir("b");
    assert_eq!(bench.quotas.used(dir.as_fd(), &path), Ok(None));
    assert_eq!(bench.quotas.count(dir.as_fd(), &path, true), counted(1_048_577));
    assert_eq!(bench.quotas.count(dir.as_fd(), &path, true), counted(1_048_577), "once more");
    assert_eq!(bench.quotas.count(other_dir.as_fd(), &other, false), counted(1_048_578));
    let names = "volume1048577:1048577\nvolume1048578:1048578\n";
    assert_eq!(bench.texts(), ("1048577:a\n1048578:b\n".to_owned(), names.to_owned()));
    let limits = bench.kernel.0.lock().unwrap().limits.clone();
    assert_eq!(limits, BTreeMap::from([(1_048_577, 1 << 40), (1_048_578, 0)]), "never enforced");
    let used = Used { bytes: 4096, inodes: 3 };
    bench.kernel.0.lock().unwrap().used.insert(1_048_577, used);
    assert_eq!(bench.quotas.used(dir.as_fd(), &path), Ok(Some(used)));

    bench.quotas.forget(Some(dir.as_fd()), &path).unwrap();
    assert_eq!(bench.quotas.used(dir.as_fd(), &path), Ok(None));
    assert_eq!(bench.kernel.0.lock().unwrap().limits[&1_048_577], 0);
    bench.quotas.forget(None, &other).expect("one that is gone");
    assert_eq!(bench.texts(), (String::new(), String::new()));
    bench.quotas.forget(Some(dir.as_fd()), &path).expect("once more");
}

#[test]
fn an_agent_that_comes_back_goes_on_counting() {
    let bench = Bench::new();
    let (path, dir) = bench.dir("a");
    bench.quotas.count(dir.as_fd(), &path, true).unwrap();
    fs::write(path.join("file"), "by a container").unwrap();
    let used = Used { bytes: 1, inodes: 2 };
    bench.kernel.0.lock().unwrap().used.insert(1_048_577, used);
    let next = quotas(&bench.kernel, bench.temp.path());
    assert_eq!(next.used(dir.as_fd(), &path), Ok(None), "it has to be told");
    assert_eq!(next.count(dir.as_fd(), &path, true), counted(1_048_577));
    assert_eq!(next.used(dir.as_fd(), &path), Ok(Some(used)));
    // Nor does it matter which agent made it.
    next.forget(Some(dir.as_fd()), &path).unwrap();
    assert_eq!(bench.texts(), (String::new(), String::new()));
}

#[test]
fn numbers_that_hold_files_are_left_alone() {
    let bench = Bench::new();
    let (path, dir) = bench.dir("a");
    let some = Used { bytes: 0, inodes: 1 };
    bench.kernel.0.lock().unwrap().used.extend([(1_048_577, some), (1_048_579, some)]);
    fs::write(bench.temp.path().join("projects"), "1048578:/elsewhere\n").unwrap();
    assert_eq!(bench.quotas.count(dir.as_fd(), &path, true), counted(1_048_580));
    let all = (1_048_581..1_048_581 + 129).map(|id| (id, some));
    bench.kernel.0.lock().unwrap().used.extend(all);
    let (more, more_dir) = bench.dir("b");
    let error = bench.quotas.count(more_dir.as_fd(), &more, true).unwrap_err();
    assert_eq!(error, QuotaError::NoneFree { path: more, tried: 129 });
}

#[test]
fn what_cannot_be_counted_is_left_as_it_is() {
    let bench = Bench::new();
    let (full, full_dir) = bench.dir("full");
    fs::write(full.join("file"), "").unwrap();
    let not = |why| Ok(Counting::Not(why));
    let said = bench.quotas.count(full_dir.as_fd(), &full, true);
    assert_eq!(said, not(Uncounted::HasContent));
    let (theirs, theirs_dir) = bench.dir("theirs");
    let project = Project { id: 5, inherited: true };
    bench.kernel.0.lock().unwrap().projects.insert(inode(theirs_dir.as_fd()), project);
    let said = bench.quotas.count(theirs_dir.as_fd(), &theirs, true);
    assert_eq!(said, not(Uncounted::Foreign(5)));
    bench.kernel.0.lock().unwrap().lacks = Some("no".to_owned());
    let (path, dir) = bench.dir("a");
    let said = bench.quotas.count(dir.as_fd(), &path, true);
    assert_eq!(said, not(Uncounted::Unsupported("no".to_owned())));
    for (path, dir) in [(&full, &full_dir), (&theirs, &theirs_dir), (&path, &dir)] {
        assert_eq!(bench.quotas.used(dir.as_fd(), path), Ok(None));
        bench.quotas.forget(Some(dir.as_fd()), path).unwrap();
    }
    assert!(!bench.temp.path().join("projects").exists(), "nothing was written");
    assert!(bench.kernel.0.lock().unwrap().limits.is_empty());
}

#[test]
fn a_number_that_was_not_used_is_given_back() {
    let bench = Bench::new();
    let (path, dir) = bench.dir("a");
    bench.kernel.0.lock().unwrap().refuses = true;
    let error = bench.quotas.count(dir.as_fd(), &path, true).unwrap_err();
    assert!(error.to_string().starts_with("cannot set the project of "), "{error}");
    assert_eq!(bench.texts(), (String::new(), String::new()));
}

#[test]
fn a_directory_that_left_its_project_is_told_once() {
    let bench = Bench::new();
    let (path, dir) = bench.dir("a");
    bench.quotas.count(dir.as_fd(), &path, true).unwrap();
    bench.kernel.0.lock().unwrap().projects.clear();
    let error = bench.quotas.used(dir.as_fd(), &path).unwrap_err();
    let expected = QuotaError::Moved { path: path.clone(), expected: 1_048_577, found: 0 };
    assert_eq!(error, expected);
    assert_eq!(bench.quotas.used(dir.as_fd(), &path), Ok(None));
    bench.quotas.forget(Some(dir.as_fd()), &path).unwrap();
    let limits = bench.kernel.0.lock().unwrap().limits.clone();
    assert_eq!(limits[&1_048_577], 1 << 40, "it is not known whose it is");
    assert_eq!(bench.texts(), (String::new(), String::new()));
}

#[test]
fn lines_modes_and_comments_of_others_stay() {
    let bench = Bench::new();
    let projects = bench.temp.path().join("projects");
    fs::write(&projects, "# by hand\n5:/srv\n").unwrap();
    fs::set_permissions(&projects, fs::Permissions::from_mode(0o600)).unwrap();
    // What an agent that was killed has left.
    fs::write(bench.temp.path().join("projects.klet"), "half a li").unwrap();
    let (path, dir) = bench.dir("a");
    bench.quotas.count(dir.as_fd(), &path, true).unwrap();
    assert_eq!(bench.texts().0, "# by hand\n5:/srv\n1048577:a\n");
    assert_eq!(fs::metadata(&projects).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!bench.temp.path().join("projects.klet").exists());
    bench.quotas.forget(None, &path).unwrap();
    assert_eq!(bench.texts().0, "# by hand\n5:/srv\n");
}

#[test]
fn files_that_are_not_plain_are_refused() {
    let bench = Bench::new();
    let (path, dir) = bench.dir("a");
    let projects = bench.temp.path().join("projects");
    symlink("/etc/passwd", &projects).unwrap();
    let refused = Err(QuotaError::NotPlain { path: projects.clone() });
    assert_eq!(bench.quotas.count(dir.as_fd(), &path, true), refused);
    fs::remove_file(&projects).unwrap();
    fs::create_dir(&projects).unwrap();
    assert_eq!(bench.quotas.count(dir.as_fd(), &path, true), refused);
    let line_break = bench.temp.path().join("b\nc");
    let error = bench.quotas.count(dir.as_fd(), &line_break, true).unwrap_err();
    assert_eq!(error, QuotaError::BadPath { path: line_break });
}

#[test]
fn a_lock_on_a_file_that_was_replaced_does_not_count() {
    let bench = Bench::new();
    let (path, dir) = bench.dir("a");
    let projects = bench.temp.path().join("projects");
    fs::write(&projects, "").unwrap();
    let held = fs::File::open(&projects).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let count = scope.spawn(|| bench.quotas.count(dir.as_fd(), &path, true));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(bench.texts().0, "", "it waits");
        // Another agent replaces the file while it has the lock.
        let new = bench.temp.path().join("new");
        fs::write(&new, "1048577:/of/another\n").unwrap();
        fs::rename(&new, &projects).unwrap();
        drop(held);
        assert_eq!(count.join().unwrap(), counted(1_048_578));
    });
    assert_eq!(bench.texts().0, "1048577:/of/another\n1048578:a\n");
}

#[test]
fn many_at_once_never_share_a_number() {
    let bench = Bench::new();
    let dirs: Vec<_> = (0..16).map(|number| bench.dir(&number.to_string())).collect();
    let mut ids = std::thread::scope(|scope| {
        let quotas = &bench.quotas;
        let count = |(path, dir): &(PathBuf, fs::File)| match quotas.count(dir.as_fd(), path, true)
        {
            Ok(Counting::Counted(id)) => id,
            other => panic!("{other:?}"),
        };
        let all: Vec<_> = dirs.iter().map(|dir| scope.spawn(move || count(dir))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 16);
    assert_eq!(bench.texts().0.lines().count(), 16);
}
