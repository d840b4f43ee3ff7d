//! How many pods there are of which kind, for metrics. Pure.
//!
//! Upstream: the summary at the end of HandlePodCleanups in pkg/kubelet/kubelet_pods.go.

use std::collections::BTreeMap;

use kubelet_model::{DesiredPod, PodSet, PodUid};

use super::lifecycle::WorkerFacts;

/// Where a worker is, whether somebody wants its pod, and whether that is a static one.
pub(super) type Place = (&'static str, &'static str, &'static str);

const LIFECYCLES: [&str; 3] = ["sync", "terminating", "terminated"];
const CONFIGS: [(&str, &str); 5] =
    [("desired", "true"), ("desired", ""), ("orphan", "true"), ("orphan", ""), RUNTIME_ONLY];
const RUNTIME_ONLY: (&str, &str) = ("runtime_only", "unknown");

/// Pods that are not static, and those that are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Of the API server.
    pub regular: usize,
    /// Of files and URLs.
    pub fixed: usize,
}

impl Count {
    fn of<'a>(pods: impl Iterator<Item = &'a DesiredPod>) -> Self {
        let mut count = Self::default();
        for pod in pods {
            *(if pod.is_static() { &mut count.fixed } else { &mut count.regular }) += 1;
        }
        count
    }
}

/// All of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub desired: Count,
    /// Those of them that have not ended.
    pub active: Count,
    /// Workers; places that nobody is at count zero.
    pub working: BTreeMap<Place, usize>,
    pub ephemeral_containers: usize,
}

/// Counts.
pub(super) fn census(desired: &PodSet, workers: &BTreeMap<PodUid, WorkerFacts>) -> Census {
    let over = |uid: &PodUid| {
        workers.get(uid).is_some_and(|worker| worker.ended || worker.cleaned || worker.finished)
    };
    let active = desired.pods.iter().filter(|(uid, _)| !over(uid)).map(|(_, pod)| pod);
    let mut working = BTreeMap::new();
    for (config, fixed) in CONFIGS {
        working.extend(LIFECYCLES.map(|lifecycle| ((lifecycle, config, fixed), 0)));
    }
    for (uid, worker) in workers {
        *working.entry(place(worker, desired.pods.contains_key(uid))).or_default() += 1;
    }
    let ephemeral = |pod: &DesiredPod| pod.spec().ephemeral_containers.as_ref().map_or(0, Vec::len);
    Census {
        desired: Count::of(desired.pods.values()),
        active: Count::of(active),
        working,
        ephemeral_containers: desired.pods.values().map(ephemeral).sum(),
    }
}

fn place(worker: &WorkerFacts, wanted: bool) -> Place {
    let lifecycle = match worker {
        _ if worker.cleaned || worker.finished => "terminated",
        _ if worker.ending || worker.ended => "terminating",
        _ => "sync",
    };
    let Some(pod) = &worker.pod else { return (lifecycle, RUNTIME_ONLY.0, RUNTIME_ONLY.1) };
    let config = if wanted { "desired" } else { "orphan" };
    (lifecycle, config, if pod.is_static() { "true" } else { "" })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kubelet_model::{FullName, Source};
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, source: Source) -> DesiredPod {
        let pod = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid},
            "spec": {"containers": [], "ephemeralContainers": [{"name": "e"}]}});
        DesiredPod::new(source, Arc::new(serde_json::from_value(pod).unwrap())).unwrap()
    }

    fn facts(pod: Option<DesiredPod>) -> WorkerFacts {
        WorkerFacts {
            full_name: FullName::of("a", "ns"),
            pod,
            ending: false,
            grace: None,
            ended: false,
            cleaned: false,
            finished: false,
        }
    }

    #[test]
    fn everybody_is_counted_once() {
        let (one, two, own) =
            (pod("one", Source::Api), pod("two", Source::Api), pod("own", Source::File));
        let gone = pod("gone", Source::File);
        let desired = PodSet {
            pods: [&one, &two, &own].map(|pod| (pod.uid().clone(), pod.clone())).into(),
            sources_ready: true,
        };
        let workers = BTreeMap::from([
            ("one".into(), facts(Some(one))),
            ("two".into(), WorkerFacts { ended: true, cleaned: true, ..facts(Some(two)) }),
            ("gone".into(), WorkerFacts { ending: true, ..facts(Some(gone)) }),
            ("lost".into(), WorkerFacts { ending: true, ..facts(None) }),
        ]);
        let counted = census(&desired, &workers);
        assert_eq!(counted.desired, Count { regular: 2, fixed: 1 });
        assert_eq!(counted.active, Count { regular: 1, fixed: 1 });
        assert_eq!(counted.ephemeral_containers, 3);
        assert_eq!(counted.working.len(), 15);
        let there: Vec<_> = counted.working.into_iter().filter(|(_, count)| *count > 0).collect();
        let expected = [
            (("sync", "desired", ""), 1),
            (("terminated", "desired", ""), 1),
            (("terminating", "orphan", "true"), 1),
            (("terminating", "runtime_only", "unknown"), 1),
        ];
        assert_eq!(there, expected);
    }
}
