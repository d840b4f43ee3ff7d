//! `GET /volumes` and `POST /volumes/{pod}/clean`: which volumes there are, what they
//! hold, and an end to those that nobody needs and something keeps.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use futures_util::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubelet_model::PodUid;
use serde::Deserialize;

use super::Local;
use super::find::Refused;
use super::wire::{CleanAnswer, VolumeItem, VolumeUseItem, VolumesAnswer};
use crate::volume_manager::inventory::{CleanError, Standing, VolumeFacts};

/// Volumes measured at a time: each takes a thread.
const MEASURED_AT_ONCE: usize = 4;

pub(super) async fn volumes(State(local): State<Local>) -> Json<VolumesAnswer> {
    let pods = local.view.statuses.all();
    let pods: BTreeMap<_, _> = pods.iter().map(|view| (&view.uid, &view.pod.metadata)).collect();
    let all = stream::iter(local.view.volumes.inventory());
    let item = |facts: VolumeFacts| item(&local, pods.get(&facts.uid).copied(), facts);
    let mut items: Vec<VolumeItem> = all.map(item).buffered(MEASURED_AT_ONCE).collect().await;
    items.sort_by(|a, b| {
        (&a.namespace, &a.pod, &a.uid, &a.name).cmp(&(&b.namespace, &b.pod, &b.uid, &b.name))
    });
    let node = local.place.node_name.clone();
    Json(VolumesAnswer { node, items })
}

async fn item(local: &Local, pod: Option<&ObjectMeta>, facts: VolumeFacts) -> VolumeItem {
    let told = |of: fn(&ObjectMeta) -> &Option<String>| pod.and_then(|pod| of(pod).clone());
    let (usage, unmeasured) = match local.view.volumes.measure(&facts).await {
        Ok(measured) => (measured, None),
        Err(error) => (None, Some(format!("cannot be measured: {error}"))),
    };
    VolumeItem {
        namespace: told(|pod| &pod.namespace).unwrap_or_default(),
        pod: told(|pod| &pod.name).unwrap_or_default(),
        uid: facts.uid.to_string(),
        name: facts.name,
        kind: facts.kind.to_owned(),
        state: match facts.state {
            Standing::Ready => "Ready",
            Standing::Waiting => "Waiting",
            Standing::Leaving => "Leaving",
        }
        .to_owned(),
        problem: facts.problem.or(unmeasured),
        path: facts.path.map(|path| path.display().to_string()),
        usage: usage.map(|usage| VolumeUseItem {
            used_bytes: usage.used.bytes,
            capacity_bytes: usage.space.capacity,
            available_bytes: usage.space.available,
            inodes_used: usage.used.inodes,
            inodes: usage.space.inodes,
            inodes_free: usage.space.inodes_free,
        }),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct CleanQuery {
    /// Only say what would be unmounted.
    #[serde(default)]
    dry_run: bool,
}

pub(super) async fn clean(
    State(local): State<Local>,
    Path(uid): Path<String>,
    Query(query): Query<CleanQuery>,
) -> Result<Json<CleanAnswer>, Refused> {
    let mounts = local.view.volumes.clean(&PodUid::new(uid), query.dry_run).await?;
    let mounts = mounts.iter().map(|path| path.display().to_string()).collect();
    Ok(Json(CleanAnswer { mounts, unmounted: !query.dry_run }))
}

impl From<CleanError> for Refused {
    fn from(error: CleanError) -> Self {
        let status = match &error {
            CleanError::Unknown(_) => StatusCode::NOT_FOUND,
            CleanError::Needed(_) => StatusCode::CONFLICT,
            CleanError::Mount(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}
