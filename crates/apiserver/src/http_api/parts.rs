//! Parts of objects that are sent something of another kind: `binding`,
//! `eviction`, `token`.
//!
//! Upstream: pkg/registry/core/pod/storage (storage.go, eviction.go),
//! pkg/registry/core/serviceaccount/storage/token.go.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::api::{Api, Call};
use super::delete::Deleted;
use super::request::Target;
use super::response::{self, Response};
use crate::auth::{Bound, Claims};
use crate::error::{ApiError, Cause};
use crate::json;
use crate::objects::{self, DeleteOptions, Preconditions};
use crate::resources::Subresource;
use crate::store::{Key, StoreError};

/// Seconds a token lasts: by default, at least, at most.
const TOKEN_SECONDS: (i64, i64, i64) = (3600, 600, 1 << 32);
const TRIES: usize = 8;

impl Api {
    pub(super) fn bind(&self, call: &Call<'_>, target: &Target) -> Result<Response, ApiError> {
        let binding = self.read_part(call, Subresource::Binding)?;
        let key = target.key(&target.name);
        let context = self.context(&call.user);
        for _ in 0..TRIES {
            let absent = || ApiError::not_found(target.shown, &target.name);
            let stored = self.store.get(&key).ok_or_else(absent)?;
            let bound = objects::bind(target.stored, &stored.value(), &binding, &context)?;
            if call.wanted.query.dry_run()? {
                return Ok(created());
            }
            match self.store.update(&key, stored.revision, bound) {
                Ok(_) => return Ok(created()),
                Err(StoreError::Stale(_)) => {}
                Err(error) => return Err(target.error(&target.name, error)),
            }
        }
        Err(ApiError::stale(target.shown, &target.name))
    }

    /// There are no disruption budgets here: an eviction is a deletion.
    pub(super) fn evict(&self, call: &Call<'_>, target: &Target) -> Result<Response, ApiError> {
        let eviction = self.read_part(call, Subresource::Eviction)?;
        let options = DeleteOptions { dry_run: call.wanted.query.dry_run()?, ..Default::default() };
        let options = options.with_body(&eviction["deleteOptions"])?;
        let (Deleted::Gone(_) | Deleted::Marked(_)) =
            self.remove(target, &target.name, &options)?;
        Ok(created())
    }

    pub(super) fn issue_token(
        &self,
        call: &Call<'_>,
        target: &Target,
    ) -> Result<Response, ApiError> {
        let mut request = self.read_part(call, Subresource::Token)?;
        let stored = self
            .store
            .get(&target.key(&target.name))
            .ok_or_else(|| ApiError::not_found(target.shown, &target.name))?;
        let account = stored.value();
        let (default, min, max) = TOKEN_SECONDS;
        let seconds = json::at(&request, "spec.expirationSeconds").as_i64().unwrap_or(default);
        if !(min..=max).contains(&seconds) {
            let why = format!("must be between {min} and {max}");
            let cause = Cause::invalid("spec.expirationSeconds", &seconds.to_string(), &why);
            return Err(ApiError::invalid(target.shown, &target.name, &[cause]));
        }
        let longest = self.authenticator.issuer.lifetime_max.map(|max| max.as_secs());
        let seconds = longest.map_or(seconds, |longest| seconds.min(longest));
        let mut audiences: Vec<String> =
            json::texts(&request, "spec.audiences").map(str::to_owned).collect();
        if audiences.is_empty() {
            audiences.push(self.authenticator.issuer.issuer.clone());
        }
        let now = self.now();
        let mut claims = Claims {
            id: self.uid(),
            namespace: target.namespace.clone(),
            account: Bound {
                name: target.name.clone(),
                uid: json::text(&account, "metadata.uid").to_owned(),
            },
            audiences: audiences.clone(),
            issued: now,
            expires: now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now),
            ..Claims::default()
        };
        self.bind_token(target, &mut claims, json::at(&request, "spec.boundObjectRef"))?;
        let token = self
            .authenticator
            .issuer
            .sign(&claims)
            .map_err(|error| ApiError::internal(error.to_string()))?;
        json::set(&mut request, "metadata.name", target.name.as_str());
        json::set(&mut request, "metadata.namespace", target.namespace.as_str());
        json::set(&mut request, "metadata.creationTimestamp", objects::time(now));
        json::set(&mut request, "spec.audiences", audiences);
        json::set(&mut request, "spec.expirationSeconds", seconds);
        request["status"] =
            json!({"token": token, "expirationTimestamp": objects::time(claims.expires)});
        Ok(response::json(201, &request))
    }

    /// Writes into a token what it is bound to.
    fn bind_token(
        &self,
        target: &Target,
        claims: &mut Claims,
        reference: &Value,
    ) -> Result<(), ApiError> {
        if reference.is_null() {
            return Ok(());
        }
        let (kind, name) = (json::text(reference, "kind"), json::text(reference, "name"));
        let (plural, namespace) = match kind {
            "Pod" => ("pods", target.namespace.as_str()),
            "Secret" => ("secrets", target.namespace.as_str()),
            "Node" => ("nodes", ""),
            other => {
                let message = format!("cannot bind token to object of type {other:?}");
                return Err(ApiError::bad_request(message));
            }
        };
        let object = self.look_up(plural, namespace, name)?;
        let uid = json::text(&object, "metadata.uid").to_owned();
        let resource =
            crate::resources::find("", "v1", plural).ok_or_else(ApiError::no_such_path)?;
        let known = Some(json::text(reference, "uid")).filter(|uid| !uid.is_empty());
        Preconditions { uid: known.map(str::to_owned), resource_version: None }
            .check(resource, &object)?;
        let bound = Some(Bound { name: name.to_owned(), uid });
        match kind {
            "Pod" => {
                if json::text(&object, "spec.serviceAccountName") != target.name {
                    return Err(ApiError::bad_request(format!(
                        "cannot bind token for serviceaccount {:?} to pod running with different \
                         serviceaccount name",
                        target.name
                    )));
                }
                let node = json::text(&object, "spec.nodeName");
                // A node that is not registered yet has no uid to tell.
                if let Ok(node_object) = self.look_up("nodes", "", node) {
                    let uid = json::text(&node_object, "metadata.uid").to_owned();
                    claims.node = Some(Bound { name: node.to_owned(), uid });
                }
                claims.pod = bound;
            }
            "Secret" => claims.secret = bound,
            _ => claims.node = bound,
        }
        Ok(())
    }

    pub(super) fn look_up(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, ApiError> {
        let resource =
            crate::resources::find("", "v1", plural).ok_or_else(ApiError::no_such_path)?;
        let key = Key {
            resource: resource.storage(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let stored = self.store.get(&key).ok_or_else(|| ApiError::not_found(resource, name))?;
        Ok(stored.value())
    }

    /// Reads what was sent to a part as the kind that the part takes.
    fn read_part(&self, call: &Call<'_>, part: Subresource) -> Result<Value, ApiError> {
        let (group, version, kind) =
            part.own_kind().ok_or_else(|| ApiError::method_not_allowed(part.name()))?;
        let mut body = call.json()?;
        if body.is_null() {
            body = json!({});
        }
        let api_version =
            if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        json::set(&mut body, "kind", kind);
        json::set(&mut body, "apiVersion", api_version);
        let decoded = objects::decode(group, kind, body)
            .map_err(|why| ApiError::bad_request(format!("the body is not a {kind}: {why}")))?;
        Ok(decoded.object)
    }
}

fn created() -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    response::json(201, &status)
}
