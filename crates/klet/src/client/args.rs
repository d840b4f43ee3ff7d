//! The client's commands, as the command line knows them.

use clap::{Arg, ArgAction, Command};

/// The names of the client's commands.
pub const NAMES: [&str; 8] = ["pods", "logs", "exec", "events", "rm", "top", "volumes", "why"];

const POD: &str = "The pod: NAME or NAMESPACE/NAME; the node's name at its end may be left out";

/// The client's commands.
pub fn commands() -> [Command; 8] {
    [pods(), logs(), exec(), events(), rm(), top(), volumes(), why()]
}

/// What every command of the client takes.
fn command(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .arg(Arg::new("socket").long("socket").value_name("PATH").help(
            "Socket of the klet to ask [default: $KLET_SOCKET, else klet.sock in --root-dir]",
        ))
        .arg(
            Arg::new("root-dir")
                .long("root-dir")
                .value_name("DIR")
                .default_value("/var/lib/kubelet")
                .help("State directory of the klet to ask"),
        )
}

fn namespace() -> Arg {
    Arg::new("namespace")
        .short('n')
        .long("namespace")
        .value_name("NAMESPACE")
        .help("Namespace of the pod")
}

fn pod() -> Arg {
    Arg::new("pod").required(true).value_name("POD").help(POD)
}

fn container() -> Arg {
    Arg::new("container")
        .short('c')
        .long("container")
        .value_name("NAME")
        .help("The container; not needed if the pod has only one")
}

fn flag(name: &'static str, short: char, help: &'static str) -> Arg {
    Arg::new(name).short(short).long(name).action(ArgAction::SetTrue).help(help)
}

fn pods() -> Command {
    command("pods", "List the pods of this node and how they are")
        .after_help(
            "STATUS is what kubectl would show. For anything but Running or Completed, ask `klet why POD`.\n\n\
             Examples:\n  klet pods\n  klet pods -A -o wide\n  klet pods -w                    follow changes\n  \
             klet pods -o json | jq -r '.items[].metadata.name'",
        )
        .arg(namespace().conflicts_with("all-namespaces").help("Only pods of this namespace"))
        .arg(flag("all-namespaces", 'A', "Pods of every namespace"))
        .arg(flag("watch", 'w', "Go on and show changes"))
        .arg(output())
}

fn output() -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_parser(["table", "wide", "json"])
        .default_value("table")
        .help("How to show them")
}

fn logs() -> Command {
    command("logs", "Show what a container wrote")
        .after_help(
            "Examples:\n  klet logs web\n  klet logs -f --tail=20 web -c app\n  \
             klet logs --previous web        of the instance before the last restart\n  \
             klet logs --since=10m --timestamps kube-system/dns",
        )
        .arg(pod())
        .arg(namespace())
        .arg(container())
        .arg(flag("follow", 'f', "Go on until the container ends"))
        .arg(flag("previous", 'p', "Of the instance before the one that runs now"))
        .arg(
            Arg::new("tail")
                .long("tail")
                .value_name("LINES")
                .value_parser(clap::value_parser!(u64))
                .help("Only the last lines"),
        )
        .arg(
            Arg::new("since")
                .long("since")
                .value_name("DURATION")
                .help("Only what is younger, e.g. 30s, 10m, 2h"),
        )
        .arg(
            Arg::new("timestamps")
                .long("timestamps")
                .action(ArgAction::SetTrue)
                .help("Put the time before each line"),
        )
}

fn exec() -> Command {
    command("exec", "Run a command in a container")
        .after_help(
            "The command's exit code becomes klet's.\n\nExamples:\n  klet exec web -- ls -l /\n  \
             klet exec -it web -c app -- sh",
        )
        .arg(pod())
        .arg(namespace())
        .arg(container())
        .arg(flag("stdin", 'i', "Send it what is typed"))
        .arg(flag("tty", 't', "Give it a terminal"))
        .arg(
            Arg::new("command")
                .required(true)
                .last(true)
                .num_args(1..)
                .value_name("COMMAND")
                .help("Program and arguments, after --"),
        )
}

fn events() -> Command {
    command("events", "Show what happened to pods and the node, newest last")
        .after_help("Examples:\n  klet events\n  klet events web\n  klet events -w")
        .arg(pod().required(false))
        .arg(namespace().help("Only events of this namespace"))
        .arg(flag("watch", 'w', "Go on and show what happens"))
}

fn rm() -> Command {
    command("rm", "Remove a pod, by removing the manifest it came from")
        .after_help(
            "The file is named before it is removed. A pod that shares its file with others, or comes from a URL, \
             is left alone; the message says what to do.\n\nExamples:\n  klet rm web\n  klet rm --wait=false web",
        )
        .arg(pod())
        .arg(namespace())
        .arg(
            Arg::new("wait")
                .long("wait")
                .value_name("BOOL")
                .num_args(0..=1)
                .require_equals(true)
                .default_value("true")
                .default_missing_value("true")
                .value_parser(clap::value_parser!(bool))
                .help("Wait until the pod is gone"),
        )
        .arg(Arg::new("dry-run").long("dry-run").action(ArgAction::SetTrue).help("Only say which file would be removed"))
}

fn top() -> Command {
    command("top", "Show what pods use: processor, measured over a second, and memory")
        .after_help("Examples:\n  klet top\n  klet top --containers --sort=memory")
        .arg(namespace().help("Only pods of this namespace"))
        .arg(flag("containers", 'c', "One line per container"))
        .arg(
            Arg::new("sort")
                .long("sort")
                .value_parser(["name", "cpu", "memory"])
                .default_value("name")
                .help("What comes first"),
        )
}

fn volumes() -> Command {
    command("volumes", "List the volumes of pods, and what they hold")
        .long_about(
            "Every volume of every pod: its kind, whether it is there, how much it holds and how much room its file \
             system has. Nothing is measured unless you ask.\n\nA pod that is gone leaves a volume behind if \
             something else is mounted in it: klet never removes anything through a mount. `klet volumes clean` \
             unmounts it, and klet then removes the rest.",
        )
        .after_help(
            "Examples:\n  klet volumes\n  klet volumes -o wide               with their paths\n  \
             klet volumes clean --dry-run web   what keeps the volumes of a pod that is gone",
        )
        .arg(namespace().help("Only volumes of this namespace's pods"))
        .arg(output())
        .subcommand(
            Command::new("clean")
                .about("Unmount what keeps the volumes of a pod that is gone; nothing mounted is removed")
                .arg(pod().help("The pod: NAME, NAMESPACE/NAME or its uid, as `klet volumes` shows it"))
                .arg(
                    Arg::new("dry-run")
                        .long("dry-run")
                        .action(ArgAction::SetTrue)
                        .help("Only say what would be unmounted"),
                ),
        )
}

fn why() -> Command {
    command("why", "Say what a pod waits for, and what you can do about it")
        .long_about(
            "One screen: what the pod waits for and since when, which call is in flight, the last error in plain \
             words, what klet tries next and when, and what you can do. `klet why node` tells the same of the node.",
        )
        .after_help("Examples:\n  klet why web\n  klet why node")
        .arg(pod().help("The pod: NAME or NAMESPACE/NAME; or `node`"))
        .arg(namespace())
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_parser(["text", "json"])
                .default_value("text")
                .help("How to show it"),
        )
}
