//! Putting a pod's new size in force: its control group and its running containers.
//!
//! While a container's size changes, nobody knows it: the record is taken back before
//! the runtime is asked, and kept again only when the pod's group has followed. A
//! resize that is cut short anywhere is so done again in full. Upstream: doPodResizeAction in
//! pkg/kubelet/kuberuntime/kuberuntime_manager.go.

use std::collections::BTreeMap;

use cgroups::Limits;
use cri::{CallError, CallErrorKind, v1};
use k8s_openapi::api::core::v1::Container;
use kubelet_model::{ContainerId, ContainerResize, DesiredPod, Sizes};

use super::executor::{ActionError, Executor};
use super::{resources, sandbox_resources};
use crate::container_manager::PodContainers;
use crate::pod_plan::{Resource, Stage, stages};

/// A resize under way.
struct Course<'a> {
    pod: &'a DesiredPod,
    groups: PodContainers,
    /// What the pod's group has now; `None` where pods have no groups.
    now: Option<Limits>,
    wanted: Limits,
    /// What each container has now.
    sizes: BTreeMap<ContainerId, Sizes>,
}

impl Executor {
    pub(super) async fn resize(
        &self,
        memory: &[ContainerResize],
        cpu: &[ContainerResize],
        pod_too: bool,
    ) -> Result<(), ActionError> {
        let began = self.ports.clock.mono();
        let outcome = self.try_resize(memory, cpu, pod_too).await;
        let took = self.ports.clock.mono().since(began);
        self.allocations.metrics().observe(outcome.is_ok(), took);
        outcome
    }

    async fn try_resize(
        &self,
        memory: &[ContainerResize],
        cpu: &[ContainerResize],
        pod_too: bool,
    ) -> Result<(), ActionError> {
        let pod = self.spec("Resize")?;
        let failed = |message| ActionError::NotResized { message };
        let groups = self.pod_containers();
        let now = groups.limits(pod).map_err(|error| {
            failed(format!("unable to get pod cgroup config for pod {:?}: {error}", who(pod)))
        })?;
        let both = memory.iter().chain(cpu);
        let mut course = Course {
            pod,
            wanted: groups.wanted_limits(pod),
            groups,
            now,
            sizes: both.map(|c| (c.id.clone(), c.from.unwrap_or(c.to))).collect(),
        };
        if !memory.is_empty() || pod_too {
            self.check_memory(&course, memory).await.map_err(failed)?;
        }
        for (resource, changes) in [(Resource::Memory, memory), (Resource::Cpu, cpu)] {
            if !changes.is_empty() || pod_too {
                self.resize_one(&mut course, resource, changes).await.map_err(failed)?;
            }
        }
        self.allocations.note_whole(pod);
        Ok(())
    }

    async fn resize_one(
        &self,
        course: &mut Course<'_>,
        resource: Resource,
        changes: &[ContainerResize],
    ) -> Result<(), String> {
        let order = match &course.now {
            Some(now) => stages(resource, now, &course.wanted),
            None => vec![Stage::Containers],
        };
        for stage in order {
            match stage {
                Stage::PodLimit | Stage::PodRequest => {
                    self.resize_pod(course, resource, stage).await?;
                }
                Stage::Containers => {
                    for change in changes {
                        self.resize_container(course, resource, change).await?;
                    }
                }
            }
        }
        for change in changes {
            self.keep(course, change);
        }
        Ok(())
    }

    /// Keeps what a container was given.
    fn keep(&self, course: &Course<'_>, change: &ContainerResize) {
        let Some((_, container)) = course.pod.container(change.name.as_str()) else { return };
        let sizes = course.sizes.get(&change.id).copied().unwrap_or(change.to);
        let resources = sized(&container, sizes).resources.unwrap_or_default();
        self.allocations.note_container(course.pod, change.name.as_str(), &resources);
    }

    async fn resize_container(
        &self,
        course: &mut Course<'_>,
        resource: Resource,
        change: &ContainerResize,
    ) -> Result<(), String> {
        let Some((_, container)) = course.pod.container(change.name.as_str()) else {
            return Err(format!("container {:?} is not of the pod", change.name.as_str()));
        };
        let now = course.sizes.get(&change.id).copied().unwrap_or(change.to);
        let next = match resource {
            Resource::Memory => now.with_memory_of(change.to),
            Resource::Cpu => now.with_cpu_of(change.to),
        };
        let (rules, memory_bytes) = (&self.settings.resources, self.settings.memory_bytes);
        let wanted =
            resources::linux_resources(course.pod, &sized(&container, next), rules, memory_bytes);
        self.allocations.note_unknown(course.pod, change.name.as_str());
        let _call = self.calls.begin(format!("UpdateContainerResources {}", change.name));
        let answer = self.ports.runtime.update_container_resources(change.id.as_str(), wanted);
        answer.await.map_err(|error| error.reason_text())?;
        course.sizes.insert(change.id.clone(), next);
        Ok(())
    }

    /// The runtime hears of it first: it may refuse.
    async fn resize_pod(
        &self,
        course: &mut Course<'_>,
        resource: Resource,
        stage: Stage,
    ) -> Result<(), String> {
        let wanted = &course.wanted;
        let change = match (resource, stage) {
            (Resource::Memory, _) => {
                Limits { memory_bytes: wanted.memory_bytes, ..Limits::default() }
            }
            (Resource::Cpu, Stage::PodRequest) => {
                Limits { cpu_shares: wanted.cpu_shares, ..Limits::default() }
            }
            (Resource::Cpu, _) => Limits {
                cpu_quota_us: wanted.cpu_quota_us,
                cpu_period_us: wanted.cpu_period_us,
                ..Limits::default()
            },
        };
        let before = course.now.clone().unwrap_or_default();
        let after = merged(&before, &change);
        self.tell_sandbox(course.pod, &after).await.map_err(|error| {
            let (resource, why) = (resource.as_str(), error.reason_text());
            format!(
                "failed to notify runtime for UpdatePodSandboxResources (resource={resource}); \
                 resize rejected: {why}"
            )
        })?;
        if let Err(error) = course.groups.set_limits(course.pod, change) {
            if let Err(error) = self.tell_sandbox(course.pod, &before).await {
                tracing::warn!(pod = %course.pod.full_name(), %error, "runtime not told that the pod keeps its size");
            }
            return Err(error.to_string());
        }
        course.now = Some(after);
        Ok(())
    }

    async fn tell_sandbox(&self, pod: &DesiredPod, limits: &Limits) -> Result<(), CallError> {
        let Some((sandbox, _)) = &self.sandbox else { return Ok(()) };
        let overhead = sandbox_resources::of_overhead(pod.spec(), &self.settings.resources);
        let resources = without_overhead(limits, &overhead);
        let runtime = &self.ports.runtime;
        let _call = self.calls.begin("UpdatePodSandboxResources");
        match runtime.update_pod_sandbox_resources(sandbox.as_str(), overhead, resources).await {
            Err(error) if is_not_offered(&error) => Ok(()),
            answer => answer,
        }
    }

    /// A limit below what is used now would kill: better not to begin.
    async fn check_memory(
        &self,
        course: &Course<'_>,
        changes: &[ContainerResize],
    ) -> Result<(), String> {
        let mut wrong = Vec::new();
        if let Some(limit) = falling_limit(course.now.as_ref(), &course.wanted) {
            match course.groups.memory_usage(course.pod) {
                Ok(Some(used)) if used >= limit => wrong.push(format!(
                    "attempting to set pod memory limit ({limit}) below current usage ({used})"
                )),
                Ok(Some(_)) => {}
                Ok(None) => wrong.push("missing pod memory usage".to_owned()),
                Err(error) => {
                    let pod = who(course.pod);
                    return Err(format!("unable to read memory usage for pod {pod:?}: {error}"));
                }
            }
        }
        let falls = |change: &&ContainerResize| {
            let (from, to) = (change.from.unwrap_or_default(), change.to);
            let (from, to) = (from.memory_limit, to.memory_limit);
            to != 0 && (from == 0 || to < from)
        };
        let falling: Vec<&ContainerResize> = changes.iter().filter(falls).collect();
        if !falling.is_empty() {
            wrong.extend(self.above_limits(course.pod, &falling).await?);
        }
        match &wrong[..] {
            [] => Ok(()),
            [one] => Err(format!("cannot decrease memory limits: {one}")),
            many => Err(format!("cannot decrease memory limits: [{}]", many.join(", "))),
        }
    }

    async fn above_limits(
        &self,
        pod: &DesiredPod,
        falling: &[&ContainerResize],
    ) -> Result<Vec<String>, String> {
        let _call = self.calls.begin("ListContainerStats");
        let stats = self.ports.runtime.list_container_stats().await.map_err(|error| {
            format!("unable to read memory usage for pod {:?}: {}", who(pod), error.reason_text())
        })?;
        let mut wrong = Vec::new();
        for change in falling {
            let of_this = |s: &&v1::ContainerStats| {
                s.attributes.as_ref().is_some_and(|a| a.id == change.id.as_str())
            };
            let memory = stats.iter().find(of_this).and_then(|stats| stats.memory.as_ref());
            let usage = memory.and_then(|memory| memory.usage_bytes.or(memory.working_set_bytes));
            let (name, limit) = (change.name.as_str(), change.to.memory_limit);
            let Some(used) = usage.map(|usage| usage.value) else {
                wrong.push(format!("missing container {name:?} memory usage"));
                continue;
            };
            if used >= u64::try_from(limit).unwrap_or(0) {
                wrong.push(format!(
                    "attempting to set container {name:?} memory limit ({limit}) below current \
                     usage ({used})"
                ));
            }
        }
        Ok(wrong)
    }
}

/// A pod as upstream's messages name it.
fn who(pod: &DesiredPod) -> String {
    format!("{}_{}({})", pod.name(), pod.namespace(), pod.uid())
}

/// The container with this size; what cannot be resized stays as it is.
fn sized(container: &Container, sizes: Sizes) -> Container {
    let mut resources = container.resources.clone().unwrap_or_default();
    let new = sizes.requirements();
    resources.limits.get_or_insert_default().extend(new.limits.unwrap_or_default());
    resources.requests.get_or_insert_default().extend(new.requests.unwrap_or_default());
    Container { resources: Some(resources), ..container.clone() }
}

/// The memory limit of the pod, if it is to fall.
fn falling_limit(now: Option<&Limits>, wanted: &Limits) -> Option<u64> {
    let now = now?.memory_bytes?;
    let wanted = wanted.memory_bytes.filter(|wanted| *wanted > 0 && (now < 0 || *wanted < now))?;
    u64::try_from(wanted).ok()
}

fn merged(limits: &Limits, change: &Limits) -> Limits {
    let mut merged = limits.clone();
    merged.memory_bytes = change.memory_bytes.or(limits.memory_bytes);
    merged.cpu_shares = change.cpu_shares.or(limits.cpu_shares);
    merged.cpu_quota_us = change.cpu_quota_us.or(limits.cpu_quota_us);
    merged.cpu_period_us = change.cpu_period_us.or(limits.cpu_period_us);
    merged
}

/// What the sandbox holds beside its own overhead. No limit is told as none.
fn without_overhead(
    limits: &Limits,
    overhead: &v1::LinuxContainerResources,
) -> v1::LinuxContainerResources {
    let less = |value: Option<i64>, overhead: i64| match value {
        Some(value) if value > 0 => value.saturating_sub(overhead).max(0),
        _ => 0,
    };
    let shares = limits.cpu_shares.and_then(|shares| i64::try_from(shares).ok());
    let period = limits.cpu_period_us.and_then(|period| i64::try_from(period).ok());
    v1::LinuxContainerResources {
        cpu_shares: less(shares, overhead.cpu_shares),
        cpu_quota: less(limits.cpu_quota_us, overhead.cpu_quota),
        cpu_period: period.unwrap_or(0),
        memory_limit_in_bytes: less(limits.memory_bytes, overhead.memory_limit_in_bytes),
        ..Default::default()
    }
}

/// Some releases of containerd say so in words only.
fn is_not_offered(error: &CallError) -> bool {
    let in_words = matches!(&error.kind, CallErrorKind::Answered { code, message }
        if *code == tonic::Code::Unknown && message.contains("not implemented"));
    error.is_unimplemented() || in_words
}
