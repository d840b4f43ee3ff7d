//! Empty directories of huge pages: reserved for the test, written by mapping them.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::huge_pages::HugePages;
use testkit::{Node, PodManifest, host};

const NAME: &str = "huge-pages";
/// More than the example uses.
const PAGES: u64 = 4;

/// busybox writes to memory through a mapping of /dev/mem, which is a file of the volume
/// here: such files have no write().
const WRITE: &str = "ln -sf /huge/page /dev/mem && devmem 0 32 0x6c6c6568";

#[test]
fn a_volume_of_huge_pages() -> Result<()> {
    let Some(_pages) = HugePages::reserve("a_volume_of_huge_pages", PAGES)? else { return Ok(()) };
    let mut node = Node::start()?;
    node.manifests.put_example(NAME, &[])?;
    let uid = node.wait_running(NAME)?.uid;
    let mount = node.eventually("the volume to be mounted", || {
        let said = node.log(NAME, "use", 0)?.lines()?;
        let line = said.into_iter().find(|line| line.text.contains(" /huge "));
        Ok(line.context("it has not said so")?.text)
    })?;
    ensure!(mount.contains("hugetlbfs") && mount.contains("pagesize=2M"), "{mount}");
    node.run_in(NAME, "use", WRITE)?;
    let read = "head -c 4 /huge/page";
    assert_eq!(node.run_in(NAME, "use", read)?, "hell");
    let dir = node.klet.root_dir().join("pods").join(&uid);
    let volume = dir.join("volumes/kubernetes.io~empty-dir/huge");
    assert_eq!(&fs::read(volume.join("page"))?[..4], b"hell");
    ensure!(host::mounts_below(&volume)?.len() == 1, "once");

    node.survive_kill()?;
    assert_eq!(node.run_in(NAME, "use", read)?, "hell");
    ensure!(host::mounts_below(&volume)?.len() == 1, "still once");

    // It goes while klet is away: the pages are free again.
    node.klet.kill9()?;
    node.manifests.remove_example(NAME)?;
    node.klet.restart()?;
    node.wait_no_trace(NAME, &uid)
}

/// A pod that asks for pages of one size need not say which its volume has.
#[test]
fn the_only_size_need_not_be_named() -> Result<()> {
    let Some(_pages) = HugePages::reserve("the_only_size_need_not_be_named", PAGES)? else {
        return Ok(());
    };
    let node = Node::start()?;
    let limits = json!({"memory": "32Mi", "hugepages-2Mi": "4Mi"});
    let pod = PodManifest::script("any", "fallocate -l 2M /huge/page; exec sleep 1000")
        .with("resources", json!({"limits": limits}))
        .with("volumeMounts", json!([{"name": "huge", "mountPath": "/huge"}]))
        .spec("volumes", json!([{"name": "huge", "emptyDir": {"medium": "HugePages"}}]))
        .grace(1);
    node.manifests.put_pod(&pod)?;
    let uid = node.wait_running("any")?.uid;
    let mount = node.run_in("any", "main", "grep ' /huge ' /proc/mounts")?;
    ensure!(mount.contains("hugetlbfs") && mount.contains("pagesize=2M"), "{mount}");
    node.manifests.remove_pod("any")?;
    node.wait_no_trace("any", &uid)
}
