//! The kubelet's command line.
//!
//! Builds the command from the table, reads arguments the way upstream does
//! (underscores are dashes, a lone boolean is true, no positional arguments)
//! and turns them into values. Reports every bad value, not the first. Pure.
//! Upstream: cmd/kubelet/app/options, component-base/cli/flag, pflag.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, ArgMatches, Command};
use kubelet_model::manifest;
use serde_json::Value;

mod own;
mod table;
mod value;

pub use own::Flags;
pub use table::{FLAGS, Flag, Target, find};
pub use value::Kind;
pub(crate) use value::parse_bool;

use crate::layers::Layers;
use crate::path::FieldPath;
use crate::problem::{Problem, Warning};
use crate::provenance::Origin;

/// A flag that sets a field of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    pub(crate) flag: &'static str,
    pub(crate) field: &'static str,
    pub(crate) value: Value,
}

/// What `--version` asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionRequest {
    /// The one line that tools read.
    Short,
    /// Everything known about the build.
    Raw,
}

/// A command line, read.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct CommandLine {
    pub(crate) flags: Flags,
    pub(crate) settings: Vec<Setting>,
    pub(crate) version: Option<VersionRequest>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) problems: Vec<Problem>,
}

/// Adds every kubelet flag to a command.
pub fn add_to(command: Command) -> Command {
    let (defaults, _, _) = Layers::baseline().finish().unwrap_or_default();
    let command = command.args(FLAGS.iter().map(|flag| arg(flag, &defaults))).arg(
        Arg::new("version")
            .long("version")
            .action(ArgAction::Append)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("raw")
            .help("Print the version of Kubernetes this agent stands for, and exit"),
    );
    command.max_term_width(110)
}

/// Every flag and its value: what was given, secrets masked, else its default.
pub fn values(flags: &Flags) -> BTreeMap<&'static str, String> {
    let (defaults, _, _) = Layers::baseline().finish().unwrap_or_default();
    let value = |flag: &Flag| match flags.given.get(flag.name) {
        Some(given) => given.clone(),
        None => default(flag, &defaults).unwrap_or_default(),
    };
    FLAGS.iter().map(|flag| (flag.name, value(flag))).collect()
}

fn default(flag: &Flag, defaults: &Value) -> Option<String> {
    match flag.target {
        Target::Config(field) => FieldPath::dotted(field).get(defaults).map(show),
        Target::Flags | Target::Nothing => Flags::default_text(flag.name),
    }
}

fn arg(flag: &Flag, defaults: &Value) -> Arg {
    let default = default(flag, defaults);
    let mut help = flag.help.to_owned();
    if let Some(default) = default.filter(|text| !text.is_empty()) {
        help = format!("{help} [default: {default}]");
    }
    if let (Target::Config(field), true) = (flag.target, flag.deprecated) {
        help = format!("{help} [in the file: {field}]");
    }
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .action(ArgAction::Append)
        .value_name(flag.kind.value_name())
        .help_heading(flag.area)
        .help(help);
    let arg = match flag.kind {
        Kind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => arg.num_args(1).allow_hyphen_values(true),
    };
    if flag.name == "v" { arg.short('v') } else { arg }
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(show).collect::<Vec<_>>().join(","),
        Value::Object(_) | Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Turns underscores in flag names into dashes; leaves values alone.
pub fn normalise(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut out = Vec::new();
    let mut value_follows = false;
    for arg in args {
        let Some(text) = arg.to_str().filter(|_| !value_follows) else {
            value_follows = false;
            out.push(arg);
            continue;
        };
        let Some(body) = text.strip_prefix("--").filter(|body| !body.is_empty()) else {
            value_follows = text == "-v";
            out.push(arg);
            continue;
        };
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        let name = name.replace('_', "-");
        value_follows = value.is_none() && find(&name).is_some_and(|flag| flag.kind != Kind::Bool);
        out.push(match value {
            Some(value) => format!("--{name}={value}").into(),
            None => format!("--{name}").into(),
        });
    }
    out
}

/// Reads what clap matched.
pub(crate) fn read(matches: &ArgMatches) -> CommandLine {
    let mut line = CommandLine::default();
    for flag in FLAGS {
        let Some(given) = matches.get_many::<String>(flag.name) else {
            continue;
        };
        let given: Vec<String> = given.cloned().collect();
        line.flags.given.insert(flag.name, masked(flag.name, &given));
        if flag.deprecated {
            line.warnings.push(Warning::DeprecatedFlag { name: flag.name, field: field_of(flag) });
        }
        match flag.kind.parse(&given) {
            Ok(Some(value)) => line.store(flag, value),
            Ok(None) => {}
            Err(wrong) => line.problems.push(Problem::flag(flag.name, wrong)),
        }
    }
    line.version = version(matches, &mut line.problems);
    line
}

/// What was given, fit to be shown.
fn masked(name: &str, given: &[String]) -> String {
    match name {
        "manifest-url-header" | "storage-driver-password" => "<masked>".to_owned(),
        "manifest-url" => manifest::Origin::Url(given.join(",")).to_string(),
        _ => given.join(","),
    }
}

fn field_of(flag: &Flag) -> Option<&'static str> {
    match flag.target {
        Target::Config(field) => Some(field),
        Target::Flags | Target::Nothing => None,
    }
}

fn version(matches: &ArgMatches, problems: &mut Vec<Problem>) -> Option<VersionRequest> {
    let asked = matches.get_many::<String>("version")?.next_back()?;
    if asked == "raw" {
        return Some(VersionRequest::Raw);
    }
    match parse_bool(asked) {
        Ok(true) => Some(VersionRequest::Short),
        Ok(false) => None,
        Err(_) => {
            problems.push(Problem::flag("version", format!("{asked:?} is not true, false or raw")));
            None
        }
    }
}

impl CommandLine {
    fn store(&mut self, flag: &'static Flag, value: Value) {
        match flag.target {
            Target::Config(field) => self.settings.push(Setting { flag: flag.name, field, value }),
            Target::Flags => {
                self.flags.set(flag.name, &value);
            }
            Target::Nothing => self.warnings.push(Warning::NoEffect {
                what: format!("--{}", flag.name),
                origin: Origin::Flag(flag.name.to_owned()),
            }),
        }
    }
}

/// Whether the program was started under the kubelet's own name.
pub fn invoked_as_kubelet(argv0: &OsStr) -> bool {
    std::path::Path::new(argv0).file_name().is_some_and(|name| name == "kubelet")
}

#[cfg(test)]
mod tests;
