//! What is wrong with a manifest, and where.
//!
//! Owns the text form of a field path, which decoding, validation and the
//! location lookup share. Never looks at a pod.

use std::fmt;

/// Most problems kept of one manifest: a hostile one could yield millions.
const PROBLEMS_MAX: usize = 50;
/// Most characters of a manifest's own text quoted in a message.
const QUOTE_CHARS_MAX: usize = 80;
/// Most characters of a message made elsewhere.
const MESSAGE_CHARS_MAX: usize = 300;

/// One thing that is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line in the manifest, from 1.
    pub line: Option<u32>,
    /// Column in that line, from 1.
    pub column: Option<u32>,
    /// Field, such as `spec.containers[0].image`; empty for the whole document.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Problem {
    pub(super) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { line: None, column: None, field: field.into(), message: shorten(message.into()) }
    }

    pub(super) fn at(mut self, position: Option<(u32, u32)>) -> Self {
        if let Some((line, column)) = position {
            self.line = Some(line);
            self.column = Some(column);
        }
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, "line {line}, column {column}: ")?,
            (Some(line), None) => write!(f, "line {line}: ")?,
            _ => {}
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// A path to a field, built downwards from the pod.
#[derive(Debug, Clone)]
pub(super) struct Field(String);

impl Field {
    pub(super) fn root() -> Self {
        Self(String::new())
    }
    pub(super) fn key(&self, key: &str) -> Self {
        let mut path = self.0.clone();
        push_key(&mut path, key);
        Self(path)
    }
    pub(super) fn index(&self, index: usize) -> Self {
        let mut path = self.0.clone();
        push_index(&mut path, index);
        Self(path)
    }
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A problem of an item, as one of the document that holds it.
pub(super) fn below(prefix: &str, problem: Problem) -> Problem {
    if prefix.is_empty() || problem.field.is_empty() {
        return problem;
    }
    let field = match problem.field.starts_with('[') {
        true => format!("{prefix}{}", problem.field),
        false => format!("{prefix}.{}", problem.field),
    };
    Problem { field, ..problem }
}

/// Appends a map key: `.key`, or `[key]` if dots could confuse.
pub(crate) fn push_key(path: &mut String, key: &str) {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !plain {
        path.push('[');
        path.extend(key.chars().take(QUOTE_CHARS_MAX));
        path.push(']');
        return;
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.extend(key.chars().take(QUOTE_CHARS_MAX));
}

/// Appends a list index.
pub(crate) fn push_index(path: &mut String, index: usize) {
    path.push_str(&format!("[{index}]"));
}

/// Collects problems, keeping the first and counting the rest.
#[derive(Debug, Default)]
pub(super) struct Report {
    problems: Vec<Problem>,
    left_out: usize,
}

impl Report {
    pub(super) fn add(&mut self, field: &Field, message: impl Into<String>) {
        self.push(Problem::new(field.as_str(), message));
    }

    pub(super) fn push(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds a problem if `check` found one.
    pub(super) fn check(&mut self, field: &Field, check: Result<(), &'static str>) {
        if let Err(message) = check {
            self.add(field, message);
        }
    }

    pub(super) fn finish(mut self) -> Vec<Problem> {
        if self.left_out > 0 {
            let more = format!("and {} more problems", self.left_out);
            self.problems.push(Problem::new("", more));
        }
        self.problems
    }
}

/// Quotes text from a manifest, shortened and with control characters escaped.
pub(super) fn quote(text: &str) -> String {
    if text.chars().nth(QUOTE_CHARS_MAX).is_none() {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(QUOTE_CHARS_MAX).collect();
    format!("{start:?}…")
}

fn shorten(message: String) -> String {
    match message.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}
