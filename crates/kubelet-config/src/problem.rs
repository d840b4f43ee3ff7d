//! What is wrong, and what is only worth knowing.
//!
//! A problem stops a start; a warning does not. Both say what they are about,
//! what is the matter and what to do.

use std::fmt;

use crate::path::FieldPath;
use crate::provenance::{Origin, Provenance};

/// Something that stops a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What it is about: a field's path, a flag, a file.
    pub subject: String,
    /// The offending value, if there is one that may be shown.
    pub value: Option<String>,
    /// What is wrong and what is allowed.
    pub wrong: String,
    /// Who set it.
    pub origin: Option<Origin>,
}

impl Problem {
    /// About a field of the configuration, by its dotted path.
    pub fn field(
        path: impl Into<String>,
        value: impl fmt::Display,
        wrong: impl Into<String>,
    ) -> Self {
        Self {
            subject: path.into(),
            value: Some(value.to_string()),
            wrong: wrong.into(),
            origin: None,
        }
    }
    /// About a flag's text.
    pub fn flag(name: &str, wrong: impl Into<String>) -> Self {
        let origin = Some(Origin::Flag(name.to_owned()));
        Self { subject: format!("--{name}"), value: None, wrong: wrong.into(), origin }
    }
    /// About a file or the host.
    pub fn other(subject: impl Into<String>, wrong: impl Into<String>) -> Self {
        Self { subject: subject.into(), value: None, wrong: wrong.into(), origin: None }
    }
    /// The same, with its origin looked up.
    pub(crate) fn located(mut self, provenance: &Provenance) -> Self {
        if self.origin.is_none() {
            let field = self.subject.split(['[', ' ']).next().unwrap_or_default();
            self.origin = provenance.origin(&FieldPath::dotted(field)).cloned();
        }
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        if let Some(value) = &self.value {
            write!(f, " is {value}")?;
        }
        match &self.origin {
            Some(Origin::Flag(name)) if self.subject == format!("--{name}") => {}
            Some(origin) if origin.is_user() => write!(f, " (set by {origin})")?,
            Some(_) => f.write_str(" (by default)")?,
            None => {}
        }
        write!(f, ": {}", self.wrong)
    }
}

/// Something a user should know, that stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A flag that belongs in the configuration file, or that will go away.
    DeprecatedFlag {
        /// Without dashes.
        name: &'static str,
        /// Where to set it instead.
        field: Option<&'static str>,
    },
    /// Accepted, and changes nothing.
    NoEffect {
        /// What was set.
        what: String,
        /// By whom.
        origin: Origin,
    },
    /// A field nobody knows.
    UnknownField {
        /// Its path.
        path: String,
        /// The file.
        origin: Origin,
    },
    /// A key written twice; the last one holds.
    Duplicate {
        /// What the parser said.
        message: String,
        /// The file.
        origin: Origin,
    },
    /// A file in the drop-in directory that does not end in `.conf`.
    SkippedFile(std::path::PathBuf),
    /// A setting that works but should be thought about.
    Advice {
        /// What it is about.
        subject: String,
        /// What to think about.
        message: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeprecatedFlag { name, field: Some(field) } => {
                write!(f, "--{name} is deprecated; set {field} in the --config file")
            }
            Self::DeprecatedFlag { name, field: None } => {
                write!(f, "--{name} is deprecated and will be removed by Kubernetes")
            }
            Self::NoEffect { what, origin: Origin::Flag(_) } => {
                write!(
                    f,
                    "{what} has no effect; it is accepted so that old command lines keep working"
                )
            }
            Self::NoEffect { what, origin } => write!(f, "{what}, set by {origin}, has no effect"),
            Self::UnknownField { path, origin } => {
                write!(
                    f,
                    "{path} in {origin} is not a field of KubeletConfiguration v1beta1; it is ignored"
                )
            }
            Self::Duplicate { message, origin } => {
                write!(f, "{origin} writes a key twice, the last one holds: {message}")
            }
            Self::SkippedFile(path) => {
                write!(f, "{} is not read: drop-ins end in .conf", path.display())
            }
            Self::Advice { subject, message } => write!(f, "{subject}: {message}"),
        }
    }
}
