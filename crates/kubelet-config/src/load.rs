//! From a command line to a checked configuration: the one path that starts and checks share.
//!
//! Precedence: defaults < `--profile` < `--config` < `--config-dir` in lexical order < flags.
//! Reads files only through [`Files`]. Collects every problem it can find; a
//! file that cannot be read hides only what it contains. Upstream:
//! cmd/kubelet/app/server.go, pkg/kubelet/kubeletconfig/configfiles.

use std::ffi::OsString;
use std::path::Path;

use kubelet_model::manifest;
use serde_json::Value;

use crate::config::{Config, Validated};
use crate::consumers::{self, Unconsumed};
use crate::decode::{self, SECRET_FIELD};
use crate::files::Files;
use crate::flags::{self, CommandLine, Flags, VersionRequest};
use crate::gates::FeatureGates;
use crate::host::Host;
use crate::layers::Layers;
use crate::path::FieldPath;
use crate::problem::{Problem, Warning};
use crate::provenance::{Origin, Provenance};
use crate::{profile, validate};

/// Everything loading found out.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Flags that are not part of the configuration.
    pub flags: Flags,
    /// The checked configuration; there is one exactly when there are no problems.
    pub config: Option<Config>,
    /// The effective configuration as JSON, secrets masked.
    pub effective: Value,
    /// Where each of its values came from.
    pub provenance: Provenance,
    /// What was set but is not acted on yet.
    pub unconsumed: Vec<Unconsumed>,
    /// Worth knowing.
    pub warnings: Vec<Warning>,
    /// What stops a start.
    pub problems: Vec<Problem>,
    /// `--version` was given: nothing else matters.
    pub version: Option<VersionRequest>,
}

/// Reads a command line given without the program's name, and all files it names.
///
/// Errors only for help and for arguments that are no flags at all.
pub fn load(
    args: impl IntoIterator<Item = OsString>,
    files: &dyn Files,
    host: &Host,
) -> Result<Outcome, clap::Error> {
    let command = flags::add_to(clap::Command::new("kubelet").no_binary_name(true));
    let matches = command.try_get_matches_from(flags::normalise(args))?;
    Ok(load_matches(&matches, files, host))
}

/// The same, from arguments that clap already matched against [`flags::add_to`].
pub fn load_matches(matches: &clap::ArgMatches, files: &dyn Files, host: &Host) -> Outcome {
    let line = flags::read(matches);
    if line.version.is_some() {
        return Outcome { version: line.version, ..Outcome::empty(line.flags) };
    }
    let mut loader = Loader {
        files,
        warnings: line.warnings.clone(),
        problems: line.problems.clone(),
        incomplete: false,
    };
    let layers = loader.layers(&line);
    let settled = match layers.finish() {
        Ok(settled) => settled,
        Err(error) => {
            loader.problems.push(Problem::other("configuration", error.to_string()));
            return Outcome {
                warnings: loader.warnings,
                problems: loader.problems,
                ..Outcome::empty(line.flags)
            };
        }
    };
    loader.check(line.flags, settled, host)
}

impl Outcome {
    fn empty(flags: Flags) -> Self {
        Self {
            flags,
            config: None,
            effective: Value::Null,
            provenance: Provenance::default(),
            unconsumed: Vec::new(),
            warnings: Vec::new(),
            problems: Vec::new(),
            version: None,
        }
    }
}

struct Loader<'a> {
    files: &'a dyn Files,
    warnings: Vec<Warning>,
    problems: Vec<Problem>,
    /// A file is missing from the layers, so defaults may stand where it had values.
    incomplete: bool,
}

impl Loader<'_> {
    fn layers(&mut self, line: &CommandLine) -> Layers {
        let mut layers = match &line.flags.config {
            Some(path) => self.config_file(path).unwrap_or_else(|| {
                self.incomplete = true;
                Layers::baseline()
            }),
            None => Layers::baseline(),
        };
        if let Some(directory) = &line.flags.config_dir {
            self.drop_ins(directory, &mut layers);
        }
        for setting in &line.settings {
            layers.flag(setting.field, setting.value.clone(), setting.flag);
        }
        if line.flags.is_secure() {
            layers.profile(profile::SECURE, profile::secure_defaults());
        }
        layers
    }

    fn config_file(&mut self, path: &Path) -> Option<Layers> {
        let path = self.files.absolute(path).unwrap_or_else(|_| path.to_owned());
        let subject = format!("--config {}", path.display());
        let bytes = match self.files.read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.problems.push(Problem::other(subject, format!("cannot be read: {error}")));
                return None;
            }
        };
        match decode::decode(&bytes, true) {
            Ok(document) => {
                self.note(&document, &Origin::File(path.clone()));
                Some(Layers::from_file(document.config, &path))
            }
            Err(error) => {
                self.problems.push(Problem::other(subject, error.to_string()));
                None
            }
        }
    }

    fn drop_ins(&mut self, directory: &Path, layers: &mut Layers) {
        let directory = self.files.absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let paths = match self.files.walk(&directory) {
            Ok(paths) => paths,
            Err(error) => {
                let subject = format!("--config-dir {}", directory.display());
                self.problems.push(Problem::other(subject, format!("cannot be read: {error}")));
                return;
            }
        };
        for path in paths {
            if path.extension().is_none_or(|extension| extension != "conf") {
                self.warnings.push(Warning::SkippedFile(path));
                continue;
            }
            let read = self.files.read(&path).map_err(|error| format!("cannot be read: {error}"));
            match read
                .and_then(|bytes| decode::decode(&bytes, false).map_err(|error| error.to_string()))
            {
                Ok(document) => {
                    self.note(&document, &Origin::DropIn(path.clone()));
                    layers.patch(&document.raw, &path);
                }
                Err(wrong) => {
                    self.problems.push(Problem::other(format!("drop-in {}", path.display()), wrong))
                }
            }
        }
        if let Err(error) = layers.settle() {
            self.problems.push(Problem::other(
                format!("--config-dir {}", directory.display()),
                error.to_string(),
            ));
        }
    }

    fn note(&mut self, document: &decode::Document, origin: &Origin) {
        if let Some(message) = document.duplicate.clone() {
            self.warnings.push(Warning::Duplicate { message, origin: origin.clone() });
        }
        let unknown = document.unknown.iter().cloned();
        self.warnings
            .extend(unknown.map(|path| Warning::UnknownField { path, origin: origin.clone() }));
    }

    fn check(
        mut self,
        flags: Flags,
        (mut effective, wire, provenance): (Value, crate::wire::KubeletConfiguration, Provenance),
        host: &Host,
    ) -> Outcome {
        let gate_settings = wire.feature_gates.clone().unwrap_or_default();
        let gates = FeatureGates::new(&gate_settings);
        let (problems, warnings) = validate::validate(&wire, &flags, &gates, host);
        let located = problems.into_iter().map(|problem| problem.located(&provenance));
        // Without the file, a complaint about a default may be about nothing.
        let incomplete = self.incomplete;
        let certain =
            |problem: &Problem| !incomplete || problem.origin.as_ref().is_none_or(Origin::is_user);
        self.problems.extend(located.filter(certain));
        self.warnings.extend(warnings);
        let mut config = None;
        if self.problems.is_empty() {
            match Config::try_from(Validated { wire, gates }) {
                Ok(checked) => config = Some(checked),
                Err(problems) => {
                    self.problems.extend(problems.into_iter().map(|p| p.located(&provenance)))
                }
            }
        }
        mask(&mut effective);
        let unconsumed = consumers::unconsumed(&provenance, &flags, &gate_settings);
        let (warnings, problems) = (self.warnings, self.problems);
        Outcome {
            flags,
            config,
            effective,
            provenance,
            unconsumed,
            warnings,
            problems,
            version: None,
        }
    }
}

/// Replaces secrets, keeping header names and the rest of a URL.
fn mask(tree: &mut Value) {
    let field = FieldPath::dotted(SECRET_FIELD);
    if let Some(Value::Object(headers)) = field.get(tree).cloned() {
        let masked =
            headers.keys().map(|name| (name.clone(), Value::from(vec!["<masked>"]))).collect();
        field.set(tree, Value::Object(masked));
    }
    let field = FieldPath::dotted("staticPodURL");
    if let Some(Value::String(url)) = field.get(tree).cloned() {
        field.set(tree, Value::String(manifest::Origin::Url(url).to_string()));
    }
}

#[cfg(test)]
mod tests;
