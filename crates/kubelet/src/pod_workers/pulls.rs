//! Keeps the status true while a step runs: how far its pulls are, and what the
//! containers' probes say meanwhile.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use kubelet_model::{
    Action, ContainerName, ContainerState, DesiredPod, ObservedPod, Steps, WaitReason, Waiting,
};
use tokio::time::sleep;

use super::worker::{Decision, Order, Worker};
use crate::image_manager::PullState;
use crate::progress::Pull;
use crate::runtime_manager::mounted_images;
use crate::status_manager::Stage;

/// How often the status is brought up to date.
const REFRESH: Duration = Duration::from_secs(1);

impl Worker {
    /// Keeps the status of containers up to date whose images are being pulled or whose
    /// probes find something new. A step may last as long as a container's grace, and
    /// who sends it traffic must not wait for that. Never ends; the caller drops it
    /// with the step.
    pub(super) async fn follow_step(
        &self,
        order: &Order,
        seen: &ObservedPod,
        step: &[Action],
        (waiting, stage): (&BTreeMap<ContainerName, Waiting>, Stage),
    ) -> Infallible {
        let starts = step.iter().any(|a| matches!(a, Action::StartContainer { .. }));
        let Some(pod) = order.pod.as_ref() else {
            return std::future::pending().await;
        };
        loop {
            let news_of_probes = tokio::select! { biased;
                // The worker looks at the results anew after each step, so no wake-up is
                // lost on it.
                () = self.probe_watch.changed() => true,
                () = sleep(REFRESH), if starts => false,
            };
            let progress = self.shared.progress.get(&self.uid).unwrap_or_default();
            let pulls = progress.pull().map(|pull| told(pull, pod, seen, step, waiting));
            let pulls = pulls.unwrap_or_default();
            if pulls.is_empty() && !news_of_probes {
                continue;
            }
            let mut waiting = waiting.clone();
            waiting.extend(pulls);
            let (steps, wake_at, finished) = (Steps::new(), None, false);
            self.report(order, seen, &Decision { steps, waiting, wake_at, stage, finished });
        }
    }
}

/// What the containers of the step that wait say of the pull.
fn told(
    pull: &Pull,
    pod: &DesiredPod,
    seen: &ObservedPod,
    step: &[Action],
    waiting: &BTreeMap<ContainerName, Waiting>,
) -> BTreeMap<ContainerName, Waiting> {
    let has_init = pod.spec().init_containers.as_ref().is_some_and(|list| !list.is_empty());
    let creating =
        if has_init { WaitReason::PodInitializing } else { WaitReason::ContainerCreating };
    let one = |action: &Action| {
        let Action::StartContainer { name, .. } = action else { return None };
        let (_, container) = pod.container(name.as_str())?;
        let text = message(pull, volume(pull, pod, &container))?;
        let shown = seen.current(name).map(|instance| &instance.state);
        Some((name.clone(), waits(text, waiting.get(name), shown, creating)?))
    };
    step.iter().filter_map(one).collect()
}

/// What a container says that waits for a pull. One whose last instance is still
/// shown, as upstream does until it waits or the next one is there, says nothing;
/// `klet pods` and `klet why` tell of its pull all the same.
fn waits(
    text: String,
    known: Option<&Waiting>,
    shown: Option<&ContainerState>,
    creating: WaitReason,
) -> Option<Waiting> {
    match (known, shown) {
        // Why it waits is not forgotten before the pull has come to something.
        (Some(Waiting { reason, message }), _) => {
            let before = Some(message).filter(|message| !message.is_empty());
            let before = before.map(|message| format!(". Before that: {message}"));
            Some(Waiting { reason: *reason, message: text + &before.unwrap_or_default() })
        }
        (None, Some(ContainerState::Running { .. } | ContainerState::Exited(_))) => None,
        (None, _) => Some(Waiting { reason: creating, message: text }),
    }
}

/// The volume of the container whose image is pulled, unless it is the container's own.
fn volume<'p>(pull: &Pull, pod: &'p DesiredPod, container: &Container) -> Option<&'p str> {
    if container.image.as_ref() == Some(&pull.image) {
        return None;
    }
    let mut volumes = mounted_images(pod, container).into_iter();
    let (name, _) =
        volumes.find(|(_, source)| source.reference.as_deref() == Some(pull.image.as_str()))?;
    Some(name)
}

/// What is known of a pull beyond that it is under way.
fn message(pull: &Pull, volume: Option<&str>) -> Option<String> {
    let Pull { image, state } = pull;
    let of = volume.map(|name| format!(" of volume {name}")).unwrap_or_default();
    match state {
        PullState::Running(None) => None,
        PullState::Running(Some(_)) => Some(format!("Pulling image {image:?}{of}: {state}")),
        PullState::Queued { .. } => Some(format!("Pull of image {image:?}{of} {state}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_manager::PullProgress;
    use crate::runtime_manager::testing::pod_with;
    use kubelet_model::Mono;

    fn pull(image: &str, state: PullState) -> Pull {
        Pull { image: image.to_owned(), state }
    }

    fn far(image: &str) -> Pull {
        let progress = PullProgress { done: 12_340_000, total: 45_600_000 };
        pull(image, PullState::Running(Some(progress)))
    }

    #[test]
    fn it_is_told_how_far_a_pull_is() {
        let running = message(&far("a/b:1"), None);
        assert_eq!(running.unwrap(), "Pulling image \"a/b:1\": 12.3 MB of 45.6 MB");
        let queued = message(&pull("a/b:1", PullState::Queued { behind: 2 }), None);
        assert_eq!(queued.unwrap(), "Pull of image \"a/b:1\" waits behind 2 other pulls");
        assert_eq!(message(&pull("a/b:1", PullState::Running(None)), None), None);
    }

    #[test]
    fn the_image_of_a_volume_is_told_as_such() {
        let pod = pod_with(
            "",
            r#","volumeMounts":[{"name":"data","mountPath":"/d"}]"#,
            r#""volumes":[{"name":"data","image":{"reference":"r.io/data:1"}}]"#,
        );
        let step =
            [Action::StartContainer { name: ContainerName::new("app"), restart_count: None }];
        let seen = ObservedPod::absent(pod.uid().clone(), Mono::default());
        let said = |image: &str| {
            let all = told(&far(image), &pod, &seen, &step, &BTreeMap::new());
            all.into_values().map(|waiting| (waiting.reason, waiting.message)).collect::<Vec<_>>()
        };
        let text = "Pulling image \"r.io/data:1\" of volume data: 12.3 MB of 45.6 MB";
        assert_eq!(said("r.io/data:1"), [(WaitReason::ContainerCreating, text.to_owned())]);
        let text = "Pulling image \"i\": 12.3 MB of 45.6 MB";
        assert_eq!(said("i"), [(WaitReason::ContainerCreating, text.to_owned())]);
    }

    #[test]
    fn what_has_an_instance_tells_if_it_waits() {
        let creating = WaitReason::ContainerCreating;
        let said = |known: Option<&Waiting>, shown: Option<&ContainerState>| {
            let waiting = waits("far".to_owned(), known, shown, creating)?;
            Some((waiting.reason, waiting.message))
        };
        let running = ContainerState::Running { started_at: jiff::Timestamp::UNIX_EPOCH };
        assert_eq!(said(None, Some(&running)), None);
        let fresh = Some((creating, "far".to_owned()));
        assert_eq!(said(None, Some(&ContainerState::Created)), fresh);
        assert_eq!(said(None, None), fresh);
        let reason = WaitReason::ImagePullBackOff;
        let held = Waiting { reason, message: "no such tag".to_owned() };
        let both = Some((reason, "far. Before that: no such tag".to_owned()));
        for shown in [None, Some(&running)] {
            assert_eq!(said(Some(&held), shown), both);
        }
    }
}
