//! Reads a container's log, and follows it across rotation.
//!
//! Holds one block and the pieces in it, however long the log or its lines.
//! Reads files only. Upstream: cri-client/pkg/logs.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;
use tokio::time::sleep;

use super::parse::{LogStream, Piece, Splitter};
use super::plan::{GZIPPED, is_in_use};
use super::{rotate, tail};
use crate::ports::{Fs, Links, OpenFile};

/// Bytes read at once.
const BLOCK: usize = 32 << 10;
/// Between two looks at a log that is followed.
const FOLLOW: Duration = Duration::from_millis(200);

/// What to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Only the last so many records.
    pub tail: Option<u64>,
    /// Only what was written then or later.
    pub since: Option<Timestamp>,
    /// Put the time in front of each line.
    pub timestamps: bool,
    /// Go on as the log grows, until the container has ended.
    pub follow: bool,
    /// At most so many bytes.
    pub limit_bytes: Option<u64>,
    /// Only what was written there.
    pub stream: Option<LogStream>,
}

/// A piece of output: a line with its end, or a part of a long line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    /// Where the container wrote it.
    pub stream: LogStream,
    /// What it wrote, with the time in front if asked for.
    pub bytes: Vec<u8>,
}

/// Why a log cannot be read, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It cannot be opened.
    #[error("cannot open the log {}: {source}; a container that never started has none", .path.display())]
    Open {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read the log {}: {source}", .path.display())]
    Read {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Tells whether the container may still write; asked when the end of its log is reached.
pub type StillRunning = Arc<dyn Fn() -> bool + Send + Sync>;

/// Reads the log at `path`. The stream ends at the end of the log, or, when it
/// is followed, after the container has ended and everything was read.
pub fn read(
    fs: Arc<dyn Fs>,
    path: PathBuf,
    options: LogOptions,
    running: StillRunning,
) -> Result<BoxStream<'static, Result<LogChunk, LogError>>, LogError> {
    let file = fs.open(&path, Links::Follow).map_err(cannot_open(&path))?;
    let stamp = file.stamp().map_err(cannot_open(&path))?;
    let mut reader = Reader {
        left: options.limit_bytes.unwrap_or(u64::MAX),
        start: options.tail.map(|lines| (lines, stamp.size)),
        // Without following, a log that grows all the time must end as well.
        end: if options.follow { u64::MAX } else { stamp.size },
        inode: stamp.inode,
        older: None,
        fs,
        path,
        options,
        running,
        file,
        offset: 0,
        splitter: Splitter::default(),
        ready: VecDeque::new(),
        last_read: false,
        over: false,
    };
    if reader.options.follow {
        reader.older = reader.rotated().map_err(cannot_open(&reader.path))?.pop();
    }
    Ok(stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((chunk, reader))
    })
    .boxed())
}

fn cannot_open(path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Open { path, source }
}

struct Reader {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    options: LogOptions,
    running: StillRunning,
    file: Box<dyn OpenFile>,
    inode: (u64, u64),
    /// The newest rotated file when ours was opened; those up to it are older than ours.
    older: Option<String>,
    /// Lines to go back from this size before the first read.
    start: Option<(u64, u64)>,
    offset: u64,
    end: u64,
    splitter: Splitter,
    ready: VecDeque<LogChunk>,
    /// Bytes that may still be handed out.
    left: u64,
    /// The container has ended; what is read now is the rest.
    last_read: bool,
    over: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<LogChunk, LogError>> {
        loop {
            if self.left == 0 {
                return None;
            }
            if let Some(mut chunk) = self.ready.pop_front() {
                let keep = usize::try_from(self.left).unwrap_or(usize::MAX);
                chunk.bytes.truncate(keep);
                self.left -= u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX);
                return Some(Ok(chunk));
            }
            if self.over {
                return None;
            }
            if let Err(source) = self.advance().await {
                self.over = true;
                return Some(Err(LogError::Read { path: self.path.clone(), source }));
            }
        }
    }

    async fn advance(&mut self) -> io::Result<()> {
        if let Some((lines, size)) = self.start.take() {
            self.offset = tail::start_of_last(&*self.file, size, lines).await?;
        }
        if self.read_block()? || (self.options.follow && self.next_file()?) {
            tokio::task::yield_now().await;
        } else if !self.options.follow || self.last_read {
            self.over = true;
        } else if (self.running)() {
            sleep(FOLLOW).await;
        } else {
            // What it wrote just before it ended may have come after our last look.
            self.last_read = true;
        }
        Ok(())
    }

    /// False at the end of the file.
    fn read_block(&mut self) -> io::Result<bool> {
        let room = usize::try_from(self.end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let block = self.file.read_at(self.offset, BLOCK.min(room))?;
        self.offset += u64::try_from(block.len()).unwrap_or(u64::MAX);
        let mut pieces = Vec::new();
        self.splitter.feed(&block, &mut pieces);
        let chunks = pieces.into_iter().filter_map(|piece| self.options.chunk(piece));
        self.ready.extend(chunks);
        Ok(!block.is_empty())
    }

    /// Goes on with the file that came after ours, if ours was rotated or emptied.
    fn next_file(&mut self) -> io::Result<bool> {
        let current = match self.fs.stat(&self.path) {
            Ok(entry) => entry.stamp,
            // Moved away, and no new one yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if current.inode == self.inode {
            let emptied = current.size < self.offset;
            if emptied {
                self.offset = 0;
                self.splitter.next_file();
            }
            return Ok(emptied);
        }
        // It may have been written to until just before the new one appeared.
        if self.read_block()? {
            return Ok(true);
        }
        let rotated = self.rotated()?;
        let next = self.successor(&rotated);
        let path = next.map_or_else(|| self.path.clone(), |name| self.path.with_file_name(name));
        let file = match self.fs.open(&path, Links::Follow) {
            Ok(file) => file,
            // Rotated or compressed this instant: the next look finds out.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        self.inode = file.stamp()?.inode;
        self.older = rotated.iter().rfind(|name| next.is_none_or(|next| *name < next)).cloned();
        (self.file, self.offset) = (file, 0);
        self.splitter.next_file();
        Ok(true)
    }

    /// The oldest rotated file newer than ours; `None` if that is the current
    /// one. If ours is compressed by now, all that are not are newer.
    fn successor<'a>(&self, rotated: &'a [String]) -> Option<&'a String> {
        let newer = |name: &&String| self.older.as_ref().is_none_or(|older| *name > older);
        let plain = |name: &&String| !name.ends_with(GZIPPED) && is_in_use(name, rotated);
        let newer: Vec<&String> = rotated.iter().filter(newer).filter(plain).collect();
        let is_ours = |name: &&String| {
            let found = self.fs.stat(&self.path.with_file_name(name));
            found.is_ok_and(|found| found.stamp.inode == self.inode)
        };
        let next = newer.iter().position(is_ours).map_or(0, |at| at + 1);
        newer.get(next).copied()
    }

    /// Names of the log's rotated files, in order.
    fn rotated(&self) -> io::Result<Vec<String>> {
        let name = self.path.file_name().and_then(|name| name.to_str());
        match (self.path.parent(), name) {
            (Some(dir), Some(name)) => rotate::rotated_names(&*self.fs, dir, name),
            _ => Ok(Vec::new()),
        }
    }
}

impl LogOptions {
    fn chunk(&self, piece: Piece) -> Option<LogChunk> {
        let other = self.stream.is_some_and(|stream| piece.stream != stream);
        if other || self.since.is_some_and(|since| piece.time < since) {
            return None;
        }
        let mut bytes = piece.bytes;
        if let Some(time) = piece.begins.filter(|_| self.timestamps) {
            bytes.splice(..0, format!("{time} ").into_bytes());
        }
        Some(LogChunk { stream: piece.stream, bytes })
    }
}
