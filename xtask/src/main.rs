//! What the Makefile calls: tidy checks, the development node, benchmarks, conformance,
//! tests in a virtual machine.

// These are tools that run on a developer's machine, never in simulation.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod bench;
mod conformance;
mod interrupt;
mod run;
mod tidy;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Project tools.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check what the compiler does not: headers, purity, sizes, documents.
    Tidy,
    /// Run the example pods on a private containerd until interrupted.
    Run(run::Options),
    /// Measure klet and write docs/benchmarks.md.
    Bench(bench::Options),
    /// Run upstream's conformance suite and write docs/conformance.md.
    Conformance(conformance::Options),
    /// Run tests on Debian's own kernel, in a virtual machine.
    Vm(vm::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Tidy => tidy::run(),
        Task::Run(options) => run::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Conformance(options) => conformance::run(&options),
        Task::Vm(options) => vm::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}
