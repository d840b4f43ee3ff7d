//! Empty directories of huge pages: reserved for the test, written by mapping them.

use std::fs;

use anyhow::{Context, Result, ensure};
use testkit::{Node, host};

const NAME: &str = "huge-pages";
const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// More than the example uses.
const PAGES: u64 = 4;

/// Pages of 2 MiB that are there until this is dropped.
struct Pages {
    before: u64,
}

impl Pages {
    /// None if this kernel gives none.
    fn reserve() -> Result<Option<Self>> {
        let Ok(before) = fs::read_to_string(RESERVED) else { return Ok(None) };
        let pages = Self { before: before.trim().parse().context("it is a number")? };
        if fs::write(RESERVED, (pages.before + PAGES).to_string()).is_err() {
            return Ok(None);
        }
        let now: u64 = fs::read_to_string(RESERVED)?.trim().parse()?;
        Ok((now >= pages.before + PAGES).then_some(pages))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Err(error) = fs::write(RESERVED, self.before.to_string()) {
            eprintln!("{RESERVED} is not {} again: {error}", self.before);
        }
    }
}

/// busybox writes to memory through a mapping of /dev/mem, which is a file of the volume
/// here: such files have no write().
const WRITE: &str = "ln -sf /huge/page /dev/mem && devmem 0 32 0x6c6c6568";

#[test]
fn a_volume_of_huge_pages() -> Result<()> {
    let Some(_pages) = Pages::reserve()? else {
        eprintln!("SKIPPED a_volume_of_huge_pages: the kernel gives no pages in {RESERVED}");
        return Ok(());
    };
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
