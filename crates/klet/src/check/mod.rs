//! `klet check`: what a start would use, and everything that would stop it.
//!
//! Reads the outcome of the same loading a start does, asks the runtime for its
//! version, shows both. Changes nothing on the host.

use std::process::ExitCode;

use clap::ArgMatches;
use kubelet_config::Outcome;

use crate::cli::say;
use crate::version;

mod report;
mod runtime;

use report::{Report, RuntimeAnswer};

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

/// Shows the outcome. Fails when a start would.
pub fn run(outcome: &Outcome, options: &Options) -> ExitCode {
    if let Some(request) = &outcome.version {
        say(&version::kubelet(request));
        return ExitCode::SUCCESS;
    }
    let report = Report::new(outcome, ask_runtime(outcome), options.all);
    say(&if options.json { report.json() } else { report.table() });
    if report.would_start() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Asks even when there are problems: they are no reason to hide another one.
fn ask_runtime(outcome: &Outcome) -> Option<RuntimeAnswer> {
    let endpoint = outcome
        .effective
        .get("containerRuntimeEndpoint")?
        .as_str()
        .filter(|text| !text.is_empty())?;
    let answer = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(tokio) => tokio.block_on(runtime::runtime_answers(endpoint)),
        Err(error) => Err(format!("cannot start the asynchronous runtime: {error}")),
    };
    Some(RuntimeAnswer { endpoint: endpoint.to_owned(), answer })
}
