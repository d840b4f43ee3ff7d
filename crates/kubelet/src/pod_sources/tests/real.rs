//! The file source against real files and real inotify.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode};

use super::super::{PodSetReader, SourcePorts, start_with};
use super::{expect_pods, manifest, pods_of, ports};
use crate::ports::RealFs;
use crate::settings::Settings;

struct Node {
    _dir: tempfile::TempDir,
    manifests: PathBuf,
    settings: Settings,
    ports: SourcePorts,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let manifests = dir.path().join("manifests");
        fs::create_dir(&manifests).unwrap();
        let settings = Settings {
            static_pod_path: Some(manifests.clone()),
            root_dir: dir.path().join("root"),
            ..Settings::for_node("n")
        };
        Self { _dir: dir, manifests, settings, ports: ports(Arc::new(RealFs)) }
    }

    fn start(&self) -> PodSetReader {
        start_with(&self.settings, &self.ports).0
    }

    fn path(&self, name: &str) -> PathBuf {
        self.manifests.join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }
}

fn rename_over(path: &Path, content: &str) {
    let draft = path.with_file_name(".draft");
    fs::write(&draft, content).unwrap();
    fs::rename(&draft, path).unwrap();
}

#[tokio::test]
async fn good_bad_fixed_removed() {
    let node = Node::new();
    let mut reader = node.start();
    expect_pods(&mut reader, &[]).await;
    node.write("a.yaml", manifest("a", "one"));
    expect_pods(&mut reader, &["a-n=one"]).await;
    // A marker tells when the bad version has been looked at.
    node.write("a.yaml", "apiVersion: v1\nkind: [");
    node.write("marker.yaml", manifest("marker", "i"));
    expect_pods(&mut reader, &["a-n=one", "marker-n=i"]).await;
    node.write("a.yaml", manifest("a", "two"));
    expect_pods(&mut reader, &["a-n=two", "marker-n=i"]).await;
    fs::remove_file(node.path("a.yaml")).unwrap();
    expect_pods(&mut reader, &["marker-n=i"]).await;
}

#[tokio::test]
async fn half_written_then_completed() {
    use std::io::Write;
    let node = Node::new();
    let mut reader = node.start();
    let text = manifest("a", "whole");
    let mut file = fs::File::create(node.path("a.yaml")).unwrap();
    let (start, rest) = text.as_bytes().split_at(text.find("containers").unwrap());
    file.write_all(start).unwrap();
    node.write("marker.yaml", manifest("marker", "i"));
    expect_pods(&mut reader, &["marker-n=i"]).await;
    file.write_all(rest).unwrap();
    drop(file);
    expect_pods(&mut reader, &["a-n=whole", "marker-n=i"]).await;
}

#[tokio::test]
async fn replaced_by_rename() {
    let node = Node::new();
    let mut reader = node.start();
    for image in ["one", "two", "three"] {
        rename_over(&node.path("a.yaml"), &manifest("a", image));
        expect_pods(&mut reader, &[&format!("a-n={image}")]).await;
    }
}

#[tokio::test]
async fn a_single_file_replaced_by_rename() {
    let mut node = Node::new();
    let path = node.path("pod.yaml");
    node.settings.static_pod_path = Some(path.clone());
    let mut reader = node.start();
    expect_pods(&mut reader, &[]).await;
    for image in ["one", "two"] {
        rename_over(&path, &manifest("a", image));
        expect_pods(&mut reader, &[&format!("a-n={image}")]).await;
    }
    fs::remove_file(&path).unwrap();
    expect_pods(&mut reader, &[]).await;
}

#[tokio::test]
async fn strange_entries_harm_nobody() {
    let node = Node::new();
    node.write("big.yaml", vec![b'x'; 10 * 1024 * 1024 + 1]);
    node.write("full.yaml", format!("{}# {}", manifest("full", "i"), "x".repeat(10_000_000)));
    node.write("binary", [0_u8, 159, 146, 150]);
    let fifo = node.path("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(node.path("sub")).unwrap();
    fs::write(node.path("sub/c.yaml"), manifest("c", "i")).unwrap();
    fs::write(node.manifests.with_file_name("target.yaml"), manifest("linked", "i")).unwrap();
    std::os::unix::fs::symlink("../target.yaml", node.path("link.yaml")).unwrap();
    std::os::unix::fs::symlink("loop.yaml", node.path("loop.yaml")).unwrap();
    std::os::unix::fs::symlink("nowhere", node.path("dangling.yaml")).unwrap();
    node.write("z.yaml", manifest("z", "i"));
    let mut reader = node.start();
    expect_pods(&mut reader, &["full-n=i", "linked-n=i", "z-n=i"]).await;
}

#[tokio::test]
async fn three_thousand_files() {
    let node = Node::new();
    for number in 0..3_000 {
        node.write(&format!("{number:04}.yaml"), manifest(&format!("p{number}"), "i"));
    }
    let mut reader = node.start();
    while reader.current().pods.len() < 3_000 {
        tokio::time::timeout(super::PATIENCE, reader.changed()).await.expect("all files are read");
    }
    assert!(reader.current().sources_ready, "the first set is complete");
    node.write("0007.yaml", manifest("p7", "changed"));
    let changed = async {
        while !pods_of(&reader.current()).contains(&"p7-n=changed".to_owned()) {
            reader.changed().await;
        }
    };
    tokio::time::timeout(super::PATIENCE, changed).await.expect("the change is seen");
    assert_eq!(reader.current().pods.len(), 3_000);
}

#[tokio::test]
async fn the_first_of_two_files_owns_the_name() {
    let node = Node::new();
    node.write("b.yaml", manifest("a", "second"));
    node.write("a.yaml", manifest("a", "first"));
    let mut reader = node.start();
    expect_pods(&mut reader, &["a-n=first"]).await;
    fs::remove_file(node.path("a.yaml")).unwrap();
    expect_pods(&mut reader, &["a-n=second"]).await;
}

#[tokio::test]
async fn a_restart_with_a_broken_manifest_runs_the_last_good_copy() {
    let mut node = Node::new();
    node.write("a.yaml", manifest("a", "good"));
    let mut reader = node.start();
    expect_pods(&mut reader, &["a-n=good"]).await;
    let before = reader.current().pods.keys().next().cloned();
    // The copy is written after the pods are announced.
    let copies = node.settings.root_dir.join("klet/last-good");
    let copied = async {
        while fs::read_dir(&copies).map(Iterator::count).unwrap_or_default() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::PATIENCE, copied).await.expect("a copy is kept");
    node.ports.tasks.abort_all();

    node.write("a.yaml", "half a mani");
    node.ports = ports(Arc::new(RealFs));
    let mut reader = node.start();
    expect_pods(&mut reader, &["a-n=good"]).await;
    assert_eq!(reader.current().pods.keys().next().cloned(), before, "the same pod, not restarted");
}

#[tokio::test]
async fn a_directory_that_comes_later_is_noticed() {
    let node = Node::new();
    fs::remove_dir(&node.manifests).unwrap();
    let mut reader = node.start();
    expect_pods(&mut reader, &[]).await;
    fs::create_dir(&node.manifests).unwrap();
    node.write("a.yaml", manifest("a", "i"));
    expect_pods(&mut reader, &["a-n=i"]).await;
    fs::remove_dir_all(&node.manifests).unwrap();
    expect_pods(&mut reader, &[]).await;
}
