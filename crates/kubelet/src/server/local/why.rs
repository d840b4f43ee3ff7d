//! `GET /why/{namespace}/{pod}`: gathers the facts; the explanation is pure.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path as FilePath;

use axum::Json;
use axum::extract::{Path, State};
use k8s_openapi::api::core::v1::ContainerStatus;

use super::Local;
use super::find::{Home, Refused};
use crate::events::Event;
use crate::status_manager::PodView;
use crate::why::{Explanation, Manifest, WhyFacts, explain, is_about};

/// The end of a log that is read.
const LOG_BYTES: u64 = 4 << 10;
/// Lines shown of it.
const LOG_LINES: usize = 8;

pub(super) async fn pod(
    State(local): State<Local>,
    Path((namespace, pod)): Path<(String, String)>,
) -> Result<Json<Explanation>, Refused> {
    let view = local.find(&namespace, &pod)?;
    Ok(Json(local.explain(&view).await))
}

impl Local {
    /// Why a pod is as it is.
    pub(super) async fn explain(&self, view: &PodView) -> Explanation {
        let manifest = match self.home(view).await {
            Home::File { path, .. } => Manifest::File(path),
            Home::Nowhere { broken } => Manifest::Gone(broken),
            Home::Url(url) => Manifest::Url(url),
            Home::Unknown => Manifest::Unknown,
        };
        let mut events: Vec<Event> = self.view.recorder.all();
        events.retain(|event| is_about(&event.object, view.uid.as_str()));
        explain(&WhyFacts {
            pod: &view.pod,
            status: &view.status,
            progress: self.view.progress.get(&view.uid).as_ref(),
            events: &events,
            logs: &self.last_words(view),
            manifest: &manifest,
            wall: self.clock.wall(),
            mono: self.clock.mono(),
        })
    }

    /// The last lines of each container whose last instance ended badly.
    fn last_words(&self, view: &PodView) -> BTreeMap<String, Vec<String>> {
        let status = &view.status;
        let inits = status.init_container_statuses.iter().flatten();
        let all = inits.chain(status.container_statuses.iter().flatten());
        all.filter(|one| ended_badly(one))
            .filter_map(|one| {
                let count = u32::try_from(one.restart_count).ok()?;
                let log = self.log_path(view, &one.name, count);
                Some((one.name.clone(), tail(&log).ok()?))
            })
            .collect()
    }

    /// `<logs>/<namespace>_<name>_<uid>/<container>/<restart count>.log`.
    pub(super) fn log_path(
        &self,
        view: &PodView,
        container: &str,
        restart_count: u32,
    ) -> std::path::PathBuf {
        let meta = &view.pod.metadata;
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        let dir =
            format!("{}_{}_{}", namespace.unwrap_or_default(), name.unwrap_or_default(), view.uid);
        self.place.pod_logs_dir.join(dir).join(container).join(format!("{restart_count}.log"))
    }
}

fn ended_badly(status: &ContainerStatus) -> bool {
    let states = [status.state.as_ref(), status.last_state.as_ref()];
    let mut ended = states.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
    let running = status.state.as_ref().is_some_and(|state| state.running.is_some());
    !running && ended.next().is_some()
}

/// The last lines of a log, without their stamps.
fn tail(path: &FilePath) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<String> = text
        .lines()
        // The first is cut where reading began.
        .skip(usize::from(size > LOG_BYTES))
        .map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned())
        .collect();
    Ok(lines.split_off(lines.len().saturating_sub(LOG_LINES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_bare() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let line =
            |n: usize| format!("2026-01-02T03:04:05.678901234Z stdout F line {n}  with gap\n");
        std::fs::write(&path, (0..200).map(line).collect::<String>()).unwrap();
        let words = tail(&path).unwrap();
        assert_eq!(words.len(), LOG_LINES);
        assert_eq!(words.last().unwrap(), "line 199  with gap");
        std::fs::write(&path, line(0)).unwrap();
        assert_eq!(tail(&path).unwrap(), ["line 0  with gap"]);
        std::fs::write(&path, "no such form").unwrap();
        assert_eq!(tail(&path).unwrap(), [""]);
    }
}
