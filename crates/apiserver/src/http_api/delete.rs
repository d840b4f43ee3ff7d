//! `delete` and `deletecollection`.
//!
//! `objects::plan_delete` decides; this performs.

use serde_json::{Value, json};

use super::api::{Api, Call};
use super::request::Target;
use super::response::{self, Response};
use crate::error::ApiError;
use crate::json;
use crate::objects::{DeleteOptions, DeletePlan, from_storage, plan_delete};
use crate::store::StoreError;

/// How often a deletion is tried when others write the object meanwhile.
const TRIES: usize = 8;

/// What became of an object.
pub(super) enum Deleted {
    /// It is gone; this was its last state.
    Gone(Value),
    /// It stays for a while, marked.
    Marked(Value),
}

impl Api {
    pub(super) fn delete(&self, call: &Call<'_>, target: &Target) -> Result<Response, ApiError> {
        let form = call.form()?;
        let deleted = self.remove(target, &target.name, &self.delete_options(call)?)?;
        let object = match deleted {
            Deleted::Gone(object) if !returns_object(target) => {
                return Ok(response::json(200, &success(target, &object)));
            }
            Deleted::Gone(object) | Deleted::Marked(object) => object,
        };
        let object = from_storage(target.shown, object);
        Ok(response::json(200, &form.object(target.shown, object, self.now())))
    }

    pub(super) fn delete_collection(
        &self,
        call: &Call<'_>,
        target: &Target,
    ) -> Result<Response, ApiError> {
        let form = call.form()?;
        let options = self.delete_options(call)?;
        let selector = self.selector(call, target)?;
        let listing = self.store.list(&target.stored.storage(), &target.namespace);
        let mut items = Vec::new();
        for ((namespace, name), stored) in listing.items {
            if !selector.takes(&stored.value()) {
                continue;
            }
            let target = Target { namespace, ..target.clone() };
            match self.remove(&target, &name, &options) {
                Ok(Deleted::Gone(object) | Deleted::Marked(object)) => {
                    items.push(from_storage(target.shown, object));
                }
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let meta = json!({"resourceVersion": self.store.revision().to_string()});
        Ok(response::json(200, &form.list(target.shown, &items, &meta, self.now())))
    }

    fn delete_options(&self, call: &Call<'_>) -> Result<DeleteOptions, ApiError> {
        let query = &call.wanted.query;
        let options = DeleteOptions {
            grace: query.number("gracePeriodSeconds")?,
            dry_run: query.dry_run()?,
            ..DeleteOptions::default()
        };
        options.with_body(&call.json()?)
    }

    /// Deletes one object, as far as it can go now.
    pub(super) fn remove(
        &self,
        target: &Target,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let key = target.key(name);
        for _ in 0..TRIES {
            let absent = || ApiError::not_found(target.shown, name);
            let stored = self.store.get(&key).ok_or_else(absent)?;
            let object = stored.value();
            options.preconditions.check(target.shown, &object)?;
            let plan = plan_delete(target.stored, &object, options, self.now());
            if options.dry_run {
                return Ok(match plan {
                    DeletePlan::Remove => Deleted::Gone(object),
                    DeletePlan::Mark(marked) => Deleted::Marked(marked),
                    DeletePlan::Wait => Deleted::Marked(object),
                });
            }
            let done = match plan {
                DeletePlan::Wait => return Ok(Deleted::Marked(object)),
                DeletePlan::Mark(marked) => {
                    let stored = self.store.update(&key, stored.revision, marked);
                    stored.map(|stored| Deleted::Marked(stored.value()))
                }
                DeletePlan::Remove => self
                    .store
                    .delete(&key, stored.revision)
                    .map(|stored| Deleted::Gone(stored.value())),
            };
            match done {
                Ok(deleted) => return Ok(self.after(target, name, deleted)),
                Err(StoreError::Stale(_)) => {}
                Err(error) => return Err(target.error(name, error)),
            }
        }
        Err(ApiError::stale(target.shown, name))
    }

    fn after(&self, target: &Target, name: &str, deleted: Deleted) -> Deleted {
        match &deleted {
            Deleted::Gone(_) => self.settle_namespace(&target.namespace),
            Deleted::Marked(_) if target.stored.kind == "Namespace" => self.empty_namespace(name),
            Deleted::Marked(_) => {}
        }
        deleted
    }
}

/// Kinds whose last state is the answer to their deletion, as upstream.
fn returns_object(target: &Target) -> bool {
    let kinds = [
        "Pod",
        "Service",
        "ServiceAccount",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "VolumeAttachment",
        "CSIDriver",
        "CSINode",
    ];
    kinds.contains(&target.shown.kind)
}

fn success(target: &Target, object: &Value) -> Value {
    let mut details = json!({
        "name": json::text(object, "metadata.name"), "kind": target.shown.plural,
        "uid": json::text(object, "metadata.uid"),
    });
    if !target.shown.group.is_empty() {
        details["group"] = target.shown.group.into();
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
