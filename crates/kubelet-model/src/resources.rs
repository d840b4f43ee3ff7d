//! What a pod's containers are given: requests and limits of processors and memory.
//!
//! Pure. A pod may be given less than it asks for while a resize waits; what it
//! was given is kept by container name, apart from its spec.
//! Upstream: pkg/kubelet/allocation/state, pkg/kubelet/kuberuntime (resourceRequirements).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::ids::{ContainerId, ContainerName};
use crate::pod::DesiredPod;
use crate::quantity::{Quantity, canonical};

type List = BTreeMap<String, Text>;

/// Requests and limits of a pod's containers and of the pod as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodResources {
    /// By container name; init containers and regular ones.
    pub containers: BTreeMap<String, ResourceRequirements>,
    /// Of the pod as a whole, if it names any.
    pub whole: Option<ResourceRequirements>,
}

/// What can be changed of a running container. Zero stands for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Thousandths of processors that are set aside.
    pub cpu_request: i64,
    /// Thousandths of processors at the most.
    pub cpu_limit: i64,
    /// Bytes of memory that are set aside.
    pub memory_request: i64,
    /// Bytes of memory at the most.
    pub memory_limit: i64,
}

/// A running container that gets another size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerResize {
    /// Which instance.
    pub id: ContainerId,
    /// Its name.
    pub name: ContainerName,
    /// What it was given last; `None` if nobody knows.
    pub from: Option<Sizes>,
    /// What it is to have.
    pub to: Sizes,
}

/// A container's size as the runtime tells it; what it does not tell is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObservedResources {
    /// Thousandths of processors that are set aside.
    pub cpu_request: Option<i64>,
    /// Thousandths of processors at the most.
    pub cpu_limit: Option<i64>,
    /// Bytes of memory at the most.
    pub memory_limit: Option<i64>,
}

impl PodResources {
    /// What a spec asks for, in canonical quantities.
    pub fn of(spec: &PodSpec) -> Self {
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        let own = |c: &Container| c.resources.as_ref().map(tidy).unwrap_or_default();
        Self {
            containers: all.map(|c| (c.name.clone(), own(c))).collect(),
            whole: spec.resources.as_ref().map(tidy),
        }
    }

    /// The pod with these resources in place of those it asks for; `None` if they
    /// are the same. A container that is not named here keeps its own.
    pub fn give(&self, pod: &DesiredPod) -> Option<DesiredPod> {
        let asked = pod.asked().spec.as_ref()?;
        let mut spec = asked.clone();
        let mut differs = false;
        if !same(asked.resources.as_ref(), self.whole.as_ref()) {
            spec.resources.clone_from(&self.whole);
            differs = true;
        }
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let Some(own) = self.containers.get(&container.name) else { continue };
            if !same(container.resources.as_ref(), Some(own)) {
                container.resources = Some(own.clone());
                differs = true;
            }
        }
        differs.then(|| pod.given(spec))
    }

    /// What will be in force once a pod's containers are made as it says: a limit
    /// that a container lacks is the whole pod's.
    pub fn in_force(spec: &PodSpec) -> Self {
        let mut all = Self::of(spec);
        for own in all.containers.values_mut() {
            *own = with_limits_of(own, all.whole.as_ref());
        }
        all
    }

    /// The size of one container; a limit that it lacks is the whole pod's.
    pub fn sizes(&self, container: &str) -> Option<Sizes> {
        let own = self.containers.get(container)?;
        Some(Sizes::of(own, self.whole.as_ref()))
    }
}

impl Sizes {
    /// From a container's requirements and those of its pod as a whole.
    pub fn of(own: &ResourceRequirements, whole: Option<&ResourceRequirements>) -> Self {
        let limit = |name, read: fn(Quantity) -> i64| {
            let of = |of: &ResourceRequirements| amount(of.limits.as_ref(), name, read);
            Some(of(own)).filter(|own| *own != 0).or_else(|| whole.map(of)).unwrap_or(0)
        };
        Self {
            cpu_request: amount(own.requests.as_ref(), "cpu", Quantity::milli),
            cpu_limit: limit("cpu", Quantity::milli),
            memory_request: amount(own.requests.as_ref(), "memory", Quantity::units),
            memory_limit: limit("memory", Quantity::units),
        }
    }

    /// The size of a container of a spec.
    pub fn of_container(spec: &PodSpec, container: &Container) -> Self {
        let none = ResourceRequirements::default();
        Self::of(container.resources.as_ref().unwrap_or(&none), spec.resources.as_ref())
    }

    /// This size with the memory of another.
    #[must_use]
    pub fn with_memory_of(self, other: Self) -> Self {
        let Self { memory_request, memory_limit, .. } = other;
        Self { memory_request, memory_limit, ..self }
    }

    /// This size with the processors of another.
    #[must_use]
    pub fn with_cpu_of(self, other: Self) -> Self {
        let Self { cpu_request, cpu_limit, .. } = other;
        Self { cpu_request, cpu_limit, ..self }
    }

    /// As requirements, with every amount named, also those that are zero.
    pub fn requirements(self) -> ResourceRequirements {
        let list = |cpu: i64, memory: i64| {
            let cpu = ("cpu".to_owned(), Text(Quantity::milli_text(cpu)));
            let memory = ("memory".to_owned(), Text(Quantity::bytes_text(memory)));
            Some(BTreeMap::from([cpu, memory]))
        };
        ResourceRequirements {
            limits: list(self.cpu_limit, self.memory_limit),
            requests: list(self.cpu_request, self.memory_request),
            claims: None,
        }
    }
}

/// Do both ask for the same, however it is written?
pub fn same(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    let none = ResourceRequirements::default();
    let (a, b) = (a.unwrap_or(&none), b.unwrap_or(&none));
    same_list(a.limits.as_ref(), b.limits.as_ref())
        && same_list(a.requests.as_ref(), b.requests.as_ref())
        && a.claims.iter().flatten().eq(b.claims.iter().flatten())
}

fn same_list(a: Option<&List>, b: Option<&List>) -> bool {
    let (mut a, mut b) = (a.into_iter().flatten(), b.into_iter().flatten());
    let equal = |(name, a): (&String, &Text), (other, b): (&String, &Text)| {
        name == other && (a == b || Quantity::parse(&a.0) == Quantity::parse(&b.0))
    };
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if equal(a, b) => {}
            _ => return false,
        }
    }
}

/// Requirements with canonical quantities and without empty lists.
pub fn tidy(resources: &ResourceRequirements) -> ResourceRequirements {
    let list = |list: &Option<List>| {
        let list = list.as_ref().filter(|list| !list.is_empty())?;
        let text = |text: &Text| Text(canonical(&text.0).unwrap_or_else(|| text.0.clone()));
        Some(list.iter().map(|(name, value)| (name.clone(), text(value))).collect())
    };
    ResourceRequirements {
        limits: list(&resources.limits),
        requests: list(&resources.requests),
        claims: resources.claims.clone().filter(|claims| !claims.is_empty()),
    }
}

/// Requirements with the limits that a container takes from its pod as a whole.
pub fn with_limits_of(
    own: &ResourceRequirements,
    whole: Option<&ResourceRequirements>,
) -> ResourceRequirements {
    let mut own = tidy(own);
    let Some(whole) = whole.and_then(|whole| whole.limits.as_ref()) else { return own };
    for name in ["cpu", "memory"] {
        let Some(limit) = whole.get(name).filter(|text| !is_zero(text)) else { continue };
        let limits = own.limits.get_or_insert_default();
        if limits.get(name).is_none_or(is_zero) {
            limits.insert(name.to_owned(), limit.clone());
        }
    }
    own
}

fn is_zero(text: &Text) -> bool {
    Quantity::parse(&text.0).is_none_or(Quantity::is_zero)
}

fn amount(list: Option<&List>, name: &str, read: fn(Quantity) -> i64) -> i64 {
    let text = list.and_then(|list| list.get(name));
    text.and_then(|text| Quantity::parse(&text.0)).map_or(0, read)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::pod::Source;

    fn pod(spec: &str) -> DesiredPod {
        let json =
            format!(r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},"spec":{{{spec}}}}}"#);
        let pod: Pod = serde_json::from_str(&json).expect("test pod");
        DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
    }

    fn app(resources: &str) -> DesiredPod {
        pod(&format!(r#""containers":[{{"name":"app","resources":{resources}}}]"#))
    }

    #[test]
    fn the_same_amount_in_other_words_is_no_change() {
        let given = PodResources::of(app(r#"{"limits":{"cpu":"0.5","memory":"1024Mi"}}"#).spec());
        let limits = given.containers["app"].limits.as_ref().expect("limits");
        assert_eq!((limits["cpu"].0.as_str(), limits["memory"].0.as_str()), ("500m", "1Gi"));
        assert!(given.give(&app(r#"{"limits":{"cpu":"500m","memory":"1073741824"}}"#)).is_none());
        assert!(given.give(&app(r#"{"limits":{"cpu":"500m"}}"#)).is_some());
        let nothing = PodResources::of(app("{}").spec());
        assert!(nothing.give(&app(r#"{"limits":{},"requests":{}}"#)).is_none());
    }

    #[test]
    fn a_pod_is_given_what_was_kept_and_still_asks_for_its_own() {
        let given = PodResources::of(app(r#"{"requests":{"cpu":"1"}}"#).spec());
        let asked = app(r#"{"requests":{"cpu":"2"}}"#);
        let pod = given.give(&asked).expect("another size");
        assert_eq!(PodResources::of(pod.spec()), given);
        assert!(Arc::ptr_eq(pod.asked(), asked.pod()));
        // A container that nothing is known of keeps what it asks for.
        let other =
            self::pod(r#""containers":[{"name":"db","resources":{"requests":{"cpu":"3"}}}]"#);
        assert!(given.give(&other).is_none());
    }

    #[test]
    fn sizes_fall_back_to_the_whole_pods_limits() {
        let spec = r#""resources":{"limits":{"cpu":"2","memory":"1Gi"}},"containers":[
            {"name":"a","resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"1"}}}]"#;
        let sizes = PodResources::of(pod(spec).spec()).sizes("a").expect("a container");
        let expected =
            Sizes { cpu_request: 100, cpu_limit: 1000, memory_request: 0, memory_limit: 1 << 30 };
        assert_eq!(sizes, expected);
        let text = serde_json::to_string(&expected.requirements()).expect("JSON");
        assert_eq!(
            text,
            r#"{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m","memory":"0"}}"#
        );
    }
}
