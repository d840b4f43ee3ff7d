//! Label selectors in text form: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
//!
//! Pure. Upstream: apimachinery pkg/labels/selector.go.

use serde_json::Value;

use crate::json;

/// A selector that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The text is not a selector.
    #[error("unable to parse requirement: {why} in {text:?}")]
    Syntax {
        /// The whole selector.
        text: String,
        /// What was found.
        why: String,
    },
    /// Objects cannot be chosen by this field.
    #[error("field label not supported: {0}")]
    Field(String),
}

/// Requirements on labels, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    Absent,
    Greater,
    Less,
}

impl LabelSelector {
    /// Reads a selector; empty text takes everything.
    ///
    /// # Errors
    /// [`SelectorError::Syntax`].
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let parts = split(text);
        if parts.len() == 1 && parts[0].trim().is_empty() {
            return Ok(Self::default());
        }
        let read = |part: &&str| {
            requirement(part.trim())
                .map_err(|why| SelectorError::Syntax { text: text.to_owned(), why })
        };
        parts.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Whether it takes everything.
    pub fn takes_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it takes an object with its labels.
    pub fn takes(&self, object: &Value) -> bool {
        let labels = json::at(object, "metadata.labels");
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

/// Splits at commas that are not inside parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(text: &str) -> Result<Requirement, String> {
    if let Some(key) = text.strip_prefix('!') {
        return make(key, Operator::Absent, Vec::new());
    }
    for (sign, operator) in [
        ("!=", Operator::NotIn),
        ("==", Operator::In),
        ("=", Operator::In),
        (">", Operator::Greater),
        ("<", Operator::Less),
    ] {
        if let Some((key, value)) = text.split_once(sign) {
            return make(key, operator, vec![value.trim().to_owned()]);
        }
    }
    let Some((head, list)) = text.split_once('(') else {
        return make(text, Operator::Exists, Vec::new());
    };
    let list = list.strip_suffix(')').ok_or("a missing ')'")?;
    let (key, word) = head.trim().split_once(char::is_whitespace).ok_or("a missing operator")?;
    let operator = match word.trim() {
        "in" => Operator::In,
        "notin" => Operator::NotIn,
        other => return Err(format!("the unknown operator {other:?}")),
    };
    make(key, operator, list.split(',').map(|value| value.trim().to_owned()).collect())
}

fn make(key: &str, operator: Operator, values: Vec<String>) -> Result<Requirement, String> {
    let key = key.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if key.is_empty() || !key.chars().all(plain) {
        return Err(format!("the key {key:?}"));
    }
    if let Some(value) = values.iter().find(|v| !v.chars().all(plain) || v.contains('/')) {
        return Err(format!("the value {value:?}"));
    }
    let number = |value: &String| value.parse::<i64>().is_ok();
    if matches!(operator, Operator::Greater | Operator::Less) && !values.iter().all(number) {
        return Err(format!("a value that is no number for {key:?}"));
    }
    Ok(Requirement { key: key.to_owned(), operator, values })
}

impl Requirement {
    fn holds(&self, labels: &Value) -> bool {
        let value = labels.get(&self.key).and_then(Value::as_str);
        let listed = value.is_some_and(|value| self.values.iter().any(|v| v == value));
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::Greater => self.compare(value).is_some_and(|order| order.is_gt()),
            Operator::Less => self.compare(value).is_some_and(|order| order.is_lt()),
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<std::cmp::Ordering> {
        let bound = self.values.first()?.parse::<i64>().ok()?;
        Some(value?.parse::<i64>().ok()?.cmp(&bound))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_operator() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "3", "a.io/x": ""}}});
        for (text, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("nope", false),
            ("!nope", true),
            ("app=web", true),
            ("app==web", true),
            ("app = db", false),
            ("app!=web", false),
            ("nope!=web", true),
            ("app in (db, web)", true),
            ("app in (db)", false),
            ("app notin (db)", true),
            ("nope notin (db)", true),
            ("tier>2", true),
            ("tier<3", false),
            ("a.io/x=", true),
            ("app in (web,db),tier=3,!nope", true),
            ("app in (web,db),tier=4", false),
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.takes(&object), expected, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["app in web", "app in (web", "a b=c", "=x", "app like (x)", "a,,b", "x>y", "a=b/c"]
        {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }
}
