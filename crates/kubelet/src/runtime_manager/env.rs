//! The container's environment, and `$(VAR)` expansion.
//!
//! Pure. A standalone node holds no ConfigMaps, Secrets or Services: a reference
//! to one that is not optional is an error. Upstream: makeEnvironmentVariables
//! in pkg/kubelet/kubelet_pods.go, third_party/forked/golang/expansion.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource};
use kubelet_model::DesiredPod;

use super::downward::{self, Place};

/// The resolved environment of a container, in definition order; a later
/// definition of a name replaces the earlier one.
pub(super) fn environment(
    pod: &DesiredPod,
    container: &Container,
    place: &Place<'_>,
) -> Result<Vec<(String, String)>, String> {
    container.env_from.iter().flatten().try_for_each(missing_source)?;
    let mut names: Vec<String> = Vec::new();
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    for var in container.env.iter().flatten() {
        let value = match (var.value.as_deref().unwrap_or_default(), &var.value_from) {
            ("", None) => String::new(),
            ("", Some(source)) => match from_source(pod, container, source, place)? {
                Some(value) => value,
                None => continue,
            },
            (text, _) => expand(text, &values),
        };
        if values.insert(var.name.clone(), value).is_none() {
            names.push(var.name.clone());
        }
    }
    let value = |name: String| (name.clone(), values.remove(&name).unwrap_or_default());
    Ok(names.into_iter().map(value).collect())
}

/// An object that every variable of is wanted, and that does not exist.
fn missing_source(source: &EnvFromSource) -> Result<(), String> {
    if let Some(map) = &source.config_map_ref {
        return absent("configmap", &map.name, map.optional).map(drop);
    }
    match &source.secret_ref {
        Some(secret) => absent("secret", &secret.name, secret.optional).map(drop),
        None => Ok(()),
    }
}

/// A variable's value; `None` leaves it out.
fn from_source(
    pod: &DesiredPod,
    container: &Container,
    source: &EnvVarSource,
    place: &Place<'_>,
) -> Result<Option<String>, String> {
    if let Some(selector) = &source.field_ref {
        return downward::field(pod, &selector.field_path, place).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return downward::resource(pod.spec(), container, selector, place).map(Some);
    }
    if let Some(map) = &source.config_map_key_ref {
        return absent("configmap", &map.name, map.optional);
    }
    match &source.secret_key_ref {
        Some(secret) => absent("secret", &secret.name, secret.optional),
        None => Ok(Some(String::new())),
    }
}

fn absent(kind: &str, name: &str, optional: Option<bool>) -> Result<Option<String>, String> {
    if optional == Some(true) { Ok(None) } else { Err(format!("{kind} {name:?} not found")) }
}

/// Expands the arguments of a container from its resolved environment.
pub(super) fn expand_all(args: Option<&Vec<String>>, env: &[(String, String)]) -> Vec<String> {
    let values: BTreeMap<_, _> = env.iter().cloned().collect();
    args.into_iter().flatten().map(|arg| expand(arg, &values)).collect()
}

/// Replaces `$(NAME)` by its value; `$$` is a literal dollar; an unknown name
/// or an unfinished reference stays as written.
pub(crate) fn expand(text: &str, values: &BTreeMap<String, String>) -> String {
    expand_by(text, |name| values.get(name).map(String::as_str))
}

/// As [`expand`], with values looked up one by one.
pub(super) fn expand_by<'v>(
    text: &str,
    mut value_of: impl FnMut(&str) -> Option<&'v str>,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|t| t.split_once(')')) {
            match value_of(name) {
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
    use crate::container_manager::allocatable::Allocatable;
    use crate::runtime_manager::testing::pod_with;

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

    fn resolve(container: &str) -> Result<Vec<String>, String> {
        let pod = pod_with("", container, "");
        let ips = ["10.0.0.2".to_owned()];
        let allocatable = Allocatable { cpu_milli: 2_000, memory_bytes: 1 };
        let place = Place { pod_ips: &ips, node_ips: &ips, allocatable };
        let env = environment(&pod, &pod.spec().containers[0], &place)?;
        Ok(env.iter().map(|(name, value)| format!("{name}={value}")).collect())
    }

    #[test]
    fn variables_come_in_order_and_see_the_ones_before() {
        let env = resolve(
            r#","env":[{"name":"A","value":"1"},{"name":"B","value":"$(A)$(C)"},{"name":"C","value":"3"},
               {"name":"A","value":"2$(A)"},{"name":"E"},
               {"name":"IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}},
               {"name":"CPU","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}},
               {"name":"URL","value":"http://$(IP)/$(CPU)"}]"#,
        );
        let expected =
            ["A=21", "B=1$(C)", "C=3", "E=", "IP=10.0.0.2", "CPU=2", "URL=http://10.0.0.2/2"];
        assert_eq!(env.expect("a good environment"), expected);
    }

    #[test]
    fn objects_that_do_not_exist() {
        for (container, expected) in [
            (r#""envFrom":[{"configMapRef":{"name":"c"}}]"#, Err("configmap \"c\" not found")),
            (r#""envFrom":[{"secretRef":{"name":"s"}}]"#, Err("secret \"s\" not found")),
            (
                r#""env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"c","key":"k"}}}]"#,
                Err("configmap \"c\" not found"),
            ),
            (
                r#""env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]"#,
                Err("secret \"s\" not found"),
            ),
            (
                r#""envFrom":[{"configMapRef":{"name":"c","optional":true}}],
                   "env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s","key":"k","optional":true}}},
                          {"name":"B","value":"$(A)"}]"#,
                Ok("B=$(A)"),
            ),
        ] {
            let got = resolve(&format!(",{container}")).map(|env| env.join(" "));
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{container}");
        }
    }
}
