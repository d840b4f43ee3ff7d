//! The API without a network, for whoever lives in the same process.
//!
//! Requests go through the same checks as those from a socket: only the sender is
//! known beforehand. Makes an API with nothing around it, too: no certificates, no
//! listener, no tasks.

use std::sync::Arc;

use api_client::{ApiError, Call, WatchEvent, Watching};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use serde_json::Value;

use crate::auth::{Authenticator, Authorizer, TokenIssuer};
use crate::http_api::{Api, ApiParts, Body, Clock, Peer, Randomness, Response, system_randomness};
use crate::{Store, User};

/// An API and who asks it.
#[derive(Clone)]
pub struct Direct {
    api: Arc<Api>,
    peer: Peer,
}

impl Direct {
    /// Asks as this user.
    pub fn new(api: Arc<Api>, user: User) -> Self {
        Self { api, peer: Peer { user: Some(user) } }
    }

    /// An API of its own, whose user may do everything.
    ///
    /// # Errors
    /// A key for tokens cannot be made, or what every cluster has cannot be stored.
    pub fn alone(clock: Clock, remembered_changes: usize) -> Result<Self, crate::StartError> {
        Self::with_randomness(clock, remembered_changes, system_randomness())
    }

    /// The same, whose uids and names are drawn from elsewhere, so that they can be
    /// the same each time.
    ///
    /// # Errors
    /// As for [`Direct::alone`].
    pub fn with_randomness(
        clock: Clock,
        remembered_changes: usize,
        random: Randomness,
    ) -> Result<Self, crate::StartError> {
        let store = Arc::new(Store::new(remembered_changes));
        let issuer = TokenIssuer::generate("https://kubernetes.default.svc")?;
        let api = Arc::new(Api::new(ApiParts {
            authenticator: Authenticator::new(issuer, Vec::new(), Arc::clone(&store)),
            authorizer: Authorizer::new(Arc::clone(&store)),
            store,
            clock,
            ca_pem: String::new(),
            mounts_tokens: false,
            random,
        }));
        api.bootstrap()?;
        let groups = vec!["system:masters".to_owned()];
        let user = User { name: "admin".to_owned(), groups, ..User::default() };
        Ok(Self::new(api, user))
    }

    /// The API.
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }

    async fn ask(&self, call: Call) -> Result<Response, ApiError> {
        let unusable = |error: hyper::http::Error| ApiError::Unusable(error.to_string());
        let mut request = hyper::Request::builder().method(call.method).uri(call.path);
        let body = match call.body {
            Some((kind, value)) => {
                request = request.header(CONTENT_TYPE, kind);
                Bytes::from(value.to_string())
            }
            None => Bytes::new(),
        };
        let (head, ()) = request.body(()).map_err(unusable)?.into_parts();
        let response = self.api.handle(&head, body, &self.peer).await;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(|text| text.parse().ok()).map(std::time::Duration::from_secs);
        let status = whole(response).await.unwrap_or_default();
        Err(ApiError::of_status(&status, code, after))
    }
}

async fn whole(response: Response) -> Result<Value, ApiError> {
    let Ok(body) = response.into_body().collect().await;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| ApiError::Unusable(error.to_string()))
}

#[async_trait]
impl api_client::Api for Direct {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        whole(self.ask(call).await?).await
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        let response = self.ask(Call::get(path)).await?;
        Ok(Box::new(DirectWatch(response.into_body())))
    }
}

/// Each frame of the body is one line.
struct DirectWatch(Body);

#[async_trait]
impl Watching for DirectWatch {
    async fn next(&mut self) -> Option<Result<WatchEvent, ApiError>> {
        loop {
            let Ok(frame) = self.0.frame().await?;
            let Ok(line) = frame.into_data() else { continue };
            if !line.trim_ascii().is_empty() {
                return Some(WatchEvent::read(&line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use api_client::{Api as _, Change};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn calls_watches_and_refusals() {
        let api = Direct::alone(Arc::new(jiff::Timestamp::now), 100).unwrap();
        let path = "/api/v1/namespaces/default/configmaps";
        let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        let made = api.call(Call::post(path, map.clone())).await.unwrap();
        let revision = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let mut watch =
            api.watch(&format!("{path}?watch=true&resourceVersion={revision}")).await.unwrap();
        assert_eq!(api.call(Call::post(path, map)).await.unwrap_err().code(), Some(409));
        api.call(Call::delete(&format!("{path}/a"), json!({}))).await.unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap().change, Change::Deleted);
        let nobody = Direct::new(Arc::clone(api.api()), User::default());
        assert_eq!(nobody.call(Call::get(path)).await.unwrap_err().code(), Some(403));
    }
}
