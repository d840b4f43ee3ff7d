//! Conditions: pressures, and last whether the node is ready.
//!
//! Pure. Conditions of others stay where they are. Upstream: the conditions of
//! pkg/kubelet/nodestatus/setters.go.

use kubelet_model::EventType;
use serde_json::{Value, json};

use super::facts::{NodeEvent, NodeFacts, Troubles};
use super::fields::{self, Fields};
use super::settings::NodeSettings;

/// How a pressure is told: type, then reason, message and event with it and without.
struct Words {
    kind: &'static str,
    with: [&'static str; 3],
    without: [&'static str; 3],
}

const MEMORY: Words = Words {
    kind: "MemoryPressure",
    with: [
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
        "NodeHasInsufficientMemory",
    ],
    without: [
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
        "NodeHasSufficientMemory",
    ],
};

const DISK: Words = Words {
    kind: "DiskPressure",
    with: ["KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"],
    without: ["KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"],
};

const PIDS: Words = Words {
    kind: "PIDPressure",
    with: [
        "KubeletHasInsufficientPID",
        "kubelet has insufficient PID available",
        "NodeHasInsufficientPID",
    ],
    without: [
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
        "NodeHasSufficientPID",
    ],
};

/// Writes the conditions into a status, and what is to be told of their changes.
pub(super) fn set(
    status: &mut Fields,
    settings: &NodeSettings,
    facts: &NodeFacts,
    now: &str,
    events: &mut Vec<NodeEvent>,
) {
    let message = not_ready(status, settings, &facts.troubles);
    let mut conditions = match status.remove("conditions") {
        Some(Value::Array(conditions)) => conditions,
        _ => Vec::new(),
    };
    let mut changed = Vec::new();
    let pressure = facts.pressure;
    for (words, is_under) in
        [(MEMORY, pressure.memory), (DISK, pressure.disk), (PIDS, pressure.pids)]
    {
        changed.extend(set_pressure(&mut conditions, &words, is_under, now));
    }
    changed.extend(set_ready(&mut conditions, message, facts.troubles.soft.as_deref(), now));
    fields::put_list(status, "conditions", conditions);
    for reason in changed {
        events.push(status_event(&settings.name, reason));
    }
}

/// An event that tells what a node's status has become.
pub(super) fn status_event(node: &str, reason: &'static str) -> NodeEvent {
    let message = format!("Node {node} status is now: {reason}");
    NodeEvent { kind: EventType::Normal, reason, message }
}

/// The condition of a type.
pub(super) fn find<'a>(node: &'a Value, kind: &str) -> Option<&'a Value> {
    fields::list(node, "/status/conditions").iter().find(|condition| condition["type"] == kind)
}

fn set_pressure(
    conditions: &mut Vec<Value>,
    words: &Words,
    is_under: bool,
    now: &str,
) -> Option<&'static str> {
    let at = match conditions.iter().rposition(|condition| condition["type"] == words.kind) {
        Some(at) => at,
        None => {
            conditions.push(json!({"type": words.kind, "status": "Unknown"}));
            conditions.len() - 1
        }
    };
    let condition = fields::as_map(&mut conditions[at]);
    fields::put_text(condition, "lastHeartbeatTime", now);
    let status = if is_under { "True" } else { "False" };
    if condition.get("status").is_some_and(|old| old == status) {
        return None;
    }
    let [reason, message, event] = if is_under { words.with } else { words.without };
    fields::put_text(condition, "status", status);
    fields::put_text(condition, "reason", reason);
    fields::put_text(condition, "message", message);
    fields::put_text(condition, "lastTransitionTime", now);
    Some(event)
}

/// Readiness is the last of the conditions when a node is made. A first one is no
/// change that is told.
fn set_ready(
    conditions: &mut Vec<Value>,
    not_ready: Option<String>,
    soft: Option<&str>,
    now: &str,
) -> Option<&'static str> {
    let (status, reason, event) = match not_ready {
        None => ("True", "KubeletReady", "NodeReady"),
        Some(_) => ("False", "KubeletNotReady", "NodeNotReady"),
    };
    let mut message = not_ready.unwrap_or_else(|| "kubelet is posting ready status".to_owned());
    if let Some(soft) = soft {
        message = format!("{message}. WARNING: {soft}");
    }
    let mut ready = json!({"type": "Ready", "status": status, "reason": reason,
        "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now});
    let Some(old) = conditions.iter_mut().find(|condition| condition["type"] == "Ready") else {
        conditions.push(ready);
        return None;
    };
    let changes = old["status"] != status;
    if let (false, Some(since)) = (changes, old.get("lastTransitionTime")) {
        ready["lastTransitionTime"] = since.clone();
    }
    *old = ready;
    changes.then_some(event)
}

/// What keeps the node from being ready, each said once.
fn not_ready(status: &Fields, settings: &NodeSettings, troubles: &Troubles) -> Option<String> {
    let mut required = vec!["cpu", "memory", "pods"];
    if settings.isolates_local_storage {
        required.push("ephemeral-storage");
    }
    let capacity = status.get("capacity");
    required.retain(|name| capacity.is_none_or(|capacity| capacity.get(name).is_none()));
    let missing = format!("missing node capacity for resources: {}", required.join(", "));
    let missing = (!required.is_empty()).then_some(&missing);

    let Troubles { runtime, network, storage, shutdown, soft: _ } = troubles;
    let all = runtime.iter().chain(network).chain(storage).chain(shutdown).chain(missing);
    let mut said: Vec<&str> = Vec::new();
    for trouble in all {
        if !said.contains(&trouble.as_str()) {
            said.push(trouble);
        }
    }
    match said.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::test_parts::{facts, settings};

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T00:01:00Z";

    fn capacity() -> Value {
        json!({"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"})
    }

    fn evaluate(status: &mut Value, facts: &NodeFacts, now: &str) -> Vec<&'static str> {
        let mut events = Vec::new();
        set(fields::as_map(status), &settings(), facts, now, &mut events);
        events.iter().map(|event| event.reason).collect()
    }

    /// `type=status reason since heartbeat`, a line for each.
    fn shown(status: &Value) -> String {
        let mut lines = String::new();
        for condition in fields::list(status, "/conditions") {
            let text = |key: &str| fields::text(condition, key).to_owned();
            let minute = |key: &str| text(key).get(14..16).unwrap_or("-").to_owned();
            lines += &format!(
                "{}={} {} since {} heard {}\n",
                text("/type"),
                text("/status"),
                text("/reason"),
                minute("/lastTransitionTime"),
                minute("/lastHeartbeatTime"),
            );
        }
        lines
    }

    #[test]
    fn the_first_conditions_tell_what_is_sufficient() {
        let mut status = json!({"capacity": capacity()});
        let events = evaluate(&mut status, &facts(), EARLY);
        expect_test::expect![[r#"
            MemoryPressure=False KubeletHasSufficientMemory since 00 heard 00
            DiskPressure=False KubeletHasNoDiskPressure since 00 heard 00
            PIDPressure=False KubeletHasSufficientPID since 00 heard 00
            Ready=True KubeletReady since 00 heard 00
        "#]]
        .assert_eq(&shown(&status));
        assert_eq!(
            events,
            ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]
        );
        assert!(evaluate(&mut status, &facts(), LATE).is_empty());
        expect_test::expect![[r#"
            MemoryPressure=False KubeletHasSufficientMemory since 00 heard 01
            DiskPressure=False KubeletHasNoDiskPressure since 00 heard 01
            PIDPressure=False KubeletHasSufficientPID since 00 heard 01
            Ready=True KubeletReady since 00 heard 01
        "#]]
        .assert_eq(&shown(&status));
    }

    #[test]
    fn changes_are_told_and_conditions_of_others_keep_their_place() {
        let mut status = json!({"capacity": capacity(), "conditions": [
            {"type": "NetworkUnavailable", "status": "False"},
            {"type": "Ready", "status": "True", "lastTransitionTime": EARLY},
            {"type": "DiskPressure", "status": "False", "reason": "odd", "message": "odd",
                "lastTransitionTime": EARLY},
        ]});
        let mut facts = facts();
        facts.pressure.memory = true;
        facts.troubles.runtime = vec!["container runtime is down".to_owned()];
        let events = evaluate(&mut status, &facts, LATE);
        expect_test::expect![[r#"
            NetworkUnavailable=False  since - heard -
            Ready=False KubeletNotReady since 01 heard 01
            DiskPressure=False odd since 00 heard 01
            MemoryPressure=True KubeletHasInsufficientMemory since 01 heard 01
            PIDPressure=False KubeletHasSufficientPID since 01 heard 01
        "#]]
        .assert_eq(&shown(&status));
        assert_eq!(events, ["NodeHasInsufficientMemory", "NodeHasSufficientPID", "NodeNotReady"]);
        facts.troubles.runtime.clear();
        assert_eq!(evaluate(&mut status, &facts, LATE), ["NodeReady"]);
    }

    #[test]
    fn every_trouble_is_told_once() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let table = [
            (capacity(), texts(&[]), texts(&[]), None, None, "kubelet is posting ready status"),
            (capacity(), texts(&["a"]), texts(&[]), None, None, "a"),
            (capacity(), texts(&["a", "b"]), texts(&["b"]), Some("c"), None, "[a, b, c]"),
            (capacity(), texts(&["a", "a"]), texts(&["a"]), None, Some("s"), "a. WARNING: s"),
            (
                json!({"cpu": "1"}),
                texts(&[]),
                texts(&["n"]),
                None,
                None,
                "[n, missing node capacity for resources: memory, pods, ephemeral-storage]",
            ),
        ];
        for (capacity, runtime, network, shutdown, soft, expected) in table {
            let mut facts = facts();
            facts.troubles = Troubles {
                runtime,
                network,
                storage: Vec::new(),
                shutdown: shutdown.map(str::to_owned),
                soft: soft.map(str::to_owned),
            };
            let mut status = json!({"capacity": capacity});
            evaluate(&mut status, &facts, EARLY);
            assert_eq!(status["conditions"][3]["message"], expected);
        }
    }

    #[test]
    fn nonsense_is_replaced() {
        for odd in [json!("x"), json!([null, 7, "x"]), json!([{"type": "Ready", "status": 7}])] {
            let mut status = json!({"capacity": capacity(), "conditions": odd});
            evaluate(&mut status, &facts(), EARLY);
            let ready = fields::list(&status, "/conditions").iter().find(|c| c["type"] == "Ready");
            assert_eq!(ready.expect("Ready")["status"], "True");
        }
    }
}
