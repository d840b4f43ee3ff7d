//! What readers get.

use futures_util::StreamExt;

use super::*;
use crate::container_logs::{LogError, LogStream, StillRunning, read};

fn running(now: bool) -> StillRunning {
    Arc::new(move || now)
}

async fn text_of(path: &Path, options: LogOptions) -> Result<String, LogError> {
    let mut stream = read(Arc::new(RealFs), path.to_owned(), options, running(false))?;
    let mut text = Vec::new();
    while let Some(chunk) = stream.next().await {
        text.extend(chunk?.bytes);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

async fn check(log: &str, options: LogOptions, expected: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    fs::write(&path, log).unwrap();
    for follow in [false, true] {
        let options = LogOptions { follow, ..options.clone() };
        assert_eq!(text_of(&path, options).await.unwrap(), expected, "follow: {follow}");
    }
}

const LOG: &str = "2026-01-01T00:00:01Z stdout F one\n\
                   2026-01-01T00:00:02.5Z stderr P tw\n\
                   2026-01-01T00:00:02.6Z stderr F o\n\
                   nonsense\n\
                   2026-01-01T00:00:03Z stdout F three\n";

#[tokio::test(start_paused = true)]
async fn options_choose_what_is_read() {
    let all = LogOptions::default;
    check(LOG, all(), "one\ntwo\nthree\n").await;
    check("", all(), "").await;
    check(LOG, LogOptions { tail: Some(0), ..all() }, "").await;
    check(LOG, LogOptions { tail: Some(1), ..all() }, "three\n").await;
    check(LOG, LogOptions { tail: Some(3), ..all() }, "o\nthree\n").await;
    check(LOG, LogOptions { tail: Some(100), ..all() }, "one\ntwo\nthree\n").await;
    let since = "2026-01-01T00:00:02.5Z".parse().ok();
    check(LOG, LogOptions { since, ..all() }, "two\nthree\n").await;
    check(LOG, LogOptions { limit_bytes: Some(6), ..all() }, "one\ntw").await;
    let stdout = LogOptions { stream: Some(LogStream::Stdout), ..all() };
    check(LOG, stdout.clone(), "one\nthree\n").await;
    check(LOG, LogOptions { stream: Some(LogStream::Stderr), ..all() }, "two\n").await;
    check(LOG, LogOptions { limit_bytes: Some(6), ..stdout }, "one\nth").await;
    check(LOG, LogOptions { limit_bytes: Some(0), ..all() }, "").await;
    let stamped = "2026-01-01T00:00:01.000000000Z one\n\
                   2026-01-01T00:00:02.500000000Z two\n\
                   2026-01-01T00:00:03.000000000Z three\n";
    check(LOG, LogOptions { timestamps: true, ..all() }, stamped).await;
}

#[tokio::test(start_paused = true)]
async fn the_tail_of_a_long_log_is_found() {
    let line = |n: u32| format!("2026-01-01T00:00:01Z stdout F {n:0100}\n");
    let log: String = (0..5_000).map(line).collect();
    let expected: String = (3_000..5_000).map(|n| format!("{n:0100}\n")).collect();
    check(&log, LogOptions { tail: Some(2_000), ..LogOptions::default() }, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn chunks_tell_their_stream() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    fs::write(&path, LOG).unwrap();
    let stream = read(Arc::new(RealFs), path, LogOptions::default(), running(false)).unwrap();
    let streams: Vec<LogStream> = stream.map(|chunk| chunk.unwrap().stream).collect().await;
    use LogStream::{Stderr, Stdout};
    assert_eq!(streams, [Stdout, Stderr, Stderr, Stdout]);
}

#[tokio::test(start_paused = true)]
async fn a_line_without_end_is_handed_on_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let mut log = b"2026-01-01T00:00:01Z stdout F ".to_vec();
    log.resize(3 << 20, 0);
    fs::write(&path, &log).unwrap();
    let stream = read(Arc::new(RealFs), path, LogOptions::default(), running(false)).unwrap();
    let sizes: Vec<usize> = stream.map(|chunk| chunk.unwrap().bytes.len()).collect().await;
    assert_eq!(sizes.iter().sum::<usize>(), (3 << 20) - 30);
    assert!(sizes.iter().all(|size| *size <= 64 << 10), "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn an_absent_log_says_what_that_means() {
    let error = text_of(Path::new("/nonexistent/0.log"), LogOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("a container that never started has none"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn following_misses_nothing_across_rotation() {
    let node = Node::start(64 << 10);
    let runtime = node.runtime.clone();
    let still = Arc::new(move || runtime.state().running);
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let stream = read(Arc::new(RealFs), node.path(), options, still).unwrap();
    let writer = async {
        for _ in 0..400 {
            node.runtime.log(3_200);
            pass(50).await;
        }
        node.runtime.log(5_000);
        node.runtime.state().running = false;
    };
    let reader = stream.map(|chunk| chunk.unwrap().bytes).collect::<Vec<_>>();
    let (chunks, ()) = futures_util::future::join(reader, writer).await;
    let text = String::from_utf8(chunks.concat()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(node.files().len() > 3, "the log was rotated: {:?}", node.files());
    assert_eq!(lines.len(), node.runtime.lines());
    for (n, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("line {n} ")), "{line} is not line {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_was_emptied_is_read_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    fs::write(&path, LOG).unwrap();
    let options = LogOptions { follow: true, tail: Some(0), ..LogOptions::default() };
    let mut stream = read(Arc::new(RealFs), path.clone(), options, running(true)).unwrap();
    let emptied = async {
        pass(1_000).await;
        fs::write(&path, "2026-01-01T00:00:09Z stdout F new\n").unwrap();
    };
    let (chunk, ()) = futures_util::future::join(stream.next(), emptied).await;
    assert_eq!(chunk.unwrap().unwrap().bytes, b"new\n");
}

#[tokio::test(start_paused = true)]
async fn a_log_replaced_without_rotation_is_not_taken_for_an_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    fs::write(dir.path().join("0.log.20200101-000000"), LOG).unwrap();
    fs::write(&path, LOG).unwrap();
    let options = LogOptions { follow: true, tail: Some(1), ..LogOptions::default() };
    let mut stream = read(Arc::new(RealFs), path.clone(), options, running(true)).unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().bytes, b"three\n");
    let draft = dir.path().join("draft");
    fs::write(&draft, "2026-01-01T00:00:09Z stdout F new\n").unwrap();
    fs::rename(&draft, &path).unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().bytes, b"new\n");
}
