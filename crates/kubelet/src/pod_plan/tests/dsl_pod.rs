//! Pods as text: the part of a scene before the colon.
//!
//! ```text
//! web Never app,db init=setup,proxy+ eph=debug grace=5 hostnet startup=proxy
//! ```
//!
//! Name, policy, regular containers (`app` unless named), and:
//!
//! - `init=<names>`, a sidecar with a `+`; `eph=<names>`; `grace=<s>`; `hostnet`;
//! - `startup=<names>`, `liveness=<names>`: containers with such a probe, with a
//!   grace of its own after a slash: `liveness=app/5`;
//! - `size=<name>/<cpu>/<cpu>/<memory>/<memory>`: requests and limits, a dash for
//!   none; `resize=<name>/<resource>`: changing that restarts it;
//! - `policy=<name>/<policy>`; `rule=<name>/In|NotIn/<codes>/<action>`, in order.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Container, ContainerResizePolicy, ContainerRestartRule, ContainerRestartRuleOnExitCodes,
    EphemeralContainer, Pod, PodSpec, Probe, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_model::{DesiredPod, Source};

use super::{image_of, number};

/// Reads a pod in namespace `ns` with uid `u1`; a typo panics with the word.
pub fn pod(text: &str) -> DesiredPod {
    let mut words = text.split_whitespace();
    let mut pod = Pod::default();
    pod.metadata.name = words.next().map(str::to_owned);
    pod.metadata.namespace = Some("ns".to_owned());
    pod.metadata.uid = Some("u1".to_owned());
    let mut spec = PodSpec {
        restart_policy: words.next().map(str::to_owned),
        host_network: Some(false),
        termination_grace_period_seconds: Some(30),
        containers: vec![container("app")],
        ..PodSpec::default()
    };
    let (shape, details): (Vec<_>, Vec<_>) = words.partition(|word| {
        let details = ["startup=", "liveness=", "policy=", "rule=", "size=", "resize="];
        !details.iter().any(|key| word.starts_with(key))
    });
    for word in shape {
        read_shape(&mut spec, word);
    }
    for word in details {
        read_detail(&mut spec, word);
    }
    pod.spec = Some(spec);
    DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
}

fn read_shape(spec: &mut PodSpec, word: &str) {
    match word.split_once('=') {
        Some(("grace", seconds)) => spec.termination_grace_period_seconds = Some(number(seconds)),
        Some(("init", names)) => spec.init_containers = Some(names.split(',').map(init).collect()),
        Some(("eph", names)) => {
            spec.ephemeral_containers = Some(names.split(',').map(ephemeral).collect());
        }
        None if word == "hostnet" => spec.host_network = Some(true),
        None => spec.containers = word.split(',').map(container).collect(),
        _ => panic!("unknown word {word:?}"),
    }
}

fn read_detail(spec: &mut PodSpec, word: &str) {
    let (key, value) = word.split_once('=').expect("a detail has a value");
    if key == "startup" || key == "liveness" {
        for item in value.split(',') {
            let (name, grace) = item.split_once('/').map_or((item, None), |(n, g)| (n, Some(g)));
            let probe =
                Probe { termination_grace_period_seconds: grace.map(number), ..Probe::default() };
            let container = named(spec, name);
            match key {
                "startup" => container.startup_probe = Some(probe),
                _ => container.liveness_probe = Some(probe),
            }
        }
        return;
    }
    if key == "size" {
        let (name, sizes) = value.split_once('/').expect("a size has a container");
        named(spec, name).resources = Some(requirements(sizes));
        return;
    }
    match value.split('/').collect::<Vec<_>>()[..] {
        [name, resource] if key == "resize" => {
            let policy = ContainerResizePolicy {
                resource_name: resource.to_owned(),
                restart_policy: "RestartContainer".to_owned(),
            };
            named(spec, name).resize_policy.get_or_insert_default().push(policy);
        }
        [name, policy] => named(spec, name).restart_policy = Some(policy.to_owned()),
        [name, operator, codes, action] => {
            let codes = ContainerRestartRuleOnExitCodes {
                operator: operator.to_owned(),
                values: Some(codes.split(',').map(number).collect()),
            };
            let rule = ContainerRestartRule { action: action.to_owned(), exit_codes: Some(codes) };
            named(spec, name).restart_policy_rules.get_or_insert_default().push(rule);
        }
        _ => panic!("unknown word {word:?}"),
    }
}

/// `<cpu>/<cpu>/<memory>/<memory>`, requests before limits.
pub(super) fn requirements(text: &str) -> ResourceRequirements {
    let [cpu, cpu_limit, memory, memory_limit] = text.split('/').collect::<Vec<_>>()[..] else {
        panic!("not four amounts: {text:?}");
    };
    let list = |cpu: &str, memory: &str| {
        let named = [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, text)| *text != "-");
        named.map(|(name, text)| (name.to_owned(), Quantity(text.to_owned()))).collect()
    };
    ResourceRequirements {
        requests: Some(list(cpu, memory)),
        limits: Some(list(cpu_limit, memory_limit)),
        claims: None,
    }
}

fn named<'a>(spec: &'a mut PodSpec, name: &str) -> &'a mut Container {
    let init = spec.init_containers.iter_mut().flatten();
    let mut all = init.chain(&mut spec.containers);
    all.find(|c| c.name == name).unwrap_or_else(|| panic!("no container {name:?}"))
}

fn container(name: &str) -> Container {
    Container { name: name.to_owned(), image: Some(image_of(name)), ..Container::default() }
}

fn init(word: &str) -> Container {
    match word.strip_suffix('+') {
        Some(name) => Container { restart_policy: Some("Always".to_owned()), ..container(name) },
        None => container(word),
    }
}

fn ephemeral(name: &str) -> EphemeralContainer {
    EphemeralContainer {
        name: name.to_owned(),
        image: Some(image_of(name)),
        ..EphemeralContainer::default()
    }
}
