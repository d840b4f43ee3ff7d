//! ARCHITECTURE.md names every crate, and no crate that is not there.

use std::collections::BTreeSet;

use super::finding::Finding;

/// The map of this tree.
pub const FILE: &str = "ARCHITECTURE.md";

/// Compares the map's text with the crates there are.
pub fn check(text: &str, crates: &[String]) -> Vec<Finding> {
    if text.is_empty() {
        let mend = "write it: it is the map of this tree";
        return vec![Finding::new(FILE, 1, "missing or empty", mend)];
    }
    let named = named_crates(text);
    let mut findings = Vec::new();
    for (name, line) in &named {
        if !crates.contains(name) {
            let mend = "take it out, or add the crate";
            findings.push(Finding::new(FILE, *line, format!("crates/{name} does not exist"), mend));
        }
    }
    let names: BTreeSet<&String> = named.iter().map(|(name, _)| name).collect();
    for name in crates.iter().filter(|name| !names.contains(name)) {
        let mend = "add a line that says what the crate is for";
        findings.push(Finding::new(FILE, 1, format!("crates/{name} is not mentioned"), mend));
    }
    findings
}

/// Crates named as `crates/NAME`, or as an indented `NAME/` below a line `crates/`.
fn named_crates(text: &str) -> Vec<(String, usize)> {
    let mut named = Vec::new();
    // Indentation of the children of a `crates/` line, while we are below one.
    let mut list: Option<(usize, Option<usize>)> = None;
    for (number, line) in text.lines().enumerate() {
        for (at, mark) in line.match_indices("crates/") {
            let name = leading_name(&line[at + mark.len()..]);
            if !name.is_empty() {
                named.push((name.to_owned(), number + 1));
            }
        }
        let indent = line.len() - line.trim_start().len();
        let first = line.split_whitespace().next().unwrap_or_default();
        if first == "crates/" {
            list = Some((indent, None));
            continue;
        }
        let Some((top, children)) = list else {
            continue;
        };
        if line.trim().is_empty() || indent <= top {
            list = None;
        } else if children.unwrap_or(indent) == indent {
            list = Some((top, Some(indent)));
            if let Some(name) = first.strip_suffix('/') {
                named.push((name.to_owned(), number + 1));
            }
        }
    }
    named
}

fn leading_name(text: &str) -> &str {
    let end =
        text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-' && letter != '_');
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, crates: &[&str]) -> Vec<String> {
        let crates: Vec<String> = crates.iter().map(|name| (*name).to_owned()).collect();
        check(text, &crates).iter().map(Finding::to_string).collect()
    }

    const MAP: &str = "# Map\n```\ncrates/\n  klet/      the binary\n  cri/       the client\n    src/     deeper\nxtask/\n```\n";

    #[test]
    fn a_tree_names_its_crates() {
        assert!(found(MAP, &["klet", "cri"]).is_empty());
        assert!(
            found(MAP, &["klet"])[0].starts_with("ARCHITECTURE.md:5: crates/cri does not exist")
        );
        assert!(found(MAP, &["klet", "cri", "new"])[0].contains("crates/new is not mentioned"));
    }

    #[test]
    fn running_text_names_crates_too() {
        assert!(found("See `crates/cri/src/lib.rs`.\n", &["cri"]).is_empty());
        assert_eq!(found("", &["cri"]).len(), 1);
    }
}
