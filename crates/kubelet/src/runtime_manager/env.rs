//! `$(VAR)` expansion and the container's environment.
//!
//! Upstream: third_party/forked/golang/expansion, pkg/kubelet/kubelet_pods.go.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;

/// The resolved environment of a container, in definition order; a later
/// definition of a name replaces the earlier one.
pub(super) fn environment(container: &Container) -> Vec<(String, String)> {
    let mut names: Vec<String> = Vec::new();
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    for var in container.env.iter().flatten() {
        let value = expand(var.value.as_deref().unwrap_or_default(), &values);
        if values.insert(var.name.clone(), value).is_none() {
            names.push(var.name.clone());
        }
    }
    names
        .into_iter()
        .map(|name| {
            let value = values[&name].clone();
            (name, value)
        })
        .collect()
}

/// Expands the arguments of a container from its resolved environment.
pub(super) fn expand_all(args: Option<&Vec<String>>, env: &[(String, String)]) -> Vec<String> {
    let values: BTreeMap<_, _> = env.iter().cloned().collect();
    args.into_iter().flatten().map(|arg| expand(arg, &values)).collect()
}

/// Replaces `$(NAME)` by its value; `$$` is a literal dollar; an unknown name
/// or an unfinished reference stays as written.
pub(super) fn expand(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|t| t.split_once(')')) {
            match values.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&rest[at..rest.len() - tail.len()]),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansion_follows_upstream() {
        let values = BTreeMap::from([
            ("A".to_owned(), "1".to_owned()),
            ("EMPTY".to_owned(), String::new()),
            ("DOLLAR".to_owned(), "$(A)".to_owned()),
        ]);
        for (text, expected) in [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)z", "x1y1z"),
            ("$(EMPTY)", ""),
            ("$(NONE)", "$(NONE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$", "$$"),
            ("$(A", "$(A"),
            ("$A", "$A"),
            ("cost$", "cost$"),
            ("$(DOLLAR)", "$(A)"),
        ] {
            assert_eq!(expand(text, &values), expected, "{text}");
        }
    }
}
