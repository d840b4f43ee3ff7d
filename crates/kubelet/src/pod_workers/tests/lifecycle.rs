//! Which workers start, update, end and are forgotten.
//!
//! Facts as text, separated by `;`: `want <uid>:<name> [http] [deleted=<grace>]`, `worker
//! <uid>:<name> [old] [orphan] [ending] [grace=<given>] [finished]`, `runs <uid>:<name>` and
//! `left <uid>:<name>` for what the runtime holds, `unlisted` before the first
//! listing, `held <uid>:<name>` for pods that nobody has admitted yet, `unready` before every source has delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_model::{DesiredPod, FullName, PodSet, PodUid, Source};
use proptest::prelude::*;

use super::super::lifecycle::{Command, WorkerFacts, plan};
use crate::pleg::Existing;

#[derive(Default)]
struct World {
    desired: PodSet,
    workers: BTreeMap<PodUid, WorkerFacts>,
    existing: Vec<Existing>,
    listed: bool,
    held: BTreeSet<PodUid>,
}

fn pod(uid: &str, name: &str, source: Source) -> DesiredPod {
    let mut pod = Pod { spec: Some(PodSpec::default()), ..Pod::default() };
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("ns".to_owned());
    DesiredPod::new(source, Arc::new(pod)).expect("a complete pod")
}

/// A pod that its API server is asked to delete.
fn deleted_pod(uid: &str, name: &str, grace: i64) -> DesiredPod {
    let mut object = Pod::clone(pod(uid, name, Source::Api).pod());
    object.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    object.metadata.deletion_grace_period_seconds = Some(grace);
    DesiredPod::new(Source::Api, Arc::new(object)).expect("a complete pod")
}

fn world(text: &str) -> World {
    let mut world = World { listed: true, ..World::default() };
    world.desired.sources_ready = true;
    for item in text.split(';').map(str::trim).filter(|item| !item.is_empty()) {
        let mut words = item.split_whitespace();
        let kind = words.next().expect("an item has a kind");
        let pair = words.next().and_then(|pair| pair.split_once(':'));
        let flags: BTreeSet<&str> = words.collect();
        match (kind, pair) {
            ("unlisted", None) => world.listed = false,
            ("unready", None) => world.desired.sources_ready = false,
            ("held", Some((uid, _))) => {
                world.held.insert(PodUid::new(uid));
            }
            ("want", Some((uid, name))) => {
                let source = if flags.contains("http") { Source::Http } else { Source::File };
                let deleted = flags.iter().find_map(|flag| flag.strip_prefix("deleted="));
                let wanted = match deleted {
                    Some(grace) => deleted_pod(uid, name, grace.parse().expect("seconds")),
                    None => pod(uid, name, source),
                };
                world.desired.pods.insert(PodUid::new(uid), wanted);
            }
            ("worker", Some((uid, name))) => {
                let known = world.desired.pods.get(&PodUid::new(uid)).cloned();
                let known = known.filter(|_| !flags.contains("old"));
                let known = known.unwrap_or_else(|| pod(uid, name, Source::File));
                let facts = WorkerFacts {
                    full_name: FullName::of(name, "ns"),
                    pod: (!flags.contains("orphan")).then_some(known),
                    ending: flags.contains("ending"),
                    grace: flags.iter().find_map(|flag| flag.strip_prefix("grace=")?.parse().ok()),
                    ended: flags.contains("ended"),
                    cleaned: false,
                    finished: flags.contains("finished"),
                };
                world.workers.insert(PodUid::new(uid), facts);
            }
            ("runs" | "left" | "listed", Some((uid, name))) => world.existing.push(Existing {
                uid: PodUid::new(uid),
                full_name: FullName::of(name, "ns"),
                may_run: kind != "left",
                pending: kind == "listed",
            }),
            _ => panic!("unknown item {item:?}"),
        }
    }
    world
}

impl World {
    fn plan(&self) -> Vec<Command> {
        let held = |uid: &PodUid| self.held.contains(uid);
        plan(&self.desired, &self.workers, self.listed.then_some(&self.existing[..]), &held)
    }

    fn perform(&mut self, command: &Command) {
        match command {
            Command::Start(uid) => {
                let pod = self.desired.pods[uid].clone();
                let facts = WorkerFacts {
                    full_name: pod.full_name().clone(),
                    pod: Some(pod),
                    ending: false,
                    grace: None,
                    ended: false,
                    cleaned: false,
                    finished: false,
                };
                assert!(self.workers.insert(uid.clone(), facts).is_none(), "{uid} has a worker");
            }
            Command::Update(uid) => {
                let worker = self.workers.get_mut(uid).expect("an update has a worker");
                worker.pod = Some(self.desired.pods[uid].clone());
            }
            Command::End(uid) => {
                self.workers.get_mut(uid).expect("an end has a worker").ending = true;
            }
            Command::EndOrphan(uid) => {
                let mut all = self.existing.iter();
                let orphan = all.find(|pod| &pod.uid == uid).expect("an orphan exists");
                let full_name = orphan.full_name.clone();
                let facts = WorkerFacts {
                    full_name,
                    pod: None,
                    ending: true,
                    grace: None,
                    ended: false,
                    cleaned: false,
                    finished: false,
                };
                assert!(self.workers.insert(uid.clone(), facts).is_none(), "{uid} has a worker");
            }
            Command::Forget(uid) => {
                let worker = self.workers.remove(uid).expect("who is forgotten has a worker");
                assert!(worker.finished, "{uid} has not finished");
            }
        }
    }

    /// Every worker that was told to end its pod has done so.
    fn finish_endings(&mut self) {
        for (uid, worker) in self.workers.iter_mut().filter(|(_, worker)| worker.ending) {
            worker.finished = true;
            self.existing.retain(|pod| &pod.uid != uid);
        }
    }
}

fn render(commands: &[Command]) -> String {
    let lines: Vec<String> = commands
        .iter()
        .map(|command| match command {
            Command::Start(uid) => format!("start {uid}"),
            Command::Update(uid) => format!("update {uid}"),
            Command::End(uid) => format!("end {uid}"),
            Command::EndOrphan(uid) => format!("end orphan {uid}"),
            Command::Forget(uid) => format!("forget {uid}"),
        })
        .collect();
    if lines.is_empty() { "nothing".to_owned() } else { lines.join(", ") }
}

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&render(&world(text).plan()));
}

#[test]
fn desired_pods_get_workers() {
    check("want a:web; want b:db", expect!["start a, start b"]);
    check("want a:web; worker a:web", expect!["nothing"]);
    check("want a:web; worker a:web old", expect!["update a"]);
}

#[test]
fn a_pod_that_is_not_admitted_yet_is_left_alone() {
    check("want a:web; held a:web; want b:db", expect!["start b"]);
    check("want a:web; held a:web; runs a:web", expect!["nothing"]);
    check("want a:web deleted=30; held a:web", expect!["start a"]);
    // Its name is its own while it runs, or may.
    check("want a:web; held a:web; runs a:web; want b:web http", expect!["nothing"]);
    check("want a:web; held a:web; listed a:web; want b:web http", expect!["nothing"]);
    check("want a:web; held a:web; left a:web; want b:web http", expect!["start b"]);
}

#[test]
fn undesired_pods_end_and_are_forgotten() {
    check("worker a:web", expect!["end a"]);
    check("worker a:web ending", expect!["nothing"]);
    check("worker a:web ending finished", expect!["forget a"]);
}

#[test]
fn a_pod_that_comes_back_while_it_ends_starts_anew_afterwards() {
    check("want a:web; worker a:web ending", expect!["nothing"]);
    check("want a:web; worker a:web old ending", expect!["nothing"]);
    check("want a:web; worker a:web ending finished", expect!["forget a"]);
    check("want a:web", expect!["start a"]);
}

/// Its API server holds it until it hears that nothing of it is left.
#[test]
fn a_deleted_pod_ends_once_and_does_not_start_again() {
    check("want a:web deleted=30; worker a:web", expect!["end a"]);
    check("want a:web deleted=30; worker a:web ending grace=30", expect!["nothing"]);
    check("want a:web deleted=5; worker a:web ending grace=30", expect!["end a"]);
    check("want a:web deleted=60; worker a:web ending grace=30", expect!["nothing"]);
    check("want a:web deleted=30; worker a:web ending finished", expect!["nothing"]);
    check("worker a:web ending finished", expect!["forget a"]);
    check("want a:web deleted=30", expect!["start a"]);
    // Nor does it wait for a name that it will not use.
    check("want b:web deleted=30; worker a:web ending", expect!["start b"]);
    check("want b:web deleted=30; runs b:web; worker a:web ending", expect!["nothing"]);
    // What was an orphan before its server told of it gets a worker that knows it.
    check("want a:web deleted=30; worker a:web orphan ending finished", expect!["forget a"]);
}

#[test]
fn one_pod_of_a_full_name_at_a_time() {
    check("want b:web; want a:web", expect!["start a"]);
    check("want a:web http; want b:web", expect!["start b"]);
    check("want a:web; want b:web; worker b:web", expect!["nothing"]);
    check("want b:web; worker a:web", expect!["end a"]);
    check("want b:web; worker a:web ending", expect!["nothing"]);
    check("want b:web; worker a:web ending finished", expect!["forget a"]);
}

/// As upstream: what has ended by itself no longer holds its name.
#[test]
fn a_pod_that_ended_by_itself_frees_its_name() {
    check("want a:web; want b:web; worker a:web ended", expect!["start b"]);
    check("want a:web; want b:web; worker a:web ended; worker b:web", expect!["nothing"]);
    check("want b:web; worker a:web ended", expect!["end a, start b"]);
    check("want b:web; worker a:web ended ending", expect!["nothing"]);
}

#[test]
fn who_runs_already_goes_first() {
    check("want a:web; want b:web; runs b:web", expect!["start b"]);
    check("want a:web; want b:web http; runs b:web", expect!["start b"]);
    check("want a:web; want b:web; left b:web", expect!["start a"]);
}

/// After a restart of the agent the runtime holds remains of both.
#[test]
fn rivals_are_looked_at_before_one_is_started() {
    check("want a:web; want b:web http; listed a:web; listed b:web", expect!["nothing"]);
    check("want a:web; want b:web http; left a:web; listed b:web", expect!["start b"]);
    check("want a:web; want b:web http; left a:web; runs b:web", expect!["start b"]);
    check("want a:web; want b:web http; listed a:web; runs b:web", expect!["start b"]);
    check("want a:web; want b:web http; runs a:web; listed b:web", expect!["start a"]);
    check("want a:web; want b:web http; listed b:web", expect!["start b"]);
    check(
        "want a:web; want b:web http; want c:web; listed b:web; listed c:web",
        expect!["nothing"],
    );
    check("want a:web; listed a:web", expect!["start a"]);
}

#[test]
fn a_running_orphan_blocks_its_name_until_it_is_gone() {
    check("want b:web; runs a:web", expect!["end orphan a"]);
    check("want b:web; runs a:web; worker a:web orphan ending", expect!["nothing"]);
    check("want b:web; runs a:web; unready", expect!["nothing"]);
    check("want b:web; left a:web", expect!["start b, end orphan a"]);
    check("want b:db; runs a:web; unready", expect!["start b"]);
}

/// Neither may wait for the other.
#[test]
fn two_desired_pods_of_one_name_that_both_run_do_not_block_each_other() {
    check("want a:web; want b:web; runs a:web; runs b:web", expect!["start a"]);
}

#[test]
fn orphans_wait_for_every_source() {
    check("runs a:web; left b:db", expect!["end orphan a, end orphan b"]);
    check("runs a:web; left b:db; unready", expect!["nothing"]);
    check("runs a:web; worker a:web orphan ending", expect!["nothing"]);
    check("runs a:web; want a:web", expect!["start a"]);
}

#[test]
fn nothing_starts_before_the_first_listing_but_workers_are_told() {
    check("want a:web; unlisted", expect!["nothing"]);
    check("worker a:web; unlisted", expect!["end a"]);
    check("want a:web; worker a:web old; unlisted", expect!["update a"]);
}

prop_compose! {
    fn any_facts()(
        wanted in prop::collection::btree_map(0..6u8, (0..3u8, any::<bool>()), 0..6),
        workers in prop::collection::btree_map(0..6u8, (0..4u8, any::<bool>()), 0..4),
        existing in prop::collection::btree_map(0..9u8, any::<bool>(), 0..6),
        ready in any::<bool>(),
        listed in any::<bool>(),
    ) -> String {
        // A uid always has the same name.
        let name = |uid: &u8| format!("pod{}", uid % 3);
        let mut text = String::new();
        for (uid, (_, http)) in &wanted {
            let http = if *http { " http" } else { "" };
            text.push_str(&format!("want u{uid}:{}{http};", name(uid)));
        }
        let mut taken = BTreeSet::new();
        for (uid, (kind, old)) in &workers {
            let old = if *old { " old" } else { "" };
            let flags = ["", " ending", " ending finished", " orphan ending"][usize::from(*kind)];
            if taken.insert(name(uid)) {
                text.push_str(&format!("worker u{uid}:{}{old}{flags};", name(uid)));
            }
        }
        for (uid, runs) in &existing {
            let kind = if *runs { "runs" } else { "left" };
            text.push_str(&format!("{kind} u{uid}:{};", name(uid)));
        }
        text.push_str(if ready { "" } else { "unready;" });
        text.push_str(if listed { "" } else { "unlisted;" });
        text
    }
}

fn config() -> ProptestConfig {
    // Seeds in files would make a failure depend on the checkout.
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// Plans and performs until nothing is left to do, watching every command.
fn settle(world: &mut World) -> Result<(), TestCaseError> {
    for _ in 0..4 {
        let commands = world.plan();
        if commands.is_empty() {
            return Ok(());
        }
        for command in &commands {
            match command {
                Command::Start(uid) => {
                    let full_name = world.desired.pods[uid].full_name();
                    let taken = world.workers.values().any(|w| &w.full_name == full_name);
                    prop_assert!(!taken, "{full_name} would run twice");
                    prop_assert!(world.listed);
                }
                Command::EndOrphan(uid) => {
                    prop_assert!(world.listed && world.desired.sources_ready);
                    prop_assert!(!world.desired.pods.contains_key(uid));
                }
                Command::Update(uid) | Command::End(uid) => {
                    prop_assert!(!world.workers[uid].ending, "{uid} already ends");
                }
                Command::Forget(_) => {}
            }
            world.perform(command);
        }
    }
    prop_assert!(false, "it does not settle: {}", render(&world.plan()));
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn settled_facts_give_no_commands_and_names_are_never_doubled(facts in any_facts()) {
        settle(&mut world(&facts))?;
    }

    /// Once sources and runtime are known and endings finish, exactly one pod
    /// of every desired name has a worker and nothing else is left.
    #[test]
    fn every_desired_name_ends_up_with_one_worker(facts in any_facts()) {
        let mut world = world(&facts);
        (world.listed, world.desired.sources_ready) = (true, true);
        for _ in 0..4 {
            settle(&mut world)?;
            world.finish_endings();
        }
        settle(&mut world)?;
        let wanted: BTreeSet<_> =
            world.desired.pods.values().map(|pod| pod.full_name().to_string()).collect();
        let working: Vec<_> = world.workers.values().map(|w| w.full_name.to_string()).collect();
        prop_assert_eq!(working.iter().cloned().collect::<BTreeSet<_>>(), wanted);
        prop_assert!(world.workers.values().all(|worker| !worker.ending));
        prop_assert!(world.existing.iter().all(|pod| world.desired.pods.contains_key(&pod.uid)));
    }
}
