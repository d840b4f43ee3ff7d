//! Whether a listing tells anything new about a pod.

use cri::v1;
use kubelet_model::{ContainerState, ObservedPod};

use super::parse::Listed;

/// True if the listing shows exactly what was observed before.
pub(super) fn unchanged(listed: &Listed, seen: &ObservedPod) -> bool {
    listed.sandboxes.len() == seen.sandboxes.len()
        && listed.containers.len() == seen.containers.len()
        && seen.sandboxes.iter().all(|s| listed.sandboxes.get(&s.id) == Some(&s.ready))
        && seen
            .containers
            .iter()
            .all(|c| listed.containers.get(&c.id).is_some_and(|state| same_kind(*state, &c.state)))
}

/// True if a listed state and an observed one are the same kind.
pub(super) fn same_kind(listed: v1::ContainerState, seen: &ContainerState) -> bool {
    matches!(
        (listed, seen),
        (v1::ContainerState::ContainerCreated, ContainerState::Created)
            | (v1::ContainerState::ContainerRunning, ContainerState::Running { .. })
            | (v1::ContainerState::ContainerExited, ContainerState::Exited(_))
            | (v1::ContainerState::ContainerUnknown, ContainerState::Unknown)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use kubelet_model::{
        ContainerId, Exit, Mono, ObservedContainer, ObservedSandbox, PodUid, SandboxId,
    };
    use v1::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};

    fn seen() -> ObservedPod {
        let mut pod = ObservedPod::absent(PodUid::new("u1"), Mono::default());
        pod.sandboxes.push(ObservedSandbox {
            id: SandboxId::new("s"),
            attempt: 0,
            ready: true,
            created_at: Timestamp::UNIX_EPOCH,
            host_network: false,
            ips: Vec::new(),
        });
        let container = |id: &str, state| ObservedContainer {
            id: ContainerId::new(id),
            name: id.into(),
            sandbox: SandboxId::new("s"),
            restart_count: 0,
            hash: None,
            created_at: Timestamp::UNIX_EPOCH,
            image: String::new(),
            image_id: String::new(),
            user: None,
            stop_signal: None,
            grace: None,
            resources: None,
            log_path: String::new(),
            state,
        };
        let exit = Exit {
            code: 1,
            reason: String::new(),
            message: String::new(),
            started_at: None,
            finished_at: Timestamp::UNIX_EPOCH,
        };
        pod.containers.push(container("a", ContainerState::Created));
        pod.containers.push(container("b", ContainerState::Exited(exit)));
        pod
    }

    fn listed(sandboxes: &[(&str, bool)], containers: &[(&str, v1::ContainerState)]) -> Listed {
        Listed {
            name: Default::default(),
            sandboxes: sandboxes.iter().map(|(id, ready)| (SandboxId::new(*id), *ready)).collect(),
            containers: containers.iter().map(|(id, s)| (ContainerId::new(*id), *s)).collect(),
        }
    }

    #[test]
    fn any_difference_is_news() {
        let same = [("a", ContainerCreated), ("b", ContainerExited)];
        for (what, listed, expected) in [
            ("the same", listed(&[("s", true)], &same), true),
            ("a stopped sandbox", listed(&[("s", false)], &same), false),
            ("another sandbox", listed(&[("t", true)], &same), false),
            ("one more sandbox", listed(&[("s", true), ("t", false)], &same), false),
            ("no sandbox", listed(&[], &same), false),
            ("a container gone", listed(&[("s", true)], &same[..1]), false),
            (
                "a container started",
                listed(&[("s", true)], &[("a", ContainerRunning), ("b", ContainerExited)]),
                false,
            ),
            (
                "a container replaced",
                listed(&[("s", true)], &[("a", ContainerCreated), ("c", ContainerExited)]),
                false,
            ),
            (
                "one more container",
                listed(&[("s", true)], &[same[0], same[1], ("c", ContainerCreated)]),
                false,
            ),
        ] {
            assert_eq!(unchanged(&listed, &seen()), expected, "{what}");
        }
    }
}
