//! `klet kubelet`: from a loaded configuration to a running agent.
//!
//! Prints what is wrong before anything starts; then logging, then one
//! single-threaded runtime, then the agent.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use kubelet::node::Node;
use kubelet::server::secure::SetVerbosity;
use kubelet_config::{Config, Flags, Outcome, Warning};

use crate::cli::{complain, say};
use crate::logging::Verbosity;
use crate::signals::Signals;
use crate::{logging, process, service_manager, version};

/// Drop-ins that were skipped are told from this verbosity on, as upstream does.
const SKIPPED_FILES_VERBOSITY: u32 = 4;

/// Runs the agent until it is told to stop.
pub fn run(outcome: Outcome) -> ExitCode {
    if let Some(request) = &outcome.version {
        say(&version::kubelet(request));
        return ExitCode::SUCCESS;
    }
    warn(&outcome);
    let Some(config) = outcome.config else {
        for problem in &outcome.problems {
            complain(&format!("error: {problem}"));
        }
        complain(
            "cannot start; `klet check` with the same flags shows where each value comes from",
        );
        return ExitCode::FAILURE;
    };
    match start(config, outcome.flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn warn(outcome: &Outcome) {
    let verbosity = outcome.config.as_ref().map_or(0, |config| config.logging.verbosity);
    for warning in &outcome.warnings {
        if !matches!(warning, Warning::SkippedFile(_)) || verbosity >= SKIPPED_FILES_VERBOSITY {
            complain(&format!("warning: {warning}"));
        }
    }
    for unused in &outcome.unconsumed {
        complain(&format!(
            "warning: {} (set by {}) is not acted on by this release",
            unused.path, unused.origin
        ));
    }
}

fn start(config: Config, flags: Flags) -> anyhow::Result<()> {
    let watchdog = service_manager::watchdog_from_environment()?;
    let verbosity = logging::start(&config.logging)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        kubernetes = version::KUBERNETES,
        "klet starts"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    runtime.block_on(agent(config, flags, watchdog, verbosity))
}

async fn agent(
    config: Config,
    flags: Flags,
    watchdog: Option<Duration>,
    verbosity: Verbosity,
) -> anyhow::Result<()> {
    // Signals come after the lock: while waiting for it, the first one ends the process.
    let _lock = process::prepare(&config.process, &flags)?;
    let signals = Signals::listen()?;
    let node = Node::new(&config, &flags)?;
    let node = node.with_verbosity(SetVerbosity::new(move |level| verbosity.set(level)));
    node.run(process::shutdown(&flags, signals, watchdog)).await?;
    Ok(())
}
