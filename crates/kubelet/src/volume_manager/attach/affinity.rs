//! Whether a node's labels are those that a PersistentVolume needs. Pure.
//!
//! As upstream, fields of the node do not count. Upstream: CheckNodeAffinity of
//! component-helpers/storage/volume, component-helpers/scheduling/corev1/nodeaffinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement};

/// Do the labels satisfy one of the terms? A term that says nothing matches nothing.
///
/// # Errors
/// No term matches, and one cannot be read.
pub(super) fn matches(
    selector: &NodeSelector,
    labels: &BTreeMap<String, String>,
) -> Result<bool, String> {
    let mut wrong = None;
    for term in &selector.node_selector_terms {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            continue;
        }
        let mut all = true;
        let mut broken = None;
        for expression in expressions {
            match holds(expression, labels.get(&expression.key).map(String::as_str)) {
                Ok(holds) => all &= holds,
                Err(why) => broken = broken.or(Some(why)),
            }
        }
        match broken {
            Some(why) => wrong = wrong.or(Some(why)),
            None if all => return Ok(true),
            None => {}
        }
    }
    wrong.map_or(Ok(false), Err)
}

fn holds(wanted: &NodeSelectorRequirement, label: Option<&str>) -> Result<bool, String> {
    let values = wanted.values.as_deref().unwrap_or_default();
    let listed = || label.is_some_and(|label| values.iter().any(|value| value == label));
    let compared = |is: fn(i64, i64) -> bool| {
        let limit = match values {
            [one] => one.parse::<i64>().ok(),
            _ => None,
        };
        let limit = limit.ok_or_else(|| {
            format!("node affinity: {} of {:?} needs one integer", wanted.operator, wanted.key)
        })?;
        let label = label.and_then(|label| label.parse::<i64>().ok());
        Ok(label.is_some_and(|label| is(label, limit)))
    };
    match wanted.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            Err(format!("node affinity: {} of {:?} needs values", wanted.operator, wanted.key))
        }
        "In" => Ok(listed()),
        "NotIn" => Ok(!listed()),
        "Exists" => Ok(label.is_some()),
        "DoesNotExist" => Ok(label.is_none()),
        "Gt" => compared(|label, limit| label > limit),
        "Lt" => compared(|label, limit| label < limit),
        other => Err(format!("node affinity: {other:?} is no operator")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(terms: &str) -> Result<bool, String> {
        let selector = format!(r#"{{"nodeSelectorTerms":{terms}}}"#);
        let selector: NodeSelector = serde_json::from_str(&selector).expect("a selector");
        let labels = [("zone", "a"), ("size", "10")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        matches(&selector, &labels.into())
    }

    #[test]
    fn terms_are_alternatives_and_expressions_add_up() {
        for (terms, expected) in [
            ("[]", false),
            ("[{}]", false),
            (r#"[{"matchFields":[{"key":"metadata.name","operator":"In","values":["x"]}]}]"#, true),
            (r#"[{"matchExpressions":[{"key":"zone","operator":"In","values":["b","a"]}]}]"#, true),
            (r#"[{"matchExpressions":[{"key":"zone","operator":"In","values":["b"]}]}]"#, false),
            (r#"[{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["b"]}]}]"#, true),
            (r#"[{"matchExpressions":[{"key":"x","operator":"NotIn","values":["b"]}]}]"#, true),
            (
                r#"[{"matchExpressions":[{"key":"zone","operator":"Exists"},
                {"key":"x","operator":"DoesNotExist"}]}]"#,
                true,
            ),
            (
                r#"[{"matchExpressions":[{"key":"zone","operator":"Exists"},
                {"key":"x","operator":"Exists"}]}]"#,
                false,
            ),
            (
                r#"[{"matchExpressions":[{"key":"x","operator":"Exists"}]},
                {"matchExpressions":[{"key":"size","operator":"Gt","values":["9"]}]}]"#,
                true,
            ),
            (r#"[{"matchExpressions":[{"key":"size","operator":"Lt","values":["10"]}]}]"#, false),
            (r#"[{"matchExpressions":[{"key":"zone","operator":"Gt","values":["1"]}]}]"#, false),
        ] {
            assert_eq!(check(terms), Ok(expected), "{terms}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_unless_something_matches() {
        let odd = r#"{"matchExpressions":[{"key":"zone","operator":"Is","values":["a"]}]}"#;
        assert!(check(&format!("[{odd}]")).is_err_and(|why| why.contains("\"Is\"")));
        let good = r#"{"matchExpressions":[{"key":"zone","operator":"Exists"}]}"#;
        assert_eq!(check(&format!("[{odd},{good}]")), Ok(true));
        let none = r#"[{"matchExpressions":[{"key":"size","operator":"Gt","values":["x"]}]}]"#;
        assert!(check(none).is_err_and(|why| why.contains("needs one integer")));
    }
}
