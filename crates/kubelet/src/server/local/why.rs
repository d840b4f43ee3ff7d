//! `GET /why/{namespace}/{pod}` and `GET /manifest/{pod}`: gather the facts; the
//! explanation is pure.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use k8s_openapi::api::core::v1::ContainerStatus;
use kubelet_model::ContainerName;
use kubelet_model::manifest::Origin;
use serde::Deserialize;

use super::Local;
use super::find::{Home, Refused};
use crate::container_logs::last_text;
use crate::events::Event;
use crate::pod_sources::{Namesake, namesakes};
use crate::runtime_manager::{PodIdentity, log_paths};
use crate::status_manager::PodView;
use crate::why::{
    Explanation, Manifest, WhyFacts, explain, explain_absent, explain_unread, is_about,
};

/// The end of a log that is read.
const LOG_BYTES: usize = 4 << 10;
/// Lines shown of it.
const LOG_LINES: usize = 8;

pub(super) async fn pod(
    State(local): State<Local>,
    Path((namespace, pod)): Path<(String, String)>,
) -> Result<Json<Explanation>, Refused> {
    let view = local.find(&namespace, &pod)?;
    Ok(Json(local.explain(&view).await))
}

#[derive(Debug, Deserialize)]
pub(super) struct AbsentQuery {
    namespace: Option<String>,
}

/// `GET /manifest/{pod}`: why there is no such pod, though a manifest names it.
pub(super) async fn absent(
    State(local): State<Local>,
    Path(pod): Path<String>,
    Query(query): Query<AbsentQuery>,
) -> Result<Json<Explanation>, Refused> {
    let named = local.namesakes(query.namespace.as_deref(), &pod).await;
    let name = query.namespace.map_or(pod.clone(), |namespace| format!("{namespace}/{pod}"));
    if let Some(found) = explain_absent(&name, &named) {
        return Ok(Json(found));
    }
    match local.view.url_news.trouble() {
        Some(trouble) if trouble.claims.is_none() => Ok(Json(explain_unread(&name, &trouble))),
        _ => Err(Refused::not_found(format!("no manifest on this node names a pod {name}"))),
    }
}

impl Local {
    async fn namesakes(&self, namespace: Option<&str>, name: &str) -> Vec<Namesake> {
        let node = &self.place.node_name;
        let mut all = match &self.place.manifests {
            Some(path) => namesakes(&*self.fs, path, node, namespace, name).await,
            None => Vec::new(),
        };
        let trouble = self.view.url_news.trouble();
        all.extend(trouble.and_then(|trouble| trouble.namesake(node, namespace, name)));
        all
    }

    /// Manifests besides its own that name a pod.
    async fn others(&self, view: &PodView, own: &Manifest) -> Vec<Namesake> {
        let meta = &view.pod.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let mut all = self.namesakes(meta.namespace.as_deref(), name).await;
        match own {
            Manifest::File(own) => all.retain(|one| one.origin != Origin::File(own.clone())),
            Manifest::Url { .. } => all.retain(|one| matches!(one.origin, Origin::File(_))),
            Manifest::Gone(_) | Manifest::Unknown => all.clear(),
        }
        all
    }

    /// Why a pod is as it is.
    pub(super) async fn explain(&self, view: &PodView) -> Explanation {
        let mut unheeded = Vec::new();
        let manifest = match self.home(view).await {
            Home::File { path, unheeded: fields, .. } => {
                unheeded = fields;
                Manifest::File(path)
            }
            Home::Nowhere { broken } => Manifest::Gone(broken),
            Home::Url(url) => {
                let trouble = self.view.url_news.trouble();
                Manifest::Url { url, problem: trouble.map(|trouble| trouble.problem) }
            }
            Home::Unknown => Manifest::Unknown,
        };
        let namesakes = self.others(view, &manifest).await;
        let recorder = &self.view.recorder;
        let mut events: Vec<Event> = recorder.all();
        events.extend(recorder.explaining());
        events.retain(|event| is_about(&event.object, view.uid.as_str()));
        // Stable: of one moment, those that were not held back for others come first.
        events.sort_by_key(|event| event.last);
        let mut found = explain(&WhyFacts {
            pod: &view.pod,
            status: &view.status,
            progress: self.view.progress.get(&view.uid).as_ref(),
            events: &events,
            logs: &self.last_words(view),
            manifest: &manifest,
            namesakes: &namesakes,
            unheeded: &unheeded,
            wall: self.clock.wall(),
            mono: self.clock.mono(),
        });
        found.also.extend(self.kept(view));
        found
    }

    /// That the pod runs from a copy, while the API server does not answer.
    fn kept(&self, view: &PodView) -> Option<String> {
        let running = self.view.offline.running().filter(|all| all.pods.contains(&view.uid))?;
        let since = running.since;
        let token = match running.without_token.contains(&view.uid) {
            true => " The files of its service account tokens are missing until it answers.",
            false => "",
        };
        Some(format!(
            "It runs from the copy kept on this node: the API server does not answer ({since}).{token}"
        ))
    }

    /// The last lines of each container whose last instance ended badly.
    fn last_words(&self, view: &PodView) -> BTreeMap<String, Vec<String>> {
        let status = &view.status;
        let inits = status.init_container_statuses.iter().flatten();
        let all = inits.chain(status.container_statuses.iter().flatten());
        let all = all.chain(status.ephemeral_container_statuses.iter().flatten());
        all.filter(|one| ended_badly(one))
            .filter_map(|one| {
                let count = u32::try_from(one.restart_count).ok()?;
                let log = self.log_path(view, &one.name, count);
                let text = last_text(&*self.fs, &log, LOG_LINES, LOG_BYTES).ok()?;
                let lines = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
                Some((one.name.clone(), lines))
            })
            .collect()
    }

    /// `<logs>/<namespace>_<name>_<uid>/<container>/<restart count>.log`.
    pub(in crate::server) fn log_path(
        &self,
        view: &PodView,
        container: &str,
        restart_count: u32,
    ) -> std::path::PathBuf {
        let meta = &view.pod.metadata;
        let pod = PodIdentity {
            uid: view.uid.clone(),
            name: meta.name.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
        };
        let log = log_paths::container_log(&ContainerName::new(container), restart_count);
        log_paths::pod_dir(&self.place.pod_logs_dir, &pod).join(log)
    }
}

fn ended_badly(status: &ContainerStatus) -> bool {
    let states = [status.state.as_ref(), status.last_state.as_ref()];
    let mut ended = states.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
    let running = status.state.as_ref().is_some_and(|state| state.running.is_some());
    !running && ended.next().is_some()
}
