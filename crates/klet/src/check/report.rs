//! What `klet check` says, as a table or as JSON. Pure.

use std::fmt::Write;

use kubelet_config::consumers::Unconsumed;
use kubelet_config::path::leaves;
use kubelet_config::profile::SECURE;
use kubelet_config::{Origin, Outcome, Problem, Warning};
use serde_json::{Value, json};

/// What a service of the runtime said.
pub struct Answer {
    /// Where it was asked.
    pub endpoint: String,
    /// Who it is, or why there was no answer.
    pub answer: Result<String, String>,
}

impl Answer {
    fn json(&self) -> Value {
        match &self.answer {
            Ok(version) => json!({"endpoint": self.endpoint, "version": version}),
            Err(error) => json!({"endpoint": self.endpoint, "error": error}),
        }
    }
}

/// What was found out by looking at the host, beyond loading the configuration.
pub struct Findings {
    /// What a start would trip over.
    pub problems: Vec<Problem>,
    /// The runtime, unless its endpoint is none.
    pub runtime: Option<Answer>,
    /// The image service, where it is not the runtime's.
    pub images: Option<Answer>,
}

/// One value and where it comes from.
struct Row {
    path: String,
    value: Value,
    origin: String,
}

/// Everything there is to say.
pub struct Report<'a> {
    rows: Vec<Row>,
    all: bool,
    problems: Vec<&'a Problem>,
    warnings: &'a [Warning],
    unconsumed: &'a [Unconsumed],
    runtime: Option<&'a Answer>,
    images: Option<&'a Answer>,
}

impl<'a> Report<'a> {
    /// Picks the values to show: those that are not plain defaults, unless all are wanted.
    pub fn new(outcome: &'a Outcome, findings: &'a Findings, all: bool) -> Self {
        let own_flags = outcome.flags.given.iter().filter(|(name, _)| {
            kubelet_config::flags::find(name)
                .is_some_and(|flag| flag.target == kubelet_config::flags::Target::Flags)
        });
        let own_flags = own_flags.map(|(name, value)| Row {
            path: format!("--{name}"),
            value: Value::String(value.clone()),
            origin: Origin::Flag((*name).to_owned()).to_string(),
        });
        let fields = leaves(&outcome.effective).into_iter().filter_map(|(path, value)| {
            // The values of masked headers are lists of their own, below the leaf that was set.
            let origin = outcome.provenance.origin(&path).unwrap_or(&Origin::Default);
            (all || *origin != Origin::Default).then(|| Row {
                path: path.to_string(),
                value: value.clone(),
                origin: origin.to_string(),
            })
        });
        let rows = fields.chain(own_flags).chain(from_profile(outcome)).collect();
        let Outcome { warnings, unconsumed, .. } = outcome;
        let problems = outcome.problems.iter().chain(&findings.problems).collect();
        let (runtime, images) = (findings.runtime.as_ref(), findings.images.as_ref());
        Self { rows, all, problems, warnings, unconsumed, runtime, images }
    }

    /// Whether the agent would start, be it to wait for the runtime.
    fn would_start(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether the agent would start and could run pods at once.
    pub fn is_ready(&self) -> bool {
        self.would_start() && answers(self.runtime) && answers(self.images)
    }

    fn verdict(&self) -> &'static str {
        if !self.would_start() {
            "A start would fail."
        } else if !answers(self.runtime) {
            "A start would wait for the runtime."
        } else if !answers(self.images) {
            "A start would succeed, but image pulls would wait for the image service."
        } else {
            "A start would succeed."
        }
    }

    /// For machines.
    pub fn json(&self) -> String {
        let texts = |items: Vec<String>| Value::from(items);
        let rows = self
            .rows
            .iter()
            .map(|row| json!({"field": row.path, "value": row.value, "origin": row.origin}));
        let unused = self
            .unconsumed
            .iter()
            .map(|item| json!({"field": item.path, "origin": item.origin.to_string()}));
        let report = json!({
            "configuration": rows.collect::<Vec<_>>(),
            "problems": texts(self.problems.iter().map(ToString::to_string).collect()),
            "notActedOn": unused.collect::<Vec<_>>(),
            "warnings": texts(self.warnings.iter().map(ToString::to_string).collect()),
            "runtime": self.runtime.map(Answer::json),
            "imageService": self.images.map(Answer::json),
            "wouldStart": self.would_start(),
            "ready": self.is_ready(),
            "verdict": self.verdict(),
        });
        format!("{report:#}\n")
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let title = if self.all {
            "Configuration"
        } else {
            "Configuration that is not a default (--all shows the rest)"
        };
        let _ = writeln!(out, "{title}:");
        let shown = |value: &Value| {
            value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}"))
        };
        let values: Vec<String> = self.rows.iter().map(|row| shown(&row.value)).collect();
        let path_width = self.rows.iter().map(|row| row.path.len()).max().unwrap_or(0);
        // One long value must not push every origin off the screen.
        let value_width =
            values.iter().map(|value| value.chars().count()).max().unwrap_or(0).min(40);
        for (row, value) in self.rows.iter().zip(&values) {
            let _ =
                writeln!(out, "  {:path_width$}  {value:value_width$}  {}", row.path, row.origin);
        }
        section(&mut out, "Problems", &self.problems);
        let unused: Vec<String> = self
            .unconsumed
            .iter()
            .map(|item| format!("{} (set by {})", item.path, item.origin))
            .collect();
        section(&mut out, "Set, but not acted on by this release", &unused);
        section(&mut out, "Warnings", self.warnings);
        out.push('\n');
        if let Some(Answer { endpoint, answer }) = self.runtime {
            let _ = match answer {
                Ok(version) => writeln!(out, "Runtime: {version} answers at {endpoint}"),
                Err(error) => writeln!(
                    out,
                    "Runtime: the runtime does not answer: {endpoint}: {error}; a start waits for it"
                ),
            };
        }
        if let Some(Answer { endpoint, answer }) = self.images {
            let _ = match answer {
                Ok(_) => writeln!(out, "Image service: answers at {endpoint}"),
                Err(error) => writeln!(
                    out,
                    "Image service: it does not answer: {endpoint}: {error}; pulls wait for it"
                ),
            };
        }
        let _ = writeln!(out, "{}", self.verdict());
        out
    }
}

/// What a profile turns on that is no field of the configuration.
fn from_profile(outcome: &Outcome) -> Option<Row> {
    let flags = &outcome.flags;
    let by_profile = flags.is_secure() && flags.streams_need_create.is_none();
    by_profile.then(|| Row {
        path: "--streams-need-create".to_owned(),
        value: Value::String("true".to_owned()),
        origin: Origin::Profile(SECURE).to_string(),
    })
}

/// Nobody to ask is no failure: an endpoint that is none is a problem of its own.
fn answers(asked: Option<&Answer>) -> bool {
    asked.is_none_or(|asked| asked.answer.is_ok())
}

fn section<T: ToString>(out: &mut String, title: &str, items: &[T]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title} ({}):", items.len());
    for item in items {
        let _ = writeln!(out, "  {}", item.to_string());
    }
}
