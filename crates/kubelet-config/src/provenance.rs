//! Where every effective value came from.
//!
//! Pure. One origin per leaf of the effective configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::path::FieldPath;

/// What set a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody: the API's default.
    Default,
    /// Nobody: the permissive default that holds while there is no `--config` file.
    LegacyDefault,
    /// `--profile`, by its name: a default for a purpose.
    Profile(&'static str),
    /// The `--config` file.
    File(PathBuf),
    /// A file in `--config-dir`.
    DropIn(PathBuf),
    /// A command-line flag, without its dashes.
    Flag(String),
}

impl Origin {
    /// Whether somebody wrote it, as opposed to a default.
    pub fn is_user(&self) -> bool {
        !matches!(self, Self::Default | Self::LegacyDefault)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::LegacyDefault => f.write_str("default without --config"),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::DropIn(path) => write!(f, "drop-in {}", path.display()),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// The origin of every leaf.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provenance(BTreeMap<FieldPath, Origin>);

impl Provenance {
    /// Origin of a leaf, or of the first leaf below an inner path.
    pub fn origin(&self, path: &FieldPath) -> Option<&Origin> {
        let below =
            || self.0.iter().find(|(leaf, _)| path.contains(leaf)).map(|(_, origin)| origin);
        self.0.get(path).or_else(below)
    }
    /// Every leaf at or below a path.
    pub fn under<'a>(
        &'a self,
        path: &'a FieldPath,
    ) -> impl Iterator<Item = (&'a FieldPath, &'a Origin)> {
        self.0.iter().filter(|(leaf, _)| path.contains(leaf))
    }
    /// Every leaf.
    pub fn iter(&self) -> impl Iterator<Item = (&FieldPath, &Origin)> {
        self.0.iter()
    }
    /// Records one leaf, forgetting what was known at, above and below it.
    pub(crate) fn set(&mut self, path: FieldPath, origin: Origin) {
        self.0.retain(|known, _| !path.contains(known) && !known.contains(&path));
        self.0.insert(path, origin);
    }
    /// Forgets a leaf and everything below it.
    pub(crate) fn forget(&mut self, path: &FieldPath) {
        self.0.retain(|known, _| !path.contains(known));
    }
}

impl FromIterator<(FieldPath, Origin)> for Provenance {
    fn from_iter<I: IntoIterator<Item = (FieldPath, Origin)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}
