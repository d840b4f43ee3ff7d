//! One change of one object.

use super::{Key, Stored};

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// It was replaced.
    Updated,
    /// It is gone; the change carries its last state.
    Deleted,
}

/// A change, with the object before and after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// To which object.
    pub key: Key,
    /// The object after it; of a deletion its last state, at the deletion's revision.
    pub object: Stored,
    /// The object before it, if it existed.
    pub before: Option<Stored>,
}

impl Change {
    /// An object that is there already, told as if it had just been created.
    pub(super) fn existing(resource: &str, place: &(String, String), object: Stored) -> Self {
        let (namespace, name) = place.clone();
        let key = Key { resource: resource.to_owned(), namespace, name };
        Self { kind: ChangeKind::Created, key, object, before: None }
    }

    /// Whether it is of this resource and namespace (empty: all of them).
    pub(super) fn concerns(&self, resource: &str, namespace: &str) -> bool {
        self.key.resource == resource && (namespace.is_empty() || self.key.namespace == namespace)
    }
}
