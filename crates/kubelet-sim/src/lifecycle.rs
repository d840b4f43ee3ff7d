//! Rules about the order of a pod's containers and about their hooks.
//!
//! Checked as things happen, on the runtime's objects and the manifests' record
//! only, like all of `invariants`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::container_template::ContainerTemplate;
use crate::hooks::Command;
use crate::invariants::SIGHT_LAG;
use crate::manifest::PodTemplate;
use crate::runtime::{Container, short};
use crate::world::State;

/// The least grace that anything is given.
const GRACE_FLOOR: Duration = Duration::from_secs(2);
/// How late after its time a stop may be asked for: a status read first, and
/// delays of the calls around it.
const STOP_SLACK: Duration = Duration::from_secs(5);
/// How long before its first visible call a stop may have begun.
const STOP_LEAD: Duration = Duration::from_secs(1);
/// How long after a change of the manifests a stop may be begun anew for it.
const CHANGE_LAG: Duration = Duration::from_secs(180);

/// What happened in the pods' lives.
#[derive(Default)]
pub(crate) struct Courses {
    /// Init containers that succeeded, by sandbox and name.
    succeeded: BTreeSet<(String, String)>,
    /// Every container that ran, by sandbox and name: the agent's life then.
    ran: BTreeMap<(String, String), u64>,
    /// When an exit last called for a pod to start over.
    start_over: BTreeMap<String, Duration>,
    /// First sign that a pod's regular containers are being stopped.
    ending: BTreeMap<String, Duration>,
    /// The preStop hook that was run last for an instance, until it is stopped.
    pre_stops: BTreeMap<String, (Duration, u64)>,
}

impl State {
    /// The manifest behind a container, and what it says of it.
    fn defined(&self, container: &Container) -> Option<(&PodTemplate, bool, &ContainerTemplate)> {
        let sandbox = self.objects.sandboxes.get(&container.sandbox)?;
        let template = self.oracle.in_force(sandbox.revision())?;
        let (init, defined) = template.container(container.name())?;
        Some((template, init, defined))
    }

    /// Was the pod told to start over after this time?
    pub(crate) fn started_over_since(&self, uid: &str, since: Duration) -> bool {
        self.courses.start_over.get(uid).is_some_and(|at| *at >= since)
    }

    /// Is there an exit that calls for the pod to start over?
    pub(crate) fn start_over_is_due(&self, uid: &str) -> bool {
        self.objects.containers.values().any(|c| {
            let calls = |(_, _, me): (_, _, &ContainerTemplate)| me.restarts_all(c.exit_code);
            c.uid() == uid && c.has_exited() && self.defined(c).is_some_and(calls)
        })
    }

    /// Has the pod nothing left to run, so that its sidecars must go?
    pub(crate) fn pod_is_over(&self, container: &Container) -> bool {
        let Some((template, _, _)) = self.defined(container) else { return false };
        let newest = |name: &str| {
            let all = self.objects.containers.values();
            let mine = all.filter(|c| c.uid() == container.uid() && c.name() == name);
            mine.max_by_key(|c| c.attempt())
        };
        let ended = |c: &&ContainerTemplate| {
            newest(&c.name).is_some_and(|instance| {
                instance.has_exited() && !template.restarts(&c.name, instance.exit_code)
            })
        };
        let failed = |c: &&ContainerTemplate| {
            !c.sidecar && newest(&c.name).is_some_and(|i| i.exit_code != 0) && ended(c)
        };
        // One that was stopped and removed with its sandbox counts as failed with 137:
        // convertToAPIContainerStatuses and getPhase upstream.
        let lost = |c: &&ContainerTemplate| {
            newest(&c.name).is_none()
                && c.own_restart.is_some()
                && c.never_restarts(template.restart)
                && self.last_exit(container.uid(), &c.name).is_some_and(|code| code != 0)
        };
        template.containers.iter().all(|c| ended(&c))
            || template.init.iter().any(|c| failed(&c) || lost(&c))
    }

    /// A container started: what of the pod's order it breaks.
    pub(crate) fn note_order(&mut self, id: &str) -> Vec<String> {
        let container = &self.objects.containers[id];
        let broken = self.out_of_order(container);
        let key = (container.sandbox.clone(), container.name().to_owned());
        let regular = self.defined(container).is_some_and(|(_, init, _)| !init);
        let uid = container.uid().to_owned();
        if regular {
            self.courses.ending.remove(&uid);
        }
        self.courses.ran.insert(key, self.history.life);
        broken
    }

    fn out_of_order(&self, container: &Container) -> Vec<String> {
        let Some((template, init, me)) = self.defined(container) else { return Vec::new() };
        let mut broken = Vec::new();
        let initialised = self.seems_initialised(container, template, init);
        for earlier in &template.init {
            if init && earlier.name == me.name {
                break;
            }
            let key = (container.sandbox.clone(), earlier.name.clone());
            let missing = if earlier.sidecar {
                !initialised && self.sidecar_is_missing(&key, earlier)
            } else {
                !self.courses.succeeded.contains(&key)
            };
            if missing {
                broken.push(format!("{} starts before {} got through", me.name, earlier.name));
            }
        }
        if init && !me.sidecar {
            let others = self.objects.containers.values().filter(|other| {
                other.is_running() && other.uid() == container.uid() && other.id != container.id
            });
            for other in others {
                let of = template.container(other.name());
                if of.is_some_and(|(_, of)| !of.sidecar && of.name != me.name) {
                    broken.push(format!("{} starts while {} runs", me.name, other.name()));
                }
            }
        }
        broken
    }

    /// Does something in the sandbox show that this container's turn has come before?
    /// Sidecars are then only kept running, and nothing waits for them again. As
    /// computeInitContainerActions upstream: an init container's own trace shows it,
    /// or a regular container that was created or runs, by the agent's last look.
    fn seems_initialised(&self, me: &Container, template: &PodTemplate, init: bool) -> bool {
        let mut others = self.objects.containers.values().filter(|other| {
            other.sandbox == me.sandbox && other.id != me.id && other.uid() == me.uid()
        });
        if init {
            return others.any(|other| other.name() == me.name());
        }
        let regular = |name: &str| template.containers.iter().any(|c| c.name == name);
        others.filter(|other| regular(other.name())).any(|other| {
            // Its own end the agent must have seen, unless it brought that end about.
            let unseen = other.ended_at + SIGHT_LAG >= self.now();
            let seen = other.name() == me.name() && !self.stop_was_asked(&other.id);
            !other.has_exited() || (unseen && !seen)
        })
    }

    /// A sidecar must have run in this sandbox and, where a probe tells, have
    /// started. An agent that was not there may have to guess the latter.
    fn sidecar_is_missing(&self, key: &(String, String), sidecar: &ContainerTemplate) -> bool {
        let Some(life) = self.courses.ran.get(key) else { return true };
        let probed = sidecar.probe_of(crate::container_template::ProbeRole::Startup).is_some();
        let witnessed = *life == self.history.life;
        probed && witnessed && !self.answers.has_started(&key.0, &key.1)
    }

    /// A container exited.
    pub(crate) fn note_exit(&mut self, id: &str) {
        let container = &self.objects.containers[id];
        let Some((_, init, me)) = self.defined(container) else { return };
        let succeeded = init && !me.sidecar && container.exit_code == 0;
        let starts_over = me.restarts_all(container.exit_code);
        let key = (container.sandbox.clone(), container.name().to_owned());
        let (uid, now) = (container.uid().to_owned(), self.now());
        if succeeded {
            self.courses.succeeded.insert(key);
        }
        if starts_over {
            self.courses.start_over.insert(uid, now);
        }
    }

    /// A container is removed. With the last instance goes all that it achieved: a
    /// pod that starts over has nothing left to show that it was initialised.
    pub(crate) fn note_removed(&mut self, removed: &Container) {
        let mut others = self.objects.containers.values();
        if others.any(|c| c.sandbox == removed.sandbox && c.name() == removed.name()) {
            return;
        }
        let key = (removed.sandbox.clone(), removed.name().to_owned());
        self.courses.succeeded.remove(&key);
        self.courses.ran.remove(&key);
        self.answers.forget_start(&key);
    }

    /// The agent runs a command or sends a hook's request.
    pub(crate) fn note_hook_asked(&mut self, id: &str, command: Command) {
        if matches!(command, Command::PreStop(_)) {
            self.check_pre_stop(id);
        }
    }

    /// The agent runs a preStop hook.
    fn check_pre_stop(&mut self, id: &str) {
        let Some(container) = self.objects.containers.get(id) else { return };
        let (now, life) = (self.now(), self.history.life);
        let (pod, name, uid) =
            (container.pod().to_owned(), container.name().to_owned(), container.uid().to_owned());
        let revision = self.objects.sandboxes.get(&container.sandbox).map_or(0, |s| s.revision());
        let recent = now.saturating_sub(CHANGE_LAG);
        let changed = self.oracle.changed_since(revision, recent);
        let before = self.courses.pre_stops.insert(id.to_owned(), (now, life));
        self.courses.ending.entry(uid).or_insert(now);
        if before.is_some_and(|(_, then)| then == life) && !changed {
            self.violate(&pod, format!("preStop of {name} runs twice for one stop"));
        }
    }

    /// When the agent began to stop a pod's containers, by the first call that shows it.
    pub(crate) fn stop_begun_at(&self, uid: &str, revision: u64) -> Duration {
        let first = self.courses.ending.get(uid).copied().unwrap_or(self.now());
        first.saturating_sub(self.stop_lead(revision))
    }

    /// How long before its first visible call a stop may have begun: a hook that is
    /// a pause shows nothing until it is over.
    fn stop_lead(&self, revision: u64) -> Duration {
        let pauses = self.oracle.kin_templates(revision).flat_map(|template| {
            let all = template.init.iter().chain(&template.containers);
            let hooks = all.filter_map(|c| c.pre_stop);
            hooks.filter_map(|hook| hook.pause_secs(template.grace_secs))
        });
        STOP_LEAD + Duration::from_secs(pauses.max().unwrap_or(0).into())
    }

    /// The longest grace that the agent may give a container. A probe that condemns it
    /// may have a grace of its own, longer or shorter, which then counts alone, unless
    /// there is another reason to stop: setTerminationGracePeriod upstream.
    fn longest_grace(&self, container: &Container, revision: u64) -> Duration {
        let secs = |secs: u32| Duration::from_secs(secs.into()).max(GRACE_FLOOR);
        let of_pod = self.oracle.kin_templates(revision).map(|t| secs(t.grace_secs));
        let of_pod = of_pod.max().unwrap_or(GRACE_FLOOR);
        // Nobody answers for one that has ended: which probe found that out is not known.
        let ended = !container.is_running();
        let condemning = match ended {
            true => self.probes_of(container, revision),
            false => self.condemning_probes(container, revision),
        };
        let of_probes = condemning.iter().map(|probe| probe.grace_secs.map_or(of_pod, secs)).max();
        match of_probes {
            Some(of_probes) if ended || self.pod_explains_stop(container) => of_probes.max(of_pod),
            Some(of_probes) => of_probes,
            None => of_pod,
        }
    }

    /// The agent removes a pod's control group, and with it whatever runs there.
    pub(crate) fn check_group_removed(&mut self, uid: &str) {
        let mut all = self.objects.containers.values();
        let running = all.find(|c| c.is_running() && c.uid() == uid && !self.is_unheard_of(c));
        if let Some((pod, name)) = running.map(|c| (c.pod().to_owned(), c.name().to_owned())) {
            self.violate(&pod, format!("the control group is removed while {name} runs"));
        }
    }

    /// The agent asks to stop a container within `grace`.
    pub(crate) fn check_stop_order(&mut self, id: &str, grace: Duration) {
        let Some(container) = self.objects.containers.get(id) else { return };
        let Some(sandbox) = self.objects.sandboxes.get(&container.sandbox) else { return };
        let (pod, uid) = (container.pod().to_owned(), container.uid().to_owned());
        let longest = self.longest_grace(container, sandbox.revision());
        let killed = self.killed(container.uid()).and_then(|killed| killed.grace);
        let longest = killed.map_or(longest, |most| longest.min(most.max(GRACE_FLOOR)));
        let mut broken = Vec::new();
        if grace > longest {
            broken.push(format!("{} gets {}s of grace", container.name(), grace.as_secs()));
        }
        let hook = self.courses.pre_stops.get(id);
        let hook = hook.filter(|(_, life)| *life == self.history.life);
        if hook.is_some_and(|(at, _)| *at + longest + GRACE_FLOOR + STOP_SLACK < self.now()) {
            broken.push(format!("preStop of {} outlived its grace", container.name()));
        }
        broken.extend(self.stopped_before_its_turn(container));
        let regular = self.defined(container).is_some_and(|(_, init, _)| !init);
        let now = self.now();
        self.courses.pre_stops.remove(id);
        if regular {
            self.courses.ending.entry(uid).or_insert(now);
        }
        for text in broken {
            self.violate(&pod, text);
        }
    }

    /// A sidecar outlives the regular containers, unless there is no time left.
    fn stopped_before_its_turn(&self, container: &Container) -> Option<String> {
        let (template, _, me) = self.defined(container).filter(|(_, _, me)| me.sidecar)?;
        if !container.is_running() {
            return None;
        }
        let sandbox = self.objects.sandboxes.get(&container.sandbox)?;
        let revision = sandbox.revision();
        let graces = self.oracle.kin_templates(revision).map(|t| t.grace_secs);
        let killed = self.killed(container.uid());
        let shortest = Duration::from_secs(graces.min()?.into());
        let shortest = killed.and_then(|k| k.grace).map_or(shortest, |most| shortest.min(most));
        let ending = self.courses.ending.get(container.uid()).copied();
        // Grace counts from the decision, even if the runtime cannot be reached then.
        let decided = [
            self.oracle.ends_from(revision),
            self.deadline_passed_at(revision),
            killed.map(|killed| killed.at),
        ];
        // Where every hook is a pause as long as the grace, the first stop is the first sign.
        let sign = ending.unwrap_or(self.now());
        let began = decided.into_iter().flatten().chain([sign]).min();
        // The agent's own clock began a moment before its first call.
        let lead = self.stop_lead(revision);
        let out_of_time = began.is_some_and(|at| at + shortest <= self.now() + lead);
        let own_fault = self.probes_explain_stop(container, revision)
            || self.resize_explains_stop(container, revision)
            || self.answers.hook_failed.contains(&container.id)
            || self.has_twin(container)
            || self.is_unheard_of(container);
        let undefined = !self.oracle.is_defined(revision, sandbox.asked_at);
        if out_of_time || own_fault || undefined {
            return None;
        }
        if self.started_over_since(container.uid(), container.ran_at)
            || self.start_over_is_due(container.uid())
        {
            return None;
        }
        let left = self.objects.containers.values().find(|other| {
            other.is_running()
                && other.sandbox == container.sandbox
                && !self.is_unheard_of(other)
                && template.containers.iter().any(|c| c.name == other.name())
        });
        left.map(|left| {
            format!("{} {} is stopped before {}", me.name, short(&container.id), left.name())
        })
    }
}
