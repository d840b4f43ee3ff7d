//! Whether a container that ended, or was made to end, starts again.
//!
//! Rules of the container come first, then its own policy, then its pod's.
//! Sidecars always start again, ephemeral containers never do.
//! Upstream: ContainerShouldRestart in pkg/api/v1/pod.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec};

use crate::containers::ContainerKind;
use crate::ids::ContainerName;
use crate::observed::{ContainerState, ObservedContainer, ObservedPod};

/// The action of a rule by which the whole pod starts over.
const RESTART_ALL: &str = "RestartAllContainers";

/// When something that ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Restart whatever ended.
    Always,
    /// Restart what failed.
    OnFailure,
    /// Restart nothing.
    Never,
}

/// What follows from one container's exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    /// It stays as it is.
    Stay,
    /// It starts again.
    Restart,
    /// The whole pod starts over, init containers and all.
    RestartAll,
}

impl RestartPolicy {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "Always" => Some(Self::Always),
            "OnFailure" => Some(Self::OnFailure),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Does it restart what ended with this code?
    pub fn restarts(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// The policy of a validated pod.
pub fn restart_policy(spec: &PodSpec) -> RestartPolicy {
    let own = spec.restart_policy.as_deref().and_then(RestartPolicy::parse);
    own.unwrap_or(RestartPolicy::Always)
}

/// A container's own policy, else its pod's.
pub fn container_policy(spec: &PodSpec, container: &Container) -> RestartPolicy {
    let own = container.restart_policy.as_deref().and_then(RestartPolicy::parse);
    own.unwrap_or_else(|| restart_policy(spec))
}

/// What follows from the exit of a container.
pub fn after_exit(
    spec: &PodSpec,
    container: &Container,
    kind: ContainerKind,
    exit_code: i32,
) -> RestartDecision {
    if kind == ContainerKind::Ephemeral {
        return RestartDecision::Stay;
    }
    if let Some(by_rule) = by_rule(container, exit_code) {
        return by_rule;
    }
    let again =
        kind == ContainerKind::Sidecar || container_policy(spec, container).restarts(exit_code);
    if again { RestartDecision::Restart } else { RestartDecision::Stay }
}

/// Does a container start again that was stopped, or lost, before it ended by
/// itself? There is no exit code yet, so rules have no say.
pub fn after_kill(spec: &PodSpec, container: &Container, kind: ContainerKind) -> bool {
    match kind {
        ContainerKind::Sidecar => true,
        ContainerKind::Ephemeral => false,
        ContainerKind::Init | ContainerKind::Regular => {
            container_policy(spec, container) != RestartPolicy::Never
        }
    }
}

/// May a container in this state be started (again)?
pub fn should_start(
    spec: &PodSpec,
    container: &Container,
    kind: ContainerKind,
    state: Option<&ContainerState>,
) -> bool {
    match state {
        None => true,
        Some(ContainerState::Running { .. }) => false,
        Some(_) if kind == ContainerKind::Ephemeral => false,
        Some(ContainerState::Created | ContainerState::Unknown) => true,
        Some(ContainerState::Exited(exit)) => {
            after_exit(spec, container, kind, exit.code) != RestartDecision::Stay
        }
    }
}

/// Does the end of one of its containers call for the whole pod to start over?
/// Such a pod has not ended, whatever its policy says. Ephemeral containers have no say.
pub fn starts_over(spec: &PodSpec, seen: &ObservedPod) -> bool {
    regular_and_init(spec).any(|container| {
        let current = seen.current(&ContainerName::new(&container.name));
        current.is_some_and(|instance| is_cause(container, instance))
    })
}

/// Is this the instance whose end makes its pod start over?
pub fn is_cause(container: &Container, instance: &ObservedContainer) -> bool {
    matches!(&instance.state, ContainerState::Exited(exit)
        if by_rule(container, exit.code) == Some(RestartDecision::RestartAll))
}

/// Is there any end of a container by which the pod would start over?
pub fn could_start_over(spec: &PodSpec) -> bool {
    let mut rules = regular_and_init(spec).flat_map(|c| c.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == RESTART_ALL)
}

/// Every container that starts over with its pod.
pub fn regular_and_init(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

/// What the first rule that knows the code says. Rules count only beside a
/// policy of the container's own.
fn by_rule(container: &Container, exit_code: i32) -> Option<RestartDecision> {
    container.restart_policy.as_ref()?;
    let mut rules = container.restart_policy_rules.iter().flatten();
    let rule = rules.find(|rule| matches(rule, exit_code))?;
    match rule.action.as_str() {
        "Restart" => Some(RestartDecision::Restart),
        RESTART_ALL => Some(RestartDecision::RestartAll),
        _ => None,
    }
}

fn matches(rule: &ContainerRestartRule, exit_code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
    match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes;

    use super::*;

    fn spec(policy: &str) -> PodSpec {
        PodSpec { restart_policy: Some(policy.to_owned()), ..PodSpec::default() }
    }

    fn rule(operator: &str, values: &[i32], action: &str) -> ContainerRestartRule {
        ContainerRestartRule {
            action: action.to_owned(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: operator.to_owned(),
                values: Some(values.to_vec()),
            }),
        }
    }

    fn container(policy: Option<&str>, rules: Vec<ContainerRestartRule>) -> Container {
        Container {
            restart_policy: policy.map(str::to_owned),
            restart_policy_rules: Some(rules),
            ..Container::default()
        }
    }

    fn decide(pod: &str, container: &Container, code: i32) -> RestartDecision {
        after_exit(&spec(pod), container, ContainerKind::Regular, code)
    }

    #[test]
    fn the_containers_policy_comes_before_the_pods() {
        use RestartDecision::{Restart, Stay};
        for (pod, own, code, expected) in [
            ("Always", None, 0, Restart),
            ("OnFailure", None, 0, Stay),
            ("OnFailure", None, 1, Restart),
            ("Never", None, 1, Stay),
            ("Always", Some("Never"), 1, Stay),
            ("Always", Some("OnFailure"), 0, Stay),
            ("Never", Some("OnFailure"), 1, Restart),
            ("Never", Some("Always"), 0, Restart),
        ] {
            let container = container(own, Vec::new());
            assert_eq!(decide(pod, &container, code), expected, "{pod} {own:?} {code}");
            assert_eq!(
                after_kill(&spec(pod), &container, ContainerKind::Regular),
                own.unwrap_or(pod) != "Never"
            );
        }
    }

    #[test]
    fn the_first_matching_rule_comes_before_any_policy() {
        let rules = vec![
            rule("In", &[1, 2], "RestartAllContainers"),
            rule("NotIn", &[0, 3], "Restart"),
            rule("In", &[7], "RestartAllContainers"),
        ];
        let ruled = container(Some("Never"), rules.clone());
        assert_eq!(decide("Always", &ruled, 2), RestartDecision::RestartAll);
        assert_eq!(decide("Always", &ruled, 7), RestartDecision::Restart);
        assert_eq!(decide("Always", &ruled, 3), RestartDecision::Stay);
        let unruled = container(None, rules);
        assert_eq!(decide("Never", &unruled, 2), RestartDecision::Stay);
    }

    #[test]
    fn kinds_that_have_no_choice() {
        let always = container(Some("Always"), Vec::new());
        let after = |kind| after_exit(&spec("Never"), &always, kind, 0);
        assert_eq!(after(ContainerKind::Sidecar), RestartDecision::Restart);
        assert_eq!(after(ContainerKind::Ephemeral), RestartDecision::Stay);
        let created = Some(&ContainerState::Created);
        assert!(!should_start(&spec("Always"), &always, ContainerKind::Ephemeral, created));
        assert!(should_start(&spec("Never"), &always, ContainerKind::Regular, created));
    }
}
