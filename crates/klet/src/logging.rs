//! The agent's log: to stderr, as text or JSON.
//!
//! Verbosity follows upstream's habit: up to 3 is what operators want, 4 and 5
//! are for debugging, more is everything. `RUST_LOG` overrides it.

use std::env::VarError;

use anyhow::Context;
use kubelet_config::config::{LogFormat, Logging};
use tracing_subscriber::EnvFilter;

/// The filter of a verbosity. Libraries stay quiet until everything is asked for.
fn directives(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4..=5 => "debug,h2=info,hyper=info,hyper_util=info,tower=info,tonic=info",
        _ => "trace,h2=info",
    }
}

/// The filter of `RUST_LOG`, if it is set.
pub fn from_environment() -> anyhow::Result<Option<EnvFilter>> {
    match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).map(Some).context("RUST_LOG is not a log filter")
        }
        Ok(_) | Err(VarError::NotPresent) => Ok(None),
        Err(error) => Err(error).context("RUST_LOG is not a log filter"),
    }
}

/// Starts logging. May be called once.
pub fn start(logging: &Logging) -> anyhow::Result<()> {
    let filter =
        from_environment()?.unwrap_or_else(|| EnvFilter::new(directives(logging.verbosity)));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match logging.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

#[cfg(test)]
mod tests {
    use super::directives;
    use tracing_subscriber::EnvFilter;

    #[test]
    fn every_verbosity_has_a_valid_filter() {
        for verbosity in [0, 2, 4, 5, 6, 10, u32::MAX] {
            assert!(EnvFilter::try_new(directives(verbosity)).is_ok());
        }
    }
}
