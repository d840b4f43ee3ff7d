//! Which resources exist, and the facts about each that the rest is generic over.
//!
//! Pure; a table and look-ups in it. Nothing else in this crate lists kinds except
//! where a kind has rules of its own (`objects/`) or columns (`http_api/table.rs`).
//! Upstream: pkg/apis/*/register.go, pkg/registry/*/storage.

/// A part of an object with an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// `status`: the observed half of an object.
    Status,
    /// `binding`: assigns a pod to a node.
    Binding,
    /// `eviction`: asks for a pod's deletion.
    Eviction,
    /// `resize`: requests and limits of a running pod.
    Resize,
    /// `ephemeralcontainers`: containers added to a running pod.
    EphemeralContainers,
    /// `token`: issues a token of a service account.
    Token,
    /// `approval`: the verdict on a signing request.
    Approval,
    /// `finalize`: the finalizers of a namespace.
    Finalize,
}

impl Subresource {
    /// The last part of its address.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Resize => "resize",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Token => "token",
            Self::Approval => "approval",
            Self::Finalize => "finalize",
        }
    }

    /// What is sent to it, where that is not the object itself: group, version, kind.
    pub fn own_kind(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Binding => Some(("", "v1", "Binding")),
            Self::Eviction => Some(("policy", "v1", "Eviction")),
            Self::Token => Some(("authentication.k8s.io", "v1", "TokenRequest")),
            _ => None,
        }
    }
}

/// What the server does with objects of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// They are stored.
    Stored,
    /// They are questions: answered, never stored.
    Answered,
}

/// Facts about one resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for the core one.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Name in addresses.
    pub plural: &'static str,
    /// Name of one.
    pub singular: &'static str,
    /// Kind of its objects.
    pub kind: &'static str,
    /// Short names that clients offer.
    pub short: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Parts with addresses of their own.
    pub subresources: &'static [Subresource],
    /// Whether objects are stored.
    pub keeping: Keeping,
    /// Which stored objects these are, if another resource shows the same ones.
    pub stored_as: Option<&'static str>,
    /// Whether `metadata.generation` counts changes of what is asked for.
    pub generation: bool,
    /// Whether an update of an absent object creates it.
    pub create_on_update: bool,
    /// Whether an update may leave out `metadata.resourceVersion`.
    pub unconditional_update: bool,
    /// Whether a status that a client sends at creation is kept.
    pub keeps_status_at_creation: bool,
}

const STATUS: &[Subresource] = &[Subresource::Status];

const fn of(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource {
        group,
        version,
        plural,
        singular,
        kind,
        short: &[],
        namespaced: false,
        subresources: &[],
        keeping: Keeping::Stored,
        stored_as: None,
        generation: false,
        create_on_update: false,
        unconditional_update: true,
        keeps_status_at_creation: false,
    }
}

const fn core(plural: &'static str, singular: &'static str, kind: &'static str) -> Resource {
    of("", "v1", plural, singular, kind)
}

const fn question(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource { keeping: Keeping::Answered, ..of(group, "v1", plural, "", kind) }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// Every resource that this server knows.
pub static RESOURCES: &[Resource] = &[
    Resource {
        namespaced: true,
        short: &["po"],
        generation: true,
        subresources: &[
            Subresource::Status,
            Subresource::Binding,
            Subresource::Eviction,
            Subresource::Resize,
            Subresource::EphemeralContainers,
        ],
        ..core("pods", "pod", "Pod")
    },
    Resource {
        short: &["no"],
        subresources: STATUS,
        keeps_status_at_creation: true,
        ..core("nodes", "node", "Node")
    },
    Resource {
        namespaced: true,
        short: &["svc"],
        subresources: STATUS,
        ..core("services", "service", "Service")
    },
    Resource {
        namespaced: true,
        short: &["ep"],
        create_on_update: true,
        ..core("endpoints", "endpoints", "Endpoints")
    },
    Resource {
        short: &["ns"],
        subresources: &[Subresource::Status, Subresource::Finalize],
        ..core("namespaces", "namespace", "Namespace")
    },
    Resource { namespaced: true, ..core("secrets", "secret", "Secret") },
    Resource { namespaced: true, short: &["cm"], ..core("configmaps", "configmap", "ConfigMap") },
    Resource {
        namespaced: true,
        short: &["sa"],
        subresources: &[Subresource::Token],
        ..core("serviceaccounts", "serviceaccount", "ServiceAccount")
    },
    Resource {
        namespaced: true,
        short: &["ev"],
        create_on_update: true,
        ..core("events", "event", "Event")
    },
    Resource {
        short: &["pv"],
        subresources: STATUS,
        ..core("persistentvolumes", "persistentvolume", "PersistentVolume")
    },
    Resource {
        namespaced: true,
        short: &["pvc"],
        subresources: STATUS,
        ..core("persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim")
    },
    Resource {
        namespaced: true,
        create_on_update: true,
        unconditional_update: false,
        ..of("coordination.k8s.io", "v1", "leases", "lease", "Lease")
    },
    Resource {
        short: &["csr"],
        subresources: &[Subresource::Status, Subresource::Approval],
        ..of(
            CERTIFICATES,
            "v1",
            "certificatesigningrequests",
            "certificatesigningrequest",
            "CertificateSigningRequest",
        )
    },
    of(CERTIFICATES, "v1beta1", "clustertrustbundles", "clustertrustbundle", "ClusterTrustBundle"),
    Resource {
        namespaced: true,
        subresources: STATUS,
        ..of(
            CERTIFICATES,
            "v1beta1",
            "podcertificaterequests",
            "podcertificaterequest",
            "PodCertificateRequest",
        )
    },
    of(STORAGE, "v1", "csidrivers", "csidriver", "CSIDriver"),
    of(STORAGE, "v1", "csinodes", "csinode", "CSINode"),
    Resource {
        subresources: STATUS,
        ..of(STORAGE, "v1", "volumeattachments", "volumeattachment", "VolumeAttachment")
    },
    of("node.k8s.io", "v1", "runtimeclasses", "runtimeclass", "RuntimeClass"),
    Resource {
        namespaced: true,
        short: &["ev"],
        create_on_update: true,
        stored_as: Some("events"),
        ..of("events.k8s.io", "v1", "events", "event", "Event")
    },
    Resource {
        namespaced: true,
        generation: true,
        ..of("discovery.k8s.io", "v1", "endpointslices", "endpointslice", "EndpointSlice")
    },
    Resource { namespaced: true, ..of(RBAC, "v1", "roles", "role", "Role") },
    Resource { namespaced: true, ..of(RBAC, "v1", "rolebindings", "rolebinding", "RoleBinding") },
    of(RBAC, "v1", "clusterroles", "clusterrole", "ClusterRole"),
    of(RBAC, "v1", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding"),
    question("authentication.k8s.io", "tokenreviews", "TokenReview"),
    question("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    question("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    question("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    Resource {
        namespaced: true,
        ..question("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview")
    },
];

impl Resource {
    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Plural with its group, as messages name it.
    pub fn qualified(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Under which name its objects are stored.
    pub fn storage(&self) -> String {
        self.stored_as.map_or_else(|| self.qualified(), str::to_owned)
    }

    /// Whether it has this part.
    pub fn has(&self, part: Subresource) -> bool {
        self.subresources.contains(&part)
    }

    /// What clients may do with it, as discovery tells.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self.keeping {
            Keeping::Stored => {
                &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            }
            Keeping::Answered => &["create"],
        }
    }
}

/// Finds a resource by its place in an address.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
}

/// Finds a resource by group and kind.
pub fn find_kind(group: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.group == group && r.kind == kind)
}

/// Groups with their versions, in the order of the table.
pub fn group_versions() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in RESOURCES {
        match groups.iter_mut().find(|(group, _)| *group == resource.group) {
            Some((_, versions)) if versions.contains(&resource.version) => {}
            Some((_, versions)) => versions.push(resource.version),
            None => groups.push((resource.group, vec![resource.version])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_found_by_its_own_address() {
        for resource in RESOURCES {
            let found = find(resource.group, resource.version, resource.plural).unwrap();
            assert!(std::ptr::eq(found, resource), "{} is listed twice", resource.qualified());
        }
    }

    #[test]
    fn both_apis_of_events_show_the_same_objects() {
        let old = find("", "v1", "events").unwrap();
        let new = find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(old.storage(), new.storage());
    }
}
