//! What a status says of sizes and resizes.

use k8s_openapi::api::core::v1::{PodStatus, ResourceRequirements};
use kubelet_model::{ObservedResources, PodResources};

use super::case::Case;
use super::dsl;
use crate::allocation::{PendingReason, Refusal};

const ASKED: &str = "web Always size=app/500m/1/64Mi/128Mi";

/// A case of one container of that size, with what was kept of it.
fn case(kept: Option<&str>) -> Case {
    let mut case = Case::of(dsl::pod(ASKED));
    case.actuated = kept.map(|kept| {
        let mut actuated = PodResources::default();
        actuated.containers.insert("app".to_owned(), dsl::requirements(kept));
        actuated
    });
    case
}

fn sees(case: &Case, state: &str, told: Option<ObservedResources>) -> PodStatus {
    let mut seen = dsl::scene(&format!("web Always: app {state}")).seen;
    seen.containers[0].resources = told;
    case.generate(&seen)
}

/// `cpu/cpu/memory/memory`, requests before limits, a dash for none.
fn size(status: &PodStatus) -> String {
    let container = &status.container_statuses.as_ref().expect("statuses")[0];
    let ResourceRequirements { limits, requests, .. } =
        container.resources.clone().expect("resources");
    let get = |list: &Option<_>, name: &str| -> String {
        let list: Option<&std::collections::BTreeMap<String, _>> = list.as_ref();
        let value: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity> =
            list.and_then(|list| list.get(name));
        value.map_or("-".to_owned(), |value| value.0.clone())
    };
    let (cpu, memory) = (get(&requests, "cpu"), get(&requests, "memory"));
    format!("{cpu}/{}/{memory}/{}", get(&limits, "cpu"), get(&limits, "memory"))
}

fn condition(status: &PodStatus, kind: &str) -> Option<String> {
    let all = status.conditions.as_ref().expect("conditions");
    let found = all.iter().find(|one| one.type_ == kind)?;
    assert_eq!(found.status, "True");
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(format!("{}: {}", text(&found.reason), text(&found.message)))
}

#[test]
fn the_size_in_force_is_told() {
    let told = ObservedResources {
        cpu_request: Some(200),
        cpu_limit: Some(400),
        memory_limit: Some(32 << 20),
    };
    // What the runtime says, and the request of memory that only the record knows.
    assert_eq!(
        size(&sees(&case(Some("1/1/16Mi/1Gi")), "running", Some(told))),
        "200m/400m/16Mi/32Mi"
    );
    // A runtime that tells nothing: the record.
    assert_eq!(size(&sees(&case(Some("1/2/16Mi/1Gi")), "running", None)), "1/2/16Mi/1Gi");
    // Nobody knows, or it does not run: what it was allocated.
    assert_eq!(size(&sees(&case(None), "running", None)), "500m/1/64Mi/128Mi");
    assert_eq!(size(&sees(&case(Some("1/2/16Mi/1Gi")), "exited=0", None)), "500m/1/64Mi/128Mi");
    let status = sees(&case(Some("1/2/16Mi/1Gi")), "running", None);
    let container = &status.container_statuses.expect("statuses")[0];
    let allocated = container.allocated_resources.as_ref().expect("allocated");
    assert_eq!((allocated["cpu"].0.as_str(), allocated["memory"].0.as_str()), ("500m", "64Mi"));
}

#[test]
fn what_was_said_stands_while_nobody_knows() {
    let mut now = case(None);
    now.before = Some(sees(&case(Some("1/2/16Mi/1Gi")), "running", None));
    assert_eq!(size(&sees(&now, "running", None)), "1/2/16Mi/1Gi");
    assert_eq!(
        size(&sees(&now, "running restarts=1", None)),
        "500m/1/64Mi/128Mi",
        "another instance"
    );
}

#[test]
fn amounts_too_small_for_the_kernel_stay_as_written() {
    let small = |pod: &str, told: ObservedResources| {
        let case = Case::of(dsl::pod(pod));
        size(&sees(&case, "running", Some(told)))
    };
    let least = ObservedResources { cpu_request: Some(2), cpu_limit: Some(10), memory_limit: None };
    assert_eq!(small("web Always size=app/1m/5m/-/-", least), "1m/5m/-/-");
    assert_eq!(small("web Always size=app/3m/20m/-/-", least), "2m/10m/-/-");
    assert_eq!(
        small(
            "web Always size=app/0.5/1000m/-/-",
            ObservedResources { cpu_request: Some(500), cpu_limit: Some(1000), memory_limit: None }
        ),
        "500m/1/-/-"
    );
}

#[test]
fn conditions_tell_of_resizes() {
    let mut case = case(Some("500m/1/64Mi/128Mi"));
    let message = "Node didn't have enough resource".to_owned();
    let plain = sees(&case, "running", None);
    for kind in ["PodResizePending", "PodResizeInProgress"] {
        assert_eq!(condition(&plain, kind), None);
    }
    case.pending_resize = Some(Refusal { reason: PendingReason::Deferred, message });
    case.resizing = true;
    let status = sees(&case, "running", None);
    assert_eq!(
        condition(&status, "PodResizePending").as_deref(),
        Some("Deferred: Node didn't have enough resource")
    );
    assert_eq!(condition(&status, "PodResizeInProgress").as_deref(), Some(": "));
    case.resize_error = Some("no".to_owned());
    let failed = sees(&case, "running", None);
    assert_eq!(condition(&failed, "PodResizeInProgress").as_deref(), Some("Error: no"));
    // The time of a condition is that of its reason.
    let time = |status: &PodStatus| {
        let all = status.conditions.as_ref().expect("conditions");
        let found = all.iter().find(|one| one.type_ == "PodResizePending").expect("pending");
        found.last_transition_time.clone().expect("a time").0
    };
    let mut later = case.clone();
    later.before = Some(status.clone());
    later.wall += jiff::SignedDuration::from_secs(60);
    assert_eq!(time(&sees(&later, "running", None)), time(&status));
    later.pending_resize.as_mut().expect("pending").reason = PendingReason::Infeasible;
    assert!(time(&sees(&later, "running", None)) > time(&status));
    later.stage = crate::status_manager::Stage::Terminating;
    assert_eq!(condition(&sees(&later, "running", None), "PodResizePending"), None);
}
