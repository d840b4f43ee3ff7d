//! Facts as text: a pod, what the runtime holds of it, what its worker remembers.
//!
//! ```text
//! web Always app,db grace=5: sandbox 1 ready; app exited=1 ago=3s restarts=2 crashes=2
//! ```
//!
//! Before the colon: the pod, as `dsl_pod.rs` says. After it, separated by `;`:
//!
//! - `sandbox <attempt> ready|dead [noip] [hostnet] [id=<id>]`; without any such
//!   item there is one ready sandbox of attempt 0, unless `no sandbox` says otherwise;
//! - `<container> running|created|unknown|exited=<code> [restarts=<n>] [ago=<s>]
//!   [in=<attempt>] [changed] [oom] [id=<id>]`, what its probes say:
//!   `[startup=<r>] [liveness=<r>]`, each `ok`, `failed` or `unknown`; and what the
//!   worker remembers of it: `[crashes=<n>] [ran=<s>]`;
//! - `<container> … had=<cpu>/<cpu>/<memory>/<memory>`: what it was last given,
//!   requests before limits;
//! - `<container> failed=<reason> retry=<s>`: its last start failed.

#[path = "dsl_pod.rs"]
mod pod_text;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use kubelet_model::hash::container_hash;
use kubelet_model::{
    BackoffPolicy, ContainerName, ContainerState, DesiredPod, Exit, Mono, ObservedContainer,
    ObservedPod, ObservedSandbox, PodResources, PodUid, ProbeKind, ProbeResult, ProbeResults,
    SandboxId, WaitReason, Waiting,
};

use crate::pod_plan::{Memory, PlanContext};

pub use pod_text::pod;

/// Monotonic now of every scene.
pub const NOW: Mono = Mono(Duration::from_secs(100_000));
/// Upstream's crash-loop back-off.
pub const BACKOFF: BackoffPolicy = BackoffPolicy {
    initial: Duration::from_secs(10),
    max: Duration::from_secs(300),
    forget_after: Duration::from_secs(600),
};

/// Wall-clock now of every scene: 2026-01-02T03:04:05.6Z.
pub fn wall() -> Timestamp {
    Timestamp::new(1_767_323_045, 600_000_000).expect("a valid time")
}

/// All facts of one plan.
#[derive(Clone)]
pub struct Scene {
    pub pod: DesiredPod,
    pub seen: ObservedPod,
    pub memory: Memory,
    pub probes: ProbeResults,
    pub actuated: Option<PodResources>,
}

impl Scene {
    pub fn context(&self, max_dead: u32) -> PlanContext<'_> {
        PlanContext {
            now: NOW,
            wall: wall(),
            memory: &self.memory,
            backoff: BACKOFF,
            max_dead,
            probes: &self.probes,
            actuated: self.actuated.as_ref(),
        }
    }
}

/// Short enough to read when a property fails.
impl fmt::Debug for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.pod.spec();
        let init = spec.init_containers.iter().flatten();
        let describe = |c: &Container| {
            let policy = c.restart_policy.as_deref().unwrap_or_default();
            let startup = if c.startup_probe.is_some() { "!" } else { "" };
            format!("{}{startup}/{policy}{:?}", c.name, c.restart_policy_rules)
        };
        let names: Vec<_> = init.chain(&spec.containers).map(describe).collect();
        write!(f, "{} {}", spec.restart_policy.as_deref().unwrap_or_default(), names.join(","))?;
        for s in &self.seen.sandboxes {
            write!(f, "; sandbox {} ready={} hostnet={}", s.attempt, s.ready, s.host_network)?;
            write!(f, " ips={:?}", s.ips)?;
        }
        for c in &self.seen.containers {
            let changed = c.hash != instance(c.name.as_str(), 0).hash;
            write!(f, "; {} in={} changed={changed} {:?}", c.id, c.sandbox, c.state)?;
        }
        write!(f, "; {:?}; {:?}", self.memory, self.probes)
    }
}

/// `<cpu>/<cpu>/<memory>/<memory>`, requests before limits.
pub fn requirements(text: &str) -> ResourceRequirements {
    pod_text::requirements(text)
}

/// The image of every container of a scene, by its name.
pub fn image_of(name: &str) -> String {
    format!("registry/{name}:1")
}

/// Reads a scene; a typo panics with the word.
pub fn scene(text: &str) -> Scene {
    let (head, items) = text.split_once(':').expect("a scene has a colon");
    let pod = pod(head);
    let hostnet = pod.spec().host_network == Some(true);
    let mut scene = Scene {
        pod,
        seen: ObservedPod::absent(PodUid::new("u1"), NOW),
        memory: Memory::default(),
        probes: ProbeResults::default(),
        actuated: None,
    };
    scene.memory.note_definition(&scene.pod);
    let items: Vec<&str> = items.split(';').map(str::trim).filter(|i| !i.is_empty()).collect();
    let (sandboxes, containers): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|i| i.starts_with("sandbox ") || *i == "no sandbox");
    let default = ["sandbox 0 ready"];
    let sandboxes = if sandboxes.is_empty() { &default[..] } else { &sandboxes };
    for item in sandboxes.iter().filter(|item| **item != "no sandbox") {
        scene.seen.sandboxes.push(sandbox(item, hostnet));
    }
    scene.seen.sort();
    for item in containers {
        add_container(&mut scene, item);
    }
    scene.seen.sort();
    let Scene { seen, memory, .. } = &mut scene;
    memory.note_observation(seen, NOW);
    // Links are planned once per container; scenes begin after that.
    memory.linked_logs.extend(seen.containers.iter().map(|c| c.id.clone()));
    scene
}

fn sandbox(item: &str, pod_hostnet: bool) -> ObservedSandbox {
    let mut words = item.split_whitespace().skip(1);
    let attempt: u32 = number(words.next().expect("a sandbox has an attempt"));
    let mut sandbox = ObservedSandbox {
        id: SandboxId::new(format!("s{attempt}")),
        attempt,
        ready: false,
        created_at: wall(),
        host_network: pod_hostnet,
        ips: if pod_hostnet { Vec::new() } else { vec![format!("10.0.0.{}", attempt % 250 + 1)] },
    };
    for word in words {
        match word.split_once('=') {
            Some(("id", id)) => sandbox.id = SandboxId::new(id),
            None if word == "ready" => sandbox.ready = true,
            None if word == "dead" => {}
            None if word == "noip" => sandbox.ips.clear(),
            None if word == "hostnet" => sandbox.host_network = true,
            _ => panic!("unknown word {word:?} in {item:?}"),
        }
    }
    sandbox
}

fn add_container(scene: &mut Scene, item: &str) {
    let mut words = item.split_whitespace();
    let name = words.next().expect("a container has a name");
    let newest = scene.seen.sandboxes.first().map(|s| s.attempt);
    let mut instance = instance(name, newest.unwrap_or(0));
    let (mut ago, mut ran) = (Duration::ZERO, Duration::from_secs(1));
    let (mut crashes, mut failed, mut id, mut oom) = (0, None, None, false);
    let mut probes = Vec::new();
    for word in words {
        match word.split_once('=') {
            None => match word {
                "running" => instance.state = ContainerState::Running { started_at: wall() },
                "created" => instance.state = ContainerState::Created,
                "unknown" => instance.state = ContainerState::Unknown,
                "changed" => instance.hash = Some(container_hash(name, "registry/other:1")),
                "oom" => oom = true,
                _ => panic!("unknown word {word:?} in {item:?}"),
            },
            Some(("startup", result)) => probes.push((ProbeKind::Startup, probe_result(result))),
            Some(("liveness", result)) => probes.push((ProbeKind::Liveness, probe_result(result))),
            Some(("exited", code)) => instance.state = ContainerState::Exited(exit(number(code))),
            Some(("restarts", count)) => instance.restart_count = number(count),
            Some(("in", attempt)) => instance.sandbox = SandboxId::new(format!("s{attempt}")),
            Some(("had", sizes)) => {
                let actuated = scene.actuated.get_or_insert_default();
                actuated.containers.insert(name.to_owned(), requirements(sizes));
            }
            Some(("id", text)) => id = Some(text),
            Some(("ago", text)) => ago = seconds(text),
            Some(("ran", text)) => ran = seconds(text),
            Some(("crashes", count)) => crashes = number(count),
            Some(("failed", reason)) => failed = Some((wait_reason(reason), Duration::ZERO)),
            Some(("retry", text)) => failed = failed.map(|(reason, _)| (reason, seconds(text))),
            Some(_) => panic!("unknown word {word:?} in {item:?}"),
        }
    }
    let container = ContainerName::new(name);
    if let Some((reason, pause)) = failed {
        let waiting = Waiting { reason, message: "it said no".to_owned() };
        scene.memory.note_failed_start(&container, waiting, pause, NOW);
        return;
    }
    let number = instance.restart_count;
    instance.id = id.map_or_else(|| format!("{name}-{number}"), str::to_owned).as_str().into();
    if let ContainerState::Exited(exit) = &mut instance.state {
        exit.finished_at = wall() - ago;
        exit.started_at = Some(wall() - ago - ran);
        if oom {
            exit.reason = "OOMKilled".to_owned();
        }
    }
    for (kind, result) in probes {
        scene.probes.set(&instance.id, kind, result);
    }
    // Starts after an exit, the last of them just before this instance's run.
    let mut earlier = ObservedPod::absent(PodUid::new("u1"), NOW);
    earlier.containers.push(ObservedContainer {
        id: "earlier".into(),
        state: ContainerState::Exited(exit(1)),
        ..instance.clone()
    });
    for _ in 0..crashes {
        scene.memory.note_start(&earlier, &container, BACKOFF, NOW - ago - ran);
    }
    scene.seen.containers.push(instance);
}

/// An instance as the agent would have made it.
pub fn instance(name: &str, sandbox_attempt: u32) -> ObservedContainer {
    ObservedContainer {
        id: "".into(),
        name: ContainerName::new(name),
        sandbox: SandboxId::new(format!("s{sandbox_attempt}")),
        restart_count: 0,
        hash: Some(container_hash(name, &image_of(name))),
        created_at: wall(),
        image: image_of(name),
        image_id: format!("sha256:{name}"),
        user: None,
        stop_signal: None,
        grace: None,
        resources: None,
        log_path: String::new(),
        state: ContainerState::Created,
    }
}

/// An exit as runtimes report it.
pub fn exit(code: i32) -> Exit {
    Exit {
        code,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: String::new(),
        started_at: Some(wall()),
        finished_at: wall(),
    }
}

fn probe_result(text: &str) -> ProbeResult {
    match text {
        "ok" => ProbeResult::Success,
        "failed" => ProbeResult::Failure,
        "unknown" => ProbeResult::Unknown,
        _ => panic!("unknown result {text:?}"),
    }
}

fn wait_reason(text: &str) -> WaitReason {
    match text {
        "ErrImagePull" => WaitReason::ErrImagePull,
        "ImagePullBackOff" => WaitReason::ImagePullBackOff,
        "CreateContainerError" => WaitReason::CreateContainerError,
        "RunContainerError" => WaitReason::RunContainerError,
        _ => panic!("unknown reason {text:?}"),
    }
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(number(text.strip_suffix('s').expect("a time ends in s")))
}

fn number<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text:?}"))
}
