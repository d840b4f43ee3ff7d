//! `/statusz` and `/flagz`: pages for people who debug, and the same for machines.
//!
//! Pure. A text unless the `Accept` header asks for an object by its group, version and
//! kind; an object in YAML is written as JSON, which is YAML too. Upstream:
//! apiserver pkg/server/statusz and flagz.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubelet_config::KUBERNETES_VERSION;
use node_server::{Answer, Handlers, ViewError};
use serde_json::{Value, json};

const COMPONENT: &str = "kubelet";
const GROUP: &str = "config.k8s.io";
const TEXT: &str = "text/plain; charset=utf-8";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no \
     formatting compatibility guarantees and is for debugging purposes only.";
const DEPRECATED: &str = r#"299 - "This version of the page is deprecated; ask for v1beta1.""#;
const ACCEPTED: &str = "only these are made: text/plain, and application/json or application/yaml \
     with as, g=config.k8s.io and v=v1beta1";

/// How a page is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    /// Type and version.
    Object(&'static str, &'static str),
}

/// Finds the form for a header, whose kinds come with weights.
fn form(accept: &str, kind: &str) -> Option<Form> {
    if accept.trim().is_empty() {
        return Some(Form::Text);
    }
    let mut clauses: Vec<(f32, Option<Form>)> = Vec::new();
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let mut params = BTreeMap::new();
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            params.insert(name.trim(), value.trim().trim_matches('"'));
        }
        let weight = params.remove("q").and_then(|q| q.parse().ok()).unwrap_or(1.0);
        clauses.push((weight, form_of(media, &params, kind)));
    }
    // Among equals, the first.
    clauses.retain(|(weight, _)| *weight > 0.0);
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    clauses.into_iter().find_map(|(_, form)| form)
}

fn form_of(media: &str, params: &BTreeMap<&str, &str>, kind: &str) -> Option<Form> {
    let param = |name: &str| params.get(name).copied().unwrap_or_default();
    if param("as").is_empty() {
        let plain = matches!(media, "*/*" | "text/*" | "text/plain");
        return plain.then_some(Form::Text);
    }
    let written = match media {
        "application/yaml" => "application/yaml",
        "*/*" | "application/*" | "application/json" => "application/json",
        _ => return None,
    };
    let version = ["v1beta1", "v1alpha1"].into_iter().find(|known| *known == param("v"))?;
    (param("as") == kind && param("g") == GROUP).then_some(Form::Object(written, version))
}

/// A page in the form that was asked for.
fn page(
    accept: &str,
    kind: &str,
    text: impl FnOnce() -> String,
    fields: impl FnOnce() -> Value,
) -> Result<Answer, ViewError> {
    match form(accept, kind) {
        None => Err(ViewError::new(406, ACCEPTED)),
        Some(Form::Text) => Ok(Answer::text(TEXT, text())),
        Some(Form::Object(written, version)) => {
            let mut object = json!({"kind": kind, "apiVersion": format!("{GROUP}/{version}"),
                "metadata": {"name": COMPONENT}});
            if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields()) {
                object.extend(fields);
            }
            let mut answer = Answer::text(written, object.to_string());
            answer.warning = (version == "v1alpha1").then_some(DEPRECATED);
            Ok(answer)
        }
    }
}

/// `/statusz`: since when it runs, and which Kubernetes it is.
pub(super) fn statusz(
    accept: &str,
    started: Timestamp,
    now: Timestamp,
    handlers: &Handlers,
) -> Result<Answer, ViewError> {
    let up = now.duration_since(started).as_secs().max(0);
    let binary = KUBERNETES_VERSION.trim_start_matches('v');
    let emulated = binary.rsplit_once('.').map_or(binary, |(minor, _)| minor);
    let language = format!("none, klet {} is written in Rust", env!("CARGO_PKG_VERSION"));
    let paths = paths(handlers);
    let text = || {
        format!(
            "\n{COMPONENT} statusz\n{WARNING}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\n\
             Go version: {language}\nBinary version: {binary}\nEmulation version: {emulated}\n\
             Paths: {}\n",
            started.strftime("%a %b %e %H:%M:%S UTC %Y"),
            up / 3600,
            up / 60 % 60,
            up % 60,
            paths.join(" ")
        )
    };
    let fields = || {
        json!({
            "startTime": started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "uptimeSeconds": up,
            "goVersion": language, "binaryVersion": binary, "emulationVersion": emulated,
            "paths": paths,
        })
    };
    page(accept, "Statusz", text, fields)
}

/// Paths that upstream lists: those of pages, not of services.
fn paths(handlers: &Handlers) -> Vec<&'static str> {
    let all = [
        ("/configz", true),
        ("/debug", true),
        ("/flagz", handlers.flagz),
        ("/healthz", true),
        ("/logs", !handlers.system_log),
        ("/metrics", true),
    ];
    all.into_iter().filter(|(_, there)| *there).map(|(path, _)| path).collect()
}

/// `/flagz`: every flag and its value.
pub(super) fn flagz(accept: &str, flags: &BTreeMap<&str, String>) -> Result<Answer, ViewError> {
    let text = || {
        let mut text = format!("\n{COMPONENT} flagz\n{WARNING}\n");
        for (name, value) in flags {
            text.push_str(&format!("{name}={value}\n"));
        }
        text
    };
    page(accept, "Flagz", text, || json!({ "flags": flags }))
}

#[cfg(test)]
mod tests {
    use node_server::Content;

    use super::*;

    fn body(answer: Answer) -> (String, &'static str) {
        let Content::Bytes(bytes) = answer.content else { panic!("it comes in one piece") };
        (String::from_utf8(bytes.into()).unwrap(), answer.content_type)
    }

    #[test]
    fn people_get_text_and_machines_ask_for_objects() {
        let json = Some(Form::Object("application/json", "v1beta1"));
        for (accept, wanted) in [
            ("", Some(Form::Text)),
            ("*/*", Some(Form::Text)),
            ("text/plain", Some(Form::Text)),
            ("text/html, */*;q=0.8", Some(Form::Text)),
            ("application/json;as=Statusz;g=config.k8s.io;v=v1beta1", json),
            ("application/json; v=v1beta1; g=config.k8s.io; as=Statusz, text/plain", json),
            (
                "text/plain;q=0.5,application/yaml;v=v1alpha1;g=config.k8s.io;as=Statusz",
                Some(Form::Object("application/yaml", "v1alpha1")),
            ),
            ("application/json", None),
            ("application/json;as=Flagz;g=config.k8s.io;v=v1beta1", None),
            ("application/json;as=Statusz;g=other;v=v1beta1", None),
            ("application/json;as=Statusz;g=config.k8s.io;v=v2", None),
            ("text/plain;as=Statusz;g=config.k8s.io;v=v1beta1", None),
            ("text/plain;q=0", None),
            ("application/vnd.kubernetes.protobuf", None),
            (";;,=,;q=x", None),
        ] {
            assert_eq!(form(accept, "Statusz"), wanted, "{accept:?}");
        }
        let error = flagz("application/json", &BTreeMap::new()).err().unwrap();
        assert_eq!(error.status, 406);
    }

    #[test]
    fn status_says_since_when_and_what() {
        let started: Timestamp = "2026-11-05T09:08:07Z".parse().unwrap();
        let now: Timestamp = "2026-11-06T11:11:12Z".parse().unwrap();
        let handlers = Handlers::default();
        let (text, kind) = body(statusz("", started, now, &handlers).unwrap());
        assert_eq!(kind, TEXT);
        assert!(text.starts_with("\nkubelet statusz\nWarning: This endpoint is not meant"));
        assert!(
            text.contains("\nStarted: Thu Nov  5 09:08:07 UTC 2026\nUp: 26 hr 03 min 05 sec\n")
        );
        assert!(text.contains("\nBinary version: 1.36.4\nEmulation version: 1.36\n"), "{text}");
        assert!(text.ends_with("\nPaths: /configz /debug /flagz /healthz /metrics\n"), "{text}");
        let accept = "application/json;as=Statusz;g=config.k8s.io;v=v1alpha1";
        let answer = statusz(accept, started, now, &handlers).unwrap();
        assert!(answer.warning.unwrap().starts_with("299 - "));
        let object: Value = serde_json::from_str(&body(answer).0).unwrap();
        assert_eq!(object["apiVersion"], "config.k8s.io/v1alpha1");
        assert_eq!((&object["kind"], &object["uptimeSeconds"]), (&json!("Statusz"), &json!(93785)));
        assert_eq!(object["startTime"], "2026-11-05T09:08:07Z");
    }

    #[test]
    fn flags_are_listed_by_name() {
        let flags = BTreeMap::from([("v", "2".to_owned()), ("config", "/k".to_owned())]);
        let (text, _) = body(flagz("*/*", &flags).unwrap());
        assert!(text.ends_with("debugging purposes only.\nconfig=/k\nv=2\n"), "{text}");
        let accept = "application/json;as=Flagz;g=config.k8s.io;v=v1beta1";
        let object: Value = serde_json::from_str(&body(flagz(accept, &flags).unwrap()).0).unwrap();
        assert_eq!(object["flags"], json!({"config": "/k", "v": "2"}));
        assert_eq!(object["metadata"]["name"], "kubelet");
    }
}
