//! The local client: commands that ask the klet running on this machine.
//!
//! Owns the connection and the terminal while a command runs. Decides nothing
//! about pods: what it shows comes from the agent's socket. Upstream: none;
//! kubectl and crictl do this there.

mod args;
mod endpoint;
mod events;
mod exec;
mod logs;
mod pods;
mod remove;
mod summary;
mod table;
mod terminal;
mod top;
mod volumes;
mod which;
mod why;

use std::process::ExitCode;

use clap::ArgMatches;

use crate::cli::complain;
use endpoint::Endpoint;

pub use args::{NAMES, commands};

/// Runs the client command of that name.
pub fn run(name: &str, matches: &ArgMatches) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("error: cannot start the asynchronous runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let endpoint = Endpoint::from_matches(matches);
    let answer = runtime.block_on(async {
        match name {
            "pods" => pods::run(&endpoint, matches).await,
            "logs" => logs::run(&endpoint, matches).await,
            "exec" => exec::run(&endpoint, matches).await,
            "events" => events::run(&endpoint, matches).await,
            "rm" => remove::run(&endpoint, matches).await,
            "top" => top::run(&endpoint, matches).await,
            "volumes" => volumes::run(&endpoint, matches).await,
            _ => why::run(&endpoint, matches).await,
        }
    });
    // A thread that waits for input would hold up the end for ever.
    runtime.shutdown_background();
    match answer {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Writes to stdout at once. A reader that went away is an error here: commands
/// that go on for ever must notice.
fn emit(bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}
