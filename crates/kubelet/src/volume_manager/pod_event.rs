//! What is said of a pod whose volumes are not there. Pure.
//!
//! As upstream, an event tells of volumes of which it is not known what they are, at
//! once and with every try. One that is known and cannot be mounted has events of its
//! own, and a pod that merely waits long has none. Upstream: WaitForAttachAndMount in
//! pkg/kubelet/volumemanager, SyncPod in pkg/kubelet/kubelet.go.

use std::collections::BTreeSet;
use std::time::Duration;

use kubelet_model::Mono;

use super::plan::pause;
use super::{Problem, Step};

/// Pause between two tries of a pod that cannot be started; spread.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// The reason of the event about a volume, if it has one of its own.
pub(super) fn reason(step: Step) -> Option<&'static str> {
    match step {
        Step::Process | Step::AwaitAttach | Step::AttachLimit => None,
        Step::Attach => Some("FailedAttachVolume"),
        Step::Mount => Some("FailedMount"),
        Step::Map => Some("FailedMapVolume"),
        Step::Grow => Some("VolumeResizeFailed"),
    }
}

/// What was last said of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToldProblem {
    message: String,
    tries: u32,
    /// How often this was said in a row.
    pub times: u32,
    /// When it is said again of what nobody can try, as if it were tried.
    pub again_at: Option<Mono>,
}

impl ToldProblem {
    /// What there is to say of a problem, if that is news: another one, one more try, or
    /// as much time as upstream would let pass between two.
    pub(super) fn of(problem: &Problem, before: Option<&Self>, now: Mono) -> Option<Self> {
        let same = before.filter(|before| before.message == problem.message);
        let due = |same: &Self| {
            same.tries != problem.tries || same.again_at.is_some_and(|again_at| again_at <= now)
        };
        if same.is_some_and(|same| !due(same)) {
            return None;
        }
        let times = same.map_or(0, |same| same.times);
        let timed = problem.tries == 0 && reason(problem.step).is_some();
        Some(Self {
            message: problem.message.clone(),
            tries: problem.tries,
            times: times.saturating_add(1),
            again_at: timed.then(|| now + pause(times)),
        })
    }
}

/// Why the pod waits, if it is not known of some volume what it is.
pub(super) fn unprocessed(unmounted: &[String], problems: &[Problem]) -> Option<String> {
    let of = |part: fn(&Problem) -> &str| {
        let some = problems.iter().filter(|problem| problem.step == Step::Process);
        some.map(part).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let (failed, causes) = (of(|problem| &problem.volume), of(|problem| &problem.message));
    let unattached = unattached(problems);
    (!failed.is_empty()).then(|| waits(unmounted, &unattached, &failed, &causes.join("; ")))
}

/// Why the pod waits, as its condition tells: what is not known first, else the first of
/// what went wrong.
pub(crate) fn why_waiting(unmounted: &[String], problems: &[Problem]) -> Option<String> {
    let unattached = unattached(problems);
    let first = || problems.first().map(|first| waits(unmounted, &unattached, &[], &first.message));
    unprocessed(unmounted, problems).or_else(first)
}

/// Why the pod cannot stay, if the node can have no more volumes of some driver.
pub(crate) fn attach_limit(unmounted: &[String], problems: &[Problem]) -> Option<String> {
    let full = problems.iter().any(|problem| problem.step == Step::AttachLimit);
    let unattached = unattached(problems);
    let some = problems.iter().filter(|problem| problem.step == Step::Process);
    let failed: Vec<&str> = some.map(|problem| problem.volume.as_str()).collect();
    full.then(|| {
        let waits = waits(unmounted, &unattached, &failed, "context deadline exceeded");
        format!("Node has reached its volume attachment limit, rejecting pod. {waits}")
    })
}

/// The event's message.
pub(super) fn event(why: &str) -> String {
    format!("Unable to attach or mount volumes: {why}")
}

/// Those that the cluster has not attached.
fn unattached(problems: &[Problem]) -> Vec<&str> {
    let is = |step| matches!(step, Step::AwaitAttach | Step::AttachLimit | Step::Attach);
    let some = problems.iter().filter(|problem| is(problem.step));
    some.map(|problem| problem.volume.as_str()).collect()
}

fn waits(unmounted: &[String], unattached: &[&str], failed: &[&str], cause: &str) -> String {
    let (unmounted, failed) = (unmounted.join(" "), failed.join(" "));
    let unattached = unattached.join(" ");
    format!(
        "unmounted volumes=[{unmounted}], unattached volumes=[{unattached}], failed to process \
         volumes=[{failed}]: {cause}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(volume: &str, step: Step, message: &str) -> Problem {
        Problem { volume: volume.to_owned(), step, message: message.to_owned(), tries: 0 }
    }

    #[test]
    fn a_pod_tells_what_is_not_attached() {
        let waits = problem("a", Step::AwaitAttach, "volume x is not yet in node's status");
        let told = why_waiting(&["a".to_owned()], std::slice::from_ref(&waits)).unwrap();
        assert!(told.starts_with("unmounted volumes=[a], unattached volumes=[a], "), "{told}");
        assert_eq!(unprocessed(&["a".to_owned()], &[waits]), None, "nothing is wrong");
    }

    #[test]
    fn every_try_is_told_and_what_cannot_be_tried_as_often() {
        let at = |seconds| Mono(Duration::from_secs(seconds));
        let of = |tries| Problem { tries, ..problem("v", Step::Mount, "no") };
        let first = ToldProblem::of(&of(1), None, at(0)).expect("news");
        assert_eq!((first.times, first.again_at), (1, None));
        assert_eq!(ToldProblem::of(&of(1), Some(&first), at(900)), None, "it was not tried");
        assert_eq!(ToldProblem::of(&of(2), Some(&first), at(1)).map(|told| told.times), Some(2));
        let other = Problem { message: "other".to_owned(), ..of(1) };
        assert_eq!(ToldProblem::of(&other, Some(&first), at(1)).map(|told| told.times), Some(1));
        let (mut told, mut times) = (ToldProblem::of(&of(0), None, at(0)).expect("news"), vec![]);
        for second in 1..400 {
            if let Some(again) = ToldProblem::of(&of(0), Some(&told), at(second)) {
                times.push(second);
                told = again;
            }
        }
        assert_eq!(times, [1, 2, 4, 8, 16, 32, 64, 128, 250, 372]);
        let waits = problem("v", Step::AwaitAttach, "not yet");
        let waits = ToldProblem::of(&waits, None, at(0)).expect("the log hears of it");
        assert_eq!((waits.again_at, reason(Step::AwaitAttach)), (None, None));
    }

    #[test]
    fn a_node_that_is_full_is_told_as_upstream_does() {
        let waits = problem("b", Step::AwaitAttach, "volume y is not yet in node's status");
        let full = problem("a", Step::AttachLimit, "volume x is not yet in node's status");
        let unmounted = ["a".to_owned(), "b".to_owned()];
        assert_eq!(attach_limit(&unmounted, std::slice::from_ref(&waits)), None);
        assert_eq!(
            attach_limit(&unmounted, &[full, waits]).unwrap(),
            "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[a b], \
             unattached volumes=[a b], failed to process volumes=[]: context deadline exceeded"
        );
    }

    #[test]
    fn only_what_is_not_known_is_told_of_the_pod() {
        let mount = problem("a", Step::Mount, "MountVolume.SetUp failed for volume \"a\" : no");
        let two = [
            problem("d", Step::Process, "error processing PVC ns/y: no"),
            mount.clone(),
            problem("c", Step::Process, "error processing PVC ns/x: no"),
        ];
        for (unmounted, problems, expected) in [
            (vec!["a"], vec![], None),
            (vec!["a"], vec![mount.clone()], None),
            (
                vec!["a", "b", "c", "d"],
                two.to_vec(),
                Some(
                    "unmounted volumes=[a b c d], unattached volumes=[], failed to process \
                     volumes=[c d]: error processing PVC ns/x: no; error processing PVC ns/y: no",
                ),
            ),
        ] {
            let unmounted: Vec<String> = unmounted.into_iter().map(str::to_owned).collect();
            assert_eq!(unprocessed(&unmounted, &problems).as_deref(), expected);
            let told = why_waiting(&unmounted, &problems);
            match expected {
                Some(text) => assert_eq!(told.as_deref(), Some(text)),
                None => assert_eq!(told.is_some(), !problems.is_empty()),
            }
        }
    }
}
