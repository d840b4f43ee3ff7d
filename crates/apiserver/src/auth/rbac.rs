//! The authorizer: the policy of the stored roles and bindings.
//!
//! Owns a policy that it makes anew once a role or binding has changed. Reads the
//! store.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::policy::{Attributes, Decision, Objects, Policy};
use super::{MASTERS, User};
use crate::store::Store;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Decides whether users may do things.
#[derive(Debug)]
pub struct Authorizer {
    store: Arc<Store>,
    made: Mutex<(u64, Arc<Policy>)>,
}

impl Authorizer {
    /// An authorizer of the roles in a store.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, made: Mutex::new((0, Arc::default())) }
    }

    /// Whether a user may do this.
    pub fn decide(&self, user: &User, wanted: &Attributes) -> Decision {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        self.policy().decide(user, wanted)
    }

    fn policy(&self) -> Arc<Policy> {
        let names = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"]
            .map(|plural| format!("{plural}.{GROUP}"));
        let changed = names.iter().map(|name| self.store.changed(name)).max().unwrap_or_default();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.0 != changed {
            let [roles, cluster_roles, role_bindings, cluster_role_bindings] =
                names.map(|name| self.read(&name));
            let objects = Objects { roles, cluster_roles, role_bindings, cluster_role_bindings };
            *made = (changed, Arc::new(Policy::new(&objects)));
        }
        Arc::clone(&made.1)
    }

    fn read(&self, resource: &str) -> Vec<Value> {
        let listing = self.store.list(resource, "");
        listing.items.iter().map(|(_, stored)| stored.value()).collect()
    }
}
