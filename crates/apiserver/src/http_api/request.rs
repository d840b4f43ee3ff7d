//! What a request is for: verb, resource, namespace, name, options.
//!
//! Pure. Upstream: apiserver pkg/endpoints/request/requestinfo.go.

use std::collections::BTreeMap;

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::auth::Attributes;
use crate::error::ApiError;
use crate::resources::{self, Resource, Subresource};

/// Parameters of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let decode = |part: &str| {
            percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned()
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    /// A parameter, or empty text.
    pub(super) fn text(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).unwrap_or_default()
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ApiError> {
        match self.0.get(key).map(String::as_str) {
            None => Ok(None),
            Some("true" | "1" | "") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(other) => Err(ApiError::bad_request(format!(
                "{key} is {other:?}, which is neither true nor false"
            ))),
        }
    }

    pub(super) fn number<N: std::str::FromStr>(&self, key: &str) -> Result<Option<N>, ApiError> {
        match self.text(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!("{key} is {text:?}, which is not a number it may be"))
            }),
        }
    }

    pub(super) fn dry_run(&self) -> Result<bool, ApiError> {
        match self.text("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(ApiError::bad_request(format!("dryRun is {other:?}; it may be All"))),
        }
    }
}

/// What a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) attributes: Attributes,
    pub(super) version: String,
    pub(super) query: Query,
    /// The namespace that the address names.
    pub(super) namespace: String,
}

/// A resource, or one of its objects, or a part of one.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// The resource as the client sees it.
    pub(super) shown: &'static Resource,
    /// The resource as it is stored.
    pub(super) stored: &'static Resource,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) part: Option<Subresource>,
}

impl Wanted {
    pub(super) fn parse(method: &Method, path: &str, query: &str) -> Self {
        let query = Query::parse(query);
        let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let segments: Vec<String> =
            path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => {
                let verb = match *method {
                    Method::GET | Method::HEAD => "get".to_owned(),
                    ref other => other.as_str().to_lowercase(),
                };
                let attributes =
                    Attributes { verb, path: path.to_owned(), ..Attributes::default() };
                return Self {
                    attributes,
                    version: String::new(),
                    query,
                    namespace: String::new(),
                };
            }
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", rest),
        };
        let at = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        let name = match at(1) {
            // A list of one object is an access to that object.
            name if name.is_empty() => only_name(query.text("fieldSelector")),
            name => name,
        };
        let attributes = Attributes {
            verb: verb(method, &at(1), &query),
            group: group.to_owned(),
            resource: at(0),
            subresource: rest[2.min(rest.len())..].join("/"),
            // A namespace is, for its own sake, in itself.
            namespace: if at(0) == "namespaces" { at(1) } else { namespace.to_owned() },
            name,
            path: String::new(),
        };
        Self { attributes, version: version.to_owned(), query, namespace: namespace.to_owned() }
    }

    /// The target, if it exists.
    pub(super) fn target(&self) -> Result<Target, ApiError> {
        let Attributes { group, resource, subresource, name, verb, .. } = &self.attributes;
        let shown =
            resources::find(group, &self.version, resource).ok_or_else(ApiError::no_such_path)?;
        let stored = match shown.stored_as {
            Some(_) => resources::find_kind("", shown.kind).ok_or_else(ApiError::no_such_path)?,
            None => shown,
        };
        let part = match subresource.as_str() {
            "" => None,
            text => {
                let known = shown.subresources.iter().find(|part| part.name() == text);
                Some(*known.ok_or_else(ApiError::no_such_path)?)
            }
        };
        let namespace = self.namespace.clone();
        if !shown.namespaced && !namespace.is_empty() {
            return Err(ApiError::no_such_path());
        }
        let whole = matches!(verb.as_str(), "list" | "watch");
        if shown.namespaced && namespace.is_empty() && !whole {
            return Err(ApiError::method_not_allowed(verb));
        }
        Ok(Target { shown, stored, namespace, name: name.clone(), part })
    }
}

fn verb(method: &Method, name: &str, query: &Query) -> String {
    let watch = matches!(query.text("watch"), "true" | "1");
    let verb = match *method {
        Method::GET | Method::HEAD if watch => "watch",
        Method::GET | Method::HEAD if name.is_empty() => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        ref other => return other.as_str().to_lowercase(),
    };
    verb.to_owned()
}

fn only_name(fields: &str) -> String {
    let name = |part: &str| {
        let value = part.trim().strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value).to_owned())
    };
    fields.split(',').find_map(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(method: Method, address: &str) -> String {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let wanted = Wanted::parse(&method, path, query);
        let a = &wanted.attributes;
        let target = match wanted.target() {
            Ok(target) => format!("{} {:?}", target.shown.kind, target.part),
            Err(error) => error.code.to_string(),
        };
        format!(
            "{} {}/{} {}/{} {} -> {target}",
            a.verb, a.group, a.resource, a.namespace, a.name, a.subresource
        )
    }

    #[test]
    fn addresses() {
        for (method, address, expected) in [
            (Method::GET, "/api/v1/pods", "list /pods /  -> Pod None"),
            (Method::GET, "/api/v1/namespaces/a/pods?watch=1", "watch /pods a/  -> Pod None"),
            (Method::GET, "/api/v1/namespaces/a/pods/b", "get /pods a/b  -> Pod None"),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/pods/b/status",
                "patch /pods a/b status -> Pod Some(Status)",
            ),
            (Method::POST, "/api/v1/namespaces", "create /namespaces /  -> Namespace None"),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                "update /namespaces a/a finalize -> Namespace Some(Finalize)",
            ),
            (Method::DELETE, "/api/v1/nodes/n", "delete /nodes /n  -> Node None"),
            (Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection /pods a/  -> Pod None"),
            (
                Method::GET,
                "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Ds",
                "list /secrets a/s  -> Secret None",
            ),
            (
                Method::GET,
                "/apis/coordination.k8s.io/v1/namespaces/k/leases/n",
                "get coordination.k8s.io/leases k/n  -> Lease None",
            ),
            (Method::GET, "/api/v1/pods/b", "get /pods /b  -> 405"),
            (Method::DELETE, "/api/v1/pods", "deletecollection /pods /  -> 405"),
            (Method::GET, "/api/v1/namespaces/a/nodes/b", "get /nodes a/b  -> 404"),
            (Method::GET, "/api/v1/gadgets", "list /gadgets /  -> 404"),
            (Method::GET, "/api/v1/namespaces/a/pods/b/nope", "get /pods a/b nope -> 404"),
        ] {
            assert_eq!(show(method, address), expected);
        }
    }

    #[test]
    fn parameters() {
        let query = Query::parse("a=x%2Cy+z&limit=5&w=maybe&dryRun=All");
        assert_eq!(query.text("a"), "x,y z");
        assert_eq!(query.number::<u32>("limit"), Ok(Some(5)));
        assert_eq!(query.dry_run(), Ok(true));
        assert!(query.flag("w").is_err());
        assert!(query.number::<u32>("a").is_err());
    }
}
