//! klet: a Kubernetes node in one binary.
//!
//! Reads the command line and hands over. Everything else lives in the modules
//! below and in the crates they call.

use std::process::ExitCode;

mod check;
mod cli;
mod client;
mod logging;
mod process;
mod proxies;
mod run;
mod service_manager;
mod signals;
mod version;

fn main() -> ExitCode {
    cli::dispatch(std::env::args_os().collect())
}
