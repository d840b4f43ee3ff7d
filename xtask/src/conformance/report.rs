//! docs/conformance.md: what passed, what did not, and what upstream does there.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::suite::{Outcome, Outcomes};

/// What people wrote below this line stays.
const NOTES: &str = "## Why specs do not pass\n";

/// Whether a spec of this name belongs to a group.
type IsIn = fn(&str) -> bool;

/// The groups that are counted.
const GROUPS: [(&str, IsIn); 2] = [
    ("`[NodeConformance]`", |name| name.contains("[NodeConformance]")),
    ("sig-node `[Conformance]`", |name| {
        name.starts_with("[sig-node]") && name.contains("[Conformance]")
    }),
];

/// Specs that klet fails and upstream passes.
pub fn worse_than_upstream(results: &[(&str, Outcomes)]) -> Vec<String> {
    let of = |name: &str| results.iter().find(|(of, _)| *of == name).map(|(_, all)| all);
    let (Some(klet), Some(upstream)) = (of("klet"), of("upstream")) else { return Vec::new() };
    let passes = |all: &Outcomes, name: &str| all.get(name).is_some_and(|o| o.state == "passed");
    let names = upstream.keys().filter(|name| passes(upstream, name) && !passes(klet, name));
    names.cloned().collect()
}

/// Writes the table; what was noted by hand stays.
pub fn write(path: &Path, runtime: &str, results: &[(&str, Outcomes)]) -> Result<()> {
    let old = fs::read_to_string(path).unwrap_or_default();
    let notes = old.split_once(NOTES).map_or("", |(_, notes)| notes);
    let text = format!("{}{NOTES}{notes}", render(runtime, results));
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn render(runtime: &str, results: &[(&str, Outcomes)]) -> String {
    let mut out = format!(
        "# Conformance\n\nUpstream's end-to-end suite (v1.36.4) on one node of a stock v1.36.4 \
         control plane with {runtime}, written by `make interop`.\n\n",
    );
    let names: Vec<&str> = results.iter().map(|(name, _)| *name).collect();
    let _ = writeln!(out, "| specs | {} |", names.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(names.len()));
    for (group, is_in) in GROUPS {
        let counts = results.iter().map(|(_, all)| count(all, is_in));
        let _ = writeln!(out, "| {group} | {} |", counts.collect::<Vec<_>>().join(" | "));
    }
    out.push_str("\nSpecs that did not pass:\n\n");
    let _ = writeln!(out, "| spec | {} | what it said |", names.join(" | "));
    let _ = writeln!(out, "|---|{}---|", "---|".repeat(names.len()));
    let mut all: Vec<&String> = results.iter().flat_map(|(_, all)| all.keys()).collect();
    all.sort();
    all.dedup();
    for name in all {
        let of_each: Vec<Option<&Outcome>> = results.iter().map(|(_, all)| all.get(name)).collect();
        if of_each.iter().flatten().all(|outcome| outcome.state == "passed") {
            continue;
        }
        let states = of_each.iter().map(|o| o.map_or("not run", |o| o.state.as_str()));
        let states = states.collect::<Vec<_>>().join(" | ");
        let why = of_each.iter().flatten().map(|o| o.why.as_str()).find(|why| !why.is_empty());
        let why = cell(why.unwrap_or_default());
        let _ = writeln!(out, "| {} | {states} | {why} |", cell(name));
    }
    out.push('\n');
    out
}

fn count(all: &Outcomes, is_in: IsIn) -> String {
    let of = |state: &str| all.iter().filter(|(name, o)| is_in(name) && o.state == state).count();
    let total = all.keys().filter(|name| is_in(name)).count();
    format!("{} of {total} passed, {} skipped", of("passed"), of("skipped"))
}

/// Text that does not end its cell, nor fills the page.
fn cell(text: &str) -> String {
    let short: String = text.chars().take(160).collect();
    short.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(all: &[(&str, &str, &str)]) -> Outcomes {
        let one = |(name, state, why): &(&str, &str, &str)| {
            ((*name).to_owned(), Outcome { state: (*state).to_owned(), why: (*why).to_owned() })
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn what_differs_is_told_and_notes_stay() {
        let (a, b) = ("[sig-node] a [NodeConformance]", "[sig-node] b [Conformance]");
        let klet = outcomes(&[(a, "passed", ""), (b, "failed", "no | way")]);
        let upstream = outcomes(&[(a, "skipped", "not here"), (b, "passed", "")]);
        let results = [("klet", klet), ("upstream", upstream)];
        assert_eq!(worse_than_upstream(&results), [b]);
        let text = render("containerd 2", &results);
        assert!(text.contains("control plane with containerd 2, written"), "{text}");
        assert!(
            text.contains(
                "| `[NodeConformance]` | 1 of 1 passed, 0 skipped | 0 of 1 passed, 1 skipped |"
            ),
            "{text}"
        );
        assert!(
            text.contains("| [sig-node] b [Conformance] | failed | passed | no \\| way |"),
            "{text}"
        );
        let path = std::env::temp_dir().join(format!("klet-report-{}.md", std::process::id()));
        fs::write(&path, format!("old\n{NOTES}\nby hand\n")).unwrap();
        write(&path, "containerd 2", &results).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(text.ends_with(&format!("{NOTES}\nby hand\n")) && !text.contains("old"), "{text}");
    }
}
