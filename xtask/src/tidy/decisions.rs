//! Decision records: docs/adr/NNNN-title.md, numbered from 0001 without gaps.

use std::path::Path;

use super::finding::Finding;

/// Where they are.
pub const DIR: &str = "docs/adr";

/// Checks the records, given as sorted names and texts.
pub fn check(files: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut expected = 1;
    for (name, text) in files.iter().filter(|(name, _)| name != "README.md") {
        let path = Path::new(DIR).join(name);
        let Some(number) = number(name) else {
            let mend = "name it NNNN-title.md, in lower case, with the next number";
            findings.push(Finding::new(path, 1, "not named like a decision record", mend));
            continue;
        };
        if number != expected {
            let mend = "number the records from 0001, each number once";
            findings.push(Finding::new(
                &path,
                1,
                format!("number {number:04}, not {expected:04}"),
                mend,
            ));
        }
        expected = number + 1;
        let title = text.lines().next().unwrap_or_default();
        let said =
            title.split(|letter: char| !letter.is_ascii_digit()).find(|part| !part.is_empty());
        let agrees = said.is_none_or(|said| said.parse() == Ok(number));
        if !title.starts_with("# ") || !agrees {
            let mend = "begin it with `# NNNN: the decision`, with the number of its file";
            findings.push(Finding::new(&path, 1, format!("its title is {title:?}"), mend));
        }
    }
    findings
}

fn number(name: &str) -> Option<u32> {
    let (digits, title) = name.strip_suffix(".md")?.split_once('-')?;
    let plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if digits.len() != 4 || title.is_empty() || !title.chars().all(plain) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str]) -> Vec<String> {
        let file = |name: &&str| (name.to_string(), format!("# {}: a title\n", &name[..4]));
        let files: Vec<_> = names.iter().map(file).collect();
        check(&files).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn records_are_numbered_without_gaps() {
        assert!(found(&["0001-one.md", "0002-two.md"]).is_empty());
        assert!(found(&["0001-one.md", "0003-three.md"])[0].contains("number 0003, not 0002"));
        assert!(found(&["0001-one.md", "0001-two.md"])[0].contains("0001-two.md:1: number 0001"));
        assert!(found(&["0001-One.md"])[0].contains("not named like"));
    }

    #[test]
    fn a_title_agrees_with_its_file() {
        let files = [("0001-one.md".to_owned(), "# ADR 2: one\n".to_owned())];
        assert_eq!(check(&files).len(), 1);
        let files = [("0001-one.md".to_owned(), "# Observe, plan, perform\n".to_owned())];
        assert!(check(&files).is_empty());
    }
}
