//! Each container of a pod, of whatever kind: waiting, ended, or not ready. Pure.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};
use kubelet_model::{
    ContainerKind, RestartDecision, RestartPolicy, WaitReason, containers, restart,
};

use super::advice::{full_name, logs_command};
use super::waiting::Case;
use super::{Finding, Rank, WhyFacts, exits, not_ready, render, stopping, waiting};

/// What is found about the pod's containers, in the order of their statuses.
pub(super) fn findings(facts: &WhyFacts<'_>) -> Vec<Finding> {
    let Some(spec) = &facts.pod.spec else { return Vec::new() };
    let one = |status: &ContainerStatus| {
        let (kind, container) = containers::find(spec, &status.name)?;
        let case = Case { facts, kind, container: &container, status, message: "" };
        finding(case)
    };
    statuses(facts).filter_map(one).collect()
}

/// The statuses of init, regular and ephemeral containers.
fn statuses<'a>(facts: &WhyFacts<'a>) -> impl Iterator<Item = &'a ContainerStatus> {
    let status = facts.status;
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    lists.into_iter().flat_map(|list| list.iter().flatten())
}

fn finding(case: Case<'_>) -> Option<Finding> {
    let Case { facts, kind, container, status, .. } = case;
    let state = status.state.as_ref()?;
    if let Some(wait) = &state.waiting {
        let message = wait.message.as_deref().unwrap_or_default();
        let case = Case { message, ..case };
        let reason = wait.reason.as_deref().unwrap_or(WaitReason::ContainerCreating.as_str());
        return Some(match WaitReason::parse(reason) {
            Some(reason) => waiting::answer(reason, case),
            // A status that klet did not make.
            None => Finding::new(Rank::Failed, format!("{} waits: {reason}.", container.name))
                .waits_for(message)
                .advise(format!("`klet events {}` tells more.", full_name(facts.pod))),
        });
    }
    if let Some(ended) = &state.terminated {
        let bad = ended.exit_code != 0 || ended.reason.as_deref() == Some("OOMKilled");
        return bad.then(|| ended_badly(case, ended));
    }
    if let Some(finding) = stopping::answer(facts, container, status) {
        return Some(finding);
    }
    // Nobody waits for the readiness of these.
    let counts = !matches!(kind, ContainerKind::Init | ContainerKind::Ephemeral);
    let unready = state.running.is_some() && !status.ready && counts;
    unready.then(|| not_ready::answer(facts, container, status))
}

fn ended_badly(case: Case<'_>, ended: &ContainerStateTerminated) -> Finding {
    let Case { facts, container, .. } = case;
    let name = &container.name;
    let (code, meaning) = (ended.exit_code, exits::meaning(ended));
    let mut finding =
        Finding::new(Rank::Failed, format!("{name} ended with exit code {code}: {meaning}."))
            .since(ended.finished_at.as_ref().map(|time| time.0))
            .error(ended.message.clone().unwrap_or_default());
    if let Some(why) = stays(case, code) {
        finding = finding.advise(why);
    }
    if let Some(why) = exits::killed_by_probe(facts, name, ended) {
        finding = finding.advise(why);
    }
    finding.log = facts.logs.get(name).cloned().unwrap_or_default();
    let logs = logs_command(facts.pod, name, false);
    finding.advice.extend(exits::advice(ended, container, case.policy(), &logs));
    finding
}

/// Why a container that ended is not started again, if it is not.
fn stays(case: Case<'_>, code: i32) -> Option<&'static str> {
    let spec = case.facts.pod.spec.as_ref()?;
    if restart::after_exit(spec, case.container, case.kind, code) != RestartDecision::Stay {
        return None;
    }
    match (case.kind, &case.container.restart_policy, case.policy()) {
        (ContainerKind::Ephemeral, ..) => {
            Some("An ephemeral container is never started again: add another one.")
        }
        (_, Some(_), _) => Some(
            "The container's own restartPolicy keeps it as it is; OnFailure, or a rule in \
             restartPolicyRules for its exit code, would try again.",
        ),
        (_, None, RestartPolicy::Never) => {
            Some("restartPolicy: Never keeps it as it is; OnFailure would try again.")
        }
        (_, None, _) => None,
    }
}

/// The last restart that still shows, for a pod that is well again.
pub(super) fn last_trouble(facts: &WhyFacts<'_>) -> Option<String> {
    let ended = |status: &ContainerStatus| {
        let ended = status.last_state.clone()?.terminated?;
        let at = ended.finished_at.clone()?.0;
        let ago = render::ago(at, facts.wall);
        let (name, code, meaning) = (&status.name, ended.exit_code, exits::meaning(&ended));
        let text = match exits::killed_by_probe(facts, name, &ended) {
            Some(blame) => format!("{name} was restarted {ago}. {blame}"),
            None => {
                format!("{name} was restarted; it ended with exit code {code} {ago}: {meaning}.")
            }
        };
        Some((at, text))
    };
    let ends = facts.status.container_statuses.iter().flatten().filter_map(ended);
    ends.max_by_key(|(at, _)| *at).map(|(_, text)| text)
}
