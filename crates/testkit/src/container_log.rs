//! A container's log, held open: it can be read after the pod and its files are gone.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result};

/// An open log of one run of a container.
#[derive(Debug)]
pub struct ContainerLog(Mutex<File>);

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When it was written, to be compared with others; no zone at its end.
    pub time: String,
    /// What the container wrote.
    pub text: String,
}

impl ContainerLog {
    /// Opens a log that exists.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("no log {}", path.display()))?;
        Ok(Self(Mutex::new(file)))
    }

    /// Everything written so far.
    pub fn lines(&self) -> Result<Vec<Line>> {
        let mut file = self.0.lock().expect("nobody panics while reading");
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).context("cannot rewind a log")?;
        file.read_to_string(&mut text).context("cannot read a log")?;
        Ok(text.lines().map(parse).collect())
    }

    /// When the line of that text was written.
    pub fn time_of(&self, text: &str) -> Result<String> {
        let lines = self.lines()?;
        let found = lines.iter().find(|line| line.text == text);
        Ok(found.with_context(|| format!("no {text:?} in {lines:?}"))?.time.clone())
    }
}

/// `TIME STREAM TAG TEXT`.
fn parse(line: &str) -> Line {
    let mut parts = line.splitn(4, ' ');
    // Without its zone a time sorts as text, however many digits it has.
    let time = parts.next().unwrap_or_default();
    let time = time.trim_end_matches('Z').trim_end_matches("+00:00").to_owned();
    Line { time, text: parts.nth(2).unwrap_or_default().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sort_as_text() {
        let early = parse("2026-01-02T03:04:05.12Z stdout F a b");
        let late = parse("2026-01-02T03:04:05.1234Z stdout F c");
        assert_eq!(early.text, "a b");
        assert!(early.time < late.time);
    }
}
