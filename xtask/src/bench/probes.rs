//! The cost of a thousand probes a second, by kind.
//!
//! A program of the kubelet crate measures it: it needs the probe manager
//! itself, and servers to probe.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Share of a core by kind of probe.
pub fn measure(program: &Path) -> Result<BTreeMap<String, f64>> {
    println!("probes: {}", program.display());
    let output = testkit::process::run(&mut Command::new(program))?;
    print!("{output}");
    let costs: BTreeMap<String, f64> = output.lines().filter_map(parse).collect();
    ensure!(
        costs.len() == 4,
        "{} told {} kinds of probe:\n{output}",
        program.display(),
        costs.len()
    );
    Ok(costs)
}

/// `tcpSocket  0.031 cores at 1000 a second, …; 0 without success`.
fn parse(line: &str) -> Option<(String, f64)> {
    let mut words = line.split_whitespace();
    let (kind, cores, unit) = (words.next()?, words.next()?, words.next()?);
    (unit == "cores").then_some(())?;
    Some((kind.to_owned(), cores.parse().context("cores").ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_with_a_cost_count() {
        let line = "httpGet    0.042 cores at 1000 a second, 42 µs each; 0 without success";
        assert_eq!(parse(line), Some(("httpGet".to_owned(), 0.042)));
        assert_eq!(parse("1000 probes, one each per second, for 10s"), None);
    }
}
