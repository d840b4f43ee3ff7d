//! Rules that hold at every instant, checked as things happen.
//!
//! Owns the history of runs. Looks at the runtime's objects and the manifests'
//! record, never at the agent: whatever the agent believes, these must hold.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cri::v1;

use crate::manifest::{PodTemplate, REVISION_LABEL, Restart};
use crate::runtime::{Container, short};
use crate::world::State;

/// Changing calls per minute that only a hot loop makes: at most eight pods
/// live here, and a well-behaved agent retries each every second at most.
const CALLS_PER_MINUTE_MAX: u32 = 3_000;
/// Starts of one container per minute that only a missing back-off explains.
const STARTS_PER_MINUTE_MAX: usize = 12;

/// How long a change in the runtime may stay unseen: one listing that stands in
/// for lost events, and one that fails.
pub(crate) const SIGHT_LAG: Duration = Duration::from_secs(150);

const MINUTE: Duration = Duration::from_secs(60);

/// What ran so far.
#[derive(Default)]
pub(crate) struct History {
    runs: BTreeMap<(String, String), VecDeque<Run>>,
    minute: u64,
    calls: u32,
    /// Calls of each name.
    calls_by_name: BTreeMap<&'static str, u64>,
    /// Lives of the agent so far.
    pub(crate) life: u64,
}

struct Run {
    container: String,
    sandbox: String,
    at: Duration,
    exit_code: Option<i32>,
    /// Which life of the agent it happened in: back-off does not outlive one.
    life: u64,
    /// The agent was told that it ran.
    heard_of: bool,
    /// The agent had asked for its end: how it ended says nothing of its work.
    stop_asked: bool,
}

impl History {
    /// The agent makes a call.
    pub(crate) fn note_call(&mut self, name: &'static str) {
        *self.calls_by_name.entry(name).or_default() += 1;
    }

    /// How often it made one of this name.
    pub(crate) fn calls_of(&self, name: &str) -> u64 {
        self.calls_by_name.get(name).copied().unwrap_or(0)
    }
}

impl State {
    /// A changing call is made.
    pub(crate) fn count_call(&mut self, call: &crate::runtime::Call) {
        self.history.note_call(call.name);
        // Probes are many by design.
        if call.name == "ExecSync" {
            return;
        }
        let minute = self.now().as_secs() / 60;
        if self.history.minute != minute {
            (self.history.minute, self.history.calls) = (minute, 0);
        }
        self.history.calls += 1;
        if self.history.calls == CALLS_PER_MINUTE_MAX {
            let text = format!(
                "hot loop: {CALLS_PER_MINUTE_MAX} calls within a minute, now {}",
                call.name
            );
            self.violate(&call.pod, text);
        }
    }

    /// The agent asks for a sandbox.
    pub(crate) fn check_sandbox_asked(&mut self, config: &v1::PodSandboxConfig) {
        let label = config.labels.get(REVISION_LABEL);
        let revision = label.and_then(|text| text.parse().ok()).unwrap_or(0);
        let pod = config.metadata.as_ref().map_or("", |m| &m.name).to_owned();
        if !self.oracle.explains_start(revision, self.now()) {
            self.violate(&pod, format!("sandbox asked for revision {revision}, which is gone"));
        }
        let uid = config.metadata.as_ref().map_or("", |m| &m.uid).to_owned();
        if let Some(template) = self.oracle.in_force(revision).cloned() {
            self.check_volumes_ready(&pod, &uid, &template);
        }
        self.check_not_killed(&pod, &uid, "sandbox");
        let parent = config.linux.as_ref().map_or("", |linux| &linux.cgroup_parent);
        let uid = config.metadata.as_ref().map_or("", |m| &m.uid);
        if !parent.is_empty() && !self.groups.has(uid) {
            self.violate(&pod, format!("sandbox asked for before its control group {parent}"));
        }
    }

    /// The agent uses a sandbox.
    pub(crate) fn check_owned_sandbox(&mut self, id: &str, call: &str) {
        if self.objects.sandboxes.get(id).is_some_and(|s| s.foreign) {
            self.violate("", format!("{call} touches foreign sandbox {}", short(id)));
        }
    }

    /// The agent asks to stop or remove a sandbox.
    pub(crate) fn check_sandbox_stop_asked(&mut self, id: &str, call: &str) {
        self.check_owned_sandbox(id, call);
        for container in self.containers_in(id) {
            self.check_stop_asked(&container, call);
        }
    }

    /// The agent asks to stop or remove a container.
    pub(crate) fn check_stop_asked(&mut self, id: &str, call: &str) {
        let Some(container) = self.objects.containers.get(id) else {
            return;
        };
        if container.foreign {
            return self.violate("", format!("{call} touches foreign container {}", short(id)));
        }
        if container.is_running() && !self.stop_is_justified(container) {
            let text = format!("{call} stops {} {} for no reason", container.name(), short(id));
            let pod = container.pod().to_owned();
            self.violate(&pod, text);
        }
        // One that is stopped after it ended was not known to have ended.
        let mut runs = self.history.runs.values_mut().flatten();
        if let Some(run) = runs.find(|run| run.container == id) {
            run.stop_asked = true;
        }
    }

    /// Has the agent asked for the end of an instance?
    pub(crate) fn stop_was_asked(&self, id: &str) -> bool {
        let mut runs = self.history.runs.values().flatten();
        runs.any(|run| run.container == id && run.stop_asked)
    }

    fn stop_is_justified(&self, container: &Container) -> bool {
        let sandbox = self.objects.sandboxes.get(&container.sandbox);
        let revision = sandbox.map_or(0, |sandbox| sandbox.revision());
        self.pod_explains_stop(container) || self.probes_explain_stop(container, revision)
    }

    /// Is there a reason to stop a container other than what its own probes say?
    pub(crate) fn pod_explains_stop(&self, container: &Container) -> bool {
        let Some(sandbox) = self.objects.sandboxes.get(&container.sandbox) else {
            return true;
        };
        // What calls for a stop may be over before its hooks and its turn let it happen.
        let begun = self.stop_begun_at(container.uid(), sandbox.revision());
        let rival_sandbox = self.objects.sandboxes.values().any(|other| {
            let was_ready = other.ready || other.unready_at.is_some_and(|at| at >= begun);
            other.id != sandbox.id
                && other.uid() == sandbox.uid()
                && (was_ready || other.attempt() > sandbox.attempt())
        });
        !sandbox.ready
            || self.is_unheard_of(container)
            || rival_sandbox
            || self.has_twin(container)
            || self.oracle.explains_stop(sandbox.revision(), sandbox.asked_at)
            || self.deadline_explains_stop(sandbox.revision())
            || self.killed(container.uid()).is_some()
            || self.answers.hook_failed.contains(&container.id)
            || self.started_over_since(container.uid(), container.ran_at)
            || self.start_over_is_due(container.uid())
            || self.pod_is_over(container)
    }

    /// Nobody told the agent that it runs, and it may not have looked since.
    pub(crate) fn is_unheard_of(&self, container: &Container) -> bool {
        !container.start_answered && container.ran_at + SIGHT_LAG >= self.now()
    }

    pub(crate) fn has_twin(&self, container: &Container) -> bool {
        self.twins(container).next().is_some()
    }

    fn twins<'a>(&'a self, container: &'a Container) -> impl Iterator<Item = &'a Container> {
        self.objects.containers.values().filter(|other| {
            other.is_running()
                && other.id != container.id
                && other.uid() == container.uid()
                && other.name() == container.name()
        })
    }

    /// The agent asks to start a container.
    pub(crate) fn check_start_asked(&mut self, id: &str) {
        let Some(container) = self.objects.containers.get(id) else {
            return;
        };
        if container.foreign {
            return self
                .violate("", format!("StartContainer touches foreign container {}", short(id)));
        }
        let Some(sandbox) = self.objects.sandboxes.get(&container.sandbox) else {
            return;
        };
        let (revision, pod) = (sandbox.revision(), sandbox.pod().to_owned());
        let (uid, name) = (container.uid().to_owned(), container.name().to_owned());
        if !self.oracle.explains_start(revision, self.now()) {
            let text = format!(
                "start of {} asked for revision {revision}, which is gone",
                container.name()
            );
            self.violate(&pod, text);
        }
        self.check_not_killed(&pod, &uid, &format!("start of {name}"));
    }

    /// A container started.
    pub(crate) fn check_started(&mut self, id: &str) {
        let container = &self.objects.containers[id];
        if container.foreign {
            return;
        }
        let pod = container.pod().to_owned();
        let mut broken = Vec::new();
        if let Some(twin) = self.twins(container).next() {
            broken.push(format!(
                "two live containers {}: {} and {}",
                container.name(),
                short(id),
                short(&twin.id)
            ));
        }
        let rival = self.objects.containers.values().find(|other| {
            other.is_running() && other.pod() == pod && other.uid() != container.uid()
        });
        // Pods of the API server may have one name, if one is deleted by force.
        let of_api = self.objects.sandboxes.get(&container.sandbox);
        let of_api = of_api.is_some_and(|sandbox| self.oracle.is_of_api(sandbox.revision()));
        if let Some(rival) = rival.filter(|_| !of_api) {
            broken.push(format!(
                "two static pods of one name live: uid {} and uid {}",
                container.uid(),
                rival.uid()
            ));
        }
        broken.extend(self.rerun_of_finished(container));
        let mounts = container.config.mounts.clone();
        let name = container.name().to_owned();
        broken.extend(self.check_volumes_kept(id, &name, &mounts));
        let container = &self.objects.containers[id];
        let key = (container.uid().to_owned(), container.name().to_owned());
        broken.extend(self.remember_run(key, id));
        broken.extend(self.note_order(id));
        for text in broken {
            self.violate(&pod, text);
        }
    }

    /// A finished container must not run again, whoever forgot that it finished.
    fn rerun_of_finished(&self, container: &Container) -> Option<String> {
        let sandbox = self.objects.sandboxes.get(&container.sandbox)?;
        let template = self.oracle.in_force(sandbox.revision())?;
        let key = (container.uid().to_owned(), container.name().to_owned());
        let last = self.history.runs.get(&key)?.back()?;
        let finished = self.is_finished(template, container, last);
        // An agent that never heard of a run cannot know that it took place.
        let excused = !last.heard_of || self.oracle.explains_stop(sandbox.revision(), last.at);
        (finished && !excused).then(|| {
            format!(
                "{} runs again (attempt {}) though {} is {}",
                container.name(),
                container.attempt(),
                short(&last.container),
                if last.exit_code == Some(0) { "done" } else { "failed for good" }
            )
        })
    }

    fn is_finished(&self, template: &PodTemplate, container: &Container, last: &Run) -> bool {
        let Some((init, me)) = template.container(container.name()) else { return false };
        if me.sidecar || self.started_over_since(container.uid(), last.at) {
            return false;
        }
        match last.exit_code {
            // An init container's work is lost with its sandbox.
            Some(0) if init => last.sandbox == container.sandbox && !last.stop_asked,
            // Stopped with its sandbox, before it was known to have ended: the new one
            // runs it anew, whatever its own policy, unless the pod never restarts.
            Some(_) if last.stop_asked && last.sandbox != container.sandbox => {
                template.restart == Restart::Never
            }
            Some(0) if last.stop_asked => me.never_restarts(template.restart),
            Some(code) => !me.restarts(template.restart, code),
            None => me.never_restarts(template.restart),
        }
    }

    fn remember_run(&mut self, key: (String, String), id: &str) -> Option<String> {
        let (now, life) = (self.now(), self.history.life);
        let (uid, name) = key.clone();
        let sandbox = self.objects.containers[id].sandbox.clone();
        let runs = self.history.runs.entry(key).or_default();
        runs.push_back(Run {
            container: id.to_owned(),
            sandbox: sandbox.clone(),
            at: now,
            exit_code: None,
            life,
            heard_of: false,
            stop_asked: false,
        });
        if runs.len() > STARTS_PER_MINUTE_MAX {
            let oldest = runs.pop_front()?;
            // A sandbox that dies takes its containers along without their fault.
            // An exit that starts the whole pod over knows no back-off, as upstream.
            let same_cause = oldest.life == life && oldest.sandbox == sandbox;
            let (at, recent) = (oldest.at, oldest.at + MINUTE > now);
            if recent && same_cause && !self.started_over_since(&uid, at) {
                return Some(format!(
                    "{name} started {STARTS_PER_MINUTE_MAX} times within a minute"
                ));
            }
        }
        None
    }

    /// The agent was told that a container runs.
    pub(crate) fn hear_of_start(&mut self, id: &str) {
        if let Some(container) = self.objects.containers.get_mut(id) {
            container.start_answered = true;
        }
        let mut runs = self.history.runs.values_mut().flatten();
        if let Some(run) = runs.find(|run| run.container == id) {
            run.heard_of = true;
        }
    }

    /// How the last run of a container ended, if it has.
    pub(crate) fn last_exit(&self, uid: &str, name: &str) -> Option<i32> {
        let runs = self.history.runs.get(&(uid.to_owned(), name.to_owned()))?;
        runs.back()?.exit_code
    }

    /// A container exited.
    pub(crate) fn check_ended(&mut self, id: &str) {
        let container = &self.objects.containers[id];
        let key = (container.uid().to_owned(), container.name().to_owned());
        let code = container.exit_code;
        let runs = self.history.runs.get_mut(&key);
        let run = runs.and_then(|runs| runs.iter_mut().find(|run| run.container == id));
        if let Some(run) = run {
            run.exit_code = Some(code);
        }
        self.note_exit(id);
    }
}
