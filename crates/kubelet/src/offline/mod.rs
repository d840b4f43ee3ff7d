//! Offline autonomy: assigned pods that start again though there is no API server.
//!
//! Only when the user asks for it (`--offline-autonomy`). Owns the files of kept pods
//! ([`store`]) and is their only writer; reads what the pod source wants, what the API
//! server says of objects, and how pods ended. Gives the pod source what is kept when
//! the server does not answer as the agent starts, until it does: its word wins.
//! Never keeps a token: those live for an hour and never touch a disk, so that a pod
//! starts without the files of its tokens and gets them when the server is back.
//! Upstream has nothing like it.

mod format;
mod keeper;
mod needs;
mod plan;
mod store;
#[cfg(test)]
mod tests;

pub use keeper::{Files, Keeper};

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, PodUid, Source, token};

use crate::cluster_lists::{ClusterLists, KeptLists};
use crate::events::NodeEvents;
use crate::object_cache::{Kept, KeptNode, Objects};
use crate::ports::{Clock, Fs};
use crate::settings::Settings;
use crate::volume_manager::attach::NodeView;
use format::KeptPod;
use store::Store;

/// What the node does without its API server. Cheap to clone. The default is a node
/// that keeps nothing.
#[derive(Clone, Default)]
pub struct Offline(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// What was found at the start; gone once the server has spoken.
    kept: Option<Vec<KeptPod>>,
    running: Option<Running>,
    /// Files that were refused.
    problems: Vec<String>,
}

/// The pods that run from what was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Since when.
    pub since: Timestamp,
    /// Which.
    pub pods: BTreeSet<PodUid>,
    /// Those of them that lack a token.
    pub without_token: BTreeSet<PodUid>,
}

/// What the pod source needs to fall back on kept pods.
#[derive(Clone)]
pub struct FallBack {
    offline: Offline,
    lists: ClusterLists,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    events: NodeEvents,
}

/// Opens what is kept. A directory that cannot be used is told of: the agent goes on
/// and keeps nothing.
pub fn open(
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    settings: &Settings,
    events: NodeEvents,
    lists: ClusterLists,
) -> (Offline, Option<(FallBack, Files)>) {
    let (store, found) = match Store::open(fs, &settings.root_dir, &settings.node_name) {
        Ok(opened) => opened,
        Err(error) => {
            let dir = store::dir_below(&settings.root_dir);
            let dir = dir.display();
            tracing::error!(%dir, %error, "pods are not kept for the time without an API server");
            let problem = format!("pods are not kept on disk: {dir}: {error}");
            events.warn("KeptPodsUnusable", problem.clone());
            let state = State { problems: vec![problem], ..State::default() };
            return (Offline(Arc::new(Mutex::new(state))), None);
        }
    };
    for problem in &found.problems {
        tracing::error!(problem, "kept pod refused; it waits for the API server");
        events.warn("KeptPodRefused", format!("kept pod refused: {problem}"));
    }
    let state = State { kept: Some(found.pods), problems: found.problems, running: None };
    let offline = Offline(Arc::new(Mutex::new(state)));
    let settings = Arc::new(settings.clone());
    let fall_back =
        FallBack { offline: offline.clone(), lists, settings: settings.clone(), clock, events };
    (offline, Some((fall_back, Files { store, settings })))
}

/// Removes what an earlier life of the agent kept, which may hold Secrets, because it
/// is not to keep anything any more.
///
/// # Errors
/// It cannot be removed.
pub fn discard(fs: &dyn Fs, root: &Path) -> io::Result<()> {
    let dir = store::dir_below(root);
    if fs.stat(&dir).is_err() {
        return Ok(());
    }
    fs.remove_dir_all(&dir)?;
    tracing::info!(dir = %dir.display(), "kept pods removed: --offline-autonomy is not set");
    Ok(())
}

impl Offline {
    /// The pods that run from what was kept, while the server has not spoken.
    pub fn running(&self) -> Option<Running> {
        self.lock().running.clone()
    }

    /// What is wrong with kept pods.
    pub fn problems(&self) -> Vec<String> {
        self.lock().problems.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("offline lock: no code panics while holding it")
    }
}

impl FallBack {
    /// The server does not answer: from now on its pods are those that were kept, and
    /// so are their objects. `None` if there are none, or that was said already.
    pub fn begin(&self, objects: &Objects) -> Option<Vec<Arc<Pod>>> {
        let mut state = self.offline.lock();
        let kept = state.kept.take().filter(|kept| !kept.is_empty())?;
        let settings = &self.settings;
        let (mut all, mut pods) = (Kept::new(), Vec::new());
        let (mut known, mut node) = (KeptLists::default(), KeptNode::default());
        let anywhere = NodeView { in_cluster: true, ..NodeView::default() };
        let (mut uids, mut without_token) = (BTreeSet::new(), BTreeSet::new());
        for one in kept {
            let Some(pod) = DesiredPod::new(Source::Api, Arc::clone(&one.pod)) else { continue };
            let get = |key: &_| one.objects.get(key).cloned().flatten();
            for key in
                needs::keys(&pod, settings, &get, &anywhere).into_iter().filter(needs::is_token)
            {
                without_token.insert(pod.uid().clone());
                let withheld = Arc::new(token::withheld(&key));
                all.insert(key, Some(withheld));
            }
            uids.insert(pod.uid().clone());
            let class = pod.spec().runtime_class_name.clone();
            known.handlers.extend(class.zip(one.handler));
            known.variables.insert(pod.uid().clone(), one.variables);
            all.extend(one.objects);
            node.add(one.node);
            pods.push(one.pod);
        }
        let since = self.clock.wall();
        let text = format!(
            "The API server does not answer; {} pods run from the copies kept on this node",
            pods.len()
        );
        tracing::warn!(pods = pods.len(), "no API server: kept pods are started");
        self.events.warn("RunningKeptPods", text);
        state.running = Some(Running { since, pods: uids, without_token });
        drop(state);
        // Before the pods: what they use is there when they come.
        self.lists.fall_back(known);
        objects.fall_back(all, node);
        Some(pods)
    }

    /// The server has said which pods there are: its word counts.
    pub fn end(&self, objects: &Objects) {
        let mut state = self.offline.lock();
        state.kept = None;
        // They are replaced or removed now.
        state.problems.clear();
        let ran = state.running.take().is_some();
        drop(state);
        if ran {
            objects.end_fall_back();
            tracing::info!("the API server is back: its word counts");
            self.events.normal("ServerBack", "The API server answers again; its word counts");
        }
    }
}

#[cfg(test)]
impl FallBack {
    /// Falls back on these pods, which use no objects.
    pub(crate) fn for_test(pods: Vec<Arc<Pod>>) -> (Self, Offline) {
        let kept = |pod| KeptPod {
            pod,
            objects: Kept::new(),
            variables: Vec::new(),
            handler: None,
            node: KeptNode::default(),
        };
        let kept = pods.into_iter().map(kept).collect();
        let state = State { kept: Some(kept), ..State::default() };
        let offline = Offline(Arc::new(Mutex::new(state)));
        let settings = Arc::new(Settings::for_node("n"));
        let clock = Arc::new(crate::ports::SystemClock::new());
        let events = NodeEvents::for_test().0;
        let lists = ClusterLists::default();
        (Self { offline: offline.clone(), lists, settings, clock, events }, offline)
    }
}
