//! Files of variables: one `NAME='value'` per line.
//!
//! Pure. A value may have many lines; nothing in it is expanded or escaped. What
//! follows a name that is looked for is never looked at, right or wrong. Errors
//! are upstream's words and quote nothing. Upstream: pkg/kubelet/util/env.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Longest line, as upstream's reader has it.
const LINE_BYTES_MAX: usize = 65_535;

/// Why a file is not one of variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum EnvFileError {
    /// A line is wrong.
    #[error("invalid environment variable format at line {line}: {why}")]
    Line {
        /// Which, from one.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A value has no end.
    #[error("invalid environment variable format starting at line {line}: unclosed single quote")]
    Unclosed {
        /// The line it begins in.
        line: usize,
    },
    /// A line is too long.
    #[error("line {line} is longer than {LINE_BYTES_MAX} bytes; shorten it")]
    LongLine {
        /// Which, from one.
        line: usize,
    },
    /// The file is too long.
    #[error("the file is longer than {read} bytes, and no more are read; shorten it")]
    LongFile {
        /// Bytes that were read.
        read: usize,
    },
}

/// What a file says about some names.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The first value of each name that has one.
    pub(super) values: BTreeMap<String, Vec<u8>>,
    /// What kept the others from being found.
    pub(super) error: Option<EnvFileError>,
}

/// Names, but no values: they may be secrets.
impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.values.keys().collect();
        f.debug_struct("Found").field("names", &names).field("error", &self.error).finish()
    }
}

/// Looks names up in a file, of which this may be only the beginning.
pub(super) fn find(text: &[u8], whole: bool, names: &BTreeSet<&str>) -> Found {
    let mut values = BTreeMap::new();
    let read = text.len();
    // Of the line that is cut, nothing is known.
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = if whole { text } else { &text[..end] };
    let mut lines = Lines { rest: text, number: 0 };
    let error = loop {
        if values.len() == names.len() {
            break None;
        }
        match next_variable(&mut lines) {
            Ok(Some((name, value))) => {
                let name = std::str::from_utf8(name).ok().filter(|name| names.contains(name));
                if let Some(name) = name {
                    values.entry(name.to_owned()).or_insert(value);
                }
            }
            // Behind the cut, anything may follow.
            _ if lines.rest.is_empty() && !whole => {
                break Some(EnvFileError::LongFile { read });
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    Found { values, error }
}

struct Lines<'t> {
    rest: &'t [u8],
    /// Of the line that was read last, from one.
    number: usize,
}

impl<'t> Lines<'t> {
    fn next(&mut self) -> Result<Option<&'t [u8]>, EnvFileError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let (line, rest) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, [].as_slice()),
        };
        self.rest = rest;
        if line.len() > LINE_BYTES_MAX {
            return Err(EnvFileError::LongLine { line: self.number });
        }
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    fn wrong<T>(&self, why: &'static str) -> Result<T, EnvFileError> {
        Err(EnvFileError::Line { line: self.number, why })
    }
}

/// A name and its value.
type Variable<'t> = (&'t [u8], Vec<u8>);

/// The next variable, if there is one more.
fn next_variable<'t>(lines: &mut Lines<'t>) -> Result<Option<Variable<'t>>, EnvFileError> {
    let line = loop {
        let Some(line) = lines.next()? else { return Ok(None) };
        let line = trim_start(line);
        if !line.is_empty() && !line.starts_with(b"#") {
            break line;
        }
    };
    let Some(at) = line.iter().position(|byte| *byte == b'=') else {
        return lines.wrong("missing '='");
    };
    let (name, value) = (&line[..at], &line[at + 1..]);
    match name.last() {
        None => return lines.wrong("empty variable name"),
        Some(b' ' | b'\t') => return lines.wrong("whitespace before '=' is not allowed"),
        Some(_) => {}
    }
    if value.starts_with(b" ") || value.starts_with(b"\t") {
        // As a shell has it: the name is given nothing, then something else comes.
        return Ok(Some((name, Vec::new())));
    }
    let Some(quoted) = value.strip_prefix(b"'") else {
        return lines.wrong("value must be enclosed in single quotes");
    };
    Ok(Some((name, rest_of_value(lines, quoted)?)))
}

/// A value from behind its opening quote to the closing one.
fn rest_of_value(lines: &mut Lines<'_>, first: &[u8]) -> Result<Vec<u8>, EnvFileError> {
    let (began, mut value, mut line) = (lines.number, Vec::new(), first);
    loop {
        if let Some(end) = line.iter().position(|byte| *byte == b'\'') {
            value.extend_from_slice(&line[..end]);
            let after = trim_start(&line[end + 1..]);
            if !after.is_empty() && !after.starts_with(b"#") {
                return lines.wrong("unexpected content after closing quote");
            }
            return Ok(value);
        }
        value.extend_from_slice(line);
        value.push(b'\n');
        line = lines.next()?.ok_or(EnvFileError::Unclosed { line: began })?;
    }
}

fn trim_start(line: &[u8]) -> &[u8] {
    let blank = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &line[blank..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of `K`, or what is wrong.
    fn look(text: &str) -> Result<String, String> {
        let found = find(text.as_bytes(), true, &BTreeSet::from(["K"]));
        let value = found.values.get("K").map(|value| String::from_utf8_lossy(value).into_owned());
        match (value, found.error) {
            (Some(value), _) => Ok(value),
            (None, Some(error)) => Err(error.to_string()),
            (None, None) => Ok("(none)".to_owned()),
        }
    }

    #[test]
    fn values_are_taken_as_written() {
        for (text, expected) in [
            ("", "(none)"),
            ("A='1'\nB='2'\n", "(none)"),
            ("A='1'\n  \tK='v'\n", "v"),
            ("# K='no'\n\n \t \nK='v'", "v"),
            ("K='v'\r\n", "v"),
            ("K=''", ""),
            ("K= 'v'\nK='w'", ""),
            ("K=\t", ""),
            ("K='first'\nK='second'", "first"),
            ("K='v' # more", "v"),
            ("K='v'\t#", "v"),
            ("K=' a=b \"c\" #d $E ${F} \\n '", " a=b \"c\" #d $E ${F} \\n "),
            ("K='one\n\n  K=two\r\n#three' # end\n", "one\n\n  K=two\n#three"),
            ("A='x\nK=\ny'\nK='v'", "v"),
            ("odd name='x'\nK='中文 🌍'", "中文 🌍"),
            ("K='v'\nwhat follows is not looked at", "v"),
        ] {
            assert_eq!(look(text).as_deref(), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_line() {
        let format = "invalid environment variable format at line";
        for (text, expected) in [
            ("A='1'\nK\n", format!("{format} 2: missing '='")),
            ("='v'", format!("{format} 1: empty variable name")),
            ("\nK ='v'", format!("{format} 2: whitespace before '=' is not allowed")),
            ("A\t= 'x'\nK='v'", format!("{format} 1: whitespace before '=' is not allowed")),
            ("K=v", format!("{format} 1: value must be enclosed in single quotes")),
            ("K=", format!("{format} 1: value must be enclosed in single quotes")),
            ("A=\"x\"\nK='v'", format!("{format} 1: value must be enclosed in single quotes")),
            ("K='a''b'", format!("{format} 1: unexpected content after closing quote")),
            ("K='a\nb'c", format!("{format} 2: unexpected content after closing quote")),
            (
                "A='1'\nK='v\nw\n",
                "invalid environment variable format starting at line 2: unclosed single quote"
                    .to_owned(),
            ),
        ] {
            assert_eq!(look(text), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn length_has_limits() {
        let line = |bytes: usize| format!("K='{}'", "x".repeat(bytes - 4));
        assert_eq!(look(&line(LINE_BYTES_MAX)).map(|value| value.len()), Ok(LINE_BYTES_MAX - 4));
        let error = look(&line(LINE_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(error, "line 1 is longer than 65535 bytes; shorten it");

        let names = BTreeSet::from(["A", "K"]);
        for cut in ["A='1'\n", "A='1'\nK='v", "A='1'\nK='v'", "A='1'\nK='v\n", "A='1'\nK"] {
            let found = find(cut.as_bytes(), false, &names);
            assert_eq!(found.values, BTreeMap::from([("A".to_owned(), b"1".to_vec())]), "{cut:?}");
            assert_eq!(found.error, Some(EnvFileError::LongFile { read: cut.len() }), "{cut:?}");
        }
        let found = find(b"A='1'\nK=v\nB='x'\nC='", false, &names);
        assert_eq!(found.error.map(|error| error.to_string()).unwrap_or_default(), {
            "invalid environment variable format at line 2: value must be enclosed in single quotes"
        });
        let found = find(b"A='1'\nK='v'\nB='", false, &names);
        assert_eq!((found.values.len(), found.error), (2, None), "all are there before the cut");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let bytes = [b'K', b'=', b'\'', b'\n', b' ', b'#', b'\r', 0xff];
        for number in 0..bytes.len().pow(5) {
            let text: Vec<u8> =
                (0..5).map(|at| bytes[number / bytes.len().pow(at) % bytes.len()]).collect();
            for whole in [true, false] {
                let found = find(&text, whole, &BTreeSet::from(["K"]));
                assert!(found.values.len() <= 1, "{text:?}");
            }
        }
    }
}
