//! What is wrong with the manifest behind the URL, for `klet why`.
//!
//! Owns the last word of the HTTP source, which alone writes it; the local endpoint
//! reads it. Nothing is decided from it. There is no such thing upstream.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use kubelet_model::manifest::{Claim, Origin};

use super::home::{Namesake, Wanted};

/// Why the URL's manifest cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTrouble {
    /// The URL.
    pub origin: Origin,
    /// What is wrong.
    pub problem: String,
    /// The pods it names; `None` if it could not be read.
    pub claims: Option<BTreeSet<Claim>>,
}

/// The last that is known of the URL. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct UrlNews(Arc<Mutex<Option<UrlTrouble>>>);

impl UrlNews {
    /// What is wrong, if something is.
    pub fn trouble(&self) -> Option<UrlTrouble> {
        self.lock().clone()
    }

    pub(super) fn set(&self, trouble: Option<UrlTrouble>) {
        *self.lock() = trouble;
    }

    fn lock(&self) -> MutexGuard<'_, Option<UrlTrouble>> {
        self.0.lock().expect("url lock: no code panics while holding it")
    }
}

impl UrlTrouble {
    /// The manifest, if it names a pod of this name.
    pub fn namesake(&self, node: &str, namespace: Option<&str>, name: &str) -> Option<Namesake> {
        let wanted = Wanted::new(node, namespace, name);
        let is_meant = |claim: &Claim| wanted.is(&claim.name, claim.namespace.as_deref());
        let meant = self.claims.iter().flatten().any(is_meant);
        meant.then(|| Namesake { origin: self.origin.clone(), problem: Some(self.problem.clone()) })
    }
}
