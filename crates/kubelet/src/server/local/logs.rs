//! `GET /logs/{namespace}/{pod}/{container}`: what a container wrote.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::ContainerStatus;
use serde::Deserialize;

use super::Local;
use super::find::Refused;
use crate::container_logs::{self, LogOptions};
use crate::server::containers::{runs, status_of};

#[derive(Debug, Deserialize)]
pub(super) struct LogsQuery {
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    previous: bool,
    #[serde(default)]
    timestamps: bool,
    tail: Option<u64>,
    since_ms: Option<u64>,
}

pub(super) async fn logs(
    State(local): State<Local>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(query): Query<LogsQuery>,
) -> Result<Body, Refused> {
    let view = local.find(&namespace, &pod)?;
    let Some(status) = status_of(&view.status, &container) else {
        let why = view.status.message.clone().unwrap_or_default();
        return Err(Refused::not_found(format!("container {container} has not begun yet; {why}")));
    };
    let number = instance(status, query.previous).map_err(Refused::conflict)?;
    let path = local.log_path(&view, &container, number);
    let since = query.since_ms.and_then(|ms| {
        let age = jiff::SignedDuration::from_millis(i64::try_from(ms).ok()?);
        local.clock.wall().checked_sub(age).ok()
    });
    let options = LogOptions {
        tail: query.tail,
        since,
        timestamps: query.timestamps,
        follow: query.follow,
        limit_bytes: None,
        stream: None,
    };
    let (fs, uid) = (Arc::clone(&local.fs), view.uid.clone());
    let running = move || {
        let now = local.view.statuses.get(&uid);
        now.and_then(|now| status_of(&now, &container).map(|status| runs(status, number)))
            .unwrap_or(false)
    };
    let log = container_logs::read(fs, path, options, Arc::new(running))
        .map_err(|error| Refused::not_found(error.to_string()))?;
    Ok(Body::from_stream(log.map_ok(|chunk| chunk.bytes)))
}

/// The number of the instance whose log is meant. While a container waits for
/// its next start, the last one stands for both.
pub(in crate::server) fn instance(status: &ContainerStatus, previous: bool) -> Result<u32, String> {
    let name = &status.name;
    let newest = u32::try_from(status.restart_count).unwrap_or(0);
    let waiting = status.state.as_ref().is_none_or(|state| state.waiting.is_some());
    let ended = status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
    let never =
        || format!("container {name} has not started yet; `klet why` tells what it waits for");
    match (waiting, previous) {
        (true, _) if ended => Ok(newest),
        (true, _) => Err(never()),
        (false, false) => Ok(newest),
        (false, true) => newest.checked_sub(1).ok_or_else(|| {
            format!("container {name} has not been restarted: there is no previous log")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn number(state: Value, last: Value, restarts: i32, previous: bool) -> Option<u32> {
        let status = serde_json::from_value(json!({
            "name": "a", "image": "", "imageID": "", "ready": false, "restartCount": restarts,
            "state": state, "lastState": last,
        }));
        instance(&status.unwrap(), previous).ok()
    }

    #[test]
    fn the_instance_follows_from_the_state() {
        let (running, waiting) =
            (json!({"running": {}}), json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        let ended = json!({"terminated": {"exitCode": 1}});
        assert_eq!(number(running.clone(), ended.clone(), 2, false), Some(2));
        assert_eq!(number(running.clone(), ended.clone(), 2, true), Some(1));
        assert_eq!(number(running, json!({}), 0, true), None);
        assert_eq!(number(waiting.clone(), ended.clone(), 2, false), Some(2));
        assert_eq!(number(waiting.clone(), ended.clone(), 2, true), Some(2));
        assert_eq!(number(waiting, json!({}), 0, false), None);
        assert_eq!(number(ended, json!({}), 0, false), Some(0));
    }
}
