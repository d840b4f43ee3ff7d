//! Pod sources: what should run here, from files, a URL and an API server.
//!
//! Owns the desired [`PodSet`] and is its only writer, as it is of the ConfigMaps
//! and Secrets that lie beside the pods. Reads manifests through
//! the file-system and HTTP ports; writes last good copies of manifests below
//! the state directory. Never looks at the runtime. Upstream: pkg/kubelet/config.

mod api;
mod features;
mod file;
mod home;
mod http;
mod known;
mod last_good;
mod merge;
mod notice;
mod objects;
mod scan;
#[cfg(test)]
mod tests;
mod url_news;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, Spread};
#[cfg(test)]
use kubelet_model::DesiredPod;
use kubelet_model::{EventType, PodSet, PodUid, Source};
use tokio::sync::{mpsc, watch};

use crate::events::Recorder;
use crate::object_cache::{self, Objects, ObjectsWriter};
use crate::offline::FallBack;
use crate::pod_manager::ApiCopies;
use crate::ports::{Clock, Fs, HttpFetch, Ports, Tasks};
use crate::settings::Settings;

pub use home::{ManifestHome, Namesake, broken_manifests, find_manifest, namesakes};
pub use merge::{Applied, Duplicate, Merger, SourceUpdate};
pub use url_news::{UrlNews, UrlTrouble};

/// Updates in flight: one per source. A source with more to say waits, and then
/// says only what is true by then.
const UPDATES_MAX: usize = 3;
/// Most pods taken from one source: as many as a full directory of single pods
/// holds, and many times what a node runs. Each costs kilobytes and a task, and a
/// list of the largest size could name a hundred thousand.
const PODS_MAX: usize = scan::FILES_MAX;
/// Shortest interval between looks, so that a zero cannot make them spin.
const FREQUENCY_MIN: Duration = Duration::from_millis(100);
/// Pause before a source that panicked is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Reads the desired pods. Cheap to clone; each clone notices changes by itself.
#[derive(Clone)]
pub struct PodSetReader {
    pods: watch::Receiver<Arc<PodSet>>,
    url: UrlNews,
}

impl PodSetReader {
    /// The desired pods as of now.
    pub fn current(&self) -> Arc<PodSet> {
        self.pods.borrow().clone()
    }

    /// Should this pod run, as of now?
    pub fn wants(&self, uid: &PodUid) -> bool {
        self.pods.borrow().pods.contains_key(uid)
    }

    /// A reader of these pods, and who can change them.
    #[cfg(test)]
    pub(crate) fn for_test(pods: &[&DesiredPod]) -> (watch::Sender<Arc<PodSet>>, Self) {
        let pods = pods.iter().map(|pod| (pod.uid().clone(), (*pod).clone())).collect();
        let (writer, pods) = watch::channel(Arc::new(PodSet { pods, sources_ready: true }));
        (writer, Self { pods, url: UrlNews::default() })
    }

    /// What is wrong with the URL that serves manifests.
    pub fn url_news(&self) -> UrlNews {
        self.url.clone()
    }

    /// Waits until the desired pods differ from those last waited for. Never
    /// returns once the writer is gone.
    pub async fn changed(&mut self) {
        if self.pods.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Not `Clone`: exactly one writer.
struct PodSetWriter(watch::Sender<Arc<PodSet>>);

/// The ports that sources need.
#[derive(Clone)]
struct SourcePorts {
    fs: Arc<dyn Fs>,
    http: Arc<dyn HttpFetch>,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    recorder: Recorder,
    cluster: Option<ApiSource>,
}

/// The API server, and what it holds of this node's pods.
#[derive(Clone)]
pub struct ApiSource {
    /// The server.
    pub api: Arc<dyn Api>,
    /// Filled from it.
    pub copies: ApiCopies,
    /// Spreads retries.
    pub spread: Spread,
    /// Stands in for it while it does not answer, if the user wants that.
    pub fall_back: Option<FallBack>,
}

/// Starts every configured source. Returns what should run, and the objects that
/// pods may use.
pub fn start(
    settings: &Settings,
    ports: &Ports,
    recorder: &Recorder,
    cluster: Option<ApiSource>,
) -> (PodSetReader, Objects) {
    start_with(
        settings,
        &SourcePorts {
            fs: ports.fs.clone(),
            http: ports.http.clone(),
            clock: ports.clock.clone(),
            tasks: ports.tasks.clone(),
            recorder: recorder.clone(),
            cluster,
        },
    )
}

fn start_with(settings: &Settings, ports: &SourcePorts) -> (PodSetReader, Objects) {
    let (mut configured, url_news) = (Vec::new(), UrlNews::default());
    let (sender, updates) = mpsc::channel(UPDATES_MAX);
    if let Some(path) = &settings.static_pod_path {
        configured.push(Source::File);
        let source = file::Config {
            path: path.clone(),
            node_name: settings.node_name.clone(),
            root_dir: settings.root_dir.clone(),
            frequency: settings.file_check_frequency,
        };
        let (needs, sender) = (ports.clone(), sender.clone());
        supervise(&ports.tasks, "file", move || {
            file::run(source.clone(), needs.clone(), sender.clone())
        });
    }
    if let Some(url) = &settings.static_pod_url {
        configured.push(Source::Http);
        let source = http::Config {
            url: url.clone(),
            headers: settings.static_pod_url_headers.clone(),
            node_name: settings.node_name.clone(),
            frequency: settings.http_check_frequency,
        };
        let (fetch, news, sender) = (ports.http.clone(), url_news.clone(), sender.clone());
        supervise(&ports.tasks, "http", move || {
            http::run(source.clone(), fetch.clone(), news.clone(), sender.clone())
        });
    }
    let (kept, objects) = object_cache::new();
    if let Some(ApiSource { api, copies, spread, fall_back }) = ports.cluster.clone() {
        configured.push(Source::Api);
        let (node_name, objects) = (settings.node_name.clone(), objects.clone());
        let recorder = ports.recorder.clone();
        let source = api::Config { node_name, api, spread, copies, recorder, objects, fall_back };
        supervise(&ports.tasks, "api", move || api::run(source.clone(), sender.clone()));
    }
    let merger = Merger::new(configured);
    let (writer, pods) = watch::channel(Arc::new(merger.snapshot()));
    let declared = settings.admission.declared_features.clone();
    let outside = (ports.clone(), declared);
    let work = merge_updates(merger, updates, PodSetWriter(writer), kept, outside);
    ports.tasks.spawn(work);
    (PodSetReader { pods, url: url_news }, objects)
}

/// Runs a source, again if it panics: one bad manifest must not end them all.
fn supervise<F, W>(tasks: &Tasks, name: &'static str, work: W)
where
    F: Future<Output = ()> + Send + 'static,
    W: Fn() -> F + Send + 'static,
{
    let spawner = tasks.clone();
    tasks.spawn(async move {
        while let Err(error) = spawner.spawn(work()).join().await {
            if !error.is_panic() {
                return;
            }
            tracing::error!(source = name, %error, "pod source panicked, starting it again");
            tokio::time::sleep(RESTART_PAUSE).await;
        }
    });
}

async fn merge_updates(
    mut merger: Merger,
    mut updates: mpsc::Receiver<SourceUpdate>,
    writer: PodSetWriter,
    objects: ObjectsWriter,
    (ports, declared): (SourcePorts, Option<Vec<String>>),
) {
    let (mut reported, mut hidden) = (Vec::new(), BTreeSet::new());
    while let Some(mut update) = updates.recv().await {
        let source = update.source;
        let latest = std::mem::take(&mut update.objects);
        // An API server's objects come one by one, by another way.
        let brings_objects = source != Source::Api;
        if brings_objects {
            // Before the pods: what they use is there when they come.
            objects.add(source, &latest);
        }
        let applied = merger.apply(update, ports.clock.wall());
        for duplicate in applied.duplicates.iter().filter(|one| !reported.contains(*one)) {
            tracing::error!(
                source = source.as_str(),
                pod = %duplicate.full_name,
                uid = %duplicate.uid,
                "pod ignored: another one with this name or uid is already desired"
            );
            if duplicate.by_name {
                let Duplicate { full_name, uid, .. } = duplicate;
                notice::record_duplicate(&ports.recorder, source, full_name, uid);
            }
        }
        for (pod, needed) in &applied.needs {
            if let Some(text) = features::complaint(needed, declared.as_deref()) {
                let reason = "FailedNodeDeclaredFeaturesCheck";
                ports.recorder.record(pod, EventType::Warning, reason, text);
            }
        }
        reported.retain(|one: &Duplicate| one.source != source);
        reported.extend(applied.duplicates);
        if applied.changed {
            writer.0.send_replace(Arc::new(merger.snapshot()));
        }
        if !brings_objects {
            continue;
        }
        // After the pods: whoever misses an object can see whether its pod goes, too.
        let now_hidden = objects.replace(source, &latest);
        for (source, object) in now_hidden.difference(&hidden) {
            let source = source.as_str();
            tracing::error!(source, %object, "object ignored: another source defines it");
        }
        hidden = now_hidden;
    }
}
