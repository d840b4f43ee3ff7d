//! An executor around a runtime made of paper.

use std::sync::Arc;

use kubelet_model::{DesiredPod, Mono, ObservedPod, SandboxId};

use super::fake::FakeRuntime;
use crate::allocation::{Allocations, ResizeMetrics};
use crate::events::Recorder;
use crate::image_manager::Images;
use crate::ports::Ports;
use crate::progress::{Calls, ProgressBoard};
use crate::runtime_manager::{Executor, HookMetrics, Means, PodIdentity};
use crate::settings::Settings;

/// What executors of one test share.
pub(in crate::runtime_manager) struct Bench {
    pub(in crate::runtime_manager) runtime: Arc<FakeRuntime>,
    pub(in crate::runtime_manager) board: ProgressBoard,
    pub(in crate::runtime_manager) recorder: Recorder,
    pub(in crate::runtime_manager) means: Means,
    _dir: tempfile::TempDir,
}

impl Bench {
    pub(in crate::runtime_manager) fn new(change: impl FnOnce(&mut Settings, &mut Ports)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Arc::new(FakeRuntime::default());
        let mut ports = Ports::around(Arc::clone(&runtime) as Arc<dyn cri::Runtime>);
        let mut settings = Settings {
            root_dir: dir.path().join("root"),
            pod_logs_dir: dir.path().join("logs"),
            container_log_links_dir: dir.path().join("links"),
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            resolv_conf: None,
            ..Settings::for_node("n")
        };
        change(&mut settings, &mut ports);
        let recorder = Recorder::new(Arc::clone(&ports.clock));
        let images = Images::start(&settings, &ports, &recorder, &Default::default());
        let allocations = Allocations::load(&ports.fs, dir.path(), ResizeMetrics::default());
        let settings = Arc::new(settings);
        let hooks = HookMetrics::default();
        let means =
            Means { ports, settings, recorder: recorder.clone(), images, allocations, hooks };
        Self { runtime, board: ProgressBoard::default(), recorder, means, _dir: dir }
    }

    /// An executor for a pod; `None` for one that only the runtime knows. There is a
    /// sandbox.
    pub(in crate::runtime_manager) fn executor(&self, pod: Option<&DesiredPod>) -> Executor {
        let identity = pod.map_or_else(
            || PodIdentity { uid: "u1".into(), name: "web".into(), namespace: "ns".into() },
            PodIdentity::of,
        );
        let clock = Arc::clone(&self.means.ports.clock);
        let calls = Calls::new(self.board.clone(), clock, identity.uid.clone());
        let seen = ObservedPod::absent(identity.uid.clone(), Mono::default());
        let mut executor = Executor::new(self.means.clone(), calls, identity, pod.cloned(), &seen);
        executor.sandbox = Some((SandboxId::new("s1"), 0));
        // Where a test makes that impossible, it is about that.
        let _ = executor.make_pod_dirs();
        executor
    }

    /// `Reason: message` of every event.
    pub(in crate::runtime_manager) fn told(&self) -> Vec<String> {
        self.recorder.all().iter().map(|e| format!("{}: {}", e.reason, e.message)).collect()
    }

    /// Every call that changes something, and every command.
    pub(in crate::runtime_manager) fn calls(&self) -> Vec<String> {
        let calls = self.runtime.lock().calls.clone();
        calls.into_iter().filter(|call| !call.contains("Status")).collect()
    }
}
