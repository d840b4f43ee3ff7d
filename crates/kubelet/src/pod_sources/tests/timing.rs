//! When the file source looks, under paused time.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::start_with;
use super::mem_fs::MemFs;
use super::{expect_pods, manifest, ports};
use crate::settings::Settings;

fn settings() -> Settings {
    Settings { static_pod_path: Some("/m/".into()), ..Settings::for_node("n") }
}

#[tokio::test(start_paused = true)]
async fn without_sources_the_empty_set_is_ready_at_once() {
    let (reader, _) = start_with(&Settings::for_node("n"), &ports(Arc::new(MemFs::default())));
    assert!(reader.current().sources_ready && reader.current().pods.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_has_not_spoken_is_not_ready() {
    let fs = MemFs::with_dir("/m");
    let (mut reader, _) = start_with(&settings(), &ports(Arc::new(fs)));
    assert!(!reader.current().sources_ready);
    expect_pods(&mut reader, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn an_announced_change_is_seen_within_milliseconds() {
    let fs = MemFs::with_dir("/m");
    let (mut reader, _) = start_with(&settings(), &ports(Arc::new(fs.clone())));
    expect_pods(&mut reader, &[]).await;
    let started = Instant::now();
    fs.put("/m/a", manifest("a", "i"));
    fs.announce();
    expect_pods(&mut reader, &["a-n=i"]).await;
    assert!(started.elapsed() <= Duration::from_millis(25), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_changes_is_looked_at_a_few_times_a_second() {
    let fs = MemFs::with_dir("/m");
    let (mut reader, _) = start_with(&settings(), &ports(Arc::new(fs.clone())));
    expect_pods(&mut reader, &[]).await;
    let before = fs.state().lists;
    for round in 0..1_000 {
        fs.put("/m/a", manifest("a", &format!("i{round}")));
        fs.announce();
        sleep(Duration::from_millis(1)).await;
    }
    let looks = fs.state().lists - before;
    assert!((4..=8).contains(&looks), "{looks} looks in a second");
    expect_pods(&mut reader, &["a-n=i999"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_unannounced_change_is_seen_by_the_next_rescan() {
    let fs = MemFs::with_dir("/m");
    let (mut reader, _) = start_with(&settings(), &ports(Arc::new(fs.clone())));
    expect_pods(&mut reader, &[]).await;
    let started = Instant::now();
    fs.put("/m/a", manifest("a", "i"));
    expect_pods(&mut reader, &["a-n=i"]).await;
    assert_eq!(started.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_is_renewed_and_meanwhile_nothing_is_missed() {
    let fs = MemFs::with_dir("/m");
    let (mut reader, _) = start_with(&settings(), &ports(Arc::new(fs.clone())));
    expect_pods(&mut reader, &[]).await;
    fs.put("/m/a", manifest("a", "i"));
    fs.end_watches();
    // The end of the watch may have swallowed a change.
    expect_pods(&mut reader, &["a-n=i"]).await;
    sleep(Duration::from_secs(2)).await;
    let started = Instant::now();
    fs.delete("/m/a");
    fs.announce();
    expect_pods(&mut reader, &[]).await;
    assert!(started.elapsed() < Duration::from_millis(30), "the new watch announces");
}

#[tokio::test(start_paused = true)]
async fn watching_is_retried_ever_more_slowly() {
    let fs = MemFs::with_dir("/m");
    fs.state().watch_error = Some(ErrorKind::Other);
    let (mut reader, _) = start_with(&settings(), &ports(Arc::new(fs.clone())));
    expect_pods(&mut reader, &[]).await;
    sleep(Duration::from_secs(40)).await;
    // At 0, 1, 3, 7, 15 and 35 s; rescans in between change nothing about it.
    assert_eq!(fs.state().watch_attempts, 6);
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_pod_is_no_change() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", manifest("a", "i"));
    let (mut reader, _) = start_with(&settings(), &ports(Arc::new(fs.clone())));
    expect_pods(&mut reader, &["a-n=i"]).await;
    let before = reader.current();
    fs.put("/m/a", format!("# a comment\n{}", manifest("a", "i")));
    fs.announce();
    sleep(Duration::from_secs(1)).await;
    assert!(Arc::ptr_eq(&before, &reader.current()));
}
