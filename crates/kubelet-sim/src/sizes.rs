//! Sizes of containers: what manifests ask for, and the rule that once all is
//! quiet the runtime and the pods' control groups have just that.
//!
//! Sized containers may use twice what they request, so that no edit changes a
//! pod's class.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kubelet::container_manager::Rules;
use kubelet::container_manager::plan::{cpu_quota_us, cpu_shares, pod_group};
use rand::{Rng, RngExt};
use serde_json::{Value, json};

use crate::manifest::{PodTemplate, Restart};
use crate::runtime::Container;
use crate::world::{State, Violation};

const MIB: i64 = 1 << 20;

/// What a container requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Thousandths of a processor.
    pub cpu_milli: i64,
    /// Memory in mebibytes.
    pub memory_mib: i64,
    /// Another share of the processors restarts it.
    pub cpu_restarts: bool,
}

impl Size {
    /// One that changes in place.
    pub fn new(cpu_milli: i64, memory_mib: i64) -> Self {
        Self { cpu_milli, memory_mib, cpu_restarts: false }
    }

    fn random(rng: &mut impl Rng, cpu_restarts: bool) -> Self {
        let (cpu_milli, memory_mib) = (rng.random_range(1..=8) * 50, rng.random_range(1..=8) * 16);
        Self { cpu_milli, memory_mib, cpu_restarts }
    }

    /// Shares and quota of the processors, as the runtime is told.
    fn cpu(self) -> (i64, i64) {
        let shares = i64::try_from(cpu_shares(self.cpu_milli)).unwrap_or(0);
        (shares, cpu_quota_us(2 * self.cpu_milli, 100_000))
    }

    /// Adds itself to a container of a manifest.
    pub(crate) fn add_to(self, container: &mut Value) {
        let list = |times: i64| {
            json!({"cpu": format!("{}m", times * self.cpu_milli),
                   "memory": format!("{}Mi", times * self.memory_mib)})
        };
        container["resources"] = json!({"requests": list(1), "limits": list(2)});
        if self.cpu_restarts {
            container["resizePolicy"] =
                json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
        }
    }
}

impl PodTemplate {
    /// Gives every regular container and sidecar a random size.
    pub(crate) fn size_at_random(&mut self, rng: &mut impl Rng) {
        let may_restart = self.restart != Restart::Never;
        let sidecars = self.init.iter_mut().filter(|c| c.sidecar);
        for container in sidecars.chain(&mut self.containers) {
            let restarts = match container.size {
                // The policy is no part of a resize.
                Some(size) => size.cpu_restarts,
                None => may_restart && rng.random_bool(0.3),
            };
            container.size = Some(Size::random(rng, restarts));
        }
    }
}

impl State {
    /// Does some text that a container's pod may follow ask for a share of the
    /// processors that this instance cannot get without a restart? Upstream restarts
    /// a sidecar alone for that, whatever runs beside it: computePodResizeAction, as
    /// called by computeInitContainerActions.
    pub(crate) fn resize_explains_stop(&self, container: &Container, revision: u64) -> bool {
        let linux = container.config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
        let has = linux.map(|has| (has.cpu_shares, has.cpu_quota)).unwrap_or_default();
        self.oracle.kin_templates(revision).any(|template| {
            let size = template.container(container.name()).and_then(|(_, c)| c.size);
            size.is_some_and(|size| size.cpu_restarts && size.cpu() != has)
        })
    }
}

/// Running containers and the pod's group have the sizes of the manifest.
pub(crate) fn are_as_asked(
    state: &State,
    pod: &str,
    uid: &str,
    template: &PodTemplate,
    newest: &BTreeMap<&str, &Container>,
) -> Result<(), Violation> {
    let wrong = |text: String| Err(Violation { pod: pod.to_owned(), text });
    for container in newest.values().filter(|c| c.is_running()) {
        let Some(size) = template.container(container.name()).and_then(|(_, c)| c.size) else {
            continue;
        };
        let linux = container.config.linux.as_ref().and_then(|linux| linux.resources.clone());
        let has = linux.unwrap_or_default();
        let has = (has.cpu_shares, has.cpu_quota, has.memory_limit_in_bytes);
        let (shares, quota) = size.cpu();
        let wants = (shares, quota, 2 * size.memory_mib * MIB);
        if has != wants {
            return wrong(format!("{} has {has:?}, not {wants:?}", container.name()));
        }
    }
    let Some((_, has)) = state.groups.pods.iter().find(|(known, _)| known.as_str() == uid) else {
        return Ok(());
    };
    let mut asked: Pod = serde_json::from_value(template.to_json()).expect("a manifest is a pod");
    kubelet_model::manifest::default_pod(&mut asked);
    let wants = pod_group(&asked.spec.expect("a pod has a spec"), &Rules::default());
    if has.1 != wants {
        return wrong(format!("its group has {:?}, not {wants:?}", has.1));
    }
    Ok(())
}
