//! Merging: the sources' full sets to one set of desired pods.
//!
//! Pure; `now` is an argument. A pod that did not change keeps its identity, so
//! readers see no change. Upstream: pkg/kubelet/config/config.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::pod::{CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE};
use kubelet_model::{ConfigObject, DesiredPod, EventObject, FullName, PodSet, PodUid, Source};

use super::features;

/// Everything one source wants.
#[derive(Debug, Clone)]
pub struct SourceUpdate {
    /// The source.
    pub source: Source,
    /// All its pods; one that is missing is to be removed.
    pub pods: Vec<Arc<Pod>>,
    /// All its ConfigMaps and Secrets.
    pub objects: Vec<Arc<ConfigObject>>,
    /// Nothing is missing merely because it could not be read.
    pub complete: bool,
}

/// A pod that was left out because another one has its name or uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// Its source.
    pub source: Source,
    /// Its full name.
    pub full_name: FullName,
    /// Its uid.
    pub uid: PodUid,
    /// Another pod of the same source has its name.
    pub by_name: bool,
}

/// What an update did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// The snapshot differs from the one before.
    pub changed: bool,
    /// Pods that were left out.
    pub duplicates: Vec<Duplicate>,
    /// Pods whose change needs features of the node, and which.
    pub needs: Vec<(EventObject, Vec<&'static str>)>,
}

/// The desired pods of every source.
#[derive(Debug)]
pub struct Merger {
    sources: BTreeMap<Source, SourceState>,
}

#[derive(Debug, Default)]
struct SourceState {
    delivered: bool,
    pods: BTreeMap<PodUid, DesiredPod>,
}

impl Merger {
    /// A merger that waits for these sources.
    pub fn new(configured: impl IntoIterator<Item = Source>) -> Self {
        let state = |source| (source, SourceState::default());
        Self { sources: configured.into_iter().map(state).collect() }
    }

    /// Takes a source's full set.
    pub fn apply(&mut self, update: SourceUpdate, now: Timestamp) -> Applied {
        let source = update.source;
        let mut state = self.sources.remove(&source).unwrap_or_default();
        let mut applied =
            Applied { changed: !state.delivered && update.complete, ..Applied::default() };
        let mut names = BTreeSet::new();
        let mut pods = BTreeMap::new();
        for pod in update.pods {
            // Preparation gave every pod its uid, name, namespace and spec.
            let Some(pod) = DesiredPod::new(source, pod) else {
                continue;
            };
            let elsewhere = self.sources.values().any(|other| other.pods.contains_key(pod.uid()));
            let by_name = names.contains(pod.full_name());
            if elsewhere || pods.contains_key(pod.uid()) || !names.insert(pod.full_name().clone()) {
                let (full_name, uid) = (pod.full_name().clone(), pod.uid().clone());
                applied.duplicates.push(Duplicate { source, full_name, uid, by_name });
                continue;
            }
            let uid = pod.uid().clone();
            let (pod, changed) = match state.pods.remove(&uid) {
                Some(old) => {
                    let needed = features::needed(old.spec(), pod.spec());
                    if !needed.is_empty() {
                        applied.needs.push((EventObject::pod(&pod), needed));
                    }
                    update_pod(old, &pod)
                }
                None => (add_pod(&pod, now), true),
            };
            applied.changed |= changed;
            pods.insert(uid, pod);
        }
        // What is left was not in the new set.
        applied.changed |= !state.pods.is_empty();
        self.sources
            .insert(source, SourceState { delivered: state.delivered || update.complete, pods });
        applied
    }

    /// Every desired pod, and whether all sources have spoken.
    pub fn snapshot(&self) -> PodSet {
        let pods = self.sources.values().flat_map(|state| state.pods.clone()).collect();
        PodSet { pods, sources_ready: self.sources.values().all(|state| state.delivered) }
    }
}

fn add_pod(pod: &DesiredPod, now: Timestamp) -> DesiredPod {
    let mut object = Pod::clone(pod.pod());
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_SOURCE.to_owned(), pod.source().as_str().to_owned());
    annotations.insert(CONFIG_SEEN.to_owned(), now.to_string());
    rebuilt(pod.source(), object, pod)
}

/// The old pod with what the new one changes; the same object if nothing does.
fn update_pod(old: DesiredPod, new: &DesiredPod) -> (DesiredPod, bool) {
    let (before, after) = (old.pod(), new.pod());
    let same = before.spec == after.spec
        && before.status == after.status
        && before.metadata.labels == after.metadata.labels
        && before.metadata.deletion_timestamp == after.metadata.deletion_timestamp
        && before.metadata.deletion_grace_period_seconds
            == after.metadata.deletion_grace_period_seconds
        && foreign(before).eq(foreign(after));
    if same {
        return (old, false);
    }
    let mut object = Pod::clone(before);
    object.spec = after.spec.clone();
    object.status = after.status.clone();
    let meta = &mut object.metadata;
    meta.labels = after.metadata.labels.clone();
    meta.deletion_timestamp = after.metadata.deletion_timestamp.clone();
    meta.deletion_grace_period_seconds = after.metadata.deletion_grace_period_seconds;
    meta.generation = after.metadata.generation;
    let annotations = meta.annotations.get_or_insert_default();
    annotations.retain(|key, _| is_local(key));
    annotations.extend(foreign(after).map(|(key, value)| (key.clone(), value.clone())));
    (rebuilt(old.source(), object, &old), true)
}

fn rebuilt(source: Source, object: Pod, otherwise: &DesiredPod) -> DesiredPod {
    // Uid, name, namespace and spec are still there.
    DesiredPod::new(source, Arc::new(object)).unwrap_or_else(|| otherwise.clone())
}

/// Annotations that came with the pod.
fn foreign(pod: &Pod) -> impl Iterator<Item = (&String, &String)> {
    pod.metadata.annotations.iter().flatten().filter(|(key, _)| !is_local(key))
}

/// Annotations that merging sets itself.
fn is_local(key: &str) -> bool {
    matches!(key, CONFIG_SOURCE | CONFIG_SEEN | CONFIG_MIRROR)
}
