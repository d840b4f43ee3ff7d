//! What the node writes of claims: how far the growth of their volumes has come.
//!
//! Owns nothing; reads one claim and writes its status, with the node's own
//! credentials. Never decides whether a volume grows. Upstream:
//! pkg/volume/util/resize_util.go.

mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use api_client::{Api, ApiError, Call, Patch, path};
use jiff::Timestamp;
use kubelet_model::quote;
use serde_json::Value;

pub use plan::Mark;

/// Reads and marks claims. Cheap to clone.
#[derive(Clone)]
pub struct Claims(Arc<dyn Api>);

/// A claim is not marked, in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error("patchPVCStatus failed to patch PVC {}: {error}", quote::go(.claim))]
pub struct NotMarked {
    claim: String,
    error: ApiError,
}

impl Claims {
    /// Those of an API server.
    pub fn new(api: Arc<dyn Api>) -> Self {
        Self(api)
    }

    /// A claim, as it is this moment.
    ///
    /// # Errors
    /// There is none, or the server does not say.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Value, ApiError> {
        self.0.call(Call::get(&place(namespace, &[name]))).await
    }

    /// Marks a claim. Returns it as it is then.
    ///
    /// # Errors
    /// The server refuses, or is away; or somebody else changed a claim that must be the
    /// one that was read.
    pub async fn mark(
        &self,
        claim: &Value,
        mark: &Mark,
        now: Timestamp,
    ) -> Result<Value, NotMarked> {
        let Some(patch) = plan::patch(claim, mark, now) else { return Ok(claim.clone()) };
        let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
        let at = place(text("namespace"), &[text("name"), "status"]);
        let asked = self.0.call(Call::patch(&at, Patch::Strategic, patch)).await;
        asked.map_err(|error| NotMarked { claim: text("name").to_owned(), error })
    }
}

fn place(namespace: &str, rest: &[&str]) -> String {
    let mut parts = vec!["persistentvolumeclaims"];
    parts.extend(rest);
    path("api/v1", namespace, &parts)
}
