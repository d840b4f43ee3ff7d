//! How a claim's status is changed. Pure.
//!
//! Patches say no more than what changes: conditions of others stay theirs.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// What is said of a claim's capacity, and of its growth.
const STORAGE: &str = "storage";
/// Conditions that tell of a growth; they go when it is done.
const GROWTH: [&str; 4] =
    ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];
/// Why the node could not do it.
const ERROR: &str = "NodeResizeError";

/// How far a growth has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// The node is at it.
    Begun,
    /// It is done: the volume has this size.
    Done(String),
    /// It failed, and is tried again.
    Failed(String),
    /// It failed, and will not be tried again.
    Infeasible(String),
}

/// The patch of a claim's status; `None` if that says so already.
pub(super) fn patch(claim: &Value, mark: &Mark, now: Timestamp) -> Option<Value> {
    let mut status = Map::new();
    match mark {
        Mark::Begun => state(claim, Some("NodeResizeInProgress"), &mut status),
        Mark::Done(size) => {
            if claim["status"]["capacity"][STORAGE] != size.as_str() {
                status.insert("capacity".to_owned(), json!({STORAGE: size}));
            }
            state(claim, None, &mut status);
            let told = GROWTH.iter().filter(|kind| condition(claim, kind).is_some());
            let gone: Vec<Value> =
                told.map(|kind| json!({"$patch": "delete", "type": kind})).collect();
            if !gone.is_empty() {
                status.insert("conditions".to_owned(), Value::Array(gone));
            }
        }
        Mark::Failed(why) => error(claim, why, now, &mut status),
        Mark::Infeasible(why) => {
            state(claim, Some("NodeResizeInfeasible"), &mut status);
            error(claim, why, now, &mut status);
        }
    }
    if status.is_empty() {
        return None;
    }
    let mut patch = json!({"status": status});
    // What went well is only true of the claim that was read; what failed, of any.
    if matches!(mark, Mark::Begun | Mark::Done(_)) {
        patch["metadata"] = json!({"resourceVersion": claim["metadata"]["resourceVersion"]});
    }
    Some(patch)
}

/// What is being done to the claim's storage; of other resources nothing is said.
fn state(claim: &Value, new: Option<&str>, status: &mut Map<String, Value>) {
    let old = claim["status"]["allocatedResourceStatuses"][STORAGE].as_str();
    if old != new {
        status.insert("allocatedResourceStatuses".to_owned(), json!({STORAGE: new}));
    }
}

/// As upstream: one that is said already stays as it is.
fn error(claim: &Value, why: &str, now: Timestamp, status: &mut Map<String, Value>) {
    if condition(claim, ERROR).is_some_and(|told| told["status"] == "True") {
        return;
    }
    let told = json!({
        "type": ERROR, "status": "True", "message": format!("failed to expand pvc with {why}"),
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    status.insert("conditions".to_owned(), json!([told]));
}

fn condition<'a>(claim: &'a Value, kind: &str) -> Option<&'a Value> {
    claim["status"]["conditions"].as_array()?.iter().find(|told| told["type"] == kind)
}
