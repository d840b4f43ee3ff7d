//! Which certificate a pod asks to be given.
//!
//! Pure. What is asked for is the name of an object like others that a pod's files come
//! from. Upstream: PodCertificateProjection in the core API.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodCertificateProjection;
use serde::{Deserialize, Serialize};

use crate::ids::PodUid;
use crate::object::{ObjectKey, ObjectKind};
use crate::{DesiredPod, EventObject};

/// Under which value an object keeps the private key.
pub const KEY: &str = "key";
/// Under which value it keeps the certificates.
pub const CHAIN: &str = "chain";

/// A request for a certificate of a pod, for one source of one of its volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateAsk {
    /// The pod's namespace.
    #[serde(skip)]
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
    /// The pod's service account.
    pub account: String,
    /// The volume.
    pub volume: String,
    /// Which of the volume's sources.
    pub source: usize,
    /// Who is to sign it.
    pub signer: String,
    /// What kind of key it is for.
    pub key_type: String,
    /// How long it may hold at most.
    pub max_seconds: Option<i32>,
    /// What the signer is told besides.
    pub annotations: BTreeMap<String, String>,
}

impl CertificateAsk {
    /// What a source of a pod's volume asks for.
    pub fn of_source(
        pod: &DesiredPod,
        volume: &str,
        source: usize,
        of: &PodCertificateProjection,
    ) -> Self {
        let account = pod.spec().service_account_name.clone().filter(|name| !name.is_empty());
        Self {
            namespace: pod.namespace().to_owned(),
            pod: pod.name().to_owned(),
            uid: pod.uid().as_str().to_owned(),
            account: account.unwrap_or_else(|| "default".to_owned()),
            volume: volume.to_owned(),
            source,
            signer: of.signer_name.clone(),
            key_type: of.key_type.clone(),
            max_seconds: of.max_expiration_seconds,
            annotations: of.user_annotations.clone().unwrap_or_default(),
        }
    }

    /// The object that answers this.
    pub fn key(&self) -> ObjectKey {
        // Strings, numbers and a map with string keys only.
        let name = serde_json::to_string(self).expect("a request can be written as JSON");
        ObjectKey::new(ObjectKind::PodCertificate, &self.namespace, &name)
    }

    /// What an object answers, if it is of this kind.
    pub fn of(key: &ObjectKey) -> Option<Self> {
        let text = Some(&key.name).filter(|_| key.kind == ObjectKind::PodCertificate)?;
        let ask: Self = serde_json::from_str(text).ok()?;
        Some(Self { namespace: key.namespace.clone(), ..ask })
    }

    /// Whom events are about.
    pub fn object(&self) -> EventObject {
        EventObject::Pod {
            uid: PodUid::new(self.uid.as_str()),
            name: self.pod.clone(),
            namespace: self.namespace.clone(),
            field_path: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_what_was_asked_for() {
        let ask = CertificateAsk {
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u-1".to_owned(),
            account: "default".to_owned(),
            volume: "v".to_owned(),
            source: 2,
            signer: "example.com/a".to_owned(),
            key_type: "ED25519".to_owned(),
            max_seconds: Some(3600),
            annotations: BTreeMap::from([("example.com/x".to_owned(), "/\"y".to_owned())]),
        };
        assert_eq!(CertificateAsk::of(&ask.key()), Some(ask.clone()));
        assert_eq!(ask.key().namespace, "ns");
        let other = CertificateAsk { source: 3, ..ask.clone() };
        assert_ne!(other.key(), ask.key());
        let secret = ObjectKey { kind: ObjectKind::Secret, ..ask.key() };
        assert_eq!(CertificateAsk::of(&secret), None);
    }
}
