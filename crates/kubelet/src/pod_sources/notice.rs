//! What a source tells the operator, each once per change.
//!
//! Scanning returns notices as data; only `tell` and `log` write them out.

use std::path::PathBuf;

use kubelet_model::manifest::Problem;
use kubelet_model::{EventObject, EventType, FullName, ObjectKey, PodUid, Source};

use crate::events::Recorder;

/// Problems written out per notice; the rest is counted.
const PROBLEMS_SHOWN: usize = 10;

/// Something an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// A manifest cannot be used.
    Broken {
        /// File or URL.
        origin: String,
        problems: Vec<Problem>,
        /// Its last good pods go on running.
        kept: bool,
        /// They come from the copy of an earlier run.
        from_copy: bool,
    },
    /// A manifest that was broken is good again.
    Recovered { origin: String },
    /// A good manifest says things nobody acts on.
    Warnings { origin: String, warnings: Vec<Problem> },
    /// An entry is no manifest.
    Skipped { path: PathBuf, why: &'static str },
    /// A pod is already defined by another file.
    Duplicate { path: PathBuf, full_name: FullName, uid: PodUid, by: PathBuf },
    /// A ConfigMap or Secret is already defined by another file, or earlier in this.
    DuplicateObject { path: PathBuf, object: ObjectKey, by: PathBuf },
    /// More bytes of ConfigMaps and Secrets than are kept; this manifest has the
    /// first that is left out.
    TooManyObjects { path: PathBuf, object: ObjectKey, limit: usize },
    /// The manifest path does not exist.
    Missing { path: PathBuf },
    /// The manifest path cannot be looked at.
    Unreadable { path: PathBuf, why: String, pods_kept: usize },
    /// The manifest path can be looked at again.
    Back { path: PathBuf },
    /// More manifests than are read.
    TooMany { path: PathBuf, limit: usize },
    /// More pods than are taken from one source; this manifest has the first
    /// that is left out.
    TooManyPods { origin: String, limit: usize },
    /// Nobody knows yet what all manifests say, because this one was not read.
    Incomplete { path: PathBuf },
    /// A last good copy cannot be written or removed.
    CopyFailed { path: PathBuf, why: String },
    /// Changes are not announced; rescans notice them.
    WatchFailed { path: PathBuf, why: String },
}

/// Records that a pod is ignored because another of the same source has its name.
pub(super) fn record_duplicate(
    recorder: &Recorder,
    source: Source,
    full_name: &FullName,
    uid: &PodUid,
) {
    let (name, namespace) = full_name.parts().unwrap_or_default();
    let message = format!(
        "Error validating pod {name}_{namespace}({uid}) from {} due to duplicate pod name {name:?}, ignoring",
        source.as_str()
    );
    let object = EventObject::Pod {
        uid: uid.clone(),
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        field_path: String::new(),
    };
    recorder.record(&object, EventType::Warning, "FailedValidation", message);
}

impl Notice {
    /// Writes the notice to the log, and an event of what upstream has one for.
    pub(super) fn tell(&self, recorder: &Recorder) {
        self.log();
        if let Self::Duplicate { full_name, uid, .. } = self {
            record_duplicate(recorder, Source::File, full_name, uid);
        }
    }

    /// Writes the notice to the log.
    pub(super) fn log(&self) {
        match self {
            Self::Broken { origin, problems, kept, from_copy } => {
                log_broken(origin, problems, *kept, *from_copy);
            }
            Self::Recovered { origin } => tracing::info!(file = origin, "manifest is good again"),
            Self::Warnings { origin, warnings } => {
                let first = warnings.first();
                tracing::warn!(
                    file = origin,
                    line = first.and_then(|problem| problem.line),
                    field = first.map(|problem| problem.field.as_str()),
                    problems = joined(warnings),
                    "manifest used, but not all of it"
                );
            }
            Self::Skipped { path, why } => {
                tracing::warn!(file = %path.display(), why, "not a manifest, skipped");
            }
            Self::Duplicate { path, full_name, by, .. } => tracing::error!(
                file = %path.display(),
                pod = %full_name,
                defined_by = %by.display(),
                "pod ignored: another manifest defines one of the same name"
            ),
            Self::DuplicateObject { path, object, by } => tracing::error!(
                file = %path.display(),
                %object,
                defined_by = %by.display(),
                "object ignored: another manifest defines it"
            ),
            Self::TooManyObjects { path, object, limit } => tracing::error!(
                file = %path.display(),
                first = %object,
                limit,
                "more bytes of ConfigMaps and Secrets than are kept; this one and later ones are left out"
            ),
            Self::Missing { path } => tracing::error!(
                path = %path.display(),
                "manifest path does not exist; no static pods run until it does"
            ),
            Self::Unreadable { path, why, pods_kept } => tracing::error!(
                path = %path.display(),
                why,
                pods_kept,
                "manifest path cannot be read; its pods stay as they are"
            ),
            Self::Back { path } => {
                tracing::info!(path = %path.display(), "manifest path is readable again");
            }
            Self::TooMany { path, limit } => tracing::error!(
                path = %path.display(),
                limit,
                "more manifests than are read; the last by name are left out"
            ),
            Self::TooManyPods { origin, limit } => tracing::error!(
                file = origin,
                limit,
                "more pods than are taken from one source; the first are kept, the others do not run"
            ),
            Self::Incomplete { path } => tracing::error!(
                file = %path.display(),
                "pods that no manifest names are left alone until it can be read"
            ),
            Self::CopyFailed { path, why } => tracing::warn!(
                file = %path.display(),
                why,
                "cannot keep a copy of the manifest to fall back on after a restart"
            ),
            Self::WatchFailed { path, why } => tracing::warn!(
                path = %path.display(),
                why,
                "manifest path is not watched; changes are noticed by rescanning"
            ),
        }
    }
}

fn log_broken(origin: &str, problems: &[Problem], kept: bool, from_copy: bool) {
    let first = problems.first();
    let line = first.and_then(|problem| problem.line);
    let field = first.map(|problem| problem.field.as_str());
    let problems = joined(problems);
    match (kept, from_copy) {
        (true, true) => tracing::error!(
            file = origin,
            line,
            field,
            problems,
            "manifest cannot be used; its last good copy from before the restart runs"
        ),
        (true, false) => tracing::error!(
            file = origin,
            line,
            field,
            problems,
            "manifest cannot be used; its last good version stays"
        ),
        (false, _) => tracing::error!(
            file = origin,
            line,
            field,
            problems,
            "manifest cannot be used and has no good version"
        ),
    }
}

fn joined(problems: &[Problem]) -> String {
    let mut shown: Vec<String> =
        problems.iter().take(PROBLEMS_SHOWN).map(ToString::to_string).collect();
    if let Some(more @ 1..) = problems.len().checked_sub(PROBLEMS_SHOWN) {
        shown.push(format!("and {more} more"));
    }
    shown.join("; ")
}
