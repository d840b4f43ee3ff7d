//! What is asked of the runtime itself: use of resources, and commands to run.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use cri::v1;

use super::Local;
use super::find::Refused;
use super::wire::{ExecAnswer, ExecQuestion, StatsAnswer, StatsItem};
use crate::pleg::labels;
use crate::server::containers::{self, status_of};
use crate::status_manager::PodView;

/// `GET /stats`.
pub(super) async fn stats(State(local): State<Local>) -> Result<Json<StatsAnswer>, Refused> {
    let stats = local.runtime.list_container_stats().await?;
    let mut items: Vec<StatsItem> = stats.into_iter().filter_map(sample).collect();
    items.sort_by(|a, b| {
        (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container))
    });
    Ok(Json(StatsAnswer { items }))
}

/// A sample, unless it is of a container that no pod has.
fn sample(stats: v1::ContainerStats) -> Option<StatsItem> {
    let attributes = stats.attributes?;
    let label = |key: &str| attributes.labels.get(key).cloned();
    let (cpu, memory) = (stats.cpu.unwrap_or_default(), stats.memory.unwrap_or_default());
    Some(StatsItem {
        namespace: label(labels::POD_NAMESPACE)?,
        pod: label(labels::POD_NAME)?,
        container: label(labels::CONTAINER_NAME)?,
        id: attributes.id,
        cpu_at: cpu.timestamp,
        cpu_ns: cpu.usage_core_nano_seconds.map(|used| used.value),
        memory: memory.working_set_bytes.or(memory.usage_bytes).map(|used| used.value),
    })
}

/// `POST /exec/{namespace}/{pod}/{container}`.
pub(super) async fn exec(
    State(local): State<Local>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Json(question): Json<ExecQuestion>,
) -> Result<Json<ExecAnswer>, Refused> {
    if question.command.is_empty() {
        return Err(Refused(StatusCode::BAD_REQUEST, "there is no command to run".to_owned()));
    }
    let view = local.find(&namespace, &pod)?;
    let container_id = running_id(&view, &container)?;
    let request = v1::ExecRequest {
        container_id,
        cmd: question.command,
        tty: question.tty,
        stdin: question.stdin,
        stdout: true,
        // A terminal has one stream only.
        stderr: !question.tty,
    };
    let url = local.runtime.exec(request).await?;
    let place = place_of(&url);
    match is_local(&url) {
        true => Ok(Json(ExecAnswer { url })),
        false => Err(Refused(
            StatusCode::BAD_GATEWAY,
            format!(
                "the runtime streams commands at {place}, which is not this machine over plain HTTP; set its \
                 stream server to 127.0.0.1 (containerd: stream_server_address)"
            ),
        )),
    }
}

/// The id of a container that runs.
fn running_id(view: &PodView, container: &str) -> Result<String, Refused> {
    let Some(found) = status_of(&view.status, container) else {
        return Err(Refused::not_found(format!("the pod has no container {container}")));
    };
    let not_running =
        || format!("container {container} is not running; `klet why` tells the reason");
    let id = containers::running_id(found).ok_or_else(|| Refused::conflict(not_running()))?;
    Ok(id.to_owned())
}

/// Where a URL leads, without its path: that lets anybody in who knows it.
pub(in crate::server) fn place_of(url: &str) -> String {
    let uri = url.parse::<Uri>().unwrap_or_default();
    let scheme = uri.scheme_str().unwrap_or_default();
    format!("{scheme}://{}", uri.authority().map_or("", |authority| authority.as_str()))
}

/// Plain HTTP to this machine: anything else would carry what is typed over a network.
pub(in crate::server) fn is_local(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    loopback && uri.scheme_str() == Some("http")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_dialled() {
        for url in ["http://127.0.0.1:4711/exec/a", "http://[::1]:1/exec/a", "http://localhost:1/"]
        {
            assert!(is_local(url), "{url}");
        }
        for url in [
            "http://10.0.0.1:1/exec/a",
            "https://127.0.0.1:1/exec/a",
            "http://127.0.0.1.example.com/",
            "/exec/a",
            "",
        ] {
            assert!(!is_local(url), "{url}");
        }
    }
}
