//! Tidy: the rules of this tree that no compiler checks.
//!
//! Reads the source tree, changes nothing. Each check is a function from text
//! to findings, so that each is tested as such.

mod architecture;
mod decisions;
mod finding;
mod purity;
mod repeatable;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use finding::Finding;

/// Runs every check on this tree and prints what is wrong.
pub fn run() -> Result<()> {
    let findings = check(&testkit::binaries::workspace())?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{} untidy places; each line above says how to mend it", findings.len())
}

/// All findings in the tree at `root`.
fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in rust_files(root)? {
        let text = read(&root.join(&path))?;
        findings.extend(source::check(&path, &text));
        findings.extend(purity::check(&path, &text));
        findings.extend(repeatable::check(&path, &text));
    }
    findings.extend(source::check_allowances(root));
    findings.extend(decisions::check(&decision_files(root)?));
    let text = fs::read_to_string(root.join(architecture::FILE)).unwrap_or_default();
    findings.extend(architecture::check(&text, &crate_names(root)?));
    Ok(findings)
}

/// Every Rust file we write, as paths from the root.
fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for top in ["crates", "tests", "xtask"] {
        walk(&root.join(top), &mut files)?;
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let strip = |path: PathBuf| path.strip_prefix(root).map(Path::to_owned).unwrap_or(path);
    let mut files: Vec<PathBuf> = files.into_iter().map(strip).collect();
    files.sort();
    Ok(files)
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
        let path = entry.path();
        if !path.is_dir() {
            files.push(path);
        } else if entry.file_name() != "target" {
            walk(&path, files)?;
        }
    }
    Ok(())
}

fn decision_files(root: &Path) -> Result<Vec<(String, String)>> {
    let Ok(entries) = fs::read_dir(root.join(decisions::DIR)) else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.context("cannot list the decisions")?;
        files.push((entry.file_name().to_string_lossy().into_owned(), read(&entry.path())?));
    }
    files.sort();
    Ok(files)
}

fn crate_names(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join("crates")).context("cannot list crates")? {
        let entry = entry.context("cannot list crates")?;
        if entry.path().join("Cargo.toml").exists() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_is_tidy() {
        let findings = check(&testkit::binaries::workspace()).unwrap();
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }
}
