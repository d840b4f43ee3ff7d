//! Records on a real disk.

use super::*;
use crate::ports::{RealFs, SystemClock};

const IMAGE: &str = "r.io/x:1";

fn records(root: &Path) -> Records {
    let clock = Arc::new(SystemClock::new());
    let metrics = ImageMetrics::default();
    Records::new(Arc::new(RealFs), clock, root, Verification::NotPreloaded, metrics)
}

fn may_use(records: &Records) -> bool {
    records.may_use(IMAGE, "ref", &PodCredentials::default())
}

fn files(root: &Path, dir: &str) -> usize {
    std::fs::read_dir(root.join("image_manager").join(dir)).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_pull_leaves_a_record_and_no_intent() {
    let root = tempfile::tempdir().unwrap();
    let records = records(root.path());
    assert!(may_use(&records), "it came with the machine");
    let first = records.begin(IMAGE).unwrap();
    let second = records.begin(IMAGE).unwrap();
    assert!(!may_use(&records), "a kubelet is pulling it");
    drop(first);
    assert_eq!(files(root.path(), "pulling"), 1, "the second pull goes on");
    second.succeeded("ref", &PullCredentials::node_wide());
    assert_eq!((files(root.path(), "pulling"), files(root.path(), "pulled")), (0, 1));
    assert!(may_use(&records));
    assert!(!records.may_use("r.io/other:1", "ref", &PodCredentials::default()));
}

#[tokio::test]
async fn a_crash_in_mid_pull_is_settled_by_the_next_agent() {
    let root = tempfile::tempdir().unwrap();
    std::mem::forget(records(root.path()).begin(IMAGE).unwrap());
    let next = records(root.path());
    assert!(!may_use(&next), "an intent tells that a kubelet pulled it");
    let unfinished = next.open();
    assert_eq!(unfinished, BTreeSet::from([IMAGE.to_owned()]));
    let absent =
        v1::Image { id: "other".into(), repo_tags: vec!["r.io/y:1".into()], ..Default::default() };
    next.settle(&unfinished, &[absent]);
    assert_eq!(files(root.path(), "pulling"), 1);
    let present =
        v1::Image { id: "ref".into(), repo_tags: vec![IMAGE.into()], ..Default::default() };
    next.settle(&unfinished, &[present]);
    assert_eq!((files(root.path(), "pulling"), files(root.path(), "pulled")), (0, 1));
    assert!(!may_use(&next), "nobody knows with what it was pulled");
}

#[tokio::test]
async fn a_broken_record_means_a_pull() {
    let root = tempfile::tempdir().unwrap();
    let records = records(root.path());
    records.begin(IMAGE).unwrap().succeeded("ref", &PullCredentials::node_wide());
    let path = records.pulled.join(format::file_name("ref"));
    std::fs::write(&path, "{").unwrap();
    assert!(!may_use(&records));
    records.begin(IMAGE).unwrap().succeeded("ref", &PullCredentials::node_wide());
    assert!(may_use(&records), "the pull has mended it");
}

#[tokio::test]
async fn old_records_are_brought_up_to_date() {
    let root = tempfile::tempdir().unwrap();
    let records = records(root.path());
    records.begin(IMAGE).unwrap().succeeded("ref", &PullCredentials::node_wide());
    let path = records.pulled.join(format::file_name("ref"));
    let new = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, new.replace("v1beta1", "v1alpha1")).unwrap();
    assert!(records.open().is_empty());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), new);
}
