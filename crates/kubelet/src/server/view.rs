//! What the servers look at, and what they make of it.

use std::sync::Arc;

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;

use super::claim_metrics;
use super::classic::classic;
use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::offline::Offline;
use crate::pleg::Observations;
use crate::pod_manager::ApiCopies;
use crate::pod_sources::UrlNews;
use crate::probe_manager::Probes;
use crate::progress::ProgressBoard;
use crate::pulse::Pulse;
use crate::status_manager::{PodView, Statuses};
use crate::volume_manager::Volumes;

/// What the endpoints look at.
#[derive(Clone)]
pub struct View {
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

/// Every pod with its status.
pub(super) fn pod_list(view: &View) -> List<Pod> {
    let items = view.statuses.all().into_iter().map(with_status).collect();
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
