//! `klet check`: what a start would use, and everything that would stop it.
//!
//! Reads the outcome of the same loading a start does, looks at what a start
//! needs of the host, asks the runtime for its version, shows it all. Changes
//! nothing on the host.

use std::process::ExitCode;

use clap::ArgMatches;
use kubelet_config::Outcome;

use crate::cli::say;
use crate::version;

mod host;
mod report;
mod runtime;

use report::{Findings, Report};

/// How to show the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Defaults as well.
    all: bool,
    /// JSON in place of tables.
    json: bool,
}

impl From<&ArgMatches> for Options {
    fn from(matches: &ArgMatches) -> Self {
        let json = matches.get_one::<String>("output").is_some_and(|output| output == "json");
        Self { all: matches.get_flag("all"), json }
    }
}

/// Shows the outcome. Fails when a start would, or would wait for the runtime.
pub fn run(outcome: &Outcome, options: &Options) -> ExitCode {
    if let Some(request) = &outcome.version {
        say(&version::kubelet(request));
        return ExitCode::SUCCESS;
    }
    let (runtime, images) = runtime::ask(outcome);
    let findings = Findings { problems: host::problems(outcome), runtime, images };
    let report = Report::new(outcome, &findings, options.all);
    say(&if options.json { report.json() } else { report.table() });
    if report.is_ready() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
