//! What events say of a resize. Pure. Upstream: pkg/kubelet/events/resize.go.

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_model::hash::escape_as_go;
use serde::Serialize;
use serde_json::Value;

use super::format::requirements_json;

#[derive(Serialize)]
struct Summary {
    #[serde(rename = "initContainers", skip_serializing_if = "Vec::is_empty")]
    init: Vec<Size>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Size>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: String,
}

#[derive(Serialize)]
struct Size {
    name: String,
    resources: Value,
}

/// `what: {"containers":[…],"generation":0}`, with an error if there is one.
pub fn resize_message(what: &str, pod: &Pod, error: &str) -> String {
    let size = |container: &Container| Size {
        name: container.name.clone(),
        resources: requirements_json(&container.resources.clone().unwrap_or_default()),
    };
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_ref());
    let summary = Summary {
        init: init.into_iter().flatten().map(size).collect(),
        containers: spec.into_iter().flat_map(|spec| &spec.containers).map(size).collect(),
        generation: pod.metadata.generation.unwrap_or(0),
        error: error.to_owned(),
    };
    // Texts and numbers always have a form in JSON.
    let json = serde_json::to_string(&summary).unwrap_or_default();
    format!("{what}: {}", escape_as_go(&json))
}
