//! Every pod in every state, for properties.

use std::fmt::Write;
use std::time::Duration;

use kubelet_model::{
    ContainerKind, ContainerName, ContainerState, DesiredPod, Grace, ObservedPod, ObservedSandbox,
    PodResources, PodUid, ProbeKind, ProbeResult, ProbeResults, SandboxId,
};
use proptest::prelude::*;

use super::dsl::{self, Scene};
use crate::pod_plan::Memory;

const REGULAR: [&str; 3] = ["a", "b", "c"];
const INIT: [&str; 3] = ["i", "j", "k"];
const ALL: usize = 6;

/// The head of a scene: init containers, sidecars and rules in any combination.
pub(super) fn head() -> impl Strategy<Value = String> {
    let policies = ["", "", "Always", "OnFailure", "Never"];
    (
        prop::sample::select(vec!["Always", "OnFailure", "Never"]),
        1..=REGULAR.len(),
        prop::bool::weighted(0.2),
        0..60i64,
        prop::collection::vec((any::<bool>(), any::<bool>()), 0..=INIT.len()),
        prop::collection::vec((prop::sample::select(policies.to_vec()), 0..8u8), ALL),
    )
        .prop_map(|(policy, regular, hostnet, grace, init, own)| {
            let mut head = format!("web {policy} {} grace={grace}", REGULAR[..regular].join(","));
            if hostnet {
                head.push_str(" hostnet");
            }
            let named = INIT.iter().zip(&init);
            let init: Vec<_> = named
                .clone()
                .map(
                    |(name, (sidecar, _))| {
                        if *sidecar { format!("{name}+") } else { (*name).into() }
                    },
                )
                .collect();
            if !init.is_empty() {
                write!(head, " init={}", init.join(",")).expect("text");
            }
            for (name, _) in named.clone().filter(|(_, (sidecar, startup))| *sidecar && *startup) {
                write!(head, " startup={name}").expect("text");
            }
            let plain = named.filter(|(_, (sidecar, _))| !*sidecar).map(|(name, _)| name);
            // An init container of policy Always is a sidecar.
            let plain = plain.zip(&own[REGULAR.len()..]).filter(|(_, (own, _))| *own != "Always");
            for (name, (policy, rule)) in REGULAR[..regular].iter().zip(&own).chain(plain) {
                if policy.is_empty() {
                    continue;
                }
                write!(head, " policy={name}/{policy}").expect("text");
                match rule {
                    0 => write!(head, " rule={name}/In/1/RestartAllContainers"),
                    1 => write!(head, " rule={name}/NotIn/0,1/Restart"),
                    _ => Ok(()),
                }
                .expect("text");
            }
            head
        })
}

fn state() -> impl Strategy<Value = ContainerState> {
    prop_oneof![
        1 => Just(ContainerState::Created),
        3 => Just(ContainerState::Running { started_at: dsl::wall() }),
        1 => Just(ContainerState::Unknown),
        3 => dead(),
    ]
}

fn dead() -> impl Strategy<Value = ContainerState> {
    (prop::sample::select(vec![0, 1, 137]), 0..400u64).prop_map(|(code, ago)| {
        let mut exit = dsl::exit(code);
        exit.finished_at = dsl::wall() - Duration::from_secs(ago);
        ContainerState::Exited(exit)
    })
}

/// Instances of one container, oldest first; only the newest may run.
fn instances() -> impl Strategy<Value = Vec<(ContainerState, bool, usize)>> {
    let old = prop_oneof![3 => dead(), 1 => Just(ContainerState::Created)];
    let old = prop::collection::vec((old, any::<bool>(), 0..3usize), 0..3);
    let newest = prop::option::of((state(), prop::bool::weighted(0.7), 0..3usize));
    (old, newest).prop_map(|(mut all, newest)| {
        all.extend(newest);
        all
    })
}

fn sandboxes() -> impl Strategy<Value = Vec<(bool, bool, bool)>> {
    prop::collection::vec(
        (any::<bool>(), prop::bool::weighted(0.8), prop::bool::weighted(0.1)),
        0..3,
    )
}

/// What the newest instance's probes say: startup, liveness.
fn probes() -> impl Strategy<Value = (Option<ProbeResult>, Option<ProbeResult>)> {
    let result = || {
        prop::option::weighted(
            0.5,
            prop_oneof![
                3 => Just(ProbeResult::Success),
                1 => Just(ProbeResult::Failure),
                1 => Just(ProbeResult::Unknown),
            ],
        )
    };
    (result(), result())
}

/// What a container asks for, what it was given, and whether a change restarts it.
type Wish = (Option<&'static str>, Option<&'static str>, bool);

fn sizes() -> impl Strategy<Value = Wish> {
    let size =
        || prop::sample::select(vec!["1/1/1Gi/1Gi", "2/2/1Gi/1Gi", "1/1/1Gi/2Gi", "1/-/-/-"]);
    (prop::option::of(size()), prop::option::of(size()), any::<bool>())
}

/// A pod whose containers have sizes, with what was kept of those.
fn with_sizes(head: &str, sizes: &[Wish]) -> (DesiredPod, Option<PodResources>) {
    let (mut head, bare) = (head.to_owned(), dsl::pod(head));
    let mut given = None;
    for (name, (asked, had, restarts)) in REGULAR.iter().chain(&INIT).zip(sizes) {
        let Some((kind, _)) = bare.container(name) else { continue };
        if let Some(size) = asked {
            write!(head, " size={name}/{size}").expect("text");
        }
        // Init containers that run to their end may not be restarted for it.
        if *restarts && kind != ContainerKind::Init {
            write!(head, " resize={name}/cpu").expect("text");
        }
        if let Some(had) = had {
            let known: &mut PodResources = given.get_or_insert_default();
            known.containers.insert((*name).to_owned(), dsl::requirements(had));
        }
    }
    (dsl::pod(&head), given)
}

prop_compose! {
    /// A pod of any shape in any state.
    pub(super) fn any_scene()(
        head in head(),
        sandboxes in sandboxes(),
        instances in prop::collection::vec(instances(), ALL),
        crashes in prop::collection::vec(0..4u32, ALL),
        results in prop::collection::vec(probes(), ALL),
        sizes in prop::collection::vec(sizes(), ALL),
        graces in prop::collection::vec(prop::option::of(0..100i64), ALL),
        debugged in prop::bool::weighted(0.2),
    ) -> Scene {
        let head = if debugged { format!("{head} eph=d") } else { head };
        let (pod, actuated) = with_sizes(&head, &sizes);
        let hostnet = pod.spec().host_network == Some(true);
        let mut seen = ObservedPod::absent(PodUid::new("u1"), dsl::NOW);
        for (attempt, (ready, address, wrong_network)) in sandboxes.iter().enumerate() {
            let host_network = hostnet != *wrong_network;
            let ips = if *address && !host_network { vec!["10.0.0.1".into()] } else { Vec::new() };
            seen.sandboxes.push(ObservedSandbox {
                id: SandboxId::new(format!("s{attempt}")),
                attempt: u32::try_from(attempt).expect("few sandboxes"),
                ready: *ready,
                created_at: dsl::wall(),
                host_network,
                ips,
            });
        }
        let (mut memory, mut probes) = (Memory::default(), ProbeResults::default());
        let facts = instances.iter().zip(crashes).zip(results).zip(graces);
        let names = REGULAR.iter().chain(&INIT);
        for (name, (((instances, crashes), (startup, liveness)), grace)) in names.zip(facts) {
            for (count, (state, same_hash, sandbox)) in instances.iter().enumerate() {
                let mut instance = dsl::instance(name, 0);
                instance.restart_count = u32::try_from(count).expect("few instances");
                instance.id = format!("{name}-{count}").as_str().into();
                let sandbox = *sandbox % sandboxes.len().max(1);
                instance.sandbox = SandboxId::new(format!("s{sandbox}"));
                instance.hash = instance.hash.filter(|_| *same_hash);
                instance.state = state.clone();
                instance.grace = grace.map(Grace::from_secs);
                let results = [(ProbeKind::Startup, startup), (ProbeKind::Liveness, liveness)];
                for (kind, result) in results {
                    if let Some(result) = result {
                        probes.set(&instance.id, kind, result);
                    }
                }
                seen.containers.push(instance);
            }
            let past = dsl::NOW - Duration::from_secs(30);
            for _ in 0..crashes {
                memory.note_start(&seen, &ContainerName::new(*name), dsl::BACKOFF, past);
            }
        }
        seen.sort();
        Scene { pod, seen, memory, probes, actuated }
    }
}
