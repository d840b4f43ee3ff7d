//! The loader on a real disk: order of the walk, limits, and what is not a file.

use kubelet_config::{Disk, Files, Host};

#[test]
fn walks_in_lexical_order_and_bounds_reads() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    std::fs::create_dir(root.join("b")).unwrap();
    for name in ["c.conf", "a.conf", "b/z.conf", "b/a.conf"] {
        std::fs::write(root.join(name), "x").unwrap();
    }
    let walked = Disk.walk(root).unwrap();
    let names: Vec<_> =
        walked.iter().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a.conf", "b/a.conf", "b/z.conf", "c.conf"]);
    assert!(Disk.read(root).is_err(), "a directory is not a file");
    assert!(
        Disk.read(std::path::Path::new("/dev/zero")).is_err(),
        "an endless file must be refused"
    );
    assert!(Disk.walk(&root.join("none")).is_err());
}

#[test]
fn a_pipe_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let error = Disk.read(&pipe).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
}

#[test]
fn looks_at_the_host() {
    let host = Host::look(&Disk);
    assert!(host.online_cpus.is_none_or(|cpus| cpus.contains(&0)));
}
