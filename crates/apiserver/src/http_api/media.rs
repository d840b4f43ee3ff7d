//! In which form a client wants to see objects, and in which it sends them.
//!
//! Pure. Upstream: apiserver pkg/endpoints/handlers/negotiation.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::table;
use crate::error::ApiError;
use crate::json;
use crate::resources::Resource;

/// A form in which objects are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As they are.
    Objects,
    /// As rows and columns, with their metadata.
    Table,
    /// As rows and columns, with nothing.
    BareTable,
    /// As rows and columns, with the whole object.
    FullTable,
    /// Metadata alone.
    Metadata,
}

/// One item of an `Accept` header.
struct Range<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Range<'_> {
    fn get(&self, key: &str) -> &str {
        let found = self.parameters.iter().find(|(known, _)| *known == key);
        found.map(|(_, value)| *value).unwrap_or_default()
    }
}

fn ranges(accept: &str) -> impl Iterator<Item = Range<'_>> {
    accept.split(',').map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        Range { media, parameters: parts.filter_map(|part| part.split_once('=')).collect() }
    })
}

fn is_json(media: &str) -> bool {
    matches!(media, "application/json" | "application/*" | "*/*" | "")
}

/// The first form of an `Accept` header that is known here.
pub(super) fn form(accept: &str, include_object: &str) -> Result<Form, ApiError> {
    for range in ranges(accept).filter(|range| is_json(range.media)) {
        match (range.get("as"), range.get("g"), range.get("v")) {
            ("", _, _) => return Ok(Form::Objects),
            ("Table", "meta.k8s.io", "v1") => {
                return match include_object {
                    "" | "Metadata" => Ok(Form::Table),
                    "None" => Ok(Form::BareTable),
                    "Object" => Ok(Form::FullTable),
                    _ => {
                        Err(ApiError::bad_request("includeObject may be None, Metadata or Object"))
                    }
                };
            }
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                return Ok(Form::Metadata);
            }
            _ => {}
        }
    }
    Err(ApiError::not_acceptable())
}

/// Whether a client prefers discovery of everything at once, in version v2.
pub(super) fn wants_aggregated_discovery(accept: &str) -> bool {
    let first =
        ranges(accept).find(|range| is_json(range.media) && matches!(range.get("v"), "" | "v2"));
    first.is_some_and(|range| range.get("as") == "APIGroupDiscoveryList")
}

/// The media type of a body, without its parameters.
pub(super) fn plain(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

impl Form {
    /// One object in this form.
    pub(super) fn object(self, resource: &Resource, object: Value, now: Timestamp) -> Value {
        match self {
            Self::Objects => object,
            Self::Metadata => metadata(&object),
            _ => self.table(resource, std::slice::from_ref(&object), &object["metadata"], now),
        }
    }

    /// A list in this form; `list` holds its own metadata.
    pub(super) fn list(
        self,
        resource: &Resource,
        items: &[Value],
        list: &Value,
        now: Timestamp,
    ) -> Value {
        let wrap = |api_version: &str, kind: String, items: Vec<Value>| json!({"kind": kind, "apiVersion": api_version, "metadata": list, "items": items});
        match self {
            Self::Objects => {
                wrap(&resource.api_version(), format!("{}List", resource.kind), items.to_vec())
            }
            Self::Metadata => {
                let items = items.iter().map(metadata).collect();
                wrap("meta.k8s.io/v1", "PartialObjectMetadataList".to_owned(), items)
            }
            _ => self.table(resource, items, list, now),
        }
    }

    fn table(self, resource: &Resource, items: &[Value], list: &Value, now: Timestamp) -> Value {
        let rows: Vec<Value> = items
            .iter()
            .map(|object| {
                let mut row = json!({"cells": table::cells(resource, object, now)});
                match self {
                    Self::Table => row["object"] = metadata(object),
                    Self::FullTable => row["object"] = object.clone(),
                    _ => {}
                }
                row
            })
            .collect();
        let version = json::text(list, "resourceVersion");
        let mut meta = json!({"resourceVersion": version});
        for key in ["continue", "remainingItemCount"] {
            json::copy(list, &mut meta, key);
        }
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
            "columnDefinitions": table::columns(resource), "rows": rows,
        })
    }
}

fn metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_form_is_taken() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, expected) in [
            ("", Some(Form::Objects)),
            ("*/*", Some(Form::Objects)),
            ("application/json", Some(Form::Objects)),
            ("application/vnd.kubernetes.protobuf, application/json", Some(Form::Objects)),
            (&format!("{table},application/json"), Some(Form::Table)),
            ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Some(Form::Objects)),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Form::Metadata),
            ),
            ("application/vnd.kubernetes.protobuf", None),
        ] {
            assert_eq!(form(accept, "").ok(), expected, "{accept}");
        }
    }

    #[test]
    fn discovery_of_everything_is_given_to_who_asks_first_for_it() {
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert!(wants_aggregated_discovery(&format!("{aggregated},application/json")));
        assert!(!wants_aggregated_discovery(&format!("application/json,{aggregated}")));
        assert!(!wants_aggregated_discovery("*/*"));
    }
}
