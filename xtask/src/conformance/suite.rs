//! Runs upstream's e2e.test: asks it which specs there are, and runs them in streams.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::process::Process;
use testkit::{eventually, process};

/// Longest a whole run may take.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(4 * 60 * 60);

/// How a spec ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// `passed`, `failed`, `skipped`, …
    pub state: String,
    /// The first line of what went wrong.
    pub why: String,
}

/// By the specs' names.
pub type Outcomes = BTreeMap<String, Outcome>;

pub struct Suite {
    pub program: PathBuf,
    pub kubeconfig: PathBuf,
    pub dir: PathBuf,
}

impl Suite {
    /// Runs the specs that match.
    pub fn run(&self, focus: &str, streams: usize) -> Result<Outcomes> {
        let report = self.dir.join("specs.json");
        let mut command = self.command(focus, &report);
        process::run(command.arg("--ginkgo.dry-run"))?;
        let specs: Vec<String> = read(&report)?
            .into_iter()
            .filter(|(_, outcome)| outcome.state == "passed")
            .map(|(name, _)| name)
            .collect();
        ensure!(!specs.is_empty(), "no spec matches {focus}");
        println!("conformance: {} specs in {streams} streams", specs.len());
        let (alone, together): (Vec<String>, Vec<String>) =
            specs.into_iter().partition(|name| name.contains("[Serial]"));
        let mut shares = vec![Vec::new(); streams];
        for (at, name) in together.into_iter().enumerate() {
            shares[at % streams].push(name);
        }
        let mut outcomes = self.run_streams(&shares)?;
        outcomes.extend(self.run_streams(&[alone])?);
        let passed = outcomes.values().any(|outcome| outcome.state == "passed");
        ensure!(passed, "no spec passed: look at the logs in {}", self.dir.display());
        Ok(outcomes)
    }

    fn run_streams(&self, shares: &[Vec<String>]) -> Result<Outcomes> {
        let mut running = Vec::new();
        for (at, share) in shares.iter().enumerate().filter(|(_, share)| !share.is_empty()) {
            let report = self.dir.join(format!("report-{}-{at}.json", shares.len()));
            let names: Vec<String> = share.iter().map(|name| literal(name)).collect();
            // The suite's own name and a space go before a spec's name.
            let mut command = self.command(&format!(" ({})$", names.join("|")), &report);
            let log = report.with_extension("log");
            running.push((Process::spawn("e2e.test", &mut command, &log)?, report, share));
        }
        let mut outcomes = Outcomes::new();
        for (mut process, report, share) in running {
            eventually(LIMIT, "e2e.test to end", || {
                ensure!(process.check_alive().is_err(), "it runs");
                Ok(())
            })?;
            let all = read(&report)?;
            for name in share {
                let outcome = all.get(name).with_context(|| format!("no outcome of {name}"))?;
                outcomes.insert(name.clone(), outcome.clone());
            }
        }
        Ok(outcomes)
    }

    fn command(&self, focus: &str, report: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .args(["--provider=skeleton", "--disable-log-dump", "--num-nodes=1"])
            .args(["--ginkgo.no-color", "--ginkgo.v", "--ginkgo.timeout=4h"])
            .arg(format!("--ginkgo.json-report={}", report.display()))
            .arg(format!("--ginkgo.focus={focus}"));
        command
    }
}

/// A name as a regular expression that matches just it.
fn literal(name: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
    name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

fn read(report: &Path) -> Result<Outcomes> {
    let text = fs::read(report).with_context(|| format!("cannot read {}", report.display()))?;
    let suites: Value = serde_json::from_slice(&text).context("a report of e2e.test")?;
    let specs = suites.as_array().into_iter().flatten();
    let specs = specs.flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten());
    Ok(specs.filter(|spec| spec["LeafNodeType"] == "It").map(outcome).collect())
}

fn outcome(spec: &Value) -> (String, Outcome) {
    let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let words = containers.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
    let name = words.collect::<Vec<_>>().join(" ");
    let why = spec["Failure"]["Message"].as_str().unwrap_or_default();
    let outcome = Outcome {
        state: spec["State"].as_str().unwrap_or_default().to_owned(),
        why: why.lines().next().unwrap_or_default().to_owned(),
    };
    (name, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_only_themselves() {
        assert_eq!(literal("[sig-node] a (b) c.d"), r"\[sig-node\] a \(b\) c\.d");
    }

    #[test]
    fn reports_tell_name_state_and_reason() {
        let spec = serde_json::json!({
            "ContainerHierarchyTexts": ["[sig-node] Pods", "when x"], "LeafNodeText": "should y",
            "LeafNodeType": "It", "State": "failed", "Failure": {"Message": "one\ntwo"},
        });
        let (name, outcome) = outcome(&spec);
        assert_eq!(name, "[sig-node] Pods when x should y");
        assert_eq!((outcome.state.as_str(), outcome.why.as_str()), ("failed", "one"));
    }
}
