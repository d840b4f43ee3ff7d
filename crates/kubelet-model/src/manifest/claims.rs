//! Which pods a manifest is about, even one that cannot be used.
//!
//! Pure. What has the form of a document is read as it is; of what has not, the
//! part before the fault is. Only `metadata.name` counts: other names in a manifest
//! are those of containers, volumes and ports. There is no such thing upstream.

use std::collections::BTreeSet;

use serde_json::Value;

use super::document::Document;
use super::problem::Report;

/// How much of a faulty document is read. Names come first in what people write.
const FAULTY_BYTES_MAX: usize = 64 << 10;
/// How often a faulty document is cut short.
const CUTS_MAX: usize = 12;
/// Names that are told.
const CLAIMS_MAX: usize = 1_000;

/// A pod that a manifest names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Its namespace, if one is given.
    pub namespace: Option<String>,
    /// Its name, without that of the node.
    pub name: String,
}

/// The pods that a manifest names, as far as that can be told.
pub fn claims(bytes: &[u8]) -> BTreeSet<Claim> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    if let Some(value) = parse(text).ok().filter(Value::is_object) {
        return of_value(&value).take(CLAIMS_MAX).collect();
    }
    let text = &text[..text.floor_char_boundary(FAULTY_BYTES_MAX)];
    // A second document is a fault too, but no reason to overlook it.
    let documents = text.split("\n---").filter_map(before_fault);
    let claims = documents.flat_map(|value| of_value(&value).collect::<Vec<_>>());
    claims.take(CLAIMS_MAX).collect()
}

/// The names in a Pod, or in the items of a list. What does not say what it is may
/// be a Pod, unless it is in a list of other things.
fn of_value(value: &Value) -> impl Iterator<Item = Claim> + '_ {
    let items = value.get("items").and_then(Value::as_array);
    let kind_of = |value: &Value| value.get("kind").and_then(Value::as_str).map(str::to_owned);
    let kind = kind_of(value);
    let of = kind.as_deref().and_then(|kind| kind.strip_suffix("List"));
    let of = of.filter(|of| !of.is_empty()).map(str::to_owned);
    let items = items.into_iter().flatten().map(move |item| (kind_of(item).or(of.clone()), item));
    std::iter::once((kind, value)).chain(items).filter_map(|(kind, pod)| {
        // A Pod that is misspelt was meant as one.
        if !kind.is_none_or(|kind| kind.eq_ignore_ascii_case("Pod")) {
            return None;
        }
        let metadata = pod.get("metadata")?;
        let text = |key: &str| metadata.get(key)?.as_str().filter(|text| !text.is_empty());
        let namespace = text("namespace").map(str::to_owned);
        Some(Claim { namespace, name: text("name")?.to_owned() })
    })
}

/// What stands before the first fault of a document.
fn before_fault(document: &str) -> Option<Value> {
    let mut text = document;
    for _ in 0..CUTS_MAX {
        let fault = match parse(text) {
            Ok(value) => return Some(value),
            Err(line) => line,
        };
        // Brackets that a cut left open hide all that they hold.
        if let Ok(value) = parse(&closed(text)) {
            return Some(value);
        }
        let lines = text.lines().count();
        let keep = match fault {
            Some(line) if (2..=lines).contains(&line) => line - 1,
            // It shows only at the end: it may be anywhere.
            _ => lines / 2,
        };
        let end = text.split_inclusive('\n').take(keep).map(str::len).sum();
        text = text.get(..end).filter(|rest| !rest.trim().is_empty())?;
    }
    None
}

/// The value, or the line of the first fault.
fn parse(text: &str) -> Result<Value, Option<usize>> {
    let parsed = Document::parse(text, &mut Report::default());
    parsed
        .map(|(_, value)| value)
        .map_err(|fault| fault.line.and_then(|line| usize::try_from(line).ok()))
}

/// The text with the brackets and the quotes closed that are open at its end. It is
/// not JSON to the parser, which would not have the comma before a bracket.
fn closed(text: &str) -> String {
    let mut open = Vec::new();
    let mut quoted = false;
    let mut escaped = false;
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                open.pop();
            }
            _ => {}
        }
    }
    let quote = if quoted { "\"" } else { "" };
    format!("---\n{text}{quote}{}", open.into_iter().rev().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let claim = |claim: Claim| match claim.namespace {
            Some(namespace) => format!("{namespace}/{}", claim.name),
            None => claim.name,
        };
        claims(text.as_bytes()).into_iter().map(claim).collect()
    }

    #[test]
    fn the_name_of_the_pod_counts_and_no_other() {
        let pod = "kind: Pod\nmetadata:\n  name: web\n  namespace: a\n  labels: {name: no}\n\
                   spec:\n  containers:\n  - name: app\n    image: 5\n";
        assert_eq!(told(pod), ["a/web"]);
        assert_eq!(told("kind: Pod\nmetadata: {labels: {name: no}}\nspec: {}\n"), [""; 0]);
        let list = "kind: List\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n- 5\n";
        assert_eq!(told(list), ["a", "b"]);
        assert_eq!(
            told(r#"{"metadata":{"name":"web"},"spec":{"containers":[{"name":"c"}]}}"#),
            ["web"]
        );
    }

    #[test]
    fn objects_are_no_pods() {
        for kind in ["ConfigMap", "Secret", "List", "Deployment"] {
            let text = format!("kind: {kind}\nmetadata: {{name: web}}\ndata: 5\n");
            assert_eq!(told(&text), [""; 0], "{kind}");
            let faulty = format!("{text}more: [\n");
            assert_eq!(told(&faulty), [""; 0], "{kind}");
        }
        assert_eq!(told("kind: pod\nmetadata: {name: web}\n"), ["web"]);
        assert_eq!(told("kind:\nmetadata: {name: web}\n"), ["web"]);
        let items = "items:\n- {kind: Secret, metadata: {name: a}}\n- {metadata: {name: b}}\n\
                     - {kind: Pod, metadata: {name: c}}\n";
        assert_eq!(told(&format!("kind: List\n{items}")), ["b", "c"]);
        assert_eq!(told(&format!("kind: PodList\n{items}")), ["b", "c"]);
        assert_eq!(told(&format!("kind: SecretList\n{items}")), ["c"]);
    }

    #[test]
    fn of_a_faulty_document_what_comes_before_the_fault() {
        for (text, expected) in [
            ("metadata:\n  name: web\nspec:\n  containers: [{name: app\n", "web"),
            ("metadata:\n  name: web\nspec:\n\tcontainers: []\n", "web"),
            ("metadata:\n  name: web\nspec:\n  containers:\n  - name: app\n   image: x\n", "web"),
            ("metadata: {name: web}\nspec: {containers: [{name: app, image: \"x}]}\n", "web"),
            ("metadata:\n  name: web\nspec:\n  a: b: c\n  name: other\n", "web"),
            (
                "{\"metadata\": {\"name\": \"web\"},\n \"spec\": {\"containers\": [{\"name\": \"c\"},\n",
                "web",
            ),
            ("{\"metadata\": {\"name\": \"web\"},\n \"spec\": {\"x\": 1,},\n}\n", "web"),
            (
                "{\"kind\": \"Pod\",\n \"metadata\": {\n  \"name\": \"web\",\n }\n \"spec\": 1}\n",
                "web",
            ),
        ] {
            assert_eq!(told(text), [expected], "{text}");
        }
        for text in ["no: [manifest", "", "\u{0}", "metadata:\n  name: [", "just words"] {
            assert_eq!(told(text), [""; 0], "{text}");
        }
        let two = "metadata: {name: a}\n---\nmetadata: {name: b}\n";
        assert_eq!(told(two), ["a", "b"]);
        assert_eq!(claims(b"metadata: {name: a}\nspec: \xff\n").len(), 1);
    }

    #[test]
    fn hostile_text_costs_little() {
        assert_eq!(told(&"[".repeat(1 << 20)), [""; 0]);
        assert_eq!(told(&"a: [\n".repeat(100_000)), [""; 0]);
        assert_eq!(told(&format!("{{\"a\": {}", "\"".repeat(200_000))), [""; 0]);
    }
}
