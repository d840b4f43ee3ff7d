//! The command line: subcommands, help, and who handles what.
//!
//! Owns no behaviour of its own. Started under the name `kubelet`, the program
//! is `klet kubelet`, so that it can take the place of the upstream binary.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use kubelet_config::{Disk, Host, Outcome, flags};

use crate::{check, client, proxies, run, version};

const ROOT_EXAMPLES: &str = "\
Examples:
  klet check --config=/etc/kubernetes/kubelet.yaml    what would run, and why it would not
  klet kubelet --config=/etc/kubernetes/kubelet.yaml  run the node agent
  klet kubelet --pod-manifest-path=/etc/klet/pods     run static pods, no files needed
  klet completion bash > /etc/bash_completion.d/klet  complete commands and flags

On a machine where klet runs:
  klet pods -A                                        how the pods are
  klet why web                                        what a pod waits for, and what to do
  klet logs -f web; klet exec -it web -- sh; klet events; klet top; klet volumes; klet rm web

Under the name kubelet (a link will do) it takes the kubelet's flags directly:
  ln -s klet kubelet && ./kubelet --config=kubelet.yaml";

const KUBELET_EXAMPLES: &str = "\
Precedence, lowest first: defaults, --config, --config-dir in lexical order, flags.
Flags marked [in the file: …] are deprecated by Kubernetes but work; the file is the better place.

Examples:
  klet kubelet --pod-manifest-path=/etc/klet/pods --container-runtime-endpoint=unix:///run/containerd/containerd.sock
  klet kubelet --config=kubelet.yaml --config-dir=kubelet.yaml.d -v=4";

/// Runs what the arguments ask for.
pub fn dispatch(args: Vec<OsString>) -> ExitCode {
    let as_kubelet = args.first().is_some_and(|name| flags::invoked_as_kubelet(name));
    let command = if as_kubelet { kubelet_command("kubelet") } else { root() };
    let is_client = |name: &OsString| client::NAMES.iter().any(|known| name == known);
    // What follows a command to be run in a container must reach it as it is.
    let args = match args.get(1).is_some_and(is_client) && !as_kubelet {
        true => args,
        false => flags::normalise(args),
    };
    let matches = match command.try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => return refuse(&error),
    };
    if as_kubelet {
        return run::run(load(&matches));
    }
    match matches.subcommand() {
        Some(("kubelet", matches)) => run::run(load(matches)),
        Some(("check", matches)) => check::run(&load(matches), &check::Options::from(matches)),
        Some(("completion", matches)) => completion(matches),
        Some((name, matches)) if client::NAMES.contains(&name) => client::run(name, matches),
        _ => {
            say(&version::klet());
            ExitCode::SUCCESS
        }
    }
}

/// Help goes to stdout and is a success; everything else is upstream's exit code 1.
fn refuse(error: &clap::Error) -> ExitCode {
    // Nothing is left to do when the terminal is gone.
    let _ = error.print();
    if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn load(matches: &ArgMatches) -> Outcome {
    let mut outcome = kubelet_config::load_matches(matches, &Disk, &Host::look(&Disk));
    proxies::note(&mut outcome);
    outcome
}

fn root() -> Command {
    Command::new("klet")
        .about("A Kubernetes node in one binary")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(ROOT_EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(kubelet_command("klet kubelet"))
        .subcommand(check_command())
        .subcommands(client::commands())
        .subcommand(
            Command::new("version").about("Show klet's version and the Kubernetes it stands for"),
        )
        .subcommand(
            Command::new("completion")
                .about("Print a script that completes klet's commands and flags")
                .arg(
                    Arg::new("shell")
                        .required(true)
                        .value_parser(["bash", "zsh", "fish"])
                        .help("The shell it is for"),
                ),
        )
}

fn kubelet_command(bin_name: &'static str) -> Command {
    let name = bin_name.rsplit(' ').next().unwrap_or(bin_name);
    let about = "Run the node agent: keep the pods of this node running";
    flags::add_to(Command::new(name).bin_name(bin_name).about(about).after_help(KUBELET_EXAMPLES))
}

fn check_command() -> Command {
    let command = Command::new("check")
        .about("Show what a start with these flags would use, and everything that would stop it")
        .long_about(
            "Loads flags, --config and --config-dir exactly as a start would, shows the effective configuration \
             with the origin of each value, lists every setting that is not acted on yet and every problem, also \
             of this host (ports, directories), and asks the container runtime for its version. Exits 1 if a start \
             would fail, or would wait because the runtime does not answer.",
        )
        .after_help("Examples:\n  klet check --config=kubelet.yaml\n  klet check --config=kubelet.yaml --all -o json")
        .arg(Arg::new("all").long("all").action(clap::ArgAction::SetTrue).help("Show defaults as well"))
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_parser(["table", "json"])
                .default_value("table")
                .help("How to show it"),
        );
    flags::add_to(command)
}

fn completion(matches: &ArgMatches) -> ExitCode {
    let shell = match matches.get_one::<String>("shell").map(String::as_str) {
        Some("zsh") => clap_complete::Shell::Zsh,
        Some("fish") => clap_complete::Shell::Fish,
        _ => clap_complete::Shell::Bash,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root(), "klet", &mut script);
    say(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Writes to stdout. A reader that went away is not an error.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes a line to stderr. A reader that went away is not an error.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_commands_are_consistent() {
        super::root().debug_assert();
        super::kubelet_command("kubelet").debug_assert();
    }
}
