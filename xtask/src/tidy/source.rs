//! Rules for single source files: a header, a size, nothing left undone.

use std::path::Path;

use super::finding::Finding;

/// A file this long wants a second look.
const LINES_MAX: usize = 500;

/// Longer files that are meant to be, and why.
const LONG_FILES: &[(&str, &str)] = &[];

/// Marks of unfinished work, and of tests that never run.
const UNDONE: &[&str] =
    &[concat!("to", "do!"), concat!("unimpl", "emented!"), concat!("#[ig", "nore")];

/// Checks one file.
pub fn check(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if wants_header(path) && !text.starts_with("//!") {
        let mend = "begin the file with `//!` lines: what it owns, reads, writes and never does";
        findings.push(Finding::new(path, 1, "no header", mend));
    }
    let lines = text.lines().count();
    let long = LONG_FILES.iter().any(|(allowed, _)| Path::new(allowed) == path);
    if lines > LINES_MAX && !long {
        let mend =
            "split it by responsibility, or, if it is a table, list it in xtask/src/tidy/source.rs";
        findings.push(Finding::new(
            path,
            lines,
            format!("{lines} lines, more than {LINES_MAX}"),
            mend,
        ));
    }
    for (number, line) in text.lines().enumerate() {
        for mark in UNDONE {
            if line.contains(mark) {
                let mend = "finish it, or take it out";
                findings.push(Finding::new(path, number + 1, format!("`{mark}`"), mend));
            }
        }
    }
    findings
}

/// Allowances that no file needs any more.
pub fn check_allowances(root: &Path) -> Vec<Finding> {
    let needed = |path: &str| {
        std::fs::read_to_string(root.join(path)).is_ok_and(|text| text.lines().count() > LINES_MAX)
    };
    LONG_FILES
        .iter()
        .filter(|(path, _)| !needed(path))
        .map(|(path, _)| {
            let mend = "remove it from LONG_FILES in xtask/src/tidy/source.rs";
            Finding::new(path, 1, "allowed to be long, but is not", mend)
        })
        .collect()
}

/// All but build scripts: sources and tests of crates, of xtask and of the
/// end-to-end tests.
fn wants_header(path: &Path) -> bool {
    path.iter().any(|part| part == "src" || part == "tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(Path::new(path), text).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_header_is_wanted_everywhere_but_in_build_scripts() {
        let found = findings("crates/cri/src/lib.rs", "mod a;\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/cri/src/lib.rs:1: no header; begin"), "{found:?}");
        assert!(findings("crates/cri/src/lib.rs", "//! Header.\n").is_empty());
        for path in ["xtask/src/a.rs", "tests/tests/a.rs", "crates/cri/tests/a.rs"] {
            assert_eq!(findings(path, "mod a;\n").len(), 1, "{path}");
        }
        assert!(findings("crates/cri/build.rs", "fn main() {}\n").is_empty());
    }

    #[test]
    fn long_files_are_reported_once() {
        let text = format!("//! Header.\n{}", "\n".repeat(LINES_MAX));
        let found = findings("tests/tests/a.rs", &text);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("501 lines"), "{found:?}");
    }

    #[test]
    fn unfinished_work_is_found_with_its_line() {
        for mark in UNDONE {
            let found = findings("xtask/src/a.rs", &format!("//! A.\n    {mark}\n"));
            assert_eq!(found.len(), 1);
            assert!(found[0].starts_with("xtask/src/a.rs:2:"), "{found:?}");
        }
    }
}
