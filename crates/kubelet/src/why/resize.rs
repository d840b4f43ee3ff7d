//! A resize that waits or does not succeed. The pod runs on as it was. Pure.

use k8s_openapi::api::core::v1::PodCondition;

use super::advice::full_name;
use super::{Finding, Rank, WhyFacts};

/// What the conditions of a pod tell of its resizes.
pub(super) fn answers(facts: &WhyFacts<'_>) -> Vec<Finding> {
    let of = |kind: &str| {
        let mut conditions = facts.status.conditions.iter().flatten();
        conditions.find(|one| one.type_ == kind && one.status == "True")
    };
    let pending = of("PodResizePending").map(|condition| pending(facts, condition));
    let failing = of("PodResizeInProgress").and_then(|condition| failing(facts, condition));
    pending.into_iter().chain(failing).collect()
}

fn pending(facts: &WhyFacts<'_>, condition: &PodCondition) -> Finding {
    let message = condition.message.as_deref().unwrap_or_default();
    let since = condition.last_transition_time.as_ref().map(|time| time.0);
    if condition.reason.as_deref() == Some("Infeasible") {
        return Finding::new(Rank::NotReady, "The pod runs, but cannot be given the size that its manifest asks for.")
            .since(since)
            .error(message)
            .advise("Nothing will change by waiting: give the manifest back the requests and limits it had.")
            .advise("To have the new size all the same, remove the manifest, wait until the pod is gone, and put it back: the pod starts anew.");
    }
    let mut finding = Finding::new(
        Rank::Underway,
        "The pod runs with its old size: the node has no room for the one its manifest asks for.",
    )
    .waits_for("room: other pods must end, be removed or shrink")
    .since(since)
    .error(room(message).unwrap_or_else(|| message.to_owned()))
    .advise("Lower the requests in this manifest, or remove or shrink other pods: `klet pods -A` lists them.")
    .advise(format!("`klet events {}` tells which sizes were asked for.", full_name(facts.pod)));
    finding.next = Some("tried again whenever a pod ends, goes or shrinks".to_owned());
    finding
}

/// The numbers of upstream's message in words.
fn room(message: &str) -> Option<String> {
    let rest = message.strip_prefix("Node didn't have enough resource: ")?;
    let (resource, numbers) = rest.split_once(", requested: ")?;
    let (requested, numbers) = numbers.split_once(", used: ")?;
    let (used, capacity) = numbers.split_once(", capacity: ")?;
    let number = |text: &str| text.trim().parse::<i64>().ok();
    let (requested, used, capacity) = (number(requested)?, number(used)?, number(capacity)?);
    let show = |value: i64| match resource {
        "cpu" => format!("{value}m"),
        _ => format!("{} MiB", value >> 20),
    };
    Some(format!(
        "{resource}: the pod asks for {}, other pods hold {} of the node's {}",
        show(requested),
        show(used),
        show(capacity)
    ))
}

/// A resize under way is nothing to wait for, unless it failed.
fn failing(facts: &WhyFacts<'_>, condition: &PodCondition) -> Option<Finding> {
    if condition.reason.as_deref() != Some("Error") {
        return None;
    }
    let message = condition.message.as_deref().unwrap_or_default();
    let finding = Finding::new(
        Rank::NotReady,
        "The pod runs, but its new size could not be put in force; it is tried again.",
    )
    .since(condition.last_transition_time.as_ref().map(|time| time.0))
    .error(message);
    Some(if message.starts_with("cannot decrease memory limits") {
        finding
            .advise("The limit would lie below what is used now, and kill: choose a higher one, or let the program free memory first.")
            .advise("A restart frees it too: resizePolicy {resourceName: memory, restartPolicy: RestartContainer} makes klet do that.")
    } else {
        finding
            .advise("The error is the runtime's or the kernel's: `klet why node` tells whether the runtime answers.")
            .advise(format!("`klet events {}` tells what was asked for.", full_name(facts.pod)))
    })
}
