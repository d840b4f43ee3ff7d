//! Which pod is meant, and what it belongs to.

use std::path::{Path, PathBuf};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::Local;
use super::wire::Refusal;
use crate::pod_sources::{ManifestHome, find_manifest};
use crate::status_manager::PodView;
use kubelet_model::manifest::Origin;
use kubelet_model::pod::CONFIG_SOURCE;

/// A request that is not carried out, with the words for whoever asked.
#[derive(Debug)]
pub(super) struct Refused(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(Refusal { error: self.1 })).into_response()
    }
}

impl Refused {
    pub(super) fn not_found(error: String) -> Self {
        Self(StatusCode::NOT_FOUND, error)
    }
    pub(super) fn conflict(error: String) -> Self {
        Self(StatusCode::CONFLICT, error)
    }
}

impl From<cri::CallError> for Refused {
    fn from(error: cri::CallError) -> Self {
        Self(StatusCode::BAD_GATEWAY, format!("the container runtime: {error}"))
    }
}

impl Local {
    /// The pod of that name, with or without the node's name at its end.
    pub(super) fn find(&self, namespace: &str, name: &str) -> Result<PodView, Refused> {
        let suffixed = format!("{name}-{}", self.place.node_name);
        let pods = self.view.statuses.all();
        let is_ending = |view: &&PodView| {
            self.view.progress.get(&view.uid).is_some_and(|progress| progress.ending.is_some())
        };
        let named = |wanted: &str| {
            let named = pods.iter().filter(|view| {
                let meta = &view.pod.metadata;
                meta.namespace.as_deref() == Some(namespace) && meta.name.as_deref() == Some(wanted)
            });
            // One that ends may have a successor, which is the one to ask about.
            named.min_by_key(is_ending)
        };
        let found = named(name).or_else(|| named(&suffixed)).cloned();
        let absent = || {
            format!("there is no pod {namespace}/{name} on this node; `klet pods -A` lists them")
        };
        found.ok_or_else(|| Refused::not_found(absent()))
    }

    /// Where the pod's manifest is.
    pub(super) async fn home(&self, view: &PodView) -> Home {
        let source = view.pod.metadata.annotations.as_ref().and_then(|all| all.get(CONFIG_SOURCE));
        match (source.map(String::as_str), &self.place.manifests) {
            (Some("file"), Some(path)) => self.home_below(path, view).await,
            (Some("http"), _) => {
                let url = self.place.manifest_url.clone().unwrap_or_default();
                Home::Url(Origin::Url(url).to_string())
            }
            _ => Home::Unknown,
        }
    }

    async fn home_below(&self, path: &Path, view: &PodView) -> Home {
        let node = &self.place.node_name;
        match find_manifest(&*self.fs, path, node, view.uid.as_str()).await {
            ManifestHome::File { path, pods, objects, unheeded } => {
                Home::File { path, pods, objects, unheeded }
            }
            ManifestHome::Nowhere { broken } => Home::Nowhere { broken },
        }
    }
}

/// Where a pod's manifest is.
#[derive(Debug)]
pub(super) enum Home {
    /// In this file, one of as many pods, beside as many ConfigMaps and Secrets, and
    /// with what nobody acts on.
    File { path: PathBuf, pods: usize, objects: usize, unheeded: Vec<String> },
    /// In none; these cannot be used.
    Nowhere { broken: Vec<String> },
    /// At a URL, without its password.
    Url(String),
    /// Nobody knows.
    Unknown,
}
