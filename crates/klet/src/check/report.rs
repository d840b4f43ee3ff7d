//! What `klet check` says, as a table or as JSON. Pure.

use std::fmt::Write;

use kubelet_config::consumers::Unconsumed;
use kubelet_config::path::leaves;
use kubelet_config::{Origin, Outcome, Problem, Warning};
use serde_json::{Value, json};

/// What the runtime said.
pub struct RuntimeAnswer {
    /// Where it was asked.
    pub endpoint: String,
    /// Name and version, or why not.
    pub answer: Result<String, String>,
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
    problems: &'a [Problem],
    warnings: &'a [Warning],
    unconsumed: &'a [Unconsumed],
    runtime: Option<RuntimeAnswer>,
}

impl<'a> Report<'a> {
    /// Picks the values to show: those that are not plain defaults, unless all are wanted.
    pub fn new(outcome: &'a Outcome, runtime: Option<RuntimeAnswer>, all: bool) -> Self {
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
        let rows = fields.chain(own_flags).collect();
        let Outcome { problems, warnings, unconsumed, .. } = outcome;
        Self { rows, all, problems, warnings, unconsumed, runtime }
    }

    /// Whether the agent would start.
    pub fn would_start(&self) -> bool {
        self.problems.is_empty()
            && self.runtime.as_ref().is_some_and(|runtime| runtime.answer.is_ok())
    }

    /// For machines.
    pub fn json(&self) -> String {
        let texts = |items: Vec<String>| Value::from(items);
        let runtime = self.runtime.as_ref().map(|runtime| match &runtime.answer {
            Ok(version) => json!({"endpoint": runtime.endpoint, "version": version}),
            Err(error) => json!({"endpoint": runtime.endpoint, "error": error}),
        });
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
            "runtime": runtime,
            "wouldStart": self.would_start(),
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
        section(&mut out, "Problems", self.problems);
        let unused: Vec<String> = self
            .unconsumed
            .iter()
            .map(|item| format!("{} (set by {})", item.path, item.origin))
            .collect();
        section(&mut out, "Set, but not acted on by this release", &unused);
        section(&mut out, "Warnings", self.warnings);
        out.push('\n');
        if let Some(runtime) = &self.runtime {
            let _ = match &runtime.answer {
                Ok(version) => writeln!(out, "Runtime: {version} answers at {}", runtime.endpoint),
                Err(error) => writeln!(out, "Runtime: no answer at {}: {error}", runtime.endpoint),
            };
        }
        out.push_str(if self.would_start() {
            "A start would succeed.\n"
        } else {
            "A start would fail.\n"
        });
        out
    }
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
