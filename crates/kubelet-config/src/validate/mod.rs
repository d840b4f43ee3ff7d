//! Every check a configuration must pass, by area.
//!
//! Pure: facts about the host come in as [`Host`]. Reports all problems, never
//! only the first, so that one run is enough to fix a file. Upstream:
//! pkg/kubelet/apis/config/validation and the checks scattered over start-up.

use std::fmt::Display;

use crate::flags::Flags;
use crate::gates::{FeatureGates, GateError};
use crate::host::Host;
use crate::problem::{Problem, Warning};
use crate::wire::KubeletConfiguration;

mod command_line;
mod cpus;
mod eviction;
mod images;
pub(crate) mod labels;
mod logging;
mod managers;
mod node;
mod profile;
mod reservations;
mod resources;
mod server;
mod shutdown;

pub use cpus::parse_cpu_list;

/// What a check sees, and where it reports.
pub(crate) struct Check<'a> {
    c: &'a KubeletConfiguration,
    flags: &'a Flags,
    gates: &'a FeatureGates,
    host: &'a Host,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

/// Checks everything.
pub(crate) fn validate(
    c: &KubeletConfiguration,
    flags: &Flags,
    gates: &FeatureGates,
    host: &Host,
) -> (Vec<Problem>, Vec<Warning>) {
    let mut check = Check { c, flags, gates, host, problems: Vec::new(), warnings: Vec::new() };
    check.feature_gates();
    check.command_line();
    check.node();
    check.server();
    check.images();
    check.resources();
    check.reservations();
    check.managers();
    check.eviction();
    check.shutdown();
    check.logging();
    check.profile();
    (check.problems, check.warnings)
}

impl Check<'_> {
    fn bad(&mut self, path: impl Into<String>, value: impl Display, wrong: impl Into<String>) {
        self.problems.push(Problem::field(path, value, wrong));
    }

    fn advise(&mut self, subject: &str, message: impl Into<String>) {
        self.warnings
            .push(Warning::Advice { subject: subject.to_owned(), message: message.into() });
    }

    /// A number that has to lie in a range.
    fn range<T: PartialOrd + Display + Copy>(
        &mut self,
        path: &str,
        value: Option<T>,
        low: T,
        high: T,
    ) {
        if let Some(value) = value.filter(|value| *value < low || *value > high) {
            self.bad(path, value, format!("must be from {low} to {high}"));
        }
    }

    /// A number that has to be at least so much.
    fn at_least<T: PartialOrd + Display + Copy>(&mut self, path: &str, value: Option<T>, low: T) {
        if let Some(value) = value.filter(|value| *value < low) {
            self.bad(path, value, format!("must be {low} or more"));
        }
    }

    /// A word out of a list.
    fn one_of(&mut self, path: &str, value: Option<&String>, allowed: &[&str]) {
        let value = value.map_or("", String::as_str);
        if !allowed.contains(&value) {
            self.bad(path, format!("{value:?}"), format!("must be one of {}", quoted(allowed)));
        }
    }

    fn feature_gates(&mut self) {
        let settings = self.c.feature_gates.clone().unwrap_or_default();
        for error in FeatureGates::check(&settings) {
            let (name, remedy) = match &error {
                GateError::Unknown(name) => (name, "remove it or correct its name"),
                GateError::Locked { name, .. } => (name, "remove the setting"),
                GateError::Dependency { name, .. } => (name, "turn both on or both off"),
            };
            let wrong = format!("{error}; {remedy}");
            self.problems.push(Problem::other(format!("featureGates[{name}]"), wrong));
        }
        for name in settings.keys() {
            use crate::gates::Stage;
            let stage = crate::gates::find(name).map(|gate| gate.stage);
            if matches!(stage, Some(Stage::Ga | Stage::Deprecated)) {
                self.advise(
                    &format!("featureGates[{name}]"),
                    "the gate will be removed by a later Kubernetes",
                );
            }
        }
    }
}

/// Whether a text was given and is not empty.
fn is_set(text: &Option<String>) -> bool {
    text.as_deref().is_some_and(|text| !text.is_empty())
}

/// `"a", "b" or "c"`.
fn quoted(words: &[&str]) -> String {
    let all: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => all.concat(),
    }
}

#[cfg(test)]
mod tests;
