//! Limits: how much of a source is taken, kept and held in memory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;

use super::super::PODS_MAX;
use super::super::last_good::LastGood;
use super::super::notice::Notice;
use super::super::scan::{FILES_MAX, Scanner};
use super::manifest;
use super::mem_fs::MemFs;
use crate::ports::{Fs, SystemClock};

fn scanner(fs: &MemFs) -> Scanner {
    let clock = Arc::new(SystemClock::new());
    Scanner::new("/m".into(), "n".to_owned(), Path::new("/root"), Arc::new(fs.clone()), clock)
}

fn copies(fs: &MemFs) -> LastGood {
    LastGood::new(Arc::new(fs.clone()), Path::new("/root"))
}

/// A list of so many pods.
fn list(count: usize) -> String {
    let mut text = r#"{"apiVersion":"v1","kind":"PodList","items":["#.to_owned();
    for number in 0..count {
        let comma = if number == 0 { "" } else { "," };
        let spec = r#"{"containers":[{"name":"a","image":"i"}]}"#;
        write!(text, r#"{comma}{{"metadata":{{"name":"p{number}"}},"spec":{spec}}}"#).unwrap();
    }
    text.push_str("]}");
    text
}

#[tokio::test]
async fn each_copy_is_kept_before_the_next_manifest_is_read() {
    let fs = MemFs::with_dir("/m");
    for name in ["a", "b", "c"] {
        fs.put(&format!("/m/{name}"), manifest(name, "i"));
    }
    let mut scanner = scanner(&fs);
    let mut scan = pin!(scanner.scan());
    for looked_at in 1..=3 {
        assert!(scan.as_mut().now_or_never().is_none(), "a scan pauses after each manifest");
        assert_eq!(fs.files_below("/root").len(), looked_at);
    }
}

#[test]
fn every_manifest_that_is_read_may_have_a_copy() {
    let fs = MemFs::default();
    let mut copies = copies(&fs);
    let path = |number: usize| PathBuf::from(format!("/m/{number}"));
    for number in 0..FILES_MAX {
        copies.store(&path(number), b"x").unwrap();
    }
    assert!(copies.store(&path(FILES_MAX), b"x").is_err());
    copies.store(&path(0), b"y").expect("one that is there may be replaced");
    copies.keep_only([path(0)].iter().map(PathBuf::as_path)).unwrap();
    copies.store(&path(FILES_MAX), b"x").expect("there is room again");
}

#[test]
fn a_copy_torn_by_a_power_cut_is_none() {
    let fs = MemFs::default();
    let mut copies = copies(&fs);
    let (path, text) = (Path::new("/m/a"), manifest("a", "i"));
    copies.store(path, text.as_bytes()).unwrap();
    assert_eq!(copies.load(path).as_deref(), Some(text.as_bytes()));
    let file = fs.files_below("/root").remove(0);
    let whole = fs.read(&file, usize::MAX).unwrap();
    for written in 0..whole.len() {
        let mut torn = whole[..written].to_vec();
        fs.write(&file, &torn).unwrap();
        assert_eq!(copies.load(path), None, "cut after {written} bytes");
        torn.resize(whole.len(), 0);
        fs.write(&file, &torn).unwrap();
        assert_eq!(copies.load(path), None, "zero after {written} bytes");
        let mut hole = whole.clone();
        hole[written] = 0;
        fs.write(&file, &hole).unwrap();
        assert_eq!(copies.load(path), None, "a hole at byte {written}");
    }
    // The next good look repairs it.
    copies.store(path, text.as_bytes()).unwrap();
    assert_eq!(fs.read(&file, usize::MAX).unwrap(), whole);
}

#[tokio::test]
async fn the_first_pods_of_a_source_are_kept_and_the_rest_named_once() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", manifest("first", "i"));
    fs.put("/m/b", list(PODS_MAX + 1));
    let mut scanner = scanner(&fs);
    let (pods, notices) = scanner.scan().await;
    let pods = pods.unwrap();
    assert_eq!(pods.len(), PODS_MAX);
    assert_eq!(pods[0].metadata.name.as_deref(), Some("first-n"));
    let last = format!("p{}-n", PODS_MAX - 2);
    assert_eq!(pods[PODS_MAX - 1].metadata.name, Some(last));
    let notice = Notice::TooManyPods { origin: "/m/b".to_owned(), limit: PODS_MAX };
    assert!(notices.contains(&notice), "{notices:?}");
    let (pods, notices) = scanner.scan().await;
    assert!(pods.is_none() && notices.is_empty(), "said once: {notices:?}");
}
