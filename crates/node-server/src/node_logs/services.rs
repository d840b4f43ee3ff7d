//! Logs of services: from journald if it knows them, else from files of their names.
//!
//! Upstream: pkg/kubelet/kubelet_server_journal.go (Copy, heuristicsCopyFileLogs).

use std::io::{self, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{StreamExt as _, stream};
use hyper::header::{CONTENT_ENCODING, HeaderValue};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::files::{self, Found};
use super::query::{Asked, Options, arguments};
use crate::answer::{self, Reply};
use crate::listen::Spawn;
use crate::view::{Answer, Chunks, Content};

/// Time for all of it.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes of the list of what journald knows.
const LIST_BYTES_MAX: u64 = 4 << 20;
const CHUNK_BYTES: usize = 32 << 10;
/// Chunks that wait for a client.
const CHUNKS_AHEAD: usize = 4;

/// Shows the logs of services.
pub(super) async fn serve(root: &Path, asked: Asked, gzip: bool, spawn: &Spawn) -> Reply {
    let deadline = Instant::now() + LIMIT;
    let known = timeout_at(deadline, units()).await.unwrap_or_default();
    let (mut native, mut others) = (Vec::new(), Vec::new());
    for service in asked.services {
        let unit = format!("{service}.service");
        if known.contains(&unit) { native.push(service) } else { others.push(service) }
    }
    let mut parts: Vec<Chunks> = Vec::new();
    if !native.is_empty() {
        parts.push(journal(&arguments(&native, &asked.options)));
    }
    if !others.is_empty() && asked.options != Options::default() {
        parts.push(text(format!(
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            others.join(" ")
        )));
    } else {
        for service in &others {
            parts.push(file_of(root, service).await);
        }
    }
    let mut chunks = until(stream::iter(parts).flatten().boxed(), deadline, spawn);
    if gzip {
        chunks = compress(chunks);
    }
    let content_type = "text/plain;charset=UTF-8";
    let mut reply =
        answer::content(Answer { content_type, content: Content::Chunks(chunks), warning: None });
    if gzip {
        reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    reply
}

fn text(text: String) -> Chunks {
    stream::iter([Ok(Bytes::from(text))]).boxed()
}

/// Ends a stream when its time is over, whether or not anybody reads it: a client that
/// stops reading keeps no journalctl alive.
fn until(mut chunks: Chunks, deadline: Instant, spawn: &Spawn) -> Chunks {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    spawn(Box::pin(async move {
        let pump = async {
            while let Some(chunk) = chunks.next().await {
                if sender.send(chunk).await.is_err() {
                    // The client has left.
                    return;
                }
            }
        };
        if timeout_at(deadline, pump).await.is_err() {
            tracing::debug!("a query of the node's logs took too long and was cut off");
        }
    }));
    stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) })
        .boxed()
}

/// What journald knows; nothing if it is not there.
async fn units() -> String {
    let child = Command::new("journalctl")
        .args(["--field", "_SYSTEMD_UNIT"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut child) = child else { return String::new() };
    let mut list = Vec::new();
    let Some(output) = child.stdout.take() else { return String::new() };
    match output.take(LIST_BYTES_MAX).read_to_end(&mut list).await {
        Ok(_) => String::from_utf8_lossy(&list).into_owned(),
        Err(_) => String::new(),
    }
}

/// What journalctl says, complaints included.
fn journal(arguments: &[String]) -> Chunks {
    match start(arguments) {
        Ok(running) => stream::unfold(running, |(child, mut output)| async {
            let mut chunk = vec![0; CHUNK_BYTES];
            match output.read(&mut chunk).await {
                Ok(0) => {
                    end(child).await;
                    None
                }
                Ok(count) => {
                    chunk.truncate(count);
                    Some((Ok(Bytes::from(chunk)), (child, output)))
                }
                Err(error) => Some((Err(error), (child, output))),
            }
        })
        .boxed(),
        Err(error) => {
            tracing::warn!(%error, "journalctl cannot be run");
            text("\nerror: journal output not available\n".to_owned())
        }
    }
}

async fn end(mut child: Child) {
    // Its output has ended; how it ended itself says nothing more.
    let _ = timeout(Duration::from_secs(1), child.wait()).await;
}

fn start(arguments: &[String]) -> io::Result<(Child, pipe::Receiver)> {
    let (reader, writer) = io::pipe()?;
    let child = Command::new("journalctl")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .kill_on_drop(true)
        .spawn()?;
    Ok((child, pipe::Receiver::from_owned_fd(reader.into())?))
}

/// The log of a service that keeps it in a file.
async fn file_of(root: &Path, service: &str) -> Chunks {
    let names = [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")];
    for name in &names {
        match files::find(root, name).await {
            Ok(Found::File(file, about)) => return files::chunks(file, about.len()),
            Ok(Found::Directory(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return text(format!("\nerror getting log for {service}: {error}\n")),
        }
    }
    text(format!("\nlog not found for {service}\n"))
}

/// Compresses a stream as it comes.
fn compress(chunks: Chunks) -> Chunks {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    stream::unfold(Some((chunks, encoder)), |state| async {
        let (mut chunks, mut encoder) = state?;
        loop {
            match chunks.next().await {
                Some(Ok(chunk)) => {
                    if let Err(error) = encoder.write_all(&chunk) {
                        return Some((Err(error), None));
                    }
                    if !encoder.get_ref().is_empty() {
                        let bytes = std::mem::take(encoder.get_mut());
                        return Some((Ok(Bytes::from(bytes)), Some((chunks, encoder))));
                    }
                }
                Some(Err(error)) => return Some((Err(error), None)),
                None => return Some((encoder.finish().map(Bytes::from), None)),
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    async fn collect(mut chunks: Chunks) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(chunk) = chunks.next().await {
            all.extend(chunk.unwrap());
        }
        all
    }

    #[tokio::test]
    async fn services_without_a_journal_have_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.log"), "of a").unwrap();
        std::fs::create_dir(dir.path().join("b")).unwrap();
        std::fs::write(dir.path().join("b/b.log"), "of b").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("c")).unwrap();
        for (service, wanted) in [
            ("a", "of a"),
            ("b", "of b"),
            ("c", "\nerror getting log for c: it is not below the logs\n"),
            ("d", "\nlog not found for d\n"),
        ] {
            let log = collect(file_of(dir.path(), service).await).await;
            assert_eq!(String::from_utf8(log).unwrap(), wanted);
        }
    }

    /// Runs what it is given for as long as it lives itself.
    fn spawner() -> Spawn {
        let tasks = std::sync::Mutex::new(tokio::task::JoinSet::new());
        std::sync::Arc::new(move |work| drop(tasks.lock().unwrap().spawn(work)))
    }

    #[tokio::test(start_paused = true)]
    async fn time_runs_out() {
        let endless = stream::iter([Ok(Bytes::from("x"))]).chain(stream::pending()).boxed();
        let deadline = Instant::now() + Duration::from_secs(3);
        let spawn = spawner();
        assert_eq!(collect(until(endless, deadline, &spawn)).await, b"x");
    }

    #[tokio::test(start_paused = true)]
    async fn time_runs_out_for_whoever_does_not_read_too() {
        // Stands for journalctl, which ends when what it writes to is dropped.
        let (alive, gone) = tokio::sync::oneshot::channel::<()>();
        let endless = stream::repeat_with(move || {
            let _ = &alive;
            Ok(Bytes::from("x"))
        });
        let (begun, spawn) = (Instant::now(), spawner());
        let mut unread = until(endless.boxed(), begun + LIMIT, &spawn);
        assert!(gone.await.is_err(), "dropped, not sent");
        assert_eq!(begun.elapsed(), LIMIT);
        let mut left = 0;
        while unread.next().await.is_some() {
            left += 1;
        }
        assert_eq!(left, CHUNKS_AHEAD);
    }

    #[tokio::test]
    async fn compressed_it_is_the_same() {
        let long = "line\n".repeat(100_000);
        let packed = collect(compress(text(long.clone()))).await;
        let mut plain = String::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut plain).unwrap();
        assert_eq!(plain, long);
        assert!(packed.len() < long.len() / 10);
    }
}
