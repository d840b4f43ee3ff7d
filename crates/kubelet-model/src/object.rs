//! ConfigMaps and Secrets: what pods read their configuration from; and
//! PersistentVolumes and claims, which say where their data is, and what a cluster says
//! of drivers and attached volumes.
//!
//! Pure. Holds secrets and never prints them. Upstream: pkg/apis/core/types.go.

use std::collections::BTreeMap;
use std::fmt;

use crate::typed;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Plain configuration.
    ConfigMap,
    /// Configuration that nobody else may read.
    Secret,
    /// A place for data that outlives pods.
    PersistentVolume,
    /// A pod's name for such a place.
    PersistentVolumeClaim,
    /// By which a pod proves who it is; its name says what was asked for.
    ServiceAccountToken,
    /// What a CSI driver wants to be told.
    CsiDriver,
    /// A volume's way to a node.
    VolumeAttachment,
    /// Whom a pod trusts; its name says which bundles were asked for.
    ClusterTrustBundle,
    /// By which a pod proves who it is, with a key of its own; its name says what was
    /// asked for.
    PodCertificate,
}

impl ObjectKind {
    /// The kind, as manifests name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::ServiceAccountToken => "ServiceAccountToken",
            Self::CsiDriver => "CSIDriver",
            Self::VolumeAttachment => "VolumeAttachment",
            Self::ClusterTrustBundle => "ClusterTrustBundle",
            Self::PodCertificate => "PodCertificate",
        }
    }

    /// The kind, as an API server's errors name it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::PersistentVolume => "persistentvolume",
            Self::PersistentVolumeClaim => "persistentvolumeclaim",
            Self::ServiceAccountToken => "token",
            Self::CsiDriver => "csidriver.storage.k8s.io",
            Self::VolumeAttachment => "volumeattachments.storage.k8s.io",
            Self::ClusterTrustBundle => "clustertrustbundle",
            Self::PodCertificate => "podcertificate",
        }
    }
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its namespace; empty for what has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// A key of these parts.
    pub fn new(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind.as_str(), self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind.as_str(), self.name),
        }
    }
}

/// Under which value a PersistentVolume, a claim and the like keep their spec, as JSON.
pub(crate) const SPEC: &str = "spec";
/// The same of their status, which only an API server's have.
const STATUS: &str = "status";
/// The same of what is said about the object, of an API server's only.
const METADATA: &str = "metadata";

/// A ConfigMap, a Secret, a PersistentVolume or a claim.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigObject {
    /// Which it is.
    pub key: ObjectKey,
    /// Tells it from others that have its name at other times or places.
    pub uid: String,
    /// What a Secret says it is for, such as `kubernetes.io/dockerconfigjson`.
    pub secret_type: String,
    /// Values; those of a ConfigMap are text.
    pub data: BTreeMap<String, Vec<u8>>,
    /// Values of a ConfigMap that are no text; never environment variables.
    pub binary: BTreeMap<String, Vec<u8>>,
}

impl ConfigObject {
    /// A value by its key, text or not.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).or_else(|| self.binary.get(key)).map(Vec::as_slice)
    }

    /// Every value by its key.
    pub fn values(&self) -> impl Iterator<Item = (&String, &Vec<u8>)> {
        self.data.iter().chain(&self.binary)
    }

    /// The spec of a PersistentVolume or a claim.
    pub fn spec<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        typed::from_json(self.data.get(SPEC)?).ok()
    }

    /// The status of an object of an API server.
    pub fn status<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        typed::from_json(self.data.get(STATUS)?).ok()
    }

    /// What is said about an object of an API server: what keeps it, whose it is,
    /// annotations. Nothing for an object of a manifest.
    pub fn metadata<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        typed::from_json(self.data.get(METADATA)?).ok()
    }

    /// Bytes of all values.
    pub fn size(&self) -> usize {
        self.values().map(|(_, value)| value.len()).sum()
    }
}

/// Keys, but no values.
impl fmt::Debug for ConfigObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&String> = self.values().map(|(key, _)| key).collect();
        f.debug_struct("ConfigObject").field("key", &self.key).field("keys", &keys).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_never_printed() {
        let object = ConfigObject {
            key: ObjectKey::new(ObjectKind::Secret, "ns", "s"),
            uid: String::new(),
            secret_type: String::new(),
            data: BTreeMap::from([("password".to_owned(), b"hunter2".to_vec())]),
            binary: BTreeMap::new(),
        };
        let shown = format!("{object:?} {:?} {}", object.data.keys(), object.key);
        assert!(shown.contains("password") && shown.ends_with("Secret ns/s"), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("104"), "{shown}");
        assert_eq!((object.size(), object.value("password")), (7, Some(b"hunter2".as_slice())));
    }
}
