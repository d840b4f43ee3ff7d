//! What the servers look at, and what they make of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{PodSet, PodUid};

use super::claim_metrics;
use super::classic::classic;
use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::offline::Offline;
use crate::pleg::Observations;
use crate::pod_manager::ApiCopies;
use crate::pod_sources::{PodSetReader, UrlNews};
use crate::probe_manager::Probes;
use crate::progress::ProgressBoard;
use crate::pulse::Pulse;
use crate::status_manager::{PodView, Statuses};
use crate::volume_manager::Volumes;

/// What the endpoints look at.
#[derive(Clone)]
pub struct View {
    /// Pods that should be here, whether they may yet or not.
    pub desired: PodSetReader,
    /// Pods and their statuses.
    pub statuses: Statuses,
    /// What the runtime holds.
    pub observations: Observations,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Events.
    pub recorder: Recorder,
    /// What probes have found.
    pub probes: Probes,
    /// What each worker is doing.
    pub progress: ProgressBoard,
    /// When the loop that starts and ends pods last came around.
    pub pulse: Pulse,
    /// What the API server holds of the node's pods, if there is one.
    pub copies: Option<ApiCopies>,
    /// What is wrong with the URL that serves manifests.
    pub url_news: UrlNews,
    /// Everybody's volumes.
    pub volumes: Volumes,
    /// What the node does without its API server.
    pub offline: Offline,
}

impl View {
    /// Every pod that is here, or should be.
    pub(super) fn pods(&self) -> Vec<PodView> {
        with_waiting(self.statuses.all(), &self.desired.current())
    }
}

/// Pods that have no status here yet, as those whose admission waits for the node's object,
/// are shown as their source has them.
fn with_waiting(mut known: Vec<PodView>, desired: &PodSet) -> Vec<PodView> {
    let shown: BTreeSet<PodUid> = known.iter().map(|view| view.uid.clone()).collect();
    for pod in desired.pods.values() {
        if !shown.contains(pod.uid()) {
            let (uid, pod) = (pod.uid().clone(), Arc::clone(pod.asked()));
            let status = Arc::new(pod.status.clone().unwrap_or_default());
            known.push(PodView { uid, pod, status });
        }
    }
    known
}

/// Every pod with its status.
pub(super) fn pod_list(view: &View) -> List<Pod> {
    let items = view.pods().into_iter().map(with_status).collect();
    List::<Pod> { items, ..Default::default() }
}

/// The pod as the API shows it.
fn with_status(view: PodView) -> Pod {
    let mut pod = Pod::clone(&view.pod);
    pod.status = Some((*view.status).clone());
    pod
}

/// All metrics of the agent.
pub(super) async fn metrics_text(view: &View) -> String {
    let (sandboxes, containers) = view.observations.counts();
    view.metrics.count(sandboxes, containers);
    view.metrics.pods.count_mirrors(view.copies.as_ref().map_or(0, |all| all.mirrors().len()));
    let mut text = classic(&view.metrics.text());
    text.push_str(&claim_metrics::text(&view.volumes).await);
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;
    use kubelet_model::{DesiredPod, Source};
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_wait_are_shown_as_their_source_has_them() {
        let pod = |uid: &str| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": uid, "namespace": "ns", "uid": uid},
                "spec": {"containers": [{"name": "app", "image": "i"}]},
                "status": {"phase": "Pending"},
            }))
            .unwrap();
            DesiredPod::new(Source::Api, Arc::new(pod)).unwrap()
        };
        let (runs, waits) = (pod("runs"), pod("waits"));
        let (_writer, desired) = PodSetReader::for_test(&[&runs, &waits]);
        let status = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
        let known = |uid: &str| PodView {
            uid: PodUid::new(uid),
            pod: Arc::clone(runs.asked()),
            status: Arc::new(status.clone()),
        };
        let all = with_waiting(vec![known("ends"), known("runs")], &desired.current());
        let told: Vec<(&str, Option<&str>)> =
            all.iter().map(|view| (view.uid.as_str(), view.status.phase.as_deref())).collect();
        let running = Some("Running");
        assert_eq!(told, [("ends", running), ("runs", running), ("waits", Some("Pending"))]);
    }
}
