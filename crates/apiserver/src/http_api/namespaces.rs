//! Namespaces: what each has from its start, and how it ends.
//!
//! Does what upstream's controllers of namespaces, service accounts and root
//! certificates do, at once instead of later. Writes the store.
//! Upstream: pkg/controller/namespace, serviceaccount, certificates/rootcacertpublisher.

use serde_json::{Value, json};

use super::api::Api;
use super::request::Target;
use crate::auth::{User, bootstrap_objects};
use crate::error::ApiError;
use crate::json;
use crate::objects::{self, DeleteOptions};
use crate::resources::{self, Keeping, RESOURCES, Resource};

/// Namespaces of every cluster.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

impl Api {
    /// Stores what every cluster starts with, where it is missing.
    ///
    /// # Errors
    /// If one of these objects is refused.
    pub fn bootstrap(&self) -> Result<(), ApiError> {
        for name in NAMESPACES {
            self.add(
                "",
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            )?;
            self.furnish_namespace(name);
        }
        bootstrap_objects().into_iter().try_for_each(|object| self.add("", object))
    }

    /// Stores an object of the server's own, unless it is there.
    ///
    /// # Errors
    /// If the object is refused, or of no known kind.
    pub fn add(&self, namespace: &str, object: Value) -> Result<(), ApiError> {
        let api_version = json::text(&object, "apiVersion");
        let (group, _) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = resources::find_kind(group, json::text(&object, "kind"))
            .ok_or_else(ApiError::no_such_path)?;
        let user = User::server();
        let object = objects::create(resource, namespace, object, &self.context(&user))?;
        let target = target(resource, namespace);
        let name = json::text(&object, "metadata.name").to_owned();
        // One that is there stays as it is.
        let _ = self.store.create(&target.key(&name), object);
        Ok(())
    }

    /// Gives a new namespace its service account and the root certificates.
    pub(super) fn furnish_namespace(&self, namespace: &str) {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let roots = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"},
            "data": {"ca.crt": self.ca_pem},
        });
        for object in [account, roots] {
            if let Err(error) = self.add(namespace, object) {
                tracing::error!(namespace, %error, "cannot furnish a namespace");
            }
        }
    }

    /// Refuses new objects in a namespace that is not there or is ending.
    pub(super) fn check_namespace(&self, to: &Target) -> Result<(), ApiError> {
        if !to.stored.namespaced {
            return Ok(());
        }
        let name = to.namespace.as_str();
        let namespaces = self.namespaces()?;
        let stored = self
            .store
            .get(&namespaces.key(name))
            .ok_or_else(|| ApiError::not_found(namespaces.shown, name))?;
        if json::at(&stored.value(), "metadata.deletionTimestamp").is_null() {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {name} because it is being terminated"
        );
        Err(ApiError::forbidden(Some(to.shown), &to.name, &why))
    }

    /// Deletes everything in a namespace that is ending, then the namespace if that is all.
    pub(super) fn empty_namespace(&self, namespace: &str) {
        for resource in contents() {
            let target = target(resource, namespace);
            let listing = self.store.list(&resource.storage(), namespace);
            for ((_, name), _) in listing.items {
                // What is gone already, or stays for a while, is settled later.
                let _ = self.remove(&target, &name, &DeleteOptions::default());
            }
        }
        self.settle_namespace(namespace);
    }

    /// Removes a namespace that is ending and empty.
    pub(super) fn settle_namespace(&self, namespace: &str) {
        let Ok(namespaces) = self.namespaces() else { return };
        let key = namespaces.key(namespace);
        let Some(stored) = self.store.get(&key) else { return };
        let mut object = stored.value();
        let ending = !json::at(&object, "metadata.deletionTimestamp").is_null();
        let empty =
            || contents().all(|r| self.store.list(&r.storage(), namespace).items.is_empty());
        if !ending || !empty() {
            return;
        }
        json::remove(&mut object, "spec.finalizers");
        if objects::must_go(namespaces.stored, &object) {
            // Whoever was faster settles it after his own change.
            let _ = self.store.delete(&key, stored.revision);
        }
    }

    fn namespaces(&self) -> Result<Target, ApiError> {
        let resource = resources::find_kind("", "Namespace").ok_or_else(ApiError::no_such_path)?;
        Ok(target(resource, ""))
    }
}

fn contents() -> impl Iterator<Item = &'static Resource> {
    RESOURCES
        .iter()
        .filter(|r| r.namespaced && r.keeping == Keeping::Stored && r.stored_as.is_none())
}

fn target(resource: &'static Resource, namespace: &str) -> Target {
    Target {
        shown: resource,
        stored: resource,
        namespace: namespace.to_owned(),
        name: String::new(),
        part: None,
    }
}
