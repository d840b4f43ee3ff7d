//! Programs of the machine that the agent runs: registry credential plugins.
//!
//! Every run is bounded in time and in what it may print. Simulation has no
//! programs. Never uses a shell.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::Access;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Most that a program may print; an answer takes a few KiB.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Most of what a program complains that is kept.
const COMPLAINT_BYTES_MAX: u64 = 4 << 10;

/// What to run.
#[derive(Clone)]
pub struct ProgramCall {
    /// The file.
    pub path: PathBuf,
    /// Arguments.
    pub arguments: Vec<String>,
    /// Added to the agent's own environment.
    pub environment: Vec<(String, String)>,
    /// What it reads.
    pub input: Vec<u8>,
    /// How long it may take.
    pub limit: Duration,
}

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be started or talked to.
    #[error("cannot run {}: {source}", .path.display())]
    Run {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It failed.
    #[error("{} ended with {status}: {complaint}", .path.display())]
    Failed {
        /// Which.
        path: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        complaint: String,
    },
    /// It took too long and was killed.
    #[error("{} did not end within {limit:?}", .path.display())]
    TimedOut {
        /// Which.
        path: PathBuf,
        /// How long it had.
        limit: Duration,
    },
    /// It printed too much.
    #[error("{} printed more than {OUTPUT_BYTES_MAX} bytes", .path.display())]
    TooMuch {
        /// Which.
        path: PathBuf,
    },
}

/// Runs programs.
#[async_trait]
pub trait Programs: Send + Sync + 'static {
    /// Fails unless the path is a file that may be run.
    fn check(&self, path: &Path) -> io::Result<()>;
    /// Runs a program to its end; returns what it printed.
    async fn run(&self, call: ProgramCall) -> Result<Vec<u8>, ProgramError>;
}

/// The machine's programs.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealPrograms;

#[async_trait]
impl Programs for RealPrograms {
    fn check(&self, path: &Path) -> io::Result<()> {
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        Ok(rustix::fs::access(path, Access::EXEC_OK)?)
    }

    async fn run(&self, call: ProgramCall) -> Result<Vec<u8>, ProgramError> {
        let (path, limit) = (call.path.clone(), call.limit);
        tokio::time::timeout(limit, run_to_end(call))
            .await
            .unwrap_or(Err(ProgramError::TimedOut { path, limit }))
    }
}

async fn run_to_end(call: ProgramCall) -> Result<Vec<u8>, ProgramError> {
    let path = call.path;
    let failed = |source| ProgramError::Run { path: path.clone(), source };
    let mut child = Command::new(&path)
        .args(call.arguments)
        .envs(call.environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut input) = input {
            // A program need not read what it is told.
            let _ = input.write_all(&call.input).await;
        }
    };
    let ((), output, complaint) = tokio::join!(feed, read_output(output), read_complaint(errors));
    let output = output.map_err(failed)?;
    if output.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(ProgramError::TooMuch { path });
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&complaint.map_err(failed)?).trim().to_owned();
    Err(ProgramError::Failed { path, status, complaint })
}

async fn read_output(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(stream) = stream {
        stream.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut output).await?;
    }
    Ok(output)
}

/// Reads on past what is kept: a full pipe would stop the program.
async fn read_complaint(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut complaint = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(COMPLAINT_BYTES_MAX).read_to_end(&mut complaint).await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(complaint)
}

/// A machine without programs.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPrograms;

#[async_trait]
impl Programs for NoPrograms {
    fn check(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }
    async fn run(&self, call: ProgramCall) -> Result<Vec<u8>, ProgramError> {
        Err(ProgramError::Run { path: call.path, source: io::ErrorKind::NotFound.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit_ms: u64) -> ProgramCall {
        ProgramCall {
            path: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: vec![("WORD".to_owned(), "hello".to_owned())],
            input: b"input".to_vec(),
            limit: Duration::from_millis(limit_ms),
        }
    }

    #[tokio::test]
    async fn what_a_program_does_is_told() {
        let run = |script: &'static str| RealPrograms.run(shell(script, 20_000));
        assert_eq!(run("cat; echo \" $WORD\"").await.unwrap(), b"input hello\n");
        assert_eq!(run("echo deaf").await.unwrap(), b"deaf\n");
        let error = run("echo sorry >&2; exit 3").await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3: sorry"), "{error}");
        let error = run("yes").await.unwrap_err();
        assert!(matches!(error, ProgramError::TooMuch { .. }), "{error}");
        let error = RealPrograms.run(shell("sleep 20", 50)).await.unwrap_err();
        assert!(matches!(error, ProgramError::TimedOut { .. }), "{error}");
    }

    #[test]
    fn only_what_may_be_run_passes() {
        assert!(RealPrograms.check(Path::new("/bin/sh")).is_ok());
        for path in ["/bin", "/etc/passwd", "/no/such/file"] {
            assert!(RealPrograms.check(Path::new(path)).is_err(), "{path}");
        }
    }
}
