//! Whether somebody may: always, or as the API server says.
//!
//! Upstream: authorizer/webhook.

use std::sync::Arc;
use std::time::Duration;

use api_client::Api;
use serde_json::{Map, Value, json};

use super::User;
use super::memory::Memory;
use super::review::{Reviewer, hide, secret};

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Decisions that are remembered.
const REMEMBERED: usize = 8192;

/// `authorization` of the configuration.
#[derive(Clone)]
pub enum AuthorizationOptions {
    /// Whoever is known may do anything.
    AlwaysAllow,
    /// The API server says.
    Webhook {
        /// Whom to ask.
        api: Arc<dyn Api>,
        /// `webhook.cacheAuthorizedTTL`.
        authorized_ttl: Duration,
        /// `webhook.cacheUnauthorizedTTL`.
        unauthorized_ttl: Duration,
    },
}

/// Why somebody may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// They may not.
    Denied(String),
    /// Nobody could say.
    Unknown(String),
}

pub(crate) struct Authorizer {
    node: String,
    webhook: Option<Webhook>,
}

struct Webhook {
    reviewer: Reviewer,
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
    secret: ring::hmac::Key,
    known: Memory<bool>,
}

impl Authorizer {
    pub(crate) fn new(options: AuthorizationOptions, node: String) -> Self {
        let webhook = match options {
            AuthorizationOptions::AlwaysAllow => None,
            AuthorizationOptions::Webhook { api, authorized_ttl, unauthorized_ttl } => {
                Some(Webhook {
                    reviewer: Reviewer::new(api),
                    authorized_ttl,
                    unauthorized_ttl,
                    secret: secret(),
                    known: Memory::new(REMEMBERED),
                })
            }
        };
        Self { node, webhook }
    }

    /// May this user do this to one of these parts of the node?
    pub(crate) async fn allow(
        &self,
        user: &User,
        verb: &str,
        parts: &[&str],
    ) -> Result<(), Refusal> {
        let Some(webhook) = &self.webhook else { return Ok(()) };
        for part in parts {
            match webhook.ask(user, verb, &self.node, part).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(user = user.name, verb, part, %error, "nobody can say whether a request is allowed");
                    return Err(Refusal::Unknown(format!(
                        "Authorization error (user={}, verb={verb}, resource=nodes, subresource={part})",
                        user.name
                    )));
                }
            }
        }
        Err(Refusal::Denied(format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            parts.join(" ")
        )))
    }
}

impl Webhook {
    async fn ask(&self, user: &User, verb: &str, node: &str, part: &str) -> Result<bool, String> {
        let spec = spec(user, verb, node, part);
        let key = hide(&self.secret, spec.to_string().as_bytes());
        if let Some(known) = self.known.get(&key) {
            return Ok(known);
        }
        let question = json!({"apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview", "spec": spec});
        let status = self.reviewer.review(PATH, &question).await;
        let status = status.map_err(|error| error.to_string())?;
        let allowed = status["allowed"] == true;
        if allowed && status["denied"] == true {
            return Err("the review says both that it is allowed and that it is not".to_owned());
        }
        self.known.put(
            key,
            allowed,
            if allowed { self.authorized_ttl } else { self.unauthorized_ttl },
        );
        Ok(allowed)
    }
}

fn spec(user: &User, verb: &str, node: &str, part: &str) -> Value {
    let mut spec = json!({
        "user": user.name,
        "groups": user.groups,
        "resourceAttributes": {
            "verb": verb, "version": "v1", "resource": "nodes", "subresource": part, "name": node,
        },
    });
    if !user.uid.is_empty() {
        spec["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        let mut extra = Map::new();
        for (key, values) in &user.extra {
            extra.insert(key.clone(), json!(values));
        }
        spec["extra"] = extra.into();
    }
    spec
}
