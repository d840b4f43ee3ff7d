//! What is asked of an API server for a pod to prove who it is.
//!
//! Pure. A token is an object like others that a pod's files come from; which one it
//! is follows from what was asked for.

use std::collections::BTreeMap;

use crate::object::{ConfigObject, ObjectKey, ObjectKind};

/// Under which value an object keeps its token.
pub const TOKEN: &str = "token";
/// The same of when it ends.
pub const EXPIRES: &str = "expirationTimestamp";

/// A request for a token of a service account, bound to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenAsk {
    /// The account's namespace, and the pod's.
    pub namespace: String,
    /// The account.
    pub account: String,
    /// For whom the token is meant; empty for the API server.
    pub audience: String,
    /// How long it should hold; zero leaves it to the API server.
    pub seconds: i64,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
}

impl TokenAsk {
    /// The object that answers this.
    pub fn key(&self) -> ObjectKey {
        let Self { namespace, account, audience, seconds, pod, uid } = self;
        // No name or uid holds a slash; an audience may, so it comes last.
        let name = format!("{account}/{pod}/{uid}/{seconds}/{audience}");
        ObjectKey { kind: ObjectKind::ServiceAccountToken, namespace: namespace.clone(), name }
    }

    /// What an object answers, if it is a token.
    pub fn of(key: &ObjectKey) -> Option<Self> {
        let mut parts = key.name.splitn(5, '/').map(str::to_owned);
        let mut next = || parts.next().filter(|_| key.kind == ObjectKind::ServiceAccountToken);
        let (account, pod, uid, seconds) = (next()?, next()?, next()?, next()?.parse().ok()?);
        let (namespace, audience) = (key.namespace.clone(), next()?);
        Some(Self { namespace, account, audience, seconds, pod, uid })
    }
}

/// Stands for a token that cannot be had for now: its file is left out until there is
/// one. Nobody gives tokens while the API server is away.
pub fn withheld(key: &ObjectKey) -> ConfigObject {
    ConfigObject {
        key: key.clone(),
        uid: String::new(),
        secret_type: String::new(),
        data: BTreeMap::new(),
        binary: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_what_was_asked_for() {
        for audience in ["", "https://example.com/a/b", "vault"] {
            let ask = TokenAsk {
                namespace: "ns".to_owned(),
                account: "default".to_owned(),
                audience: audience.to_owned(),
                seconds: 3607,
                pod: "web-0".to_owned(),
                uid: "u-1".to_owned(),
            };
            assert_eq!(TokenAsk::of(&ask.key()), Some(ask));
        }
        let map = ObjectKey::new(ObjectKind::ConfigMap, "ns", "a/b/c/1/");
        assert_eq!(TokenAsk::of(&map), None);
    }
}
