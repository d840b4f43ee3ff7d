//! Which tests run in the guest, and where cargo has put their programs.
//!
//! Builds them; writes nothing else.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Seconds that one program may take; emulated processors are slow.
const LIMIT_SECONDS: u32 = 3600;

/// Programs of tests whose subject is the kernel: what a developer's machine may lack, and
/// control groups of version 2. A name of several packages stands for all of them.
const USUAL: [&str; 12] = [
    "kernel",
    "mounting",
    "huge_pages",
    "real_nfs",
    "real_iscsi",
    "isolation",
    "resize",
    "security",
    "container_config",
    "volumes",
    "termination",
    "volume_stats",
];

/// A program with tests of one package.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    name: String,
    path: PathBuf,
    dir: PathBuf,
    arguments: Vec<String>,
}

/// What was asked for: `NAME` or `NAME:FILTER`; the usual ones if nothing was.
pub fn wanted(named: &[String]) -> Vec<(String, Option<String>)> {
    if named.is_empty() {
        return USUAL.iter().map(|name| ((*name).to_owned(), None)).collect();
    }
    let split = |one: &String| match one.split_once(':') {
        Some((name, filter)) => (name.to_owned(), Some(filter.to_owned())),
        None => (one.clone(), None),
    };
    named.iter().map(split).collect()
}

/// Builds the programs, in the order asked for.
pub fn build(workspace: &Path, wanted: &[(String, Option<String>)]) -> Result<Vec<Program>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // The whole workspace decides on features, as under `make test`: else all is built anew.
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    for (name, _) in wanted {
        command.args(["--test", name]);
    }
    let output = command.current_dir(workspace).stderr(Stdio::inherit()).output();
    let output = output.context("cannot start cargo")?;
    ensure!(output.status.success(), "cargo cannot build the tests: {}", output.status);
    let told = String::from_utf8(output.stdout).context("cargo's messages are text")?;
    programs(&told, wanted)
}

/// Finds the programs in cargo's messages.
fn programs(told: &str, wanted: &[(String, Option<String>)]) -> Result<Vec<Program>> {
    let built: Vec<Value> =
        told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut programs = Vec::new();
    for (name, filter) in wanted {
        let of_name = built.iter().filter(|one| {
            one["reason"] == "compiler-artifact"
                && one["target"]["name"] == name.as_str()
                && one["target"]["kind"][0] == "test"
        });
        let before = programs.len();
        for one in of_name {
            let text = |value: &Value| value.as_str().map(PathBuf::from);
            let path = text(&one["executable"]).context("cargo names no program")?;
            let manifest = text(&one["manifest_path"]).context("cargo names no package")?;
            let dir = manifest.parent().context("a manifest lies in a directory")?.to_owned();
            let package = dir.file_name().unwrap_or_default().to_string_lossy();
            let mut arguments = vec!["--test-threads=1".to_owned(), "--nocapture".to_owned()];
            arguments.extend(filter.clone());
            programs.push(Program { name: format!("{package}/{name}"), path, dir, arguments });
        }
        ensure!(programs.len() > before, "no package has tests called {name}");
    }
    Ok(programs)
}

/// The plan as the guest reads it: words, a line for each program.
pub fn lines(programs: &[Program]) -> Result<String> {
    let mut lines = String::new();
    for Program { name, path, dir, arguments } in programs {
        let words = [name.clone(), LIMIT_SECONDS.to_string()];
        let paths = [dir, path].map(|path| path.display().to_string());
        let words: Vec<String> =
            words.into_iter().chain(paths).chain(arguments.iter().cloned()).collect();
        let whole = words.iter().all(|word| !word.contains(char::is_whitespace));
        ensure!(whole, "the guest cannot read paths with spaces: {words:?}");
        lines.push_str(&words.join(" "));
        lines.push('\n');
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = concat!(
        r#"{"reason":"compiler-artifact","manifest_path":"/w/tests/Cargo.toml","target":{"kind":["test"],"name":"resize"},"executable":"/t/resize-1"}"#,
        "\n",
        r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/quota/Cargo.toml","target":{"kind":["test"],"name":"kernel"},"executable":"/t/kernel-2"}"#,
        "\n",
        r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/kernel/Cargo.toml","target":{"kind":["lib"],"name":"kernel"},"executable":null}"#,
        "\nnot json\n",
    );

    #[test]
    fn programs_are_found_in_the_order_asked_for() {
        let asked = wanted(&["kernel".to_owned(), "resize:grows".to_owned()]);
        let found = programs(TOLD, &asked).unwrap();
        assert_eq!(
            lines(&found).unwrap(),
            "quota/kernel 3600 /w/crates/quota /t/kernel-2 --test-threads=1 --nocapture\n\
             tests/resize 3600 /w/tests /t/resize-1 --test-threads=1 --nocapture grows\n"
        );
        let missing = programs(TOLD, &wanted(&["moon".to_owned()])).unwrap_err().to_string();
        assert_eq!(missing, "no package has tests called moon");
    }

    #[test]
    fn spaces_are_refused() {
        let told = TOLD.replace("/w/tests", "/my work");
        let found = programs(&told, &wanted(&["resize".to_owned()])).unwrap();
        assert!(lines(&found).unwrap_err().to_string().contains("spaces"));
    }
}
