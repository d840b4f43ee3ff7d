//! The agent's log: to stderr, as text or JSON.
//!
//! Verbosity follows upstream's habit: up to 3 is what operators want, 4 and 5
//! are for debugging, more is everything. `RUST_LOG` overrides it, until somebody changes
//! the verbosity of the running agent.

use std::env::VarError;

use anyhow::Context;
use kubelet_config::config::{LogFormat, Logging};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

/// The filter of a verbosity. Libraries stay quiet until everything is asked for.
fn filter(verbosity: u32) -> Targets {
    let quiet = |names: &'static [&str]| names.iter().map(|name| (*name, Level::INFO));
    match verbosity {
        0..=3 => Targets::new().with_default(Level::INFO),
        4..=5 => Targets::new().with_default(Level::DEBUG).with_targets(quiet(&[
            "h2",
            "hyper",
            "hyper_util",
            "tower",
            "tonic",
        ])),
        _ => Targets::new().with_default(Level::TRACE).with_targets(quiet(&["h2"])),
    }
}

/// The filter of `RUST_LOG`, if it is set.
pub fn from_environment() -> anyhow::Result<Option<Targets>> {
    match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            text.parse().map(Some).context("RUST_LOG is not a log filter")
        }
        Ok(_) | Err(VarError::NotPresent) => Ok(None),
        Err(error) => Err(error).context("RUST_LOG is not a log filter"),
    }
}

/// Changes how much is logged while the agent runs.
#[derive(Clone)]
pub struct Verbosity(reload::Handle<Targets, Registry>);

impl Verbosity {
    /// Logs as much as this from now on, whatever `RUST_LOG` said.
    pub fn set(&self, verbosity: u32) -> Result<(), String> {
        self.0.reload(filter(verbosity)).map_err(|error| error.to_string())
    }
}

/// Starts logging. May be called once.
pub fn start(logging: &Logging) -> anyhow::Result<Verbosity> {
    let filter = from_environment()?.unwrap_or_else(|| filter(logging.verbosity));
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let started = match logging.format {
        LogFormat::Text => registry().with(filter).with(lines.with_ansi(false)).try_init(),
        LogFormat::Json => {
            registry().with(filter).with(lines.json().flatten_event(true)).try_init()
        }
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))?;
    Ok(Verbosity(handle))
}

#[cfg(test)]
mod tests {
    use super::{Level, filter};

    #[test]
    fn verbosity_shows_more_and_libraries_last() {
        // Verbosity, and the most detailed level shown of the agent and of h2.
        for (verbosity, own, h2) in [
            (0, Level::INFO, Level::INFO),
            (3, Level::INFO, Level::INFO),
            (4, Level::DEBUG, Level::INFO),
            (6, Level::TRACE, Level::INFO),
            (u32::MAX, Level::TRACE, Level::INFO),
        ] {
            let filter = filter(verbosity);
            for (target, expected) in [("kubelet::pleg", own), ("h2::codec", h2)] {
                let all = [Level::TRACE, Level::DEBUG, Level::INFO];
                let most = all.into_iter().find(|level| filter.would_enable(target, level));
                assert_eq!(most, Some(expected), "-v {verbosity}, {target}");
            }
        }
    }
}
