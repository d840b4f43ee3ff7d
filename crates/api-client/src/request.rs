//! What is asked of a server: method, path, body, and how long it may take. Pure.

use std::time::Duration;

use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// How long an answer may take, unless told otherwise.
const LIMIT: Duration = Duration::from_secs(30);
/// What is left as it is in a path or a value of a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What to do.
    pub method: Method,
    /// With what; the query is part of it.
    pub path: String,
    /// What is sent, and of which type.
    pub body: Option<(&'static str, Value)>,
    /// How long the answer may take.
    pub limit: Duration,
}

/// How a patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    /// As Kubernetes merges: lists of objects by their keys.
    Strategic,
    /// As RFC 7386 says: lists as a whole.
    Merge,
    /// As RFC 6902 says: one operation after the other.
    Json,
}

impl Call {
    fn new(method: Method, path: &str, body: Option<(&'static str, Value)>) -> Self {
        Self { method, path: path.to_owned(), body, limit: LIMIT }
    }

    /// Reads.
    pub fn get(path: &str) -> Self {
        Self::new(Method::GET, path, None)
    }

    /// Creates.
    pub fn post(path: &str, object: Value) -> Self {
        Self::new(Method::POST, path, Some(("application/json", object)))
    }

    /// Replaces.
    pub fn put(path: &str, object: Value) -> Self {
        Self::new(Method::PUT, path, Some(("application/json", object)))
    }

    /// Changes a part.
    pub fn patch(path: &str, patch: Patch, change: Value) -> Self {
        let kind = match patch {
            Patch::Strategic => "application/strategic-merge-patch+json",
            Patch::Merge => "application/merge-patch+json",
            Patch::Json => "application/json-patch+json",
        };
        Self::new(Method::PATCH, path, Some((kind, change)))
    }

    /// Deletes, with options.
    pub fn delete(path: &str, options: Value) -> Self {
        Self::new(Method::DELETE, path, Some(("application/json", options)))
    }

    /// The same, with another limit in time.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}

/// The path of objects of a resource: `api/v1` or `apis/group/version`, the namespace if
/// there is one, and then what leads to the object and its part.
pub fn path(api: &str, namespace: &str, rest: &[&str]) -> String {
    let mut path = format!("/{api}");
    let scope = if namespace.is_empty() { [].as_slice() } else { &["namespaces", namespace] };
    for part in scope.iter().chain(rest) {
        path.push('/');
        path.extend(utf8_percent_encode(part, PLAIN));
    }
    path
}

/// A path with a query.
pub(crate) fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut path = path.to_owned();
    for (key, value) in query {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(key);
        path.push('=');
        path.extend(utf8_percent_encode(value, PLAIN));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_lead_elsewhere() {
        assert_eq!(
            path("api/v1", "ns", &["pods", "a", "status"]),
            "/api/v1/namespaces/ns/pods/a/status"
        );
        assert_eq!(path("apis/x/v1", "", &["nodes"]), "/apis/x/v1/nodes");
        assert_eq!(
            path("api/v1", "a/b", &["pods", "../a?x=y"]),
            "/api/v1/namespaces/a%2Fb/pods/..%2Fa%3Fx%3Dy"
        );
        let query = [("fieldSelector", "spec.nodeName=a b"), ("watch", "true")];
        assert_eq!(with_query("/p", &query), "/p?fieldSelector=spec.nodeName%3Da%20b&watch=true");
    }
}
