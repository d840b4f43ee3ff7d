//! Desired pods: what the sources say should run here.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use crate::ids::{FullName, PodUid};

/// Annotation: the source a pod came from.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Annotation: when the pod was first seen from its source.
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// Annotation: a static pod's uid.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Annotation that only an API server's copy of a static pod has.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Priority from which on a pod is critical.
pub const SYSTEM_CRITICAL: i32 = 2_000_000_000;

/// Where a pod came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A manifest file or directory.
    File,
    /// A URL.
    Http,
    /// The API server.
    Api,
}

impl Source {
    /// The value of the `config.source` annotation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Api => "api",
        }
    }
}

/// One pod that should run here. Cheap to clone.
///
/// The pod is defaulted and valid, has a uid, a name, a namespace and a spec.
#[derive(Debug, Clone)]
pub struct DesiredPod {
    uid: PodUid,
    full_name: FullName,
    source: Source,
    pod: Arc<Pod>,
    /// As its source asks for it: its containers may have been given less.
    asked: Arc<Pod>,
}

impl DesiredPod {
    /// Wraps a pod that has uid, name, namespace and spec; `None` if one is missing.
    pub fn new(source: Source, pod: Arc<Pod>) -> Option<Self> {
        let uid = PodUid::new(pod.metadata.uid.as_deref()?);
        let full_name =
            FullName::of(pod.metadata.name.as_deref()?, pod.metadata.namespace.as_deref()?);
        pod.spec.as_ref()?;
        Some(Self { uid, full_name, source, asked: Arc::clone(&pod), pod })
    }

    /// The same pod with another spec, which is what it is given of what it asks for.
    #[must_use]
    pub fn given(&self, spec: PodSpec) -> Self {
        let pod = Pod { spec: Some(spec), ..Pod::clone(&self.asked) };
        Self { pod: Arc::new(pod), ..self.clone() }
    }

    /// The whole object as its source asks for it.
    pub fn asked(&self) -> &Arc<Pod> {
        &self.asked
    }

    /// The pod's uid.
    pub fn uid(&self) -> &PodUid {
        &self.uid
    }
    /// `<name>_<namespace>`.
    pub fn full_name(&self) -> &FullName {
        &self.full_name
    }
    /// Where it came from.
    pub fn source(&self) -> Source {
        self.source
    }
    /// It came from a manifest, and no API server decides about it.
    pub fn is_static(&self) -> bool {
        self.source != Source::Api
    }
    /// The node cannot do without it: it came from a manifest, or its priority says so.
    pub fn is_critical(&self) -> bool {
        let annotations = self.asked.metadata.annotations.as_ref();
        let mirror = annotations.is_some_and(|all| all.contains_key(CONFIG_MIRROR));
        let priority = self.spec().priority;
        self.is_static() || mirror || priority.is_some_and(|own| own >= SYSTEM_CRITICAL)
    }
    /// The seconds it was given to end, if it is being deleted.
    pub fn deletion(&self) -> Option<i64> {
        let meta = &self.asked.metadata;
        meta.deletion_timestamp.as_ref()?;
        let own = || self.spec().termination_grace_period_seconds.unwrap_or(30);
        Some(meta.deletion_grace_period_seconds.unwrap_or_else(own))
    }
    /// The whole object.
    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }
    /// The pod's name.
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }
    /// The pod's namespace.
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }
    /// The pod's spec.
    pub fn spec(&self) -> &PodSpec {
        // `new` refuses a pod without a spec.
        self.pod.spec.as_ref().expect("a desired pod has a spec")
    }
}

/// A snapshot of everything that should run here.
#[derive(Debug, Clone, Default)]
pub struct PodSet {
    /// Every desired pod.
    pub pods: BTreeMap<PodUid, DesiredPod>,
    /// Every configured source has delivered at least once. Until then a pod
    /// that only the runtime knows must not be touched.
    pub sources_ready: bool,
}
