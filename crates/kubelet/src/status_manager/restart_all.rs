//! A pod whose containers all restart in place, because one of them ended in a
//! way that a rule names. Pure.

use k8s_openapi::api::core::v1::{Container, PodCondition};
use kubelet_model::{ContainerName, ContainerState};

use super::generate::{Facts, Stage};
use super::restart;

/// The condition that remembers it from one status to the next.
pub(super) const CONDITION: &str = "AllContainersRestarting";

/// Is such a restart under way? It goes on after the container that caused it
/// is removed: only the condition knows of it then.
pub(super) fn in_progress(facts: &Facts<'_>) -> bool {
    let spec = facts.pod.spec();
    if facts.stage != Stage::Live || !restart::could_restart_all(spec) {
        return false;
    }
    let began = |c: &PodCondition| c.type_ == CONDITION && c.status == "True";
    facts.before.and_then(|b| b.conditions.as_ref()).is_some_and(|all| all.iter().any(began))
        || concerned(facts).any(|container| {
            let newest = facts.seen.newest(&ContainerName::new(&container.name));
            matches!(newest.map(|c| &c.state), Some(ContainerState::Exited(exit))
                if restart::restarts_all(container, spec, exit.code))
        })
}

/// Everything that ran before is removed, so that the pod can begin anew.
pub(super) fn is_cleaned_up(facts: &Facts<'_>) -> bool {
    concerned(facts).all(|c| facts.seen.newest(&ContainerName::new(&c.name)).is_none())
}

fn concerned<'a>(facts: &Facts<'a>) -> impl Iterator<Item = &'a Container> + use<'a> {
    let spec = facts.pod.spec();
    spec.init_containers.iter().flatten().chain(&spec.containers)
}
