//! Keeps the pure files pure: decisions take facts and a time, and touch nothing.

use std::path::Path;

use super::finding::Finding;

/// Files, or folders, of these names hold decisions.
const PURE_NAMES: &[&str] =
    &["plan", "diff", "merge", "generate", "rank", "policy", "parse", "lifecycle", "pod_plan"];

/// Crates that are pure throughout.
const PURE_CRATES: &[&str] = &["kubelet-model"];

/// What a decision may not know.
const EFFECTS: &[&str] = &[
    "tokio",
    "std::fs",
    // Not all of std::net: an address is a value like any other.
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "std::thread",
    "std::env",
    "std::process",
    "rand::",
    // The doors to all of these.
    "crate::ports",
];

/// Folders and files of tests, which may do as they like.
const TESTS: &[&str] = &["tests", "tests.rs"];

/// Checks one file, but not what is compiled for tests only.
pub fn check(path: &Path, text: &str) -> Vec<Finding> {
    if !is_pure(path) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in product_lines(text) {
        let code = line.split("//").next().unwrap_or_default();
        for effect in EFFECTS.iter().filter(|effect| mentions(code, effect)) {
            let mend = "pass what it gives as an argument, and leave the call to a worker, writer or executor";
            findings.push(Finding::new(
                path,
                number + 1,
                format!("`{effect}` in a pure file"),
                mend,
            ));
        }
    }
    findings
}

/// The lines, counted from 0, that are not of an item under `#[cfg(test)]`.
fn product_lines(text: &str) -> Vec<(usize, &str)> {
    let mut lines = text.lines().enumerate();
    let mut product = Vec::new();
    while let Some((number, line)) = lines.next() {
        let Some(rest) = line.trim_start().strip_prefix("#[cfg(test)]") else {
            product.push((number, line));
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        if !ends_item(rest, indent, indent) {
            // rustfmt puts the end of an item at the indent of its beginning.
            lines.find(|(_, line)| {
                ends_item(line.trim(), line.len() - line.trim_start().len(), indent)
            });
        }
    }
    product
}

/// Whether a line of an item that begins at `indent` is its last.
fn ends_item(line: &str, at: usize, indent: usize) -> bool {
    at == indent && (line.ends_with(';') || line.ends_with('}') || line.ends_with(','))
}

fn is_pure(path: &Path) -> bool {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    if parts.next() != Some("crates") {
        return false;
    }
    let (name, source) = (parts.next(), parts.next());
    if source != Some("src") {
        return false;
    }
    if path.iter().any(|part| TESTS.iter().any(|tests| part == *tests)) {
        return false;
    }
    name.is_some_and(|name| PURE_CRATES.contains(&name))
        || parts.any(|part| PURE_NAMES.contains(&part.strip_suffix(".rs").unwrap_or(part)))
}

/// Whether `code` holds `name` as a whole path, not as the end of a longer word.
fn mentions(code: &str, name: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        !before.is_some_and(is_word) && (name.ends_with(':') || !after.is_some_and(is_word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(Path::new(path), text).len()
    }

    #[test]
    fn pure_places_are_known() {
        let text = "use tokio::sync::watch;\n";
        assert_eq!(count("crates/kubelet/src/eviction/plan.rs", text), 1);
        assert_eq!(count("crates/kubelet/src/pod_plan/init.rs", text), 1);
        assert_eq!(count("crates/kubelet-model/src/ids.rs", text), 1);
        assert_eq!(count("crates/kubelet/src/pod_workers/worker.rs", text), 0);
        assert_eq!(count("crates/kubelet-model/tests/a.rs", text), 0);
    }

    #[test]
    fn only_code_counts_and_only_whole_words() {
        let pure = "crates/kubelet/src/pleg/diff.rs";
        assert_eq!(count(pure, "//! Knows no tokio.\nlet a = 1; // nor std::fs\n"), 0);
        assert_eq!(count(pure, "let a = operand::left();\nlet tokio_like = 1;\n"), 0);
        assert_eq!(count(pure, "let a = rand::random();\nlet b = Instant::now();\n"), 2);
    }

    #[test]
    fn tests_may_do_as_they_like() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        assert_eq!(count("crates/kubelet/src/pleg/diff.rs", text), 0);
        assert_eq!(count("crates/kubelet-model/src/manifest/tests/a.rs", "use std::fs;\n"), 0);
    }

    #[test]
    fn what_follows_a_test_item_is_product_again() {
        let pure = "crates/kubelet/src/pleg/diff.rs";
        for item in [
            "#[cfg(test)]\nmod tests;\n",
            "#[cfg(test)] mod tests;\n",
            "#[cfg(test)]\n#[path = \"a.rs\"]\nmod tests;\n",
            "#[cfg(test)]\nmod tests {\n    use std::fs;\n    fn a() {}\n}\n",
            "#[cfg(test)]\nuse std::fs;\n",
            "#[cfg(test)]\nfn a(\n    b: u8,\n) {\n    std::fs::read(b);\n}\n",
        ] {
            assert_eq!(count(pure, item), 0, "{item}");
            let found = check(Path::new(pure), &format!("{item}use std::env;\n"));
            assert_eq!(found.len(), 1, "{item}");
        }
    }

    #[test]
    fn every_door_to_the_world_is_shut() {
        for line in ["Timestamp::now()", "std::env::var()", "std::process::id()", "crate::ports::A"]
        {
            assert_eq!(count("crates/kubelet/src/eviction/rank.rs", line), 1, "{line}");
        }
    }
}
