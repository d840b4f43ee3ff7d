//! The text of a manifest as a tree: JSON's data model plus positions.
//!
//! Owns parsing of YAML and JSON and the limits that make hostile text
//! harmless. Knows nothing of pods. As upstream, YAML is turned into JSON's
//! model first, so an unquoted `true` never passes for a string.
//! Upstream: apimachinery/pkg/util/yaml, sigs.k8s.io/yaml.

use std::cell::OnceCell;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::budget::BudgetBreach as Breach;
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, Options, Spanned};

use super::problem::{Problem, Report, push_index, push_key};

/// Deepest nesting of YAML accepted. A Pod in a list needs less than 20, and the
/// parser spends up to 35 KB of stack on each level.
const DEPTH_MAX: usize = 24;

/// A parsed manifest that can still tell where each field stands.
pub(super) struct Document<'t> {
    text: &'t str,
    tree: OnceCell<Option<Spanned<Node>>>,
}

impl<'t> Document<'t> {
    /// Parses YAML, or JSON if the text starts with `{`.
    ///
    /// # Errors
    /// The first syntax error, with its position.
    pub(super) fn parse(text: &'t str, report: &mut Report) -> Result<(Self, Value), Problem> {
        let document = Self { text, tree: OnceCell::new() };
        if text.trim_start().starts_with('{') {
            let value = serde_json::from_str(text).map_err(|error| json_problem(&error))?;
            return Ok((document, value));
        }
        let tree = parse_yaml(text).map_err(|error| yaml_problem(&error))?;
        let mut path = String::new();
        let value = to_value(&tree, &mut path, report);
        // The cell is new, so this cannot fail.
        let _ = document.tree.set(Some(tree));
        Ok((document, value))
    }

    /// Position of a field, or of its nearest parent that is written down.
    pub(super) fn locate(&self, field: &str) -> Option<(u32, u32)> {
        // JSON's parser keeps no positions. JSON is almost always YAML too, and
        // without a position the message is still right.
        let tree = self.tree.get_or_init(|| parse_yaml(self.text).ok()).as_ref()?;
        let mut here = tree;
        for step in steps(field) {
            let next = match &here.value {
                Node::Seq(items) => step.parse::<usize>().ok().and_then(|i| items.get(i)),
                Node::Map(entries) => {
                    entries.iter().rev().find(|(key, _)| key == step).map(|(_, node)| node)
                }
                _ => None,
            };
            match next {
                Some(node) => here = node,
                None => break,
            }
        }
        position(here)
    }

    /// Fills in positions that are missing.
    pub(super) fn locate_all(&self, problems: Vec<Problem>) -> Vec<Problem> {
        let locate = |problem: Problem| match problem.line {
            Some(_) => problem,
            None if problem.field.is_empty() => problem,
            None => {
                let position = self.locate(&problem.field);
                problem.at(position)
            }
        };
        problems.into_iter().map(locate).collect()
    }
}

/// Splits `a.b[0][x/y]` into its steps.
fn steps(field: &str) -> impl Iterator<Item = &str> {
    let mut rest = field;
    std::iter::from_fn(move || {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if rest.is_empty() {
            return None;
        }
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = inner.split_once(']').unwrap_or((inner, ""));
            rest = after;
            return Some(step);
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (step, after) = rest.split_at(end);
        rest = after;
        Some(step)
    })
}

fn position(node: &Spanned<Node>) -> Option<(u32, u32)> {
    let line = u32::try_from(node.referenced.line()).ok().filter(|line| *line > 0)?;
    let column = u32::try_from(node.referenced.column()).ok()?;
    Some((line, column))
}

fn parse_yaml(text: &str) -> Result<Spanned<Node>, Error> {
    serde_saphyr::from_str_with_options(text, yaml_options())
}

fn yaml_options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_documents: 1,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_recorded_anchor_events: 100_000,
            max_total_scalar_bytes: super::MAX_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 16,
        },
        // Upstream keeps the last; `to_value` warns about the others.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // `defaultMode: 0644` is octal to upstream's YAML 1.1.
        legacy_octal_numbers: true,
        emit_comments: false,
        with_snippet: false,
    }
}

fn yaml_problem(error: &Error) -> Problem {
    let location = error.location();
    let position = location
        .and_then(|at| Some((u32::try_from(at.line()).ok()?, u32::try_from(at.column()).ok()?)));
    Problem::new("", yaml_message(error.without_snippet(), location)).at(position)
}

fn yaml_message(error: &Error, location: Option<Location>) -> String {
    match error {
        Error::MultipleDocuments { .. }
        | Error::Budget { breach: Breach::Documents { .. }, .. } => {
            "more than one document; a manifest file holds one, so write one file for each".into()
        }
        Error::Budget { breach: Breach::Depth { .. }, .. } => {
            format!("nested more than {DEPTH_MAX} levels deep")
        }
        Error::Budget { breach, .. } => format!("more than any Pod needs: {breach:?}"),
        Error::RecursiveReferencesRequireWeakTypes { .. } => "an alias contains itself".into(),
        _ if quotes(error) => {
            "not valid YAML: a value that cannot be what it looks like; put it in quotes".into()
        }
        _ => {
            let text = error.to_string();
            // The position is already a field of the problem.
            let at = location.map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            format!("not valid YAML: {}", text.replace(&at.unwrap_or_default(), ""))
        }
    }
}

/// Do the parser's words quote the manifest's? They may be a secret.
fn quotes(error: &Error) -> bool {
    match error {
        Error::NonFiniteFloat { .. }
        | Error::QuotingRequired { .. }
        | Error::SerdeInvalidType { .. }
        | Error::SerdeInvalidValue { .. }
        | Error::DuplicateMappingKey { .. }
        | Error::UnsupportedTag { .. }
        | Error::TaggedEnumMismatch { .. }
        | Error::ResolverError { .. } => true,
        Error::AliasError { error, .. } => quotes(error.without_snippet()),
        _ => false,
    }
}

fn json_problem(error: &serde_json::Error) -> Problem {
    let position = u32::try_from(error.line()).ok().zip(u32::try_from(error.column()).ok());
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text);
    Problem::new("", format!("not valid JSON: {message}")).at(position)
}

/// A YAML node in JSON's data model.
pub(super) enum Node {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Seq(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

fn to_value(tree: &Spanned<Node>, path: &mut String, report: &mut Report) -> Value {
    match &tree.value {
        Node::Null => Value::Null,
        Node::Bool(value) => Value::Bool(*value),
        Node::Number(value) => Value::Number(value.clone()),
        Node::String(value) => Value::String(value.clone()),
        Node::Seq(items) => {
            let item = |(index, item)| {
                let length = path.len();
                push_index(path, index);
                let value = to_value(item, path, report);
                path.truncate(length);
                value
            };
            Value::Array(items.iter().enumerate().map(item).collect())
        }
        Node::Map(entries) => {
            let mut map = Map::new();
            for (key, node) in entries {
                let length = path.len();
                push_key(path, key);
                let value = to_value(node, path, report);
                if map.insert(key.clone(), value).is_some() {
                    let message = "set more than once; the last one counts";
                    report.push(Problem::new(path.as_str(), message).at(position(node)));
                }
                path.truncate(length);
            }
            Value::Object(map)
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(Node::Number(number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::String(value))
    }
    fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<Node, E> {
        Err(E::custom("binary values have no place in a Pod"))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::Seq(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Option<String>>()? {
            let key = key.ok_or_else(|| de::Error::custom("a key is empty"))?;
            entries.push((key, map.next_value()?));
        }
        Ok(Node::Map(entries))
    }
}
