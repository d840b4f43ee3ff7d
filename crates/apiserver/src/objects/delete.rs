//! What deleting an object does at this moment.
//!
//! Pure. A pod on a node is marked and stays until its node confirms with a grace
//! of zero; an object with finalizers is marked and stays until the last one is
//! gone; everything else goes. No garbage collector runs here, so a propagation
//! policy changes nothing.
//! Upstream: apiserver pkg/registry/rest/delete.go, pkg/registry/core/pod/strategy.go.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::time;
use super::update::Preconditions;
use crate::error::ApiError;
use crate::json;
use crate::resources::Resource;

/// What a client says with a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds of grace.
    pub grace: Option<i64>,
    /// What the client believes of the object.
    pub preconditions: Preconditions,
    /// Whether nothing is to happen.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Reads a body, which may be empty; the query has been read into `self`.
    ///
    /// # Errors
    /// 400.
    pub fn with_body(mut self, body: &Value) -> Result<Self, ApiError> {
        match &body["gracePeriodSeconds"] {
            Value::Null => {}
            grace => {
                let wrong = || ApiError::bad_request("gracePeriodSeconds is not a number");
                self.grace = Some(grace.as_i64().ok_or_else(wrong)?);
            }
        }
        let given = |path| json::at(body, path).as_str().map(str::to_owned);
        self.preconditions.uid = given("preconditions.uid");
        self.preconditions.resource_version = given("preconditions.resourceVersion");
        self.dry_run |= json::texts(body, "dryRun").any(|word| word == "All");
        Ok(self)
    }
}

/// What to do with the object.
#[derive(Debug, PartialEq)]
pub enum DeletePlan {
    /// Remove it.
    Remove,
    /// Store it, marked.
    Mark(Value),
    /// It is marked already; nothing is to be done.
    Wait,
}

/// Decides what a deletion does.
pub fn plan_delete(
    resource: &Resource,
    object: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> DeletePlan {
    let asked = options.grace.map(|grace| if grace < 0 { 1 } else { grace });
    let is_pod = (resource.group, resource.kind) == ("", "Pod");
    let marked = !json::at(object, "metadata.deletionTimestamp").is_null();
    let finalizers = !json::is_empty_list(object, "metadata.finalizers")
        || (resource.kind == "Namespace" && !json::is_empty_list(object, "spec.finalizers"));
    let current = json::at(object, "metadata.deletionGracePeriodSeconds").as_i64().unwrap_or(0);
    if marked && current > 0 {
        return match asked {
            Some(grace) if grace < current => shorten(object, current, grace, finalizers, now),
            _ => DeletePlan::Wait,
        };
    }
    if marked {
        return if finalizers { DeletePlan::Wait } else { DeletePlan::Remove };
    }
    let grace = if is_pod { pod_grace(object, asked) } else { 0 };
    if grace == 0 && !finalizers {
        return DeletePlan::Remove;
    }
    DeletePlan::Mark(mark(object, grace, now))
}

fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let own = json::at(pod, "spec.terminationGracePeriodSeconds").as_i64();
    let over = matches!(json::text(pod, "status.phase"), "Succeeded" | "Failed");
    if json::text(pod, "spec.nodeName").is_empty() || over {
        return 0;
    }
    match asked.or(own).unwrap_or(0) {
        negative if negative < 0 => 1,
        grace => grace,
    }
}

fn mark(object: &Value, grace: i64, now: Timestamp) -> Value {
    let mut marked = object.clone();
    let at = now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    json::set(&mut marked, "metadata.deletionTimestamp", time(at));
    json::set(&mut marked, "metadata.deletionGracePeriodSeconds", grace);
    // Who acts on the object must notice that it is ending.
    if let Some(generation) = json::at(object, "metadata.generation").as_i64().filter(|g| *g > 0) {
        json::set(&mut marked, "metadata.generation", generation + 1);
    }
    if object["kind"] == "Namespace" {
        json::set(&mut marked, "status.phase", "Terminating");
    }
    marked
}

/// Grace only shrinks, and never into the past.
fn shorten(
    object: &Value,
    current: i64,
    grace: i64,
    finalizers: bool,
    now: Timestamp,
) -> DeletePlan {
    if grace == 0 && !finalizers {
        return DeletePlan::Remove;
    }
    let marked_at = json::text(object, "metadata.deletionTimestamp").parse::<Timestamp>();
    let moved = SignedDuration::from_secs(grace - current);
    let at = marked_at.unwrap_or(now).saturating_add(moved).unwrap_or(now);
    let (at, grace) = if at < now { (now, grace.min(1)) } else { (at, grace) };
    let mut marked = object.clone();
    json::set(&mut marked, "metadata.deletionTimestamp", time(at));
    json::set(&mut marked, "metadata.deletionGracePeriodSeconds", grace);
    DeletePlan::Mark(marked)
}
