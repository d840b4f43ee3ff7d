//! Keeps a seed of the simulation repeatable: no `select!` draws lots.

use std::path::Path;

use super::finding::Finding;

/// Crates that run inside the simulation.
const SIMULATED: &[&str] = &["api-client", "apiserver", "cluster", "kubelet", "kubelet-sim"];

/// Checks one file.
pub fn check(path: &Path, text: &str) -> Vec<Finding> {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    let simulated = parts.next() == Some("crates")
        && parts.next().is_some_and(|name| SIMULATED.contains(&name))
        && parts.next() == Some("src");
    if !simulated {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut findings = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some((_, rest)) = line.split_once("select! {") else { continue };
        let next = lines.get(number + 1).map_or("", |next| next.trim_start());
        if !rest.trim_start().starts_with("biased;") && !next.starts_with("biased;") {
            let mend = "begin it with `biased;`: which branch is looked at first is drawn by lot otherwise, and a seed has two courses";
            findings.push(Finding::new(path, number + 1, "`select!` without `biased;`", mend));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_select_of_a_simulated_crate_is_biased() {
        let draws = "tokio::select! {\n    () = a => {}\n}\n";
        let found = check(Path::new("crates/cluster/src/a.rs"), draws);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("crates/cluster/src/a.rs:1:"), "{found:?}");
        assert!(check(Path::new("crates/node-server/src/a.rs"), draws).is_empty());
        for biased in ["select! { biased;\n", "select! {\n    biased;\n"] {
            assert!(check(Path::new("crates/kubelet/src/a.rs"), biased).is_empty(), "{biased}");
        }
    }
}
