//! Field selectors: `metadata.name=web,spec.nodeName!=`.
//!
//! Pure. Owns the table of fields by which objects of a kind can be chosen.
//! Upstream: apimachinery pkg/fields and the conversion functions of field
//! labels, pkg/apis/core/v1/conversion.go.

use serde_json::Value;

use super::labels::SelectorError;
use crate::json;
use crate::resources::Resource;

/// Requirements on fields, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    field: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Reads a selector; empty text takes everything.
    ///
    /// # Errors
    /// [`SelectorError`]: what cannot be read, and fields outside the table.
    pub fn parse(resource: &Resource, text: &str) -> Result<Self, SelectorError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(|part| requirement(resource, part)).collect::<Result<_, _>>().map(Self)
    }

    /// Only the object of this name.
    pub fn require_name(&mut self, name: &str) {
        let field = "metadata.name".to_owned();
        self.0.push(Requirement { field, equal: true, value: name.to_owned() });
    }

    /// Whether it takes everything.
    pub fn takes_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it takes an object.
    pub fn takes(&self, object: &Value) -> bool {
        self.0.iter().all(|r| (read(object, &r.field) == r.value) == r.equal)
    }
}

fn requirement(resource: &Resource, part: &str) -> Result<Requirement, SelectorError> {
    let split = |sign| part.split_once(sign);
    let (field, value, equal) = split("!=")
        .map(|(field, value)| (field, value, false))
        .or_else(|| split("==").map(|(field, value)| (field, value, true)))
        .or_else(|| split("=").map(|(field, value)| (field, value, true)))
        .ok_or_else(|| SelectorError::Syntax {
            text: part.to_owned(),
            why: "no operator".to_owned(),
        })?;
    let known = field == "metadata.name"
        || (field == "metadata.namespace" && resource.namespaced)
        || fields_of(resource).contains(&field);
    if !known {
        return Err(SelectorError::Field(field.to_owned()));
    }
    Ok(Requirement { field: field.to_owned(), equal, value: value.to_owned() })
}

/// A field as text, as selectors compare it.
fn read(object: &Value, field: &str) -> String {
    match json::at(object, field) {
        Value::Null if BOOLEANS.contains(&field) => "false".to_owned(),
        Value::Null => match field {
            // What selects by the old name of a reporter finds those of the new API too.
            "source" => json::text(object, "reportingComponent").to_owned(),
            _ => String::new(),
        },
        Value::String(text) => text.clone(),
        Value::Object(_) if field == "source" => match json::text(object, "source.component") {
            "" => json::text(object, "reportingComponent").to_owned(),
            component => component.to_owned(),
        },
        other => other.to_string(),
    }
}

const BOOLEANS: &[&str] = &["spec.unschedulable", "spec.hostNetwork"];

fn fields_of(resource: &Resource) -> &'static [&'static str] {
    match (resource.group, resource.plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        ("certificates.k8s.io", "clustertrustbundles") => &["spec.signerName"],
        ("certificates.k8s.io", "podcertificaterequests") => &["spec.signerName", "spec.nodeName"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::find;

    #[test]
    fn fields_of_each_kind() {
        let pod = json!({"metadata": {"name": "web", "namespace": "d"},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        for (plural, object, text, expected) in [
            ("pods", &pod, "", true),
            ("pods", &pod, "spec.nodeName=n1", true),
            ("pods", &pod, "spec.nodeName!=n1", false),
            ("pods", &pod, "spec.nodeName=n1,status.phase==Pending", false),
            ("pods", &pod, "metadata.name=web,metadata.namespace=d", true),
            ("pods", &pod, "spec.hostNetwork=false", true),
            ("nodes", &json!({"spec": {}}), "spec.unschedulable=false", true),
            ("nodes", &json!({"spec": {"unschedulable": true}}), "spec.unschedulable=true", true),
            ("events", &json!({"source": {"component": "klet"}}), "source=klet", true),
            ("secrets", &json!({"type": "Opaque"}), "type=Opaque", true),
        ] {
            let resource = find("", "v1", plural).unwrap();
            let selector = FieldSelector::parse(resource, text).unwrap();
            assert_eq!(selector.takes(object), expected, "{plural} {text}");
        }
    }

    #[test]
    fn fields_outside_the_table_are_refused() {
        let nodes = find("", "v1", "nodes").unwrap();
        for text in ["spec.nodeName=x", "metadata.namespace=x", "spec", "status.phase=Running"] {
            assert!(FieldSelector::parse(nodes, text).is_err(), "{text}");
        }
    }
}
