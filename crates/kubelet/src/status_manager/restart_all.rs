//! A pod whose containers all restart in place, because one of them ended in a
//! way that a rule names. Pure.

use k8s_openapi::api::core::v1::PodCondition;
use kubelet_model::{ContainerName, restart};

use super::generate::{Facts, Stage};

/// The condition that remembers it from one status to the next.
pub(super) const CONDITION: &str = "AllContainersRestarting";

/// Is such a restart under way? It goes on after the container that caused it
/// is removed: only the condition knows of it then.
pub(super) fn in_progress(facts: &Facts<'_>) -> bool {
    let spec = facts.pod.spec();
    if facts.stage != Stage::Live || !restart::could_start_over(spec) {
        return false;
    }
    let began = |c: &PodCondition| c.type_ == CONDITION && c.status == "True";
    facts.before.and_then(|b| b.conditions.as_ref()).is_some_and(|all| all.iter().any(began))
        || restart::starts_over(spec, facts.seen)
}

/// Everything that ran before is removed, so that the pod can begin anew.
pub(super) fn is_cleaned_up(facts: &Facts<'_>) -> bool {
    restart::regular_and_init(facts.pod.spec())
        .all(|c| facts.seen.newest(&ContainerName::new(&c.name)).is_none())
}
