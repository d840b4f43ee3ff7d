//! Refusals: what the server says when it does not do what was asked.
//!
//! Pure. Owns the mapping from a refusal to `metav1.Status` with upstream's
//! reasons, codes and message forms, which clients match on.
//! Upstream: staging/src/k8s.io/apimachinery/pkg/api/errors.

use serde_json::{Map, Value, json};

use crate::resources::Resource;

/// A refusal, as a client sees it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, for example `NotFound`.
    pub reason: &'static str,
    /// What went wrong, on which object.
    pub message: String,
    /// `metav1.StatusDetails`, or null.
    pub details: Value,
}

/// One field that is wrong, as in `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// For example `FieldValueInvalid`.
    pub reason: &'static str,
    /// Path of the field.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl Cause {
    /// A field that must be set.
    pub fn required(field: &str, message: &str) -> Self {
        let message = format!("Required value: {message}").trim_end_matches(": ").to_owned();
        Self { reason: "FieldValueRequired", field: field.to_owned(), message }
    }

    /// A field whose value is not allowed.
    pub fn invalid(field: &str, value: &str, message: &str) -> Self {
        let message = format!("Invalid value: {value:?}: {message}");
        Self { reason: "FieldValueInvalid", field: field.to_owned(), message }
    }

    /// A field that must not be set or changed.
    pub fn forbidden(field: &str, message: &str) -> Self {
        let message = format!("Forbidden: {message}");
        Self { reason: "FieldValueForbidden", field: field.to_owned(), message }
    }
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = details(resource.group, resource.plural, name);
        self
    }

    /// No object of that name.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.qualified());
        Self::new(404, "NotFound", message).about(resource, name)
    }

    /// No such path.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// The name is taken.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// The object is not what the caller believes it is.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let target = resource.qualified();
        let message = format!("Operation cannot be fulfilled on {target} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// Somebody wrote the object first.
    pub fn stale(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest \
                   version and try again";
        Self::conflict(resource, name, why)
    }

    /// The object breaks rules of its kind.
    pub fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        let kind = match resource.group {
            "" => resource.kind.to_owned(),
            group => format!("{}.{group}", resource.kind),
        };
        let each: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let why = match each.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(422, "Invalid", format!("{kind} {name:?} is invalid: {why}"));
        error.details = details(resource.group, resource.kind, name);
        error.details["causes"] = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        error
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Nobody we know.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Somebody we know who may not.
    pub fn forbidden(resource: Option<&Resource>, name: &str, why: &str) -> Self {
        let Some(resource) = resource else {
            return Self::new(403, "Forbidden", format!("forbidden: {why}"));
        };
        let target = resource.qualified();
        let message = match name {
            "" => format!("{target} is forbidden: {why}"),
            name => format!("{target} {name:?} is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// This resource has no such verb.
    pub fn method_not_allowed(what: &str) -> Self {
        let message = format!("{what} is not supported on resources of this kind");
        Self::new(405, "MethodNotAllowed", message)
    }

    /// A body in a format that is not read here.
    pub fn unsupported_media_type(given: &str, supported: &str) -> Self {
        let message = format!(
            "the body of the request is {given:?}, which is not read here: send {supported}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// An answer in a format that is not written here.
    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        Self::new(406, "NotAcceptable", message)
    }

    /// More bytes than the server reads.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// The asked-for past is forgotten.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A revision that does not exist yet.
    pub fn too_large_revision(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(504, "Timeout", message);
        error.details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        error
    }

    /// Something that should not happen did.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(500, "InternalError", message)
    }

    /// As `metav1.Status`.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

fn details(group: &str, kind: &str, name: &str) -> Value {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            details.insert(key.to_owned(), value.into());
        }
    }
    Value::Object(details)
}
