//! One log file of a container, line by line.
//!
//! Reads the CRI format `<time> <stdout|stderr> <F|P> <text>`, holds one block
//! and one line, and goes on with the next file when the log is rotated.
//! Upstream: staging/src/k8s.io/cri-client/pkg/logs.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// Bytes read at once.
const BLOCK: usize = 32 << 10;
/// Longest line; runtimes cut longer ones into parts of 16 KiB.
const LINE_MAX: usize = 64 << 10;

/// What of a log is wanted.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// Only the last so many lines.
    pub(super) tail: Option<u64>,
    /// Only what was written then or later.
    pub(super) since: Option<Timestamp>,
    /// Put the time before each line.
    pub(super) timestamps: bool,
}

/// An open log.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    offset: u64,
    /// The beginning of a line whose end has not been read.
    line: Vec<u8>,
    /// The line was too long and is left out to its end.
    skipping: bool,
    /// The last line was a part; the next continues it.
    continues: bool,
    wanted: Wanted,
}

impl LogFile {
    pub(super) fn open(path: &Path, wanted: Wanted) -> io::Result<Self> {
        let file = File::open(path)?;
        let offset = match wanted.tail {
            Some(lines) => start_of_last(&file, lines)?,
            None => 0,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            offset,
            line: Vec::new(),
            skipping: false,
            continues: false,
            wanted,
        })
    }

    /// The output of the next block; `None` at the end of what there is.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut block = vec![0; BLOCK];
        let count = self.file.read_at(&mut block, self.offset)?;
        if count == 0 {
            return if self.next_file()? { Ok(Some(Vec::new())) } else { Ok(None) };
        }
        self.offset += u64::try_from(count).unwrap_or(u64::MAX);
        let mut output = Vec::new();
        for part in block[..count].split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + part.len() > LINE_MAX {
                (self.skipping, self.line) = (true, Vec::new());
            }
            if !self.skipping {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                if !std::mem::take(&mut self.skipping) {
                    self.take(&line, &mut output);
                }
            }
        }
        Ok(Some(output))
    }

    /// Goes on with the file that took the place of this one, if one did.
    fn next_file(&mut self) -> io::Result<bool> {
        let next = match File::open(&self.path) {
            Ok(next) => next,
            // Moved away, and no new one yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let (own, other) = (self.file.metadata()?, next.metadata()?);
        let same = (own.dev(), own.ino()) == (other.dev(), other.ino());
        if same && other.len() >= self.offset {
            return Ok(false);
        }
        (self.file, self.offset, self.line) = (next, 0, Vec::new());
        Ok(true)
    }

    /// Adds a line to the output; one that is not in the format is left out.
    fn take(&mut self, line: &[u8], output: &mut Vec<u8>) {
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let (Some(time), Some(_), Some(tags), Some(text)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return;
        };
        let Ok(time) = std::str::from_utf8(time) else { return };
        let Ok(at) = time.parse::<Timestamp>() else { return };
        if self.wanted.since.is_some_and(|since| at < since) {
            return;
        }
        if self.wanted.timestamps && !self.continues {
            output.extend_from_slice(time.as_bytes());
            output.push(b' ');
        }
        self.continues = tags.split(|byte| *byte == b':').next() == Some(b"P");
        output
            .extend_from_slice(text.strip_suffix(b"\n").filter(|_| self.continues).unwrap_or(text));
    }
}

/// Where the last lines begin.
fn start_of_last(file: &File, lines: u64) -> io::Result<u64> {
    // The end of the line before the first one wanted.
    let mut ends_wanted = lines.saturating_add(1);
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = end.saturating_sub(u64::try_from(BLOCK).unwrap_or(u64::MAX));
        let mut block = vec![0; usize::try_from(end - start).unwrap_or(BLOCK)];
        file.read_exact_at(&mut block, start)?;
        for (at, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            ends_wanted -= 1;
            if ends_wanted == 0 {
                return Ok(start + u64::try_from(at).unwrap_or(u64::MAX) + 1);
            }
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn read_all(log: &mut LogFile) -> String {
        let mut all = Vec::new();
        while let Some(output) = log.next().unwrap() {
            all.extend(output);
        }
        String::from_utf8(all).unwrap()
    }

    fn log(lines: &[&str], wanted: Wanted) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut text = String::new();
        for (at, line) in lines.iter().enumerate() {
            writeln!(text, "2026-01-01T00:00:{at:02}.5Z stdout {line}").unwrap();
        }
        std::fs::write(&path, text).unwrap();
        read_all(&mut LogFile::open(&path, wanted).unwrap())
    }

    #[test]
    fn lines_are_bare_and_parts_are_joined() {
        assert_eq!(
            log(&["F one", "P tw", "F o", "F ", "F  gap"], Wanted::default()),
            "one\ntwo\n\n gap\n"
        );
        assert_eq!(log(&[], Wanted::default()), "");
        let stamped = Wanted { timestamps: true, ..Wanted::default() };
        assert_eq!(
            log(&["P a", "F b", "F c"], stamped),
            "2026-01-01T00:00:00.5Z ab\n2026-01-01T00:00:02.5Z c\n"
        );
    }

    #[test]
    fn only_what_is_wanted_is_shown() {
        let tail = |lines| Wanted { tail: Some(lines), ..Wanted::default() };
        let lines = ["F a", "F b", "F c"];
        assert_eq!(log(&lines, tail(2)), "b\nc\n");
        assert_eq!(log(&lines, tail(0)), "");
        assert_eq!(log(&lines, tail(u64::MAX)), "a\nb\nc\n");
        let since = "2026-01-01T00:00:01.5Z".parse().ok();
        assert_eq!(log(&lines, Wanted { since, ..Wanted::default() }), "b\nc\n");
    }

    #[test]
    fn what_is_not_a_log_line_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let long = "x".repeat(3 * LINE_MAX);
        std::fs::write(&path, format!("junk\n{long}\n\u{0}\n2026-01-01T00:00:00Z stdout F ok\n"))
            .unwrap();
        assert_eq!(read_all(&mut LogFile::open(&path, Wanted::default()).unwrap()), "ok\n");
    }

    #[test]
    fn a_rotated_log_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, "2026-01-01T00:00:00Z stdout F old\n").unwrap();
        let mut log = LogFile::open(&path, Wanted::default()).unwrap();
        assert_eq!(read_all(&mut log), "old\n");
        std::fs::rename(&path, dir.path().join("0.log.1")).unwrap();
        assert_eq!(read_all(&mut log), "", "the new one is not there yet");
        std::fs::write(&path, "2026-01-01T00:00:00Z stdout F new\n").unwrap();
        assert_eq!(read_all(&mut log), "new\n");
    }
}
