//! Questions that are answered and not stored: whose token is this, may somebody
//! do that.
//!
//! Upstream: pkg/registry/authentication, pkg/registry/authorization.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::api::{Api, Call};
use super::request::Target;
use super::response::{self, Response};
use crate::auth::{Attributes, User};
use crate::error::{ApiError, Cause};
use crate::json;
use crate::objects;

impl Api {
    pub(super) fn review(&self, call: &Call<'_>, target: &Target) -> Result<Response, ApiError> {
        let mut body = call.json()?;
        if body.is_null() {
            body = json!({});
        }
        json::set(&mut body, "kind", target.shown.kind);
        json::set(&mut body, "apiVersion", target.shown.api_version());
        let decoded = objects::decode(target.shown.group, target.shown.kind, body)
            .map_err(ApiError::bad_request)?;
        let mut question = decoded.object;
        question["status"] = match target.shown.kind {
            "TokenReview" => self.review_token(target, &question)?,
            "SelfSubjectReview" => json!({"userInfo": call.user.info()}),
            "SelfSubjectAccessReview" => self.review_access(target, &call.user, &question)?,
            _ => {
                let user = subject(&question);
                if user.name.is_empty() && user.groups.is_empty() {
                    let cause = Cause::required(
                        "spec.user",
                        "at least one of user or group must be specified",
                    );
                    return Err(ApiError::invalid(target.shown, "", &[cause]));
                }
                let namespace = json::text(&question, "spec.resourceAttributes.namespace");
                if target.shown.namespaced && namespace != target.namespace {
                    let why = "must match metadata.namespace";
                    let cause = Cause::invalid("spec.resourceAttributes.namespace", namespace, why);
                    return Err(ApiError::invalid(target.shown, "", &[cause]));
                }
                self.review_access(target, &user, &question)?
            }
        };
        Ok(response::json(201, &question))
    }

    fn review_token(&self, target: &Target, question: &Value) -> Result<Value, ApiError> {
        let token = json::text(question, "spec.token");
        if token.is_empty() {
            let cause = Cause::required("spec.token", "the token to review");
            return Err(ApiError::invalid(target.shown, "", &[cause]));
        }
        let audiences: Vec<String> =
            json::texts(question, "spec.audiences").map(str::to_owned).collect();
        Ok(match self.authenticator.token(token, &audiences, self.now()) {
            Ok(known) => json!({
                "authenticated": true, "user": known.user.info(), "audiences": known.audiences,
            }),
            Err(error) => json!({"user": {}, "error": error.to_string()}),
        })
    }

    fn review_access(
        &self,
        target: &Target,
        user: &User,
        question: &Value,
    ) -> Result<Value, ApiError> {
        let resource = json::at(question, "spec.resourceAttributes");
        let path = json::at(question, "spec.nonResourceAttributes");
        let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
        let wanted = match (resource.is_object(), path.is_object()) {
            (true, false) => Attributes {
                verb: text(resource, "verb"),
                group: text(resource, "group"),
                resource: text(resource, "resource"),
                subresource: text(resource, "subresource"),
                namespace: text(resource, "namespace"),
                name: text(resource, "name"),
                path: String::new(),
            },
            (false, true) => Attributes {
                verb: text(path, "verb"),
                path: text(path, "path"),
                ..Attributes::default()
            },
            _ => {
                let why =
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                let cause = Cause::invalid("spec.resourceAttributes", "", why);
                return Err(ApiError::invalid(target.shown, "", &[cause]));
            }
        };
        let decision = self.authorizer.decide(user, &wanted);
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            status["reason"] = decision.reason.into();
        }
        Ok(status)
    }
}

fn subject(question: &Value) -> User {
    let mut extra = BTreeMap::new();
    for (key, values) in json::at(question, "spec.extra").as_object().into_iter().flatten() {
        let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        extra.insert(key.clone(), values.map(str::to_owned).collect());
    }
    User {
        name: json::text(question, "spec.user").to_owned(),
        uid: json::text(question, "spec.uid").to_owned(),
        groups: json::texts(question, "spec.groups").map(str::to_owned).collect(),
        extra,
    }
}
