//! Joins two byte streams until both have ended, or nothing passes any more.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Bytes on their way, in each direction.
const BUFFER_BYTES: usize = 32 << 10;
/// Time for a client to take the other protocol up, and for one to leave whose runtime
/// has nothing more to say.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// When something last passed.
pub(super) struct Activity {
    last: Mutex<Instant>,
    idle: Duration,
}

impl Activity {
    /// `idle` is how long nothing may pass; zero for any time.
    pub(super) fn new(idle: Duration) -> Self {
        Self { last: Mutex::new(Instant::now()), idle }
    }

    pub(super) fn note(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Comes back when nothing has passed for too long.
    pub(super) async fn over(&self) {
        if self.idle.is_zero() {
            return std::future::pending().await;
        }
        loop {
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let until = last + self.idle;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// Joins a client that was promised another protocol with the runtime that speaks it.
pub(super) async fn run(client: OnUpgrade, runtime: TcpStream, already: Bytes, idle: Duration) {
    let client = match timeout(GRACE, client).await {
        Ok(Ok(client)) => TokioIo::new(client),
        Ok(Err(error)) => return tracing::debug!(%error, "a client left before its stream began"),
        Err(_) => return tracing::debug!("a client did not take its stream up"),
    };
    if let Err(error) = join(client, runtime, &already, idle).await {
        tracing::debug!(%error, "a stream broke");
    }
}

/// Joins both until they end. The end of what a client sends is passed on, and the
/// runtime may answer still; once the runtime has said all, the rest is of no interest.
async fn join<C, R>(client: C, runtime: R, already: &[u8], idle: Duration) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    R: AsyncRead + AsyncWrite,
{
    let (from_client, mut to_client) = split(client);
    let (from_runtime, to_runtime) = split(runtime);
    let activity = Activity::new(idle);
    let there = pump(from_client, to_runtime, &activity);
    let back = async {
        to_client.write_all(already).await?;
        pump(from_runtime, to_client, &activity).await
    };
    tokio::pin!(there, back);
    let mut sent = false;
    loop {
        tokio::select! {
            said = &mut back => {
                said?;
                break;
            }
            gone = &mut there, if !sent => {
                gone?;
                sent = true;
            }
            () = activity.over() => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing passed for too long"));
            }
        }
    }
    if !sent {
        tokio::select! {
            _ = &mut there => {}
            () = sleep(GRACE) => {}
        }
    }
    Ok(())
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        activity.note();
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        activity.note();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_question_is_not_the_end_of_its_answer() {
        let (mut client, ours) = duplex(64);
        let (theirs, mut runtime) = duplex(64);
        let client = async {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            heard
        };
        let runtime = async {
            let mut heard = String::new();
            runtime.read_to_string(&mut heard).await.unwrap();
            runtime.write_all(&[b'a'; 1000]).await.unwrap();
            runtime.shutdown().await.unwrap();
            heard
        };
        let idle = Duration::from_secs(60);
        let (joined, heard, asked) =
            tokio::join!(join(ours, theirs, b"hi ", idle), client, runtime);
        joined.unwrap();
        assert_eq!((heard.len(), asked.as_str()), (1003, "question"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_ends() {
        let (client, ours) = duplex(64);
        let (theirs, runtime) = duplex(64);
        let begun = Instant::now();
        let ended = join(ours, theirs, b"", Duration::from_secs(9)).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), Duration::from_secs(9));
        drop((client, runtime));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_runtime_said_last_arrives() {
        let (mut client, ours) = duplex(16);
        let (theirs, mut runtime) = duplex(16);
        let told = async {
            runtime.write_all(&[7; 500]).await.unwrap();
            drop(runtime);
        };
        let heard = async {
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            heard.len()
        };
        let idle = Duration::ZERO;
        let (joined, (), heard) = tokio::join!(join(ours, theirs, b"x", idle), told, heard);
        joined.unwrap();
        assert_eq!(heard, 501);
    }
}
