//! What a kubelet's /pods endpoint says, in the few words tests need.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A pod as the kubelet reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// With the node's name appended, for static pods.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Unique id.
    pub uid: String,
    /// `Pending`, `Running`, `Succeeded`, `Failed`; empty if not reported.
    pub phase: String,
    /// Why it is in its phase, such as `DeadlineExceeded`; usually empty.
    pub reason: String,
    /// The reason in words.
    pub message: String,
    /// Address, once there is one.
    pub ip: Option<String>,
    /// In the order reported.
    pub conditions: Vec<ConditionView>,
    /// Init containers and sidecars, in the order reported.
    pub init: Vec<ContainerView>,
    /// In the order reported.
    pub containers: Vec<ContainerView>,
}

/// A condition of a pod as the kubelet reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionView {
    /// Such as `Ready`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in words.
    pub message: String,
}

/// A container's status as the kubelet reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    /// Name in the pod.
    pub name: String,
    /// Id without the `containerd://` in front; empty before it is created.
    pub id: String,
    /// `waiting`, `running` or `terminated`.
    pub state: String,
    /// Reason of the state, such as `CrashLoopBackOff`.
    pub reason: String,
    /// Message of the state.
    pub message: String,
    /// When it started, if it is running.
    pub started_at: String,
    /// Exit code of the state, or of the run before.
    pub exit_code: Option<i64>,
    /// Why the run before ended, such as `Error`.
    pub last_reason: String,
    /// The signal that stops it, if told.
    pub stop_signal: String,
    /// How often it was restarted.
    pub restarts: i64,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it has passed its startup probe.
    pub started: bool,
}

/// Reads a PodList.
pub fn parse(list: &str) -> Result<Vec<PodView>> {
    let list: Value = serde_json::from_str(list).context("/pods is not JSON")?;
    if list["kind"] != "PodList" || list["apiVersion"] != "v1" {
        bail!("/pods is not a v1 PodList but {} {}", list["apiVersion"], list["kind"]);
    }
    // Upstream writes `null` for no pods.
    let none = Vec::new();
    let items = list["items"].as_array().unwrap_or(&none);
    Ok(items.iter().map(pod).collect())
}

fn pod(value: &Value) -> PodView {
    let (meta, status) = (&value["metadata"], &value["status"]);
    let list = |key: &str| status[key].as_array().map_or(&[][..], Vec::as_slice);
    let views = |key: &str| list(key).iter().map(container).collect();
    PodView {
        name: text(&meta["name"]),
        namespace: text(&meta["namespace"]),
        uid: text(&meta["uid"]),
        phase: text(&status["phase"]),
        reason: text(&status["reason"]),
        message: text(&status["message"]),
        ip: status["podIP"].as_str().map(str::to_owned),
        conditions: list("conditions")
            .iter()
            .map(|condition| ConditionView {
                kind: text(&condition["type"]),
                status: text(&condition["status"]),
                message: text(&condition["message"]),
            })
            .collect(),
        init: views("initContainerStatuses"),
        containers: views("containerStatuses"),
    }
}

fn container(value: &Value) -> ContainerView {
    let none = Value::Null;
    let (state, detail) = value["state"]
        .as_object()
        .and_then(|states| states.iter().find(|(_, detail)| !detail.is_null()))
        .map_or((String::new(), &none), |(state, detail)| (state.clone(), detail));
    let ended = &value["lastState"]["terminated"];
    let last = &ended["exitCode"];
    let id = text(&value["containerID"]);
    ContainerView {
        name: text(&value["name"]),
        id: id.split_once("://").map_or("", |(_, id)| id).to_owned(),
        state,
        reason: text(&detail["reason"]),
        message: text(&detail["message"]),
        started_at: text(&detail["startedAt"]),
        exit_code: detail["exitCode"].as_i64().or_else(|| last.as_i64()),
        last_reason: text(&ended["reason"]),
        stop_signal: text(&value["stopSignal"]),
        restarts: value["restartCount"].as_i64().unwrap_or_default(),
        ready: value["ready"].as_bool().unwrap_or_default(),
        started: value["started"].as_bool().unwrap_or_default(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl PodView {
    /// The container, or init container, of that name.
    pub fn container(&self, name: &str) -> Result<&ContainerView> {
        let mut all = self.containers.iter().chain(&self.init);
        let found = all.find(|container| container.name == name);
        found.with_context(|| format!("{} reports no container {name}: {self:?}", self.name))
    }

    /// Whether the condition of that type is `True`.
    pub fn is(&self, condition: &str) -> bool {
        self.condition(condition).is_ok_and(|found| found.status == "True")
    }

    /// The condition of that type.
    pub fn condition(&self, kind: &str) -> Result<&ConditionView> {
        let found = self.conditions.iter().find(|condition| condition.kind == kind);
        found.with_context(|| format!("{} has no condition {kind}: {self:?}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_list_is_read() {
        let list = r#"{"kind":"PodList","apiVersion":"v1","items":[{
            "metadata":{"name":"web-n1","namespace":"default","uid":"u"},
            "status":{"phase":"Running","podIP":"10.88.0.2","containerStatuses":[
              {"name":"main","containerID":"containerd://abc","restartCount":2,"ready":false,
               "state":{"waiting":{"reason":"CrashLoopBackOff"}},
               "lastState":{"terminated":{"exitCode":3,"reason":"Error"}}}]}}]}"#;
        let pods = parse(list).unwrap();
        let main = pods[0].container("main").unwrap();
        assert_eq!((main.state.as_str(), main.reason.as_str()), ("waiting", "CrashLoopBackOff"));
        assert_eq!((main.id.as_str(), main.restarts, main.exit_code), ("abc", 2, Some(3)));
        assert_eq!(main.last_reason, "Error");
        assert_eq!(pods[0].ip.as_deref(), Some("10.88.0.2"));
    }

    #[test]
    fn no_pods_and_no_list_differ() {
        assert_eq!(parse(r#"{"kind":"PodList","apiVersion":"v1","items":null}"#).unwrap(), []);
        assert!(parse(r#"{"kind":"Status","apiVersion":"v1"}"#).is_err());
    }
}
