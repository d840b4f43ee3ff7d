//! Sandboxes, containers and images as the runtime keeps them.
//!
//! Owns the objects and their transitions, after containerd's CRI plugin: name
//! reservation, states, exit records. Transitions are instants; how long calls
//! take is decided elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cri::{CallErrorKind, RuntimeEventKind, v1};
use rand::RngExt;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::Code;

use super::programs::Program;
use crate::manifest::REVISION_LABEL;
use crate::world::State;

/// Label: a pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label: a pod's uid.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label: a container's name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Longest time between an exit and its record.
const RECORD_LAG_MS_MAX: u64 = 500;

/// Everything the runtime holds.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    pub(crate) containers: BTreeMap<String, Container>,
    /// Reserved sandbox and container names.
    pub(crate) names: BTreeSet<String>,
    pub(crate) images: BTreeSet<String>,
    pub(crate) subscribers: Vec<mpsc::UnboundedSender<cri::RuntimeEvent>>,
    ips: u32,
}

pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) config: v1::PodSandboxConfig,
    pub(crate) name: String,
    pub(crate) handler: String,
    pub(crate) ready: bool,
    pub(crate) created_ns: i64,
    pub(crate) ip: String,
    /// World time at which it was asked for.
    pub(crate) asked_at: Duration,
    /// World time up to which it was ready.
    pub(crate) unready_at: Option<Duration>,
    pub(crate) foreign: bool,
}

pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    pub(crate) config: v1::ContainerConfig,
    pub(crate) reserved: String,
    pub(crate) image: String,
    pub(crate) state: v1::ContainerState,
    pub(crate) created_ns: i64,
    pub(crate) started_ns: i64,
    pub(crate) finished_ns: i64,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) log_path: String,
    /// Turns true when it has exited or is removed.
    pub(crate) ended: watch::Sender<bool>,
    /// World time of the start.
    pub(crate) ran_at: Duration,
    /// The agent was told that it runs.
    pub(crate) start_answered: bool,
    /// World time of the exit.
    pub(crate) ended_at: Duration,
    /// When the runtime's records show that it has ended, if later.
    pub(crate) recorded_at: Option<Instant>,
    pub(crate) foreign: bool,
}

impl Sandbox {
    pub(crate) fn pod(&self) -> &str {
        self.config.labels.get(POD_NAME).map_or("", String::as_str)
    }
    pub(crate) fn uid(&self) -> &str {
        self.config.labels.get(POD_UID).map_or("", String::as_str)
    }
    pub(crate) fn revision(&self) -> u64 {
        let label = self.config.labels.get(REVISION_LABEL);
        label.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
    pub(crate) fn attempt(&self) -> u32 {
        self.config.metadata.as_ref().map_or(0, |m| m.attempt)
    }
}

impl Container {
    pub(crate) fn pod(&self) -> &str {
        self.config.labels.get(POD_NAME).map_or("", String::as_str)
    }
    pub(crate) fn uid(&self) -> &str {
        self.config.labels.get(POD_UID).map_or("", String::as_str)
    }
    pub(crate) fn name(&self) -> &str {
        self.config.labels.get(CONTAINER_NAME).map_or("", String::as_str)
    }
    pub(crate) fn attempt(&self) -> u32 {
        self.config.metadata.as_ref().map_or(0, |m| m.attempt)
    }
    pub(crate) fn is_running(&self) -> bool {
        self.state == v1::ContainerState::ContainerRunning
    }
    pub(crate) fn has_exited(&self) -> bool {
        self.state == v1::ContainerState::ContainerExited
    }
    pub(crate) fn program(&self) -> Program {
        Program::of_image(&self.image).unwrap_or(Program::Deaf)
    }
}

/// When and how a process ends by itself.
pub(crate) type Exits = Option<(Duration, i32)>;

/// The id under which the runtime knows an image.
pub(crate) fn image_id(name: &str) -> String {
    format!("sha256:{}", name.trim_end_matches(":v1").replace('/', "."))
}

pub(crate) fn refused(code: Code, message: impl Into<String>) -> CallErrorKind {
    CallErrorKind::Answered { code, message: message.into() }
}

impl State {
    fn fresh_id(&mut self) -> String {
        let (high, low): (u64, u64) = (self.rng.random(), self.rng.random());
        format!("{high:016x}{low:016x}")
    }

    /// Reserves a sandbox's name, as the first step of making it.
    pub(crate) fn reserve_sandbox(
        &mut self,
        config: &v1::PodSandboxConfig,
    ) -> Result<String, CallErrorKind> {
        let Some(meta) = &config.metadata else {
            return Err(refused(Code::InvalidArgument, "sandbox config must include metadata"));
        };
        let name = format!("{}_{}_{}_{}", meta.name, meta.namespace, meta.uid, meta.attempt);
        if !self.objects.names.insert(name.clone()) {
            return Err(refused(
                Code::Unknown,
                format!("failed to reserve sandbox name {name:?}: name {name:?} is reserved"),
            ));
        }
        Ok(name)
    }

    /// Makes the sandbox visible.
    pub(crate) fn add_sandbox(
        &mut self,
        name: String,
        config: v1::PodSandboxConfig,
        handler: String,
        ready: bool,
        asked_at: Duration,
    ) -> String {
        let id = self.fresh_id();
        self.objects.ips += 1;
        let ips = self.objects.ips;
        let host = config.linux.as_ref().is_some_and(|linux| {
            linux
                .security_context
                .as_ref()
                .and_then(|context| context.namespace_options.as_ref())
                .is_some_and(|options| options.network() == v1::NamespaceMode::Node)
        });
        let sandbox = Sandbox {
            id: id.clone(),
            name,
            handler,
            ready,
            created_ns: self.wall_ns(),
            ip: if host { String::new() } else { format!("10.88.{}.{}", ips / 256, ips % 256) },
            asked_at,
            unready_at: None,
            foreign: !config.labels.contains_key(POD_UID),
            config,
        };
        let (pod, attempt) = (sandbox.pod().to_owned(), sandbox.attempt());
        self.note(
            &pod,
            format!(
                "sandbox {} made: uid {} attempt {attempt} revision {} ready {ready}",
                short(&id),
                sandbox.uid(),
                sandbox.revision()
            ),
        );
        let uid = sandbox.uid().to_owned();
        self.answers.own(&sandbox.ip, &uid);
        self.objects.sandboxes.insert(id.clone(), sandbox);
        self.announce(&id, &uid, RuntimeEventKind::Created);
        if ready {
            self.announce(&id, &uid, RuntimeEventKind::Started);
        }
        id
    }

    /// Kills everything in a sandbox and marks it not ready. Unknown is fine.
    pub(crate) fn stop_sandbox(&mut self, id: &str) {
        self.end_all_in(id);
        for container in self.containers_in(id) {
            self.record(&container);
        }
        self.unready_sandbox(id, "stopped");
    }

    /// The sandbox's own process ends; its containers run on.
    pub(crate) fn unready_sandbox(&mut self, id: &str, how: &str) {
        if let Some(uid) = self.record_dead_sandbox(id, how) {
            self.announce(id, &uid, RuntimeEventKind::Stopped);
        }
    }

    /// The records tell that a sandbox has died. Returns whose it was, if that is new.
    pub(crate) fn record_dead_sandbox(&mut self, id: &str, how: &str) -> Option<String> {
        let now = self.now();
        let sandbox = self.objects.sandboxes.get_mut(id)?;
        if !std::mem::replace(&mut sandbox.ready, false) {
            return None;
        }
        sandbox.unready_at = Some(now);
        let (pod, uid) = (sandbox.pod().to_owned(), sandbox.uid().to_owned());
        self.note(&pod, format!("sandbox {} {how}", short(id)));
        Some(uid)
    }

    /// Removes a sandbox and everything in it. Unknown is fine.
    pub(crate) fn remove_sandbox(&mut self, id: &str) {
        self.stop_sandbox(id);
        for container in self.containers_in(id) {
            self.remove_container(&container);
        }
        let Some(sandbox) = self.objects.sandboxes.remove(id) else {
            return;
        };
        self.objects.names.remove(&sandbox.name);
        self.note(sandbox.pod(), format!("sandbox {} removed", short(id)));
        self.forget_volumes(sandbox.uid());
        self.announce(id, sandbox.uid(), RuntimeEventKind::Deleted);
    }

    /// Creates a container.
    pub(crate) fn add_container(
        &mut self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
    ) -> Result<String, CallErrorKind> {
        let Some(sandbox) = self.objects.sandboxes.get(sandbox_id) else {
            let text = format!("failed to find sandbox id {sandbox_id:?}: not found");
            return Err(refused(Code::NotFound, text));
        };
        if !sandbox.ready {
            return Err(refused(
                Code::Unknown,
                "failed to get sandbox container task: no running task found",
            ));
        }
        let Some(meta) = &config.metadata else {
            return Err(refused(Code::InvalidArgument, "container config must include metadata"));
        };
        let asked = config.image.as_ref().map_or("", |image| &image.image);
        let image = self.resolve_image(asked)?;
        for mount in &config.mounts {
            self.check_mount(mount)?;
        }
        let reserved = format!("{}_{}_{}", meta.name, sandbox.uid(), meta.attempt);
        let log_path = format!("{}/{}", sandbox.config.log_directory, config.log_path);
        let foreign = sandbox.foreign;
        if !self.objects.names.insert(reserved.clone()) {
            return Err(refused(
                Code::Unknown,
                format!("failed to reserve container name {reserved:?}: name is reserved"),
            ));
        }
        let id = self.fresh_id();
        let container = Container {
            id: id.clone(),
            sandbox: sandbox_id.to_owned(),
            reserved,
            image,
            state: v1::ContainerState::ContainerCreated,
            created_ns: self.wall_ns(),
            started_ns: 0,
            finished_ns: 0,
            exit_code: 0,
            recorded_at: None,
            reason: String::new(),
            log_path,
            ended: watch::Sender::new(false),
            ran_at: Duration::ZERO,
            start_answered: false,
            ended_at: Duration::ZERO,
            foreign,
            config,
        };
        let (pod, uid) = (container.pod().to_owned(), container.uid().to_owned());
        self.note(
            &pod,
            format!(
                "container {} created: {} attempt {} in sandbox {}",
                short(&id),
                container.name(),
                container.attempt(),
                short(sandbox_id)
            ),
        );
        self.objects.containers.insert(id.clone(), container);
        self.announce(&id, &uid, RuntimeEventKind::Created);
        Ok(id)
    }

    /// The name of an image that is here, asked for by name or id.
    fn resolve_image(&self, asked: &str) -> Result<String, CallErrorKind> {
        let mut all = self.objects.images.iter();
        let found = all.find(|name| name.as_str() == asked || image_id(name) == asked);
        found.cloned().ok_or_else(|| {
            refused(Code::NotFound, format!("failed to resolve image {asked:?}: not found"))
        })
    }

    /// A mount is a path of the host or an image that is here, which can only be read.
    fn check_mount(&self, mount: &v1::Mount) -> Result<(), CallErrorKind> {
        let Some(image) = &mount.image else {
            let wrong = mount.host_path.is_empty();
            let text = "failed to mkdir \"\": mkdir : no such file or directory";
            return if wrong { Err(refused(Code::Unknown, text)) } else { Ok(()) };
        };
        if !mount.host_path.is_empty() || !mount.readonly {
            let text = "ImageVolumeMountFailed: an image is mounted read-only, from no host path";
            return Err(refused(Code::InvalidArgument, text));
        }
        self.resolve_image(&image.image).map(|_| ())
    }

    /// Starts a created container; tells when and how it ends by itself. With
    /// `fail` its process cannot be run.
    pub(crate) fn start(&mut self, id: &str, fail: bool) -> Result<Exits, CallErrorKind> {
        let container = self.objects.containers.get(id);
        let sandbox = container.and_then(|c| self.objects.sandboxes.get(&c.sandbox));
        let ready = sandbox.is_some_and(|s| s.ready);
        let (wall, now) = (self.wall_ns(), self.now());
        let Some(container) = self.objects.containers.get_mut(id) else {
            return Err(refused(Code::NotFound, format!("container {id:?}: not found")));
        };
        if container.state != v1::ContainerState::ContainerCreated {
            let text = format!("container is in {} state", container.state.as_str_name());
            return Err(refused(Code::Unknown, text));
        }
        if !ready {
            return Err(refused(Code::Unknown, "sandbox container is not running"));
        }
        container.started_ns = wall;
        let (pod, uid) = (container.pod().to_owned(), container.uid().to_owned());
        let exits = container.program().own_exit(container.attempt());
        if fail {
            container.started_ns = 0;
            self.end(id, 128, "StartError");
            return Err(refused(Code::Unknown, "failed to start containerd task: exec failed"));
        }
        container.state = v1::ContainerState::ContainerRunning;
        container.ran_at = now;
        let log = container.log_path.clone();
        let text = format!(
            "container {} runs: {} attempt {}",
            short(id),
            container.name(),
            container.attempt()
        );
        self.note(&pod, text);
        let stamp = self.wall_ns();
        self.files.write_log(&log, stamp);
        self.announce(id, &uid, RuntimeEventKind::Started);
        self.check_started(id);
        Ok(exits)
    }

    /// Gives a container another size; what is zero stays as it is.
    pub(crate) fn update_resources(
        &mut self,
        id: &str,
        new: v1::LinuxContainerResources,
    ) -> Result<(), CallErrorKind> {
        let Some(container) = self.objects.containers.get_mut(id) else {
            return Err(refused(Code::NotFound, format!("container {id:?}: not found")));
        };
        if container.has_exited() {
            return Err(refused(Code::Unknown, "container is in CONTAINER_EXITED state"));
        }
        let linux = container.config.linux.get_or_insert_default();
        let own = linux.resources.get_or_insert_default();
        for (own, new) in [
            (&mut own.cpu_shares, new.cpu_shares),
            (&mut own.cpu_quota, new.cpu_quota),
            (&mut own.cpu_period, new.cpu_period),
            (&mut own.memory_limit_in_bytes, new.memory_limit_in_bytes),
        ] {
            *own = if new == 0 { *own } else { new };
        }
        let text = format!(
            "container {} resized: shares {} quota {} memory {}",
            short(id),
            own.cpu_shares,
            own.cpu_quota,
            own.memory_limit_in_bytes
        );
        let pod = container.pod().to_owned();
        self.note(&pod, text);
        Ok(())
    }

    /// The records catch up with a container, as they have when a stop is answered.
    pub(crate) fn record(&mut self, id: &str) {
        if let Some(container) = self.objects.containers.get_mut(id) {
            container.recorded_at = None;
        }
    }

    /// A container's process ends. Not running is fine.
    pub(crate) fn end(&mut self, id: &str, code: i32, reason: &str) {
        let (wall, now) = (self.wall_ns(), self.now());
        // A runtime cleans up before it records the end, but tells of it at once.
        let lag = Duration::from_millis(self.rng.random_range(1..RECORD_LAG_MS_MAX));
        let recorded_at = self.rng.random_bool(0.3).then(|| Instant::now() + lag);
        let Some(container) = self.objects.containers.get_mut(id) else {
            return;
        };
        let created = container.state == v1::ContainerState::ContainerCreated;
        let ends = container.is_running() || (created && reason == "StartError");
        if !ends {
            return;
        }
        container.recorded_at = recorded_at.filter(|_| container.is_running());
        container.state = v1::ContainerState::ContainerExited;
        container.exit_code = code;
        container.finished_ns = wall;
        container.ended_at = now;
        container.reason = reason.to_owned();
        container.ended.send_replace(true);
        let (pod, uid) = (container.pod().to_owned(), container.uid().to_owned());
        let text = format!(
            "container {} exited: {} attempt {} code {code}",
            short(id),
            container.name(),
            container.attempt()
        );
        self.note(&pod, text);
        self.announce(id, &uid, RuntimeEventKind::Stopped);
        self.check_ended(id);
    }

    /// Removes a container, killing it if need be. Unknown is fine.
    pub(crate) fn remove_container(&mut self, id: &str) {
        self.end(id, 137, "Error");
        let Some(container) = self.objects.containers.remove(id) else {
            return;
        };
        container.ended.send_replace(true);
        self.note_removed(&container);
        self.objects.names.remove(&container.reserved);
        self.note(container.pod(), format!("container {} removed", short(id)));
        self.forget_undone_volumes(container.uid());
        self.announce(id, container.uid(), RuntimeEventKind::Deleted);
    }

    pub(crate) fn containers_in(&self, sandbox: &str) -> Vec<String> {
        let all = self.objects.containers.values();
        all.filter(|c| c.sandbox == sandbox).map(|c| c.id.clone()).collect()
    }

    fn end_all_in(&mut self, sandbox: &str) {
        for id in self.containers_in(sandbox) {
            self.end(&id, 137, "Error");
        }
    }
}

/// Enough of an id to tell objects apart in a trace.
pub(crate) fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}
