//! The container's environment, and `$(VAR)` expansion.
//!
//! Looks up ConfigMaps, Secrets, services and files that were read, and changes nothing.
//! Upstream: makeEnvironmentVariables in pkg/kubelet/kubelet_pods.go,
//! third_party/forked/golang/expansion.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, EnvVarSource};
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind};

use super::downward::{self, Place};
use super::env_file::EnvFiles;
use crate::object_cache::Objects;

/// Where values come from, besides the pod and its node.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    /// ConfigMaps and Secrets.
    pub(super) objects: &'a Objects,
    /// Files that containers wrote.
    pub(super) files: &'a EnvFiles,
    /// Variables by which services are found.
    pub(super) services: &'a [(String, String)],
}

/// The resolved environment of a container: what whole objects give, then its own,
/// in definition order; a later definition of a name replaces the earlier one. Services
/// can be referred to by all, and come last, where nobody took their names.
pub(super) fn environment(
    pod: &DesiredPod,
    container: &Container,
    place: &Place<'_>,
    sources: Sources<'_>,
) -> Result<Vec<(String, String)>, String> {
    let mut names: Vec<String> = Vec::new();
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    let services: BTreeMap<&str, &str> =
        sources.services.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    for (name, value) in from_objects(pod, container, sources.objects)? {
        if values.insert(name.clone(), value).is_none() {
            names.push(name);
        }
    }
    for var in container.env.iter().flatten() {
        let value = match (var.value.as_deref().unwrap_or_default(), &var.value_from) {
            ("", None) => String::new(),
            ("", Some(source)) => match from_source(pod, container, source, place, sources)? {
                Some(value) => value,
                None => continue,
            },
            (text, _) => expand_by(text, |name| {
                values.get(name).map(String::as_str).or_else(|| services.get(name).copied())
            }),
        };
        if values.insert(var.name.clone(), value).is_none() {
            names.push(var.name.clone());
        }
    }
    for (name, value) in sources.services {
        if !values.contains_key(name) {
            values.insert(name.clone(), value.clone());
            names.push(name.clone());
        }
    }
    let value = |name: String| (name.clone(), values.remove(&name).unwrap_or_default());
    Ok(names.into_iter().map(value).collect())
}

/// The variables that whole objects give, in their order.
fn from_objects(
    pod: &DesiredPod,
    container: &Container,
    objects: &Objects,
) -> Result<Vec<(String, String)>, String> {
    let mut variables = Vec::new();
    for source in container.env_from.iter().flatten() {
        let map = source.config_map_ref.as_ref();
        let map = map.map(|of| (ObjectKind::ConfigMap, &of.name, of.optional));
        let secret = source.secret_ref.as_ref();
        let secret = secret.map(|of| (ObjectKind::Secret, &of.name, of.optional));
        let Some((kind, name, optional)) = map.or(secret) else { continue };
        let object = find(objects, pod, (kind, name), optional)?;
        let prefix = source.prefix.as_deref().unwrap_or_default();
        for (key, value) in object.iter().flat_map(|object| &object.data) {
            variables.push((format!("{prefix}{key}"), text_of(value, key, pod, kind, name)?));
        }
    }
    Ok(variables)
}

/// An object; `None` if it is missing and may be.
fn find(
    objects: &Objects,
    pod: &DesiredPod,
    (kind, name): (ObjectKind, &str),
    optional: Option<bool>,
) -> Result<Option<Arc<ConfigObject>>, String> {
    let key = ObjectKey::new(kind, pod.namespace(), name);
    // What lies beside a static pod is known, whether or not there is an API server.
    let found = if pod.is_static() { objects.get(&key) } else { objects.find(&key)? };
    match found {
        None if optional != Some(true) => {
            Err(format!("{} {:?} not found", key.kind.resource(), key.name))
        }
        found => Ok(found),
    }
}

/// One value of an object; `None` if it is missing and may be.
fn one_of(
    objects: &Objects,
    pod: &DesiredPod,
    (kind, name, key): (ObjectKind, &str, &str),
    optional: Option<bool>,
) -> Result<Option<String>, String> {
    let found = find(objects, pod, (kind, name), optional)?;
    let Some(object) = found else { return Ok(None) };
    match object.data.get(key) {
        Some(value) => text_of(value, key, pod, kind, name).map(Some),
        None if optional == Some(true) => Ok(None),
        None => {
            let (kind, namespace) = (kind.as_str(), pod.namespace());
            Err(format!("couldn't find key {key} in {kind} {namespace}/{name}"))
        }
    }
}

/// A value as a variable: the kernel ends one at a NUL, and runtimes take text.
fn text_of(
    value: &[u8],
    key: &str,
    pod: &DesiredPod,
    kind: ObjectKind,
    name: &str,
) -> Result<String, String> {
    let text = std::str::from_utf8(value).ok().filter(|text| !text.contains('\0'));
    text.map(str::to_owned).ok_or_else(|| {
        let (kind, namespace) = (kind.as_str(), pod.namespace());
        format!(
            "key {key} in {kind} {namespace}/{name} is no text and cannot be a variable; mount it as \
             a file"
        )
    })
}

/// A variable's value; `None` leaves it out.
fn from_source(
    pod: &DesiredPod,
    container: &Container,
    source: &EnvVarSource,
    place: &Place<'_>,
    Sources { objects, files, .. }: Sources<'_>,
) -> Result<Option<String>, String> {
    if let Some(selector) = &source.field_ref {
        return downward::field(pod, &selector.field_path, place).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return downward::resource(pod.spec(), container, selector, place).map(Some);
    }
    if let Some(map) = &source.config_map_key_ref {
        let which = (ObjectKind::ConfigMap, map.name.as_str(), map.key.as_str());
        return one_of(objects, pod, which, map.optional);
    }
    if let Some(secret) = &source.secret_key_ref {
        let which = (ObjectKind::Secret, secret.name.as_str(), secret.key.as_str());
        return one_of(objects, pod, which, secret.optional);
    }
    match &source.file_key_ref {
        Some(file) => files.value(file),
        None => Ok(Some(String::new())),
    }
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
    use kubelet_model::Source;

    use super::*;
    use crate::container_manager::allocatable::Allocatable;
    use crate::object_cache;
    use crate::runtime_manager::env_file::testing;
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
        resolve_with(container, &Objects::default())
    }

    fn resolve_with(container: &str, objects: &Objects) -> Result<Vec<String>, String> {
        let pod = pod_with("", container, "");
        let files = EnvFiles::default();
        resolve_in(&pod, Sources { objects, files: &files, services: &[] })
    }

    fn resolve_in(pod: &DesiredPod, sources: Sources<'_>) -> Result<Vec<String>, String> {
        let ips = ["10.0.0.2".to_owned()];
        let allocatable = Allocatable { cpu_milli: 2_000, memory_bytes: 1, storage_bytes: 7 };
        let place = Place { pod_ips: &ips, node_ips: &ips, allocatable };
        let env = environment(pod, &pod.spec().containers[0], &place, sources)?;
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
    fn services_come_last_and_give_way() {
        let pod = pod_with(
            "",
            r#","env":[{"name":"A_SERVICE_HOST","value":"own"},{"name":"URL","value":"$(A_SERVICE_HOST):$(A_SERVICE_PORT)"}]"#,
            "",
        );
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let services = [own("A_SERVICE_HOST", "10.0.0.1"), own("A_SERVICE_PORT", "80")];
        let (objects, files) = (Objects::default(), EnvFiles::default());
        let sources = Sources { objects: &objects, files: &files, services: &services };
        let expected = ["A_SERVICE_HOST=own", "URL=own:80", "A_SERVICE_PORT=80"];
        assert_eq!(resolve_in(&pod, sources).unwrap(), expected);
    }

    #[test]
    fn files_give_variables() {
        let of = |name: &str, key: &str, more: &str| {
            let file = format!(r#"{{"volumeName":"v","path":"f","key":"{key}"{more}}}"#);
            format!(r#"{{"name":"{name}","valueFrom":{{"fileKeyRef":{file}}}}}"#)
        };
        let optional = r#","optional":true"#;
        for (variables, text, expected) in [
            (of("V", "A", ""), "A='$(V)'", Ok("V=$(V) W=<$(V)>")),
            (of("V", "A", ""), "B='x'", Err("key \"A\" not found in file \"/pods/v/f\"")),
            (of("V", "A", optional), "B='x'", Ok("W=<$(V)>")),
            (of("V", "A", optional), "A", Err("couldn't parse env file: ")),
        ] {
            let last = r#"{"name":"W","value":"<$(V)>"}"#;
            let pod = pod_with("", &format!(r#","env":[{variables},{last}]"#), "");
            let files = testing::files(&pod.spec().containers[0], ("v", "f"), text);
            let sources = Sources { objects: &Objects::default(), files: &files, services: &[] };
            match (resolve_in(&pod, sources), expected) {
                (Ok(env), expected) => assert_eq!(Ok(env.join(" ").as_str()), expected, "{text}"),
                (Err(error), expected) => {
                    assert!(expected.is_err_and(|part| error.contains(part)), "{error}");
                }
            }
        }
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
    #[test]
    fn objects_give_variables() {
        let (writer, objects) = object_cache::new();
        let object = |kind, name: &str, data: &[(&str, &[u8])]| {
            let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec()));
            Arc::new(ConfigObject {
                key: ObjectKey::new(kind, "ns", name),
                uid: String::new(),
                secret_type: String::new(),
                data: data.collect(),
                binary: BTreeMap::from([("logo".to_owned(), vec![1])]),
            })
        };
        let map = object(ObjectKind::ConfigMap, "c", &[("A", b"1"), ("b.c", b"$(A)")]);
        let secret = object(ObjectKind::Secret, "s", &[("A", b"2"), ("RAW", b"\xff")]);
        writer.replace(Source::File, &[map, secret]);
        let from = |kind: &str, name: &str, key: &str, more: &str| {
            format!(
                r#"{{"name":"V","valueFrom":{{"{kind}KeyRef":{{"name":"{name}","key":"{key}"{more}}}}}}}"#
            )
        };
        let env = |variable: String| format!(r#""env":[{variable}]"#);
        for (container, expected) in [
            (r#""envFrom":[{"configMapRef":{"name":"c"}}]"#.to_owned(), Ok("A=1 b.c=$(A)")),
            (
                r#""envFrom":[{"prefix":"P_","configMapRef":{"name":"c"}},{"configMapRef":{"name":"c"}}],
                   "env":[{"name":"A","value":"own $(P_A)"}]"#
                    .to_owned(),
                Ok("P_A=1 P_b.c=$(A) A=own 1 b.c=$(A)"),
            ),
            (env(from("configMap", "c", "A", "")), Ok("V=1")),
            (env(from("secret", "s", "A", "")), Ok("V=2")),
            (
                env(from("configMap", "c", "none", "")),
                Err("couldn't find key none in ConfigMap ns/c"),
            ),
            (
                env(from("configMap", "c", "logo", "")),
                Err("couldn't find key logo in ConfigMap ns/c"),
            ),
            (env(from("secret", "s", "none", "")), Err("couldn't find key none in Secret ns/s")),
            (env(from("secret", "s", "none", r#","optional":true"#)), Ok("")),
            (
                env(from("secret", "s", "RAW", "")),
                Err(
                    "key RAW in Secret ns/s is no text and cannot be a variable; mount it as a file",
                ),
            ),
            (r#""envFrom":[{"secretRef":{"name":"c"}}]"#.to_owned(), Err("secret \"c\" not found")),
        ] {
            let got = resolve_with(&format!(",{container}"), &objects).map(|env| env.join(" "));
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{container}");
        }
    }
}
