//! `get` and `list`.
//!
//! Reads the store. A list that is not transformed is put together from stored
//! bytes. Upstream: apiserver pkg/endpoints/handlers/get.go, pkg/storage/continue.go.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::api::{Api, Call};
use super::media::Form;
use super::request::Target;
use super::response::{self, Response};
use crate::error::ApiError;
use crate::objects::from_storage;
use crate::select::Selector;
use crate::store::{Listing, StoreError, Stored};

type Place = (String, String);

/// A page of a list.
struct Page {
    items: Vec<Stored>,
    revision: u64,
    /// Where the next page starts, and how many objects are left.
    next: Option<(Place, usize)>,
}

impl Api {
    pub(super) fn get(&self, call: &Call<'_>, target: &Target) -> Result<Response, ApiError> {
        let form = call.form()?;
        let stored = self
            .store
            .get(&target.key(&target.name))
            .ok_or_else(|| ApiError::not_found(target.shown, &target.name))?;
        if form == Form::Objects && target.shown.stored_as.is_none() {
            return Ok(response::raw(200, "application/json", stored.bytes));
        }
        let object = from_storage(target.shown, stored.value());
        Ok(response::json(200, &form.object(target.shown, object, self.now())))
    }

    pub(super) fn list(
        self: &Arc<Self>,
        call: &Call<'_>,
        target: &Target,
    ) -> Result<Response, ApiError> {
        let form = call.form()?;
        let selector = self.selector(call, target)?;
        let page = self.page(call, target, &selector)?;
        let mut meta = json!({"resourceVersion": page.revision.to_string()});
        if let Some((place, left)) = &page.next {
            meta["continue"] = continue_token(page.revision, place).into();
            // With a selector nobody knows how many of the rest it takes.
            if selector.takes_all() {
                meta["remainingItemCount"] = (*left).into();
            }
        }
        if form == Form::Objects && target.shown.stored_as.is_none() {
            return Ok(response::raw(200, "application/json", join(target, &meta, &page.items)));
        }
        let shown = |stored: &Stored| from_storage(target.shown, stored.value());
        let items: Vec<Value> = page.items.iter().map(shown).collect();
        Ok(response::json(200, &form.list(target.shown, &items, &meta, self.now())))
    }

    pub(super) fn selector(&self, call: &Call<'_>, target: &Target) -> Result<Selector, ApiError> {
        let query = &call.wanted.query;
        Selector::parse(target.stored, query.text("labelSelector"), query.text("fieldSelector"))
    }

    fn page(
        &self,
        call: &Call<'_>,
        target: &Target,
        selector: &Selector,
    ) -> Result<Page, ApiError> {
        let query = &call.wanted.query;
        let limit = query.number::<usize>("limit")?.filter(|limit| *limit > 0);
        let (resource, namespace) = (target.stored.storage(), target.namespace.as_str());
        let (listing, start) = match query.text("continue") {
            "" => (self.listing(call, target)?, None),
            token => {
                let (revision, place) = read_continue_token(token)?;
                let listing = self
                    .store
                    .list_at(&resource, namespace, revision)
                    .map_err(|error| continue_error(target, error))?;
                (listing, Some(place))
            }
        };
        let mut page = Page { items: Vec::new(), revision: listing.revision, next: None };
        let items = listing.items.into_iter();
        let mut rest = items.skip_while(|(place, _)| start.as_ref().is_some_and(|s| place < s));
        while let Some((place, stored)) = rest.next() {
            if !selector.takes_all() && !selector.takes(&stored.value()) {
                continue;
            }
            if limit == Some(page.items.len()) {
                page.next = Some((place, 1 + rest.count()));
                break;
            }
            page.items.push(stored);
        }
        Ok(page)
    }

    fn listing(&self, call: &Call<'_>, target: &Target) -> Result<Listing, ApiError> {
        let query = &call.wanted.query;
        let (resource, namespace) = (target.stored.storage(), target.namespace.as_str());
        let asked = query.number::<u64>("resourceVersion")?;
        let failed = |error| target.error("", error);
        match (query.text("resourceVersionMatch"), asked) {
            ("Exact", Some(revision)) if revision > 0 => {
                self.store.list_at(&resource, namespace, revision).map_err(failed)
            }
            ("" | "NotOlderThan", asked) => {
                let listing = self.store.list(&resource, namespace);
                match asked {
                    Some(asked) if asked > listing.revision => {
                        Err(ApiError::too_large_revision(asked, listing.revision))
                    }
                    _ => Ok(listing),
                }
            }
            (other, _) => Err(ApiError::bad_request(format!(
                "resourceVersionMatch is {other:?}; it may be Exact, with a resourceVersion above 0, or NotOlderThan"
            ))),
        }
    }
}

/// A list made of stored bytes, without decoding them.
fn join(target: &Target, meta: &Value, items: &[Stored]) -> Vec<u8> {
    let (kind, api_version) = (target.shown.kind, target.shown.api_version());
    let head = format!(
        r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{meta},"items":["#
    );
    let size: usize = items.iter().map(|stored| stored.bytes.len() + 1).sum();
    let mut body = Vec::with_capacity(head.len() + size + 2);
    body.extend_from_slice(head.as_bytes());
    for (index, stored) in items.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&stored.bytes);
    }
    body.extend_from_slice(b"]}");
    body
}

fn continue_token(revision: u64, (namespace, name): &Place) -> String {
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": [namespace, name]});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn read_continue_token(token: &str) -> Result<(u64, Place), ApiError> {
    let wrong = || ApiError::bad_request("continue key is not valid");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
    let revision = token["rv"].as_u64().ok_or_else(wrong)?;
    let part = |index: usize| token["start"][index].as_str().map(str::to_owned);
    Ok((revision, (part(0).ok_or_else(wrong)?, part(1).ok_or_else(wrong)?)))
}

fn continue_error(target: &Target, error: StoreError) -> ApiError {
    match error {
        StoreError::Expired { .. } => ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. \
             You must start a new list without the continue parameter.",
        ),
        other => target.error("", other),
    }
}
