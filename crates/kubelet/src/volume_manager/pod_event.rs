//! What is said of a pod whose volumes are not there. Pure.
//!
//! As upstream, an event tells of volumes of which it is not known what they are, at
//! once and with every try. One that is known and cannot be mounted has events of its
//! own, and a pod that merely waits long has none. Upstream: WaitForAttachAndMount in
//! pkg/kubelet/volumemanager, SyncPod in pkg/kubelet/kubelet.go.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Problem, Step};

/// Pause between two tries of a pod that cannot be started; spread.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

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

/// The event's message.
pub(super) fn event(why: &str) -> String {
    format!("Unable to attach or mount volumes: {why}")
}

/// Those that the cluster has not attached.
fn unattached(problems: &[Problem]) -> Vec<&str> {
    let is = |step| matches!(step, Step::AwaitAttach | Step::Attach);
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
        Problem { volume: volume.to_owned(), step, message: message.to_owned() }
    }

    #[test]
    fn a_pod_tells_what_is_not_attached() {
        let waits = problem("a", Step::AwaitAttach, "volume x is not yet in node's status");
        let told = why_waiting(&["a".to_owned()], std::slice::from_ref(&waits)).unwrap();
        assert!(told.starts_with("unmounted volumes=[a], unattached volumes=[a], "), "{told}");
        assert_eq!(unprocessed(&["a".to_owned()], &[waits]), None, "nothing is wrong");
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
