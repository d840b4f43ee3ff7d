//! What the node's Ready condition says of the runtime.
//!
//! A plan: from what the runtime said last, and when, to upstream's words. A runtime that
//! is away for a moment, as while it is restarted, leaves the node ready: only pods wait.
//! Upstream: pkg/kubelet/runtime.go, updateRuntimeUp of pkg/kubelet/kubelet.go.

use std::time::Duration;

use cri::v1;
use kubelet_config::go_duration::GoDuration;
use kubelet_model::Mono;

use super::RuntimeState;

/// How long the node stays ready without a runtime that says it is.
const DOWN_AFTER: Duration = Duration::from_secs(30);
/// How long it does without a listing.
const UNLISTED_AFTER: Duration = Duration::from_secs(180);

/// When the runtime was last heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Contact {
    /// It said that it is ready.
    pub(crate) ready: Option<Mono>,
    /// It began to list its pods, and did.
    pub(crate) listed: Option<Mono>,
}

/// What keeps the node from being ready.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RuntimeTroubles {
    pub(crate) runtime: Vec<String>,
    pub(crate) network: Vec<String>,
    /// When more of them come, if the runtime says nothing until then.
    pub(crate) next: Option<Mono>,
}

/// What keeps the node from being ready now.
pub(crate) fn troubles(state: &RuntimeState, contact: Contact, now: Mono) -> RuntimeTroubles {
    let (mut runtime, mut next) = (Vec::new(), Vec::new());
    match contact.ready.map(|at| at + DOWN_AFTER) {
        None => {
            runtime.push("container runtime status check may not have completed yet".to_owned());
        }
        Some(down) if down <= now => runtime.push("container runtime is down".to_owned()),
        Some(down) => next.push(down),
    }
    match contact.listed {
        None => {
            runtime.push("PLEG is not healthy: pleg has yet to be successful".to_owned());
        }
        Some(at) if now.since(at) > UNLISTED_AFTER => runtime.push(format!(
            "PLEG is not healthy: pleg was last seen active {} ago; threshold is {}",
            spelled(now.since(at)),
            spelled(UNLISTED_AFTER)
        )),
        // Only what is past the limit counts.
        Some(at) => next.push(at + UNLISTED_AFTER + Duration::from_millis(1)),
    }
    runtime.extend(state.unready.clone());
    let network = match &state.network_problem {
        None if !state.answered => Some("network state unknown".to_owned()),
        known => known.clone(),
    };
    RuntimeTroubles {
        runtime,
        network: network.into_iter().collect(),
        next: next.into_iter().min(),
    }
}

/// Why the runtime calls itself unready.
pub(super) fn unready(status: &v1::StatusResponse) -> Option<String> {
    broken(status, "RuntimeReady").map(|why| format!("container runtime not ready: {why}"))
}

/// Why it says that pods can have no network.
pub(super) fn without_network(status: &v1::StatusResponse) -> Option<String> {
    broken(status, "NetworkReady").map(|why| format!("container runtime network not ready: {why}"))
}

/// A condition of the runtime that does not hold.
fn broken(status: &v1::StatusResponse, name: &str) -> Option<String> {
    let conditions = status.status.as_ref().map_or(&[][..], |status| &status.conditions);
    match conditions.iter().find(|condition| condition.r#type == name) {
        Some(condition) if condition.status => None,
        Some(v1::RuntimeCondition { reason, message, .. }) => {
            Some(format!("{name}=false reason:{reason} message:{message}"))
        }
        None => Some("<nil>".to_owned()),
    }
}

fn spelled(time: Duration) -> String {
    GoDuration::from_nanos(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: &str = "container runtime status check may not have completed yet";
    const UNLISTED: &str = "PLEG is not healthy: pleg has yet to be successful";
    const DOWN: &str = "container runtime is down";

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    #[test]
    fn a_runtime_may_be_away_for_a_while() {
        let late = "PLEG is not healthy: pleg was last seen active 3m0.001s ago; threshold is 3m0s";
        let own = "container runtime not ready: RuntimeReady=false reason:R message:M";
        let no_net = "container runtime network not ready: NetworkReady=false reason:N message:O";
        // Ready and listed when; what it says; now; what is told of it, and when more is.
        type Case =
            (Option<u64>, Option<u64>, Option<&'static str>, u64, Vec<&'static str>, Option<u64>);
        let cases: [Case; 10] = [
            (None, None, None, 0, vec![NEVER, UNLISTED], None),
            (None, Some(0), None, 1, vec![NEVER], Some(180_001)),
            (Some(0), None, None, 1, vec![UNLISTED], Some(30_000)),
            (Some(0), Some(0), None, 29_999, vec![], Some(30_000)),
            (Some(0), Some(0), None, 30_000, vec![DOWN], Some(180_001)),
            (Some(0), Some(0), None, 180_000, vec![DOWN], Some(180_001)),
            (Some(0), Some(0), None, 180_001, vec![DOWN, late], None),
            (Some(170_000), Some(0), None, 180_001, vec![late], Some(200_000)),
            (Some(0), Some(0), Some(own), 5, vec![own], Some(30_000)),
            (None, Some(0), Some(own), 5, vec![NEVER, own], Some(180_001)),
        ];
        for (ready, listed, unready, now, runtime, next) in cases {
            for network in [None, Some(no_net.to_owned())] {
                let state = RuntimeState {
                    unready: unready.map(str::to_owned),
                    network_problem: network.clone(),
                    answered: true,
                    ..RuntimeState::default()
                };
                let contact = Contact { ready: ready.map(at), listed: listed.map(at) };
                let found = troubles(&state, contact, at(now));
                assert_eq!(found.runtime, runtime, "{contact:?} {now}");
                assert_eq!(found.network, Vec::from_iter(network), "{contact:?} {now}");
                assert_eq!(found.next, next.map(at), "{contact:?} {now}");
            }
        }
        let found = troubles(&RuntimeState::default(), Contact::default(), at(0));
        assert_eq!(found.network, ["network state unknown"]);
    }

    #[test]
    fn upstreams_words_for_conditions() {
        let condition = |name: &str, status| v1::RuntimeCondition {
            r#type: name.to_owned(),
            status,
            reason: "R".to_owned(),
            message: "M m".to_owned(),
        };
        let of = |conditions| v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            ..Default::default()
        };
        let well = of(vec![condition("RuntimeReady", true), condition("NetworkReady", true)]);
        assert_eq!((unready(&well), without_network(&well)), (None, None));
        let ill = of(vec![condition("RuntimeReady", false), condition("NetworkReady", false)]);
        let words = "container runtime not ready: RuntimeReady=false reason:R message:M m";
        assert_eq!(unready(&ill).as_deref(), Some(words));
        let words = "container runtime network not ready: NetworkReady=false reason:R message:M m";
        assert_eq!(without_network(&ill).as_deref(), Some(words));
        let words = "container runtime network not ready: <nil>";
        assert_eq!(without_network(&of(vec![])).as_deref(), Some(words));
    }
}
