//! Single looks at files in memory: which pods, and what is said how often.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use kubelet_model::ConfigObject;

use super::super::notice::Notice;
use super::super::scan::Scanner;
use super::manifest;
use super::mem_fs::MemFs;
use crate::ports::SystemClock;

fn scanner(fs: &MemFs, path: &str) -> Scanner {
    let clock = Arc::new(SystemClock::new());
    Scanner::new(path.into(), "n".to_owned(), Path::new("/root"), Arc::new(fs.clone()), clock)
}

/// Scans and writes down: pods if announced, then what was said.
async fn look(scanner: &mut Scanner) -> String {
    let (pods, notices) = scanner.scan().await;
    let mut lines = Vec::new();
    if let Some(pods) = pods {
        let name = |pod: &k8s_openapi::api::core::v1::Pod| {
            let image = pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
            format!("{}={image}", pod.metadata.name.as_deref().unwrap())
        };
        lines.push(format!("pods {:?}", pods.iter().map(name).collect::<Vec<_>>()));
    }
    lines.extend(notices.iter().map(text));
    lines.join("\n")
}

fn text(notice: &Notice) -> String {
    match notice {
        Notice::Broken { origin, problems, kept, from_copy } => {
            let kept = match (kept, from_copy) {
                (true, true) => "copy runs",
                (true, false) => "last good stays",
                _ => "nothing runs",
            };
            format!("{origin}: {}; {kept}", problems[0])
        }
        Notice::Recovered { origin } => format!("{origin}: good again"),
        Notice::Warnings { origin, warnings } => format!("{origin}: warning: {}", warnings[0]),
        Notice::Skipped { path, why } => format!("{}: {why}", path.display()),
        Notice::Duplicate { path, full_name, by, .. } => {
            format!("{}: {full_name} is defined by {}", path.display(), by.display())
        }
        Notice::DuplicateObject { path, object, by } => {
            format!("{}: {object} is defined by {}", path.display(), by.display())
        }
        Notice::TooManyObjects { path, object, limit } => {
            format!("{}: {object} is beyond {limit} bytes", path.display())
        }
        Notice::Missing { path } => format!("{}: missing", path.display()),
        Notice::Unreadable { path, why, pods_kept } => {
            format!("{}: {why}; {pods_kept} pods kept", path.display())
        }
        Notice::Back { path } => format!("{}: back", path.display()),
        Notice::TooMany { limit, .. } => format!("more than {limit}"),
        Notice::TooManyPods { origin, limit } => format!("{origin}: more than {limit} pods"),
        Notice::Incomplete { path } => format!("{}: orphans wait", path.display()),
        Notice::CopyFailed { why, .. } => format!("copy: {why}"),
        Notice::WatchFailed { why, .. } => format!("watch: {why}"),
    }
}

#[tokio::test]
async fn good_bad_fixed_removed() {
    let fs = MemFs::with_dir("/m");
    let mut scanner = scanner(&fs, "/m");
    assert_eq!(look(&mut scanner).await, "pods []");
    assert_eq!(look(&mut scanner).await, "");

    fs.put("/m/a.yaml", manifest("a", "one"));
    assert_eq!(look(&mut scanner).await, r#"pods ["a-n=one"]"#);
    assert_eq!(look(&mut scanner).await, "");

    fs.put("/m/a.yaml", manifest("a", "5"));
    let broken = "/m/a.yaml: line 8, column 12: spec.containers[0].image: invalid type: integer `5`, expected a string; put it in quotes; last good stays";
    assert_eq!(look(&mut scanner).await, broken);
    assert_eq!(look(&mut scanner).await, "", "said once");
    // Another attempt that fails the same way is another change.
    fs.put("/m/a.yaml", format!("{}# try\n", manifest("a", "5")));
    assert_eq!(look(&mut scanner).await, broken);
    // Touched without a change.
    fs.put("/m/a.yaml", format!("{}# try\n", manifest("a", "5")));
    assert_eq!(look(&mut scanner).await, "");

    fs.put("/m/a.yaml", manifest("a", "two"));
    assert_eq!(look(&mut scanner).await, "pods [\"a-n=two\"]\n/m/a.yaml: good again");
    fs.delete("/m/a.yaml");
    assert_eq!(look(&mut scanner).await, "pods []");
    assert_eq!(fs.files_below("/root"), Vec::<&Path>::new(), "no copy is left behind");
}

#[tokio::test]
async fn one_bad_manifest_harms_no_other() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/.hidden", "{{{");
    fs.put("/m/a", b"\x00\x01\xff");
    fs.put("/m/b", manifest("b", "i"));
    fs.put("/m/c", vec![b'x'; 10 * 1024 * 1024 + 1]);
    fs.put("/m/d", "");
    fs.put("/m/e", manifest("e", "i").replace("image", "imaje"));
    fs.state().dirs_insert("/m/f");
    fs.state().odd.insert("/m/g".into());
    let mut scanner = scanner(&fs, "/m");
    assert_eq!(
        look(&mut scanner).await,
        "pods [\"b-n=i\"]
/m/f: a directory; only the files of the manifest path itself are read
/m/g: not a regular file
/m/a: line 1: not text but binary data; write a v1 Pod as YAML or JSON in UTF-8; nothing runs
/m/c: cannot be read: file too large; nothing runs
/m/d: the manifest is empty; write a v1 Pod, or remove the file; nothing runs
/m/e: line 7, column 5: spec.containers[0].image: missing; nothing runs"
    );
    assert_eq!(look(&mut scanner).await, "", "each is said once");
}

/// Names and values of the objects that count.
fn objects(scanner: &Scanner) -> Vec<String> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let one = |object: &ConfigObject| {
        format!("{} {}", object.key, text(object.value("k").unwrap_or_default()))
    };
    scanner.objects().iter().map(|object| one(object)).collect()
}

#[tokio::test]
async fn objects_lie_beside_pods() {
    let map = |value: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{k: {value}}}\n")
    };
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", map("one"));
    fs.put("/m/b", manifest("b", "i"));
    let mut scanner = scanner(&fs, "/m");
    assert_eq!(look(&mut scanner).await, r#"pods ["b-n=i"]"#);
    assert_eq!(objects(&scanner), ["ConfigMap default/c one"]);
    // A broken one keeps its last good version, and one that is defined twice the first.
    fs.put("/m/a", map("5"));
    fs.put("/m/c", map("three"));
    assert_eq!(
        look(&mut scanner).await,
        "pods [\"b-n=i\"]
/m/a: line 4, column 11: data.k: must be a string; put it in quotes; last good stays
/m/c: ConfigMap default/c is defined by /m/a"
    );
    assert_eq!(objects(&scanner), ["ConfigMap default/c one"]);
    fs.delete("/m/a");
    look(&mut scanner).await;
    assert_eq!(objects(&scanner), ["ConfigMap default/c three"]);
    // So does one that broke while the agent was away.
    fs.put("/m/c", map("[]"));
    let mut next = self::scanner(&fs, "/m");
    assert!(look(&mut next).await.ends_with("put it in quotes; copy runs"));
    assert_eq!(objects(&next), ["ConfigMap default/c three"]);
}

#[tokio::test]
async fn an_unchanged_manifest_is_not_read_again() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", manifest("a", "i"));
    let mut scanner = scanner(&fs, "/m");
    look(&mut scanner).await;
    let reads = fs.state().reads;
    look(&mut scanner).await;
    assert_eq!(fs.state().reads, reads);
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_keeps_its_pod() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", manifest("a", "i"));
    let mut scanner = scanner(&fs, "/m");
    look(&mut scanner).await;
    fs.put("/m/a", manifest("a", "j"));
    fs.state().broken.insert("/m/a".into(), ErrorKind::PermissionDenied);
    assert_eq!(
        look(&mut scanner).await,
        "/m/a: cannot be read: permission denied; last good stays"
    );
    assert_eq!(look(&mut scanner).await, "");
    fs.state().broken.clear();
    assert_eq!(look(&mut scanner).await, "pods [\"a-n=j\"]\n/m/a: good again");
}

#[tokio::test]
async fn the_first_file_by_name_owns_a_pod() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/b", manifest("a", "second"));
    fs.put("/m/a", manifest("a", "first"));
    let mut scanner = scanner(&fs, "/m");
    assert_eq!(
        look(&mut scanner).await,
        "pods [\"a-n=first\"]\n/m/b: a-n_default is defined by /m/a"
    );
    assert_eq!(look(&mut scanner).await, "");
    fs.delete("/m/a");
    assert_eq!(look(&mut scanner).await, "pods [\"a-n=second\"]");
}

#[tokio::test]
async fn a_missing_path_has_no_pods_and_an_unreadable_one_keeps_them() {
    let fs = MemFs::default();
    let mut scanner = scanner(&fs, "/m");
    assert_eq!(look(&mut scanner).await, "pods []\n/m: missing");
    assert_eq!(look(&mut scanner).await, "");
    fs.state().dirs_insert("/m");
    fs.put("/m/a", manifest("a", "i"));
    assert_eq!(look(&mut scanner).await, "pods [\"a-n=i\"]\n/m: back");
    fs.state().broken.insert("/m".into(), ErrorKind::PermissionDenied);
    assert_eq!(look(&mut scanner).await, "/m: permission denied; 1 pods kept");
    assert_eq!(look(&mut scanner).await, "");
    fs.state().broken.clear();
    assert_eq!(look(&mut scanner).await, "/m: back");
    fs.state().dirs_remove("/m");
    assert_eq!(look(&mut scanner).await, "pods []\n/m: missing");
}

#[tokio::test]
async fn a_single_file_is_a_path_too() {
    let fs = MemFs::default();
    fs.put("/pod.yaml", manifest("a", "i"));
    let mut scanner = scanner(&fs, "/pod.yaml");
    assert_eq!(look(&mut scanner).await, "pods [\"a-n=i\"]");
    fs.delete("/pod.yaml");
    assert_eq!(look(&mut scanner).await, "pods []\n/pod.yaml: missing");
}

#[tokio::test]
async fn a_restart_falls_back_on_the_last_good_copy() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", manifest("a", "good"));
    fs.put("/m/b", manifest("b", "good"));
    look(&mut scanner(&fs, "/m")).await;
    // While the agent is down, one breaks and one goes.
    fs.put("/m/a", "apiVersion: v1\nkind: Pod\nmetadata: {");
    fs.delete("/m/b");
    let mut restarted = scanner(&fs, "/m");
    let found = look(&mut restarted).await;
    assert!(found.starts_with("pods [\"a-n=good\"]\n/m/a: line "), "{found}");
    assert!(found.ends_with("; copy runs"), "{found}");
    assert_eq!(fs.files_below("/root").len(), 1, "the copy of the removed one is gone");
    // And again, for the copy is still needed.
    assert!(look(&mut scanner(&fs, "/m")).await.starts_with("pods [\"a-n=good\"]\n"));
    fs.put("/m/a", manifest("a", "fixed"));
    assert_eq!(look(&mut restarted).await, "pods [\"a-n=fixed\"]\n/m/a: good again");
}

#[tokio::test]
async fn a_restart_with_an_unreadable_directory_falls_back_too() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", manifest("a", "good"));
    look(&mut scanner(&fs, "/m")).await;
    fs.state().broken.insert("/m".into(), ErrorKind::PermissionDenied);
    let mut restarted = scanner(&fs, "/m");
    assert_eq!(
        look(&mut restarted).await,
        "pods [\"a-n=good\"]\n/m: permission denied; 1 pods kept\n/m: orphans wait"
    );
    assert_eq!(look(&mut restarted).await, "");
    fs.state().broken.clear();
    assert_eq!(look(&mut restarted).await, "pods [\"a-n=good\"]\n/m: back");
}

#[tokio::test]
async fn copies_are_written_once_and_failures_said() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", manifest("a", "i"));
    fs.put("/m/b", manifest("b", "i"));
    look(&mut scanner(&fs, "/m")).await;
    let copies = fs.files_below("/root");
    assert_eq!(copies.len(), 2);
    fs.state().broken.extend(copies.into_iter().map(|copy| (copy, ErrorKind::StorageFull)));
    // The copies cannot be compared, so they are written, and that fails.
    let mut restarted = scanner(&fs, "/m");
    let found = look(&mut restarted).await;
    assert_eq!(found, "pods [\"a-n=i\", \"b-n=i\"]\ncopy: no storage space", "said once for all");
    assert_eq!(look(&mut restarted).await, "");
}

#[tokio::test]
async fn a_manifest_never_read_keeps_orphans_waiting_and_says_so() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", manifest("a", "i"));
    fs.state().broken.insert("/m/a".into(), ErrorKind::PermissionDenied);
    let mut scanner = scanner(&fs, "/m");
    assert_eq!(
        look(&mut scanner).await,
        "pods []\n/m/a: cannot be read: permission denied; nothing runs\n/m/a: orphans wait"
    );
    assert_eq!(look(&mut scanner).await, "", "said once");
    assert!(!scanner.complete());
    fs.state().broken.clear();
    assert_eq!(look(&mut scanner).await, "pods [\"a-n=i\"]\n/m/a: good again");
    assert!(scanner.complete());
    // All was read once, so a newcomer keeps nobody waiting.
    fs.put("/m/b", manifest("b", "i"));
    fs.state().broken.insert("/m/b".into(), ErrorKind::PermissionDenied);
    assert_eq!(look(&mut scanner).await, "/m/b: cannot be read: permission denied; nothing runs");
}

#[tokio::test]
async fn warnings_are_said_once() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", format!("{}    imaje: x\n", manifest("a", "i")));
    let mut scanner = scanner(&fs, "/m");
    assert_eq!(
        look(&mut scanner).await,
        "pods [\"a-n=i\"]\n/m/a: warning: line 9, column 12: spec.containers[0].imaje: unknown field, ignored"
    );
    assert_eq!(look(&mut scanner).await, "");
}
