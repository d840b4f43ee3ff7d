//! Shows how far the pulls of a step are while they run.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use kubelet_model::{Action, ContainerName, DesiredPod, ObservedPod, Steps, WaitReason, Waiting};
use tokio::time::sleep;

use super::worker::{Decision, Order, Worker};
use crate::image_manager::PullState;
use crate::status_manager::Stage;

/// How often the status is brought up to date.
const REFRESH: Duration = Duration::from_secs(1);

impl Worker {
    /// Keeps the status of containers whose images are being pulled up to date.
    /// Never ends; the caller drops it with the step.
    pub(super) async fn follow_pulls(
        &self,
        order: &Order,
        seen: &ObservedPod,
        step: &[Action],
        waiting: &BTreeMap<ContainerName, Waiting>,
    ) -> Infallible {
        let starts = step.iter().any(|a| matches!(a, Action::StartContainer { .. }));
        let Some(pod) = order.pod.as_ref().filter(|_| starts) else {
            return std::future::pending().await;
        };
        loop {
            sleep(REFRESH).await;
            let pulls = self.pulls(pod, seen, step);
            if pulls.is_empty() {
                continue;
            }
            let mut waiting = waiting.clone();
            waiting.extend(pulls);
            let shown = Decision {
                steps: Steps::new(),
                waiting,
                wake_at: None,
                stage: Stage::Live,
                finished: false,
            };
            self.report(order, seen, &shown);
        }
    }

    /// Containers of the step that have no instance yet and whose image is under way.
    fn pulls(
        &self,
        pod: &DesiredPod,
        seen: &ObservedPod,
        step: &[Action],
    ) -> BTreeMap<ContainerName, Waiting> {
        let has_init = pod.spec().init_containers.as_ref().is_some_and(|list| !list.is_empty());
        let reason =
            if has_init { WaitReason::PodInitializing } else { WaitReason::ContainerCreating };
        let names = step.iter().filter_map(|action| match action {
            Action::StartContainer { name, .. } if seen.newest(name).is_none() => Some(name),
            _ => None,
        });
        let pull = |name: &ContainerName| {
            let (_, container) = pod.container(name.as_str())?;
            let image = container.image.as_deref()?;
            let message = message(image, self.shared.images.pull_state(image)?)?;
            Some((name.clone(), Waiting { reason, message }))
        };
        names.filter_map(pull).collect()
    }
}

/// What is known of a pull beyond that it is under way.
fn message(image: &str, state: PullState) -> Option<String> {
    (state != PullState::Running(None)).then(|| format!("Pulling image {image:?}: {state}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_manager::PullProgress;

    #[test]
    fn it_is_told_how_far_a_pull_is() {
        let progress = PullProgress { done: 12_340_000, total: 45_600_000 };
        let told = |state| message("a/b:1", state);
        let running = told(PullState::Running(Some(progress)));
        assert_eq!(running.unwrap(), "Pulling image \"a/b:1\": 12.3 MB of 45.6 MB");
        let queued = told(PullState::Queued { behind: 2 });
        assert_eq!(queued.unwrap(), "Pulling image \"a/b:1\": queued behind 2 other pulls");
        assert_eq!(told(PullState::Running(None)), None);
    }
}
