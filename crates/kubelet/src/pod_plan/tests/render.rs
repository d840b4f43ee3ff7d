//! Plans as text: a line per step, per container held back, and for the timer.

use kubelet_model::{Action, ContainerResize, Steps};

use super::dsl::NOW;
use crate::pod_plan::PodPlan;

pub(super) fn plan(plan: &PodPlan) -> String {
    let mut lines: Vec<String> = lines(&plan.steps);
    for (name, waiting) in &plan.waiting {
        lines.push(format!("{name} waits: {}", waiting.reason));
    }
    if let Some(at) = plan.wake_at {
        lines.push(format!("wake {}s", at.since(NOW).as_secs()));
    }
    if plan.cut_off {
        lines.push("cut off".to_owned());
    }
    or_nothing(&lines)
}

pub(super) fn steps(steps: &Steps) -> String {
    or_nothing(&lines(steps))
}

fn lines(steps: &Steps) -> Vec<String> {
    steps.iter().map(|step| step.iter().map(action).collect::<Vec<_>>().join(" + ")).collect()
}

fn or_nothing(lines: &[String]) -> String {
    if lines.is_empty() { "nothing".to_owned() } else { lines.join("\n") }
}

fn action(action: &Action) -> String {
    match action {
        Action::CreateSandbox { attempt } => format!("create sandbox {attempt}"),
        Action::StartContainer { name, restart_count: Some(count) } => {
            format!("start {name} restarts={count}")
        }
        Action::StartContainer { name, restart_count: None } => format!("start {name}"),
        Action::StopContainer { id, grace, why, after, .. } => {
            let after: Vec<_> = after.iter().map(|name| format!(" after={name}")).collect();
            format!("stop {id} {}s {why:?}{}", grace.duration().as_secs(), after.concat())
        }
        Action::StopSandbox { id } => format!("stop sandbox {id}"),
        Action::RemoveContainer { id, keep_log: true, .. } => format!("remove {id} keep log"),
        Action::RemoveContainer { id, keep_log: false, .. } => format!("remove {id}"),
        Action::RemoveSandbox { id } => format!("remove sandbox {id}"),
        Action::LinkLog { id, .. } => format!("link {id}"),
        Action::Resize { memory, cpu, pod } => {
            let list = |what: &str, list: &[ContainerResize]| {
                let one = |change: &ContainerResize| format!(" {what}={}", change.name);
                list.iter().map(one).collect::<String>()
            };
            let pod = if *pod { " pod" } else { "" };
            format!("resize{}{}{pod}", list("memory", memory), list("cpu", cpu))
        }
        Action::RemovePodFiles => "remove files".to_owned(),
        Action::RemovePodCgroup => "remove cgroup".to_owned(),
    }
}
