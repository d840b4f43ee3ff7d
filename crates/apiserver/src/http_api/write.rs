//! `create`, `update` and `patch`.
//!
//! Decides nothing about objects (see `objects`); reads, asks, writes, and starts
//! over where another writer was faster.
//! Upstream: apiserver pkg/endpoints/handlers (create.go, update.go, patch.go).

use serde_json::Value;

use super::api::{Api, Call};
use super::request::Target;
use super::response::{self, Response};
use crate::error::{ApiError, Cause};
use crate::json;
use crate::objects::{self, Preconditions};
use crate::patch::{self, Format, PatchError};
use crate::store::{StoreError, Stored};

/// How often a write without a revision is tried when others get in its way.
const TRIES: usize = 8;

/// An object that a client sent, in the form in which it is stored.
struct Sent {
    object: Value,
    warnings: Vec<String>,
}

impl Api {
    pub(super) fn create(&self, call: &Call<'_>, target: &Target) -> Result<Response, ApiError> {
        let form = call.form()?;
        let sent = self.sent(call, target, call.json()?)?;
        self.check_namespace(target)?;
        let stored = self.store_new(call, target, &sent.object)?;
        if target.stored.kind == "Namespace" && !call.wanted.query.dry_run()? {
            self.furnish_namespace(json::text(&stored, "metadata.name"));
        }
        let object = objects::from_storage(target.shown, stored);
        let mut response = response::json(201, &form.object(target.shown, object, self.now()));
        response::warn(&mut response, &sent.warnings);
        Ok(response)
    }

    fn store_new(&self, call: &Call<'_>, target: &Target, sent: &Value) -> Result<Value, ApiError> {
        let generated = json::text(sent, "metadata.name").is_empty();
        for attempt in 1.. {
            let context = self.context(&call.user);
            let object = objects::create(target.stored, &target.namespace, sent.clone(), &context)?;
            let object = self.complete(target, object, &context.suffix)?;
            let name = json::text(&object, "metadata.name").to_owned();
            let key = target.key(&name);
            if call.wanted.query.dry_run()? {
                return match self.store.get(&key) {
                    Some(_) => Err(ApiError::already_exists(target.shown, &name)),
                    None => Ok(object),
                };
            }
            match self.store.create(&key, object) {
                Ok(stored) => return Ok(stored.value()),
                Err(StoreError::Exists) if generated && attempt < TRIES => {}
                Err(error) => return Err(target.error(&name, error)),
            }
        }
        Err(ApiError::internal("no name was free"))
    }

    pub(super) fn update(&self, call: &Call<'_>, target: &Target) -> Result<Response, ApiError> {
        let body = call.json()?;
        let form = call.form()?;
        let sent = self.sent(call, target, body)?;
        let conditions = Preconditions::of(&sent.object);
        if conditions.resource_version.is_none() && !target.stored.unconditional_update {
            let why = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", "", why);
            return Err(ApiError::invalid(target.stored, &target.name, &[cause]));
        }
        let absent = self.store.get(&target.key(&target.name)).is_none();
        let (code, object) = if absent && target.part.is_none() && target.stored.create_on_update {
            if conditions.resource_version.is_some() {
                return Err(ApiError::not_found(target.shown, &target.name));
            }
            self.check_namespace(target)?;
            (201, self.store_new(call, target, &sent.object)?)
        } else {
            let pinned = conditions.resource_version.is_some();
            (200, self.change(call, target, pinned, |_| Ok(sent.object.clone()))?)
        };
        let object = objects::from_storage(target.shown, object);
        let mut response = response::json(code, &form.object(target.shown, object, self.now()));
        response::warn(&mut response, &sent.warnings);
        Ok(response)
    }

    pub(super) fn patch(&self, call: &Call<'_>, target: &Target) -> Result<Response, ApiError> {
        let form = call.form()?;
        let Some(format) = Format::of(call.content_type) else {
            let supported = "application/json-patch+json, application/merge-patch+json or \
                application/strategic-merge-patch+json (server-side apply is not served here; \
                kubectl apply works without --server-side)";
            return Err(ApiError::unsupported_media_type(call.content_type, supported));
        };
        let patch: Value = serde_json::from_slice(call.body)
            .map_err(|error| ApiError::bad_request(format!("the patch is not JSON: {error}")))?;
        let mut warnings = Vec::new();
        let pinned = !json::text(&patch, "metadata.resourceVersion").is_empty();
        let object = self.change(call, target, pinned, |old| {
            let shown = objects::from_storage(target.shown, old.clone());
            let patched = patch::apply(format, target.shown.kind, &shown, &patch)
                .map_err(|error| patch_error(target, &error))?;
            let sent = self.sent(call, target, patched)?;
            warnings = sent.warnings;
            Ok(sent.object)
        })?;
        let object = objects::from_storage(target.shown, object);
        let mut response = response::json(200, &form.object(target.shown, object, self.now()));
        response::warn(&mut response, &warnings);
        Ok(response)
    }

    /// Replaces an object by what `make` makes of it; again if another was faster,
    /// unless the client named the revision it knows.
    pub(super) fn change(
        &self,
        call: &Call<'_>,
        target: &Target,
        pinned: bool,
        mut make: impl FnMut(&Value) -> Result<Value, ApiError>,
    ) -> Result<Value, ApiError> {
        let key = target.key(&target.name);
        for _ in 0..TRIES {
            let absent = || ApiError::not_found(target.shown, &target.name);
            let stored = self.store.get(&key).ok_or_else(absent)?;
            let old = stored.value();
            let new = make(&old)?;
            Preconditions::of(&new).check(target.shown, &old)?;
            let mut new = objects::update(target.stored, target.part, &old, new)?;
            self.admit(call, target, &old, &new)?;
            json::copy(&old, &mut new, "metadata.resourceVersion");
            if new == old || call.wanted.query.dry_run()? {
                return Ok(new);
            }
            match self.replace(target, &stored, new) {
                Err(StoreError::Stale(_)) if !pinned => {}
                Ok(object) => return Ok(object),
                Err(error) => return Err(target.error(&target.name, error)),
            }
        }
        Err(ApiError::stale(target.shown, &target.name))
    }

    /// Writes an object, or removes it if it waited for nothing but this.
    fn replace(&self, target: &Target, old: &Stored, new: Value) -> Result<Value, StoreError> {
        let key = target.key(&target.name);
        if !objects::must_go(target.stored, &new) {
            return self.store.update(&key, old.revision, new).map(|stored| stored.value());
        }
        let stored = self.store.update(&key, old.revision, new)?;
        let gone = self.store.delete(&key, stored.revision)?.value();
        self.settle_namespace(&target.namespace);
        Ok(gone)
    }

    /// Reads what a client sent as its kind.
    fn sent(&self, call: &Call<'_>, target: &Target, mut body: Value) -> Result<Sent, ApiError> {
        if !body.is_object() {
            return Err(ApiError::bad_request("the body is not an object"));
        }
        let (kind, api_version) = (target.shown.kind, target.shown.api_version());
        for (field, value) in [("kind", kind), ("apiVersion", api_version.as_str())] {
            if json::text(&body, field).is_empty() {
                json::set(&mut body, field, value);
            }
        }
        let refused = |why: &str| {
            let version = target.shown.version;
            ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            ))
        };
        let decoded =
            objects::decode(target.shown.group, kind, body).map_err(|why| refused(&why))?;
        let unknown: Vec<String> =
            decoded.unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
        let warnings = match call.wanted.query.text("fieldValidation") {
            "Strict" if !unknown.is_empty() => {
                return Err(refused(&format!("strict decoding error: {}", unknown.join(", "))));
            }
            "Ignore" => Vec::new(),
            "" | "Warn" | "Strict" => unknown,
            other => {
                let message =
                    format!("fieldValidation is {other:?}; it may be Ignore, Warn or Strict");
                return Err(ApiError::bad_request(message));
            }
        };
        Ok(Sent { object: objects::to_storage(target.shown, decoded.object), warnings })
    }
}

fn patch_error(target: &Target, error: &PatchError) -> ApiError {
    match error {
        PatchError::Unreadable(_) => ApiError::bad_request(error.to_string()),
        PatchError::Refused(why) => {
            let cause = Cause::invalid("patch", "", why);
            ApiError::invalid(target.shown, &target.name, &[cause])
        }
    }
}
