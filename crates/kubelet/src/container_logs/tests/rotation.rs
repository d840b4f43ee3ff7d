//! When logs are rotated, and what is left of them.

use std::sync::atomic::Ordering;

use super::counted_fs::CountedFs;
use super::*;

const KI: u64 = 1 << 10;

#[tokio::test(start_paused = true)]
async fn a_fast_log_is_caught_between_intervals() {
    let node = Node::start(64 * KI);
    let mut largest = 0;
    // 64 KiB a second from the first moment on: upstream would see 640.
    for _ in 0..600 {
        node.runtime.log(3_200);
        pass(50).await;
        largest = largest.max(node.size());
    }
    assert!(largest >= 64 * KI, "nothing was rotated before its time");
    assert!(largest < 160 * KI, "the log reached {largest} bytes");
    let files = node.files();
    assert_eq!(files.len(), 5, "{files:?}");
    assert_eq!(files[0], "0.log");
    // The newest stays as it is for those who still read it.
    assert!(files[1..4].iter().all(|name| name.ends_with(".gz")), "{files:?}");
    assert!(!files[4].ends_with(".gz"), "{files:?}");
    let oldest = gunzip(&node.dir.path().join(&files[1]));
    assert!(oldest.starts_with("2026-01-01T00:00:00Z stdout F line "), "{oldest:.60}");
}

/// Writes for five seconds at 64 KiB each; the size at which the log was first rotated.
async fn first_rotation_of_a_burst(node: &Node) -> u64 {
    let mut largest = 0;
    for _ in 0..100 {
        node.runtime.log(3_200);
        pass(50).await;
        if node.files().len() > 1 {
            return largest;
        }
        largest = node.size();
    }
    panic!("a log of {largest} bytes was not rotated");
}

#[tokio::test(start_paused = true)]
async fn a_silent_log_that_bursts_is_caught_at_once() {
    for silence in [0, 1_400, 33_000, 87_900] {
        let node = Node::start(64 * KI);
        pass(silence).await;
        let size = first_rotation_of_a_burst(&node).await;
        assert!((60 * KI..96 * KI).contains(&size), "after {silence} ms: {size} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_log_that_bursts_is_caught_soon() {
    for period in [300, 1_000, 2_300, 7_000] {
        let node = Node::start(64 * KI);
        for _ in 0..10 {
            pass(period).await;
            node.runtime.log(50);
        }
        pass(100).await;
        let size = first_rotation_of_a_burst(&node).await;
        assert!(size < 128 * KI, "a line each {period} ms: {size} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_log_costs_one_look_an_interval() {
    let fs = Arc::new(CountedFs { has_alarms: true, ..CountedFs::default() });
    let node = Node::start_on(Arc::clone(&fs) as _, 64 * KI);
    node.runtime.log(1_000);
    pass(5_000).await;
    let looks = || fs.looks.load(Ordering::Relaxed);
    let before = looks();
    pass(100_000).await;
    assert!((9..=11).contains(&(looks() - before)), "{} looks", looks() - before);
    // A line a second costs one look a second; a line now and then, two more.
    for (period, most) in [(1_000, 70), (20_000, 16)] {
        let before = looks();
        for _ in 0..60_000 / period {
            node.runtime.log(50);
            pass(period).await;
        }
        assert!(looks() - before <= most, "{} looks for {period}", looks() - before);
    }
}

#[tokio::test(start_paused = true)]
async fn without_alarms_a_burst_is_caught_by_the_interval() {
    let fs = Arc::new(CountedFs::default());
    let node = Node::start_on(Arc::clone(&fs) as _, 64 * KI);
    pass(33_000).await;
    assert!((3..8).contains(&fs.asked.load(Ordering::Relaxed)), "asked at each look");
    node.runtime.log(100_000);
    pass(10_500).await;
    assert_eq!(node.files().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_between_rotated_files() {
    let node = Node::start(64 * KI);
    for _ in 0..60 {
        node.runtime.log(3_200);
        pass(50).await;
    }
    pass(20_000).await;
    let mut text = String::new();
    let files = node.files();
    assert!((3..=5).contains(&files.len()), "{files:?}");
    for name in files[1..].iter().chain([&files[0]]) {
        let path = node.dir.path().join(name);
        text +=
            &if name.ends_with(".gz") { gunzip(&path) } else { fs::read_to_string(&path).unwrap() };
    }
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), node.runtime.lines());
    for (n, line) in lines.iter().enumerate() {
        assert!(line.contains(&format!(" line {n} ")), "{line} is not line {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_log_is_left_alone() {
    let node = Node::start(64 * KI);
    node.runtime.log(60_000);
    pass(60_000).await;
    assert_eq!(node.files(), ["0.log"]);
    assert_eq!(node.runtime.state().reopened, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_reopening_puts_the_log_back() {
    let node = Node::start(KI);
    node.runtime.state().reopen_fails = true;
    node.runtime.log(2_000);
    pass(5_000).await;
    assert_eq!(node.files(), ["0.log"]);
    assert_eq!(node.runtime.state().reopened, 1, "tried again before the interval was over");
    node.runtime.state().reopen_fails = false;
    pass(10_000).await;
    assert_eq!(node.files().len(), 2);
    assert_eq!(node.size(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_missing_log_is_opened_anew() {
    let node = Node::start(64 * KI);
    pass(3_000).await;
    // As if the agent had been killed after it moved the log.
    fs::rename(node.path(), node.dir.path().join("0.log.19700101-000000")).unwrap();
    node.runtime.log(10);
    assert_eq!(node.size(), 0);
    pass(10_000).await;
    assert_eq!(node.runtime.state().reopened, 1);
    node.runtime.log(10);
    assert!(node.size() > 0, "the container writes to the new file");
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_a_rotation_cut_short_are_removed() {
    let node = Node::start(KI);
    let rest = ["0.log.19690101-000000", "0.log.19690101-000000.gz", "0.log.19690102-000000.tmp"];
    for name in rest.iter().chain(&["10.log.19690101-000000"]) {
        fs::write(node.dir.path().join(name), "x").unwrap();
    }
    node.runtime.log(2_000);
    pass(2_000).await;
    let files = node.files();
    assert_eq!(files[..2], ["0.log", "0.log.19690101-000000.gz"]);
    assert_eq!(files[3..], ["10.log.19690101-000000"], "another instance's log");
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_container_that_ended_stays() {
    let node = Node::start(64 * KI);
    pass(3_000).await;
    node.runtime.log(100_000);
    node.runtime.state().running = false;
    pass(60_000).await;
    // Its end may not be known yet when its last words are; then the runtime refuses.
    assert_eq!(node.files(), ["0.log"]);
    assert!(node.size() >= 100_000);
    let reopened = node.runtime.state().reopened;
    fs::remove_file(node.path()).unwrap();
    pass(60_000).await;
    assert_eq!(node.runtime.state().reopened, reopened);
}
