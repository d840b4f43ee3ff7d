//! Which object, and how an API server lets a node read objects of its kind. Pure.
//!
//! Upstream: plugin/pkg/auth/authorizer/node says what a node may list.

use std::fmt;

use api_client::{Selection, path};
use kubelet_model::{ObjectKey, ObjectKind, quote};
use serde_json::Value;

/// How objects of a resource are kept up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Means {
    /// As the configuration says: ConfigMaps and Secrets.
    Configured,
    /// By watch, always.
    Watch,
    /// By reading one, always: a node may not list them.
    Get,
}

/// A kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// Where it is served, such as `api/v1`.
    pub api: &'static str,
    /// As paths name it.
    pub plural: &'static str,
    /// As upstream's errors name it.
    pub shown: &'static str,
    /// How it is read.
    pub means: Means,
}

impl Resource {
    const fn new(
        api: &'static str,
        plural: &'static str,
        shown: &'static str,
        means: Means,
    ) -> Self {
        Self { api, plural, shown, means }
    }
}

/// Plain configuration.
pub const CONFIG_MAPS: Resource =
    Resource::new("api/v1", "configmaps", "configmap", Means::Configured);
/// Configuration that nobody else may read.
pub const SECRETS: Resource = Resource::new("api/v1", "secrets", "secret", Means::Configured);
/// Places for data that outlives pods.
pub const VOLUMES: Resource =
    Resource::new("api/v1", "persistentvolumes", "persistentvolumes", Means::Get);
/// Pods' names for such places.
pub const CLAIMS: Resource =
    Resource::new("api/v1", "persistentvolumeclaims", "persistentvolumeclaims", Means::Get);
/// Who attached which volume where.
pub const ATTACHMENTS: Resource = Resource::new(
    "apis/storage.k8s.io/v1",
    "volumeattachments",
    "volumeattachments.storage.k8s.io",
    Means::Get,
);
/// What CSI drivers want to be told.
pub const CSI_DRIVERS: Resource =
    Resource::new("apis/storage.k8s.io/v1", "csidrivers", "csidriver.storage.k8s.io", Means::Watch);
/// Handlers that pods name.
pub const RUNTIME_CLASSES: Resource = Resource::new(
    "apis/node.k8s.io/v1",
    "runtimeclasses",
    "runtimeclass.node.k8s.io",
    Means::Watch,
);
/// Certificates that pods trust.
pub const TRUST_BUNDLES: Resource = Resource::new(
    "apis/certificates.k8s.io/v1beta1",
    "clustertrustbundles",
    "clustertrustbundle.certificates.k8s.io",
    Means::Watch,
);
/// Services, whose addresses pods get as variables.
pub const SERVICES: Resource = Resource::new("api/v1", "services", "service", Means::Watch);

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Its kind.
    pub resource: Resource,
    /// Its namespace; empty for what has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Address {
    /// An address of these parts.
    pub fn new(resource: Resource, namespace: &str, name: &str) -> Self {
        Self { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Where an object is; `None` for what is made when it is asked for.
    pub fn of(key: &ObjectKey) -> Option<Self> {
        let resource = match key.kind {
            ObjectKind::ConfigMap => CONFIG_MAPS,
            ObjectKind::Secret => SECRETS,
            ObjectKind::PersistentVolume => VOLUMES,
            ObjectKind::PersistentVolumeClaim => CLAIMS,
            ObjectKind::CsiDriver => CSI_DRIVERS,
            ObjectKind::VolumeAttachment => ATTACHMENTS,
            ObjectKind::ServiceAccountToken
            | ObjectKind::ClusterTrustBundle
            | ObjectKind::PodCertificate => return None,
        };
        Some(Self::new(resource, &key.namespace, &key.name))
    }

    /// What manifests call it, if they know its kind.
    pub fn key(&self) -> Option<ObjectKey> {
        let kind = match self.resource {
            CONFIG_MAPS => ObjectKind::ConfigMap,
            SECRETS => ObjectKind::Secret,
            VOLUMES => ObjectKind::PersistentVolume,
            CLAIMS => ObjectKind::PersistentVolumeClaim,
            CSI_DRIVERS => ObjectKind::CsiDriver,
            ATTACHMENTS => ObjectKind::VolumeAttachment,
            _ => return None,
        };
        Some(ObjectKey::new(kind, &self.namespace, &self.name))
    }

    /// Path of the object.
    pub(super) fn path(&self) -> String {
        path(self.resource.api, &self.namespace, &[self.resource.plural, &self.name])
    }

    /// A selection that holds the object alone.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            path: path(self.resource.api, &self.namespace, &[self.resource.plural]),
            query: vec![("fieldSelector", format!("metadata.name={}", escaped(&self.name)))],
        }
    }

    /// Is it this object, and no other that a server sent?
    pub(super) fn names(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        metadata["name"] == self.name.as_str()
            && metadata["namespace"].as_str().unwrap_or_default() == self.namespace
    }

    /// What users are told of an object that is not there.
    pub(super) fn not_found(&self) -> String {
        format!("{} {} not found", self.resource.shown, quote::go(&self.name))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.resource.shown, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.resource.shown, self.name),
        }
    }
}

/// A value of a field selector: no name may end it early.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_paths_and_words() {
        let path = |resource, namespace, name| Address::new(resource, namespace, name).path();
        assert_eq!(path(SECRETS, "ns", "s"), "/api/v1/namespaces/ns/secrets/s");
        assert_eq!(path(RUNTIME_CLASSES, "", "r"), "/apis/node.k8s.io/v1/runtimeclasses/r");
        assert_eq!(path(VOLUMES, "", "../x"), "/api/v1/persistentvolumes/..%2Fx");
        let at = Address::new(CONFIG_MAPS, "ns", "a,b=c");
        let alone = at.selection();
        assert_eq!(alone.path, "/api/v1/namespaces/ns/configmaps");
        assert_eq!(alone.query, [("fieldSelector", r"metadata.name=a\,b\=c".to_owned())]);
        assert_eq!(at.not_found(), "configmap \"a,b=c\" not found");
        assert_eq!(at.to_string(), "configmap ns/a,b=c");
    }

    #[test]
    fn keys_and_addresses_name_the_same() {
        use ObjectKind::{ConfigMap, CsiDriver, PersistentVolume, PersistentVolumeClaim, Secret};
        let kinds = [ConfigMap, Secret, PersistentVolume, PersistentVolumeClaim, CsiDriver];
        for kind in kinds.into_iter().chain([ObjectKind::VolumeAttachment]) {
            let key = ObjectKey::new(kind, "ns", "n");
            assert_eq!(Address::of(&key).unwrap().key(), Some(key));
        }
        assert_eq!(Address::new(SERVICES, "ns", "n").key(), None);
    }
}
