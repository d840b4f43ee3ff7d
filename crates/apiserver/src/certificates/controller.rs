//! The task that approves nodes' requests and signs approved ones.
//!
//! Reads and writes signing requests in the store, as anybody could through the
//! API. Upstream: pkg/controller/certificates (approver, signer).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::authority::Authority;
use super::check::{self, Request};
use crate::auth::{Attributes, User};
use crate::http_api::Api;
use crate::json;
use crate::objects::time;
use crate::store::{Change, ChangeKind, Signal, Start};

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";
/// The least a request may ask for; upstream's limit.
const SHORTEST: i64 = 600;

/// What the task works with.
pub struct CertificateController {
    /// The API whose requests it looks at.
    pub api: Arc<Api>,
    /// Signs.
    pub authority: Arc<Authority>,
    /// Whether requests of nodes are approved that policy lets them have.
    pub approves_nodes: bool,
    /// How long certificates last, unless a request asks for less.
    pub lifetime: SignedDuration,
}

/// Looks at every signing request, for as long as it is polled.
pub async fn run(controller: CertificateController) {
    let store = Arc::clone(controller.api.store());
    // Cut off for being slow, it looks at everything again.
    while let Ok(mut watcher) = store.watch(REQUESTS, "", Start::WithObjects) {
        while let Some(signal) = watcher.next().await {
            if let Signal::Change(change) = signal {
                controller.consider(&change);
            }
        }
        tokio::task::yield_now().await;
    }
}

impl CertificateController {
    fn consider(&self, change: &Change) {
        if change.kind == ChangeKind::Deleted {
            return;
        }
        let object = change.object.value();
        let signer = json::text(&object, "spec.signerName");
        let settled = has(&object, "Denied") || has(&object, "Failed");
        let issued = !json::text(&object, "status.certificate").is_empty();
        if settled || issued || !check::is_ours(signer) {
            return;
        }
        let Some(new) = self.next(&object, signer) else { return };
        // Somebody who was faster makes this look again.
        let _ = self.api.store().update(&change.key, change.object.revision, new);
    }

    /// The request after what is to be done with it, if anything is.
    fn next(&self, object: &Value, signer: &str) -> Option<Value> {
        let read = check::read(object);
        if !has(object, "Approved") {
            let request = read.ok().filter(|_| self.approves_nodes)?;
            return self.approved(object, &request);
        }
        let failed = |why: &str| {
            Some(with_condition(object, "Failed", "SignerValidationFailure", why, self.api.now()))
        };
        let request = match read {
            Ok(request) => request,
            Err(why) => return failed(&why),
        };
        if let Some(why) = check::complaint(signer, &request) {
            return failed(why);
        }
        let asked = json::at(object, "spec.expirationSeconds").as_i64();
        let asked = asked.map(|seconds| SignedDuration::from_secs(seconds.max(SHORTEST)));
        let lifetime = asked.map_or(self.lifetime, |asked| asked.min(self.lifetime));
        let usages = check::usages(&request);
        match self.authority.sign(&request.pem, usages, lifetime, self.api.now()) {
            Ok(certificate) => {
                let mut signed = object.clone();
                json::set(&mut signed, "status.certificate", STANDARD.encode(certificate));
                Some(signed)
            }
            Err(error) => failed(&error.to_string()),
        }
    }

    fn approved(&self, object: &Value, request: &Request) -> Option<Value> {
        let permission = check::approving_permission(object, request)?;
        let user = User {
            name: json::text(object, "spec.username").to_owned(),
            uid: json::text(object, "spec.uid").to_owned(),
            groups: json::texts(object, "spec.groups").map(str::to_owned).collect(),
            ..User::default()
        };
        let wanted = Attributes {
            verb: "create".to_owned(),
            group: "certificates.k8s.io".to_owned(),
            resource: "certificatesigningrequests".to_owned(),
            subresource: permission.to_owned(),
            ..Attributes::default()
        };
        if !self.api.authorizer().decide(&user, &wanted).allowed {
            return None;
        }
        let why = match permission {
            "selfnodeclient" => {
                "Auto approving self kubelet client certificate after SubjectAccessReview."
            }
            _ => "Auto approving kubelet client certificate after SubjectAccessReview.",
        };
        Some(with_condition(object, "Approved", "AutoApproved", why, self.api.now()))
    }
}

fn has(object: &Value, word: &str) -> bool {
    json::items(object, "status.conditions").iter().any(|condition| condition["type"] == word)
}

fn with_condition(
    object: &Value,
    word: &str,
    reason: &str,
    message: &str,
    now: jiff::Timestamp,
) -> Value {
    let mut conditions = json::items(object, "status.conditions").to_vec();
    let at = time(now);
    conditions.push(json!({
        "type": word, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": at, "lastTransitionTime": at,
    }));
    let mut new = object.clone();
    json::set(&mut new, "status.conditions", conditions);
    new
}
