//! The API as a whole: one function from a request to an answer.
//!
//! Owns nothing that changes but what it shares: store, tokens, policy.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use hyper::http::request::Parts;
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;

use super::request::{Target, Wanted};
use super::response::{self, Response};
use super::{discovery, media, openapi};
use crate::auth::{Attributes, Authenticator, Authorizer, User};
use crate::error::ApiError;
use crate::objects::Context;
use crate::resources::{Keeping, Subresource};
use crate::store::{Key, Store, StoreError};
use crate::wire;

/// What the time is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Fills bytes at random.
pub type Randomness = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// The system's randomness.
pub fn system_randomness() -> Randomness {
    let random = SystemRandom::new();
    Arc::new(move |bytes| {
        if random.fill(bytes).is_err() {
            // The kernel's generator does not fail once it has started.
            tracing::error!("the system has no randomness");
        }
    })
}

/// Who is at the other end of a connection, as far as TLS tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// The user of the client certificate, if one was shown.
    pub user: Option<User>,
}

/// What an API is made of.
pub struct ApiParts {
    /// Objects.
    pub store: Arc<Store>,
    /// Tokens.
    pub authenticator: Authenticator,
    /// Policy.
    pub authorizer: Authorizer,
    /// Time.
    pub clock: Clock,
    /// Certificates of the CA, which each namespace gets a copy of.
    pub ca_pem: String,
    /// Whether new pods are given a token of their service account.
    pub mounts_tokens: bool,
    /// Randomness for uids and generated names.
    pub random: Randomness,
}

/// The API.
pub struct Api {
    pub(super) store: Arc<Store>,
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Authorizer,
    pub(super) clock: Clock,
    pub(super) ca_pem: String,
    pub(super) mounts_tokens: bool,
    random: Randomness,
}

/// A request whose sender is known and allowed to send it.
pub(super) struct Call<'a> {
    pub(super) wanted: Wanted,
    pub(super) user: User,
    pub(super) accept: &'a str,
    pub(super) content_type: &'a str,
    pub(super) body: &'a Bytes,
}

impl Api {
    /// An API over a store. [`Api::bootstrap`] fills in what every cluster has.
    pub fn new(parts: ApiParts) -> Self {
        let ApiParts { store, authenticator, authorizer, clock, ca_pem, mounts_tokens, random } =
            parts;
        Self { store, authenticator, authorizer, clock, ca_pem, mounts_tokens, random }
    }

    /// The store below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The policy.
    pub fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// The time, as the API sees it.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Answers a request. The body has been read, within a limit, by the caller.
    pub async fn handle(self: &Arc<Self>, head: &Parts, body: Bytes, peer: &Peer) -> Response {
        match self.answer(head, &body, peer).await {
            Ok(response) => response,
            Err(error) => response::error(&error),
        }
    }

    async fn answer(
        self: &Arc<Self>,
        head: &Parts,
        body: &Bytes,
        peer: &Peer,
    ) -> Result<Response, ApiError> {
        let header = |name: &hyper::header::HeaderName| {
            head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        let user = self.authenticate(header(&AUTHORIZATION), peer)?;
        let user = self.impersonate(user, head)?;
        let path = head.uri.path();
        let wanted = Wanted::parse(&head.method, path, head.uri.query().unwrap_or_default());
        self.authorize(&user, &wanted.attributes)?;
        if wanted.attributes.resource.is_empty() {
            return self.path(path, header(&ACCEPT));
        }
        let call = Call {
            wanted,
            user,
            accept: header(&ACCEPT),
            content_type: media::plain(header(&CONTENT_TYPE)),
            body,
        };
        self.resource(&call)
    }

    fn resource(self: &Arc<Self>, call: &Call<'_>) -> Result<Response, ApiError> {
        let target = call.wanted.target()?;
        let verb = call.wanted.attributes.verb.as_str();
        if target.shown.keeping == Keeping::Answered {
            return match verb {
                "create" => self.review(call, &target),
                _ => Err(ApiError::method_not_allowed(verb)),
            };
        }
        match (target.part, verb) {
            (Some(Subresource::Binding), "create") => self.bind(call, &target),
            (Some(Subresource::Eviction), "create") => self.evict(call, &target),
            (Some(Subresource::Token), "create") => self.issue_token(call, &target),
            (Some(Subresource::Binding | Subresource::Eviction | Subresource::Token), _) => {
                Err(ApiError::method_not_allowed(verb))
            }
            (_, "get") => self.get(call, &target),
            (_, "update") => self.update(call, &target),
            (_, "patch") => self.patch(call, &target),
            (None, "list") => self.list(call, &target),
            (None, "watch") => self.watch(call, &target),
            (None, "create") if call.wanted.attributes.name.is_empty() => {
                self.create(call, &target)
            }
            (None, "delete") => self.delete(call, &target),
            (None, "deletecollection") => self.delete_collection(call, &target),
            _ => Err(ApiError::method_not_allowed(verb)),
        }
    }

    /// Answers a request that is for no resource.
    fn path(&self, path: &str, accept: &str) -> Result<Response, ApiError> {
        match path {
            "/healthz" | "/livez" | "/readyz" => return Ok(response::text(200, "ok")),
            "/openid/v1/jwks" => return Ok(response::json(200, &self.authenticator.issuer.jwks())),
            "/.well-known/openid-configuration" => {
                let issuer = &self.authenticator.issuer.issuer;
                return Ok(response::json(200, &discovery::openid(issuer)));
            }
            _ => {}
        }
        let found = openapi::answer(path)
            .map(|body| response::json(200, &body))
            .or_else(|| discovery::answer(path, media::wants_aggregated_discovery(accept)));
        found.ok_or_else(ApiError::no_such_path)
    }

    fn authenticate(&self, authorization: &str, peer: &Peer) -> Result<User, ApiError> {
        if let Some(user) = &peer.user {
            return Ok(user.clone());
        }
        let scheme = authorization.get(..7).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer ") {
            return Ok(User::anonymous());
        }
        let token = authorization[7..].trim();
        match self.authenticator.token(token, &[], self.now()) {
            Ok(known) if !known.audiences.is_empty() => Ok(known.user),
            Ok(_) => Err(ApiError::unauthorized()),
            Err(error) => {
                tracing::debug!(%error, "refused a token");
                Err(ApiError::unauthorized())
            }
        }
    }

    /// Acts for somebody else, where the headers ask for it and policy allows it.
    fn impersonate(&self, user: User, head: &Parts) -> Result<User, ApiError> {
        let values = |name: &str| -> Vec<String> {
            let all = head.headers.get_all(name).iter();
            all.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
        };
        let (names, mut groups) = (values("impersonate-user"), values("impersonate-group"));
        let others = head.headers.keys().any(|key| {
            let key = key.as_str();
            key == "impersonate-uid" || key.starts_with("impersonate-extra-")
        });
        if others {
            return Err(ApiError::bad_request("only users and groups can be impersonated here"));
        }
        let Some(name) = names.first() else {
            if groups.is_empty() {
                return Ok(user);
            }
            return Err(ApiError::bad_request("impersonating groups needs Impersonate-User too"));
        };
        let wants = std::iter::once(("users", name)).chain(groups.iter().map(|g| ("groups", g)));
        for (resource, name) in wants {
            let attributes = Attributes {
                verb: "impersonate".to_owned(),
                resource: resource.to_owned(),
                name: name.clone(),
                ..Attributes::default()
            };
            self.authorize(&user, &attributes)?;
        }
        if name != "system:anonymous" {
            groups.push(crate::auth::AUTHENTICATED.to_owned());
        }
        Ok(User { name: name.clone(), groups, ..User::default() })
    }

    fn authorize(&self, user: &User, wanted: &Attributes) -> Result<(), ApiError> {
        if self.authorizer.decide(user, wanted).allowed {
            return Ok(());
        }
        Err(forbidden(user, wanted))
    }

    pub(super) fn context<'a>(&self, user: &'a User) -> Context<'a> {
        Context { now: self.now(), user, uid: self.uid(), suffix: self.suffix() }
    }

    /// A random uid: version 4, as upstream's are.
    pub(super) fn uid(&self) -> String {
        let mut bytes = self.random_bytes::<16>();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let letter = |byte: u8| char::from(LETTERS[usize::from(byte) % LETTERS.len()]);
        self.random_bytes::<5>().map(letter).iter().collect()
    }

    fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }
}

/// A refusal in upstream's words.
fn forbidden(user: &User, wanted: &Attributes) -> ApiError {
    let mut error = ApiError::forbidden(None, "", &wanted.refusal(user));
    if !wanted.resource.is_empty() {
        let target = match wanted.group.as_str() {
            "" => wanted.resource.clone(),
            group => format!("{}.{group}", wanted.resource),
        };
        let name = match wanted.name.as_str() {
            "" => String::new(),
            name => format!(" {name:?}"),
        };
        error.message = format!("{target}{name} is forbidden: {}", wanted.refusal(user));
        error.details = serde_json::json!({"kind": wanted.resource});
        for (key, value) in [("name", &wanted.name), ("group", &wanted.group)] {
            if !value.is_empty() {
                error.details[key] = value.as_str().into();
            }
        }
    }
    error
}

impl Target {
    /// Where an object of this resource is stored.
    pub(super) fn key(&self, name: &str) -> Key {
        Key {
            resource: self.stored.storage(),
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        }
    }

    /// What the store's answer means to a client.
    pub(super) fn error(&self, name: &str, error: StoreError) -> ApiError {
        match error {
            StoreError::Exists => ApiError::already_exists(self.shown, name),
            StoreError::Absent => ApiError::not_found(self.shown, name),
            StoreError::Stale(_) => ApiError::stale(self.shown, name),
            StoreError::Expired { .. } => ApiError::expired(error.to_string()),
            StoreError::Ahead { asked, current } => ApiError::too_large_revision(asked, current),
        }
    }
}

impl Call<'_> {
    /// The body as JSON; an empty one is null.
    pub(super) fn json(&self) -> Result<Value, ApiError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        match self.content_type {
            "" | "application/json" => serde_json::from_slice(self.body)
                .map_err(|error| ApiError::bad_request(format!("the body is not JSON: {error}"))),
            wire::CONTENT_TYPE => {
                wire::decode(self.body).map_err(|error| ApiError::bad_request(error.to_string()))
            }
            other => Err(ApiError::unsupported_media_type(other, "application/json")),
        }
    }

    pub(super) fn form(&self) -> Result<media::Form, ApiError> {
        media::form(self.accept, self.wanted.query.text("includeObject"))
    }
}
