//! What the node was asked to run, and when that changed.
//!
//! Owns the record of every manifest text. Judges whether starting or stopping
//! a container can be explained by the manifests. Knows nothing of the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::manifest::PodTemplate;

/// How long after a manifest vanished the agent may still start its containers:
/// a few polls of a source whose reads fail at the worst rate.
const START_LAG: Duration = Duration::from_secs(180);
/// How long before a sandbox was made a change may still explain stopping it:
/// one poll of a source and its jitter.
const STOP_LAG: Duration = Duration::from_secs(60);

/// Where a manifest is published.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A file of the manifest directory.
    File(String),
    /// An item of the list at the URL.
    Url(usize),
    /// The pod of this name at the API server.
    Api(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The text is there to be read.
    Yes,
    /// The text was there and has been spoilt since.
    Spoilt,
    /// The text is gone.
    No,
}

struct Revision {
    template: PodTemplate,
    place: Place,
    wanted: Wanted,
    /// Last time the agent could have learnt something that takes the pod away.
    shaken_at: Option<Duration>,
    /// When this very text first appeared.
    first_at: Duration,
    published_at: Duration,
    gone_at: Duration,
    /// It went from the API server, and the agent has not heard of it yet.
    unheard: bool,
}

/// The record of manifests.
#[derive(Default)]
pub struct Oracle {
    revisions: BTreeMap<u64, Revision>,
    /// The revision that the agent read last at each place.
    read: BTreeMap<Place, u64>,
    /// Revisions that the agent's present life has known from its beginning.
    known: BTreeSet<u64>,
    life_began: Duration,
    next: u64,
}

impl Oracle {
    /// Publishes a template and returns it with its revision. A template that
    /// already has one is the same text again.
    pub fn publish(&mut self, place: Place, template: &PodTemplate, now: Duration) -> PodTemplate {
        let mut template = template.clone();
        if template.revision == 0 {
            self.next += 1;
            template.revision = self.next;
        }
        let same = self.current(&place).is_some_and(|(revision, wanted)| {
            revision == template.revision && wanted == Wanted::Yes
        });
        if same {
            return template;
        }
        let before = self.revisions.get(&template.revision);
        let shaken_at = match before.map(|entry| (entry.wanted, entry.shaken_at)) {
            Some((Wanted::Spoilt, _)) => Some(now),
            Some((_, shaken_at)) => shaken_at,
            None => None,
        };
        let first_at = before.map_or(now, |entry| entry.first_at);
        self.retire(&place, now);
        self.shake_name(&template.name, now);
        self.revisions.insert(
            template.revision,
            Revision {
                template: template.clone(),
                place,
                wanted: Wanted::Yes,
                shaken_at,
                first_at,
                published_at: now,
                gone_at: now,
                unheard: false,
            },
        );
        template
    }

    /// The number of the next text.
    pub fn next_revision(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A text by its number.
    pub fn template(&self, revision: u64) -> Option<&PodTemplate> {
        self.revisions.get(&revision).map(|entry| &entry.template)
    }

    /// The agent hears of a pod of the API server: which text it has, or that it is
    /// gone, and whether it is to end. What it had before counts until then.
    pub fn hear(&mut self, uid: &str, revision: Option<u64>, ends: bool, now: Duration) {
        self.known.extend(revision);
        for (number, entry) in &mut self.revisions {
            let its = entry.template.fixed_uid.as_deref() == Some(uid);
            let over = ends || revision.is_some_and(|revision| revision != *number);
            if its && entry.unheard && over {
                (entry.unheard, entry.gone_at) = (false, now);
                entry.shaken_at = Some(now);
            }
        }
    }

    /// Uids of pods whose end, or change, the agent has not heard of.
    pub fn unheard(&self) -> BTreeSet<String> {
        let unheard = self.revisions.values().filter(|entry| entry.unheard);
        unheard.filter_map(|entry| entry.template.fixed_uid.clone()).collect()
    }

    /// Places at the API server that have a pod.
    pub fn api_places(&self) -> BTreeSet<Place> {
        let wanted = self.revisions.values().filter(|entry| entry.wanted == Wanted::Yes);
        let places = wanted.map(|entry| entry.place.clone());
        places.filter(|place| matches!(place, Place::Api(_))).collect()
    }

    /// Is this the text of a pod of the API server?
    pub fn is_of_api(&self, revision: u64) -> bool {
        let entry = self.revisions.get(&revision);
        entry.is_some_and(|entry| matches!(entry.place, Place::Api(_)))
    }

    /// The agent starts: all that it knew is lost.
    pub fn begin_life(&mut self, now: Duration) {
        self.known.clear();
        self.life_began = now;
    }

    /// When the agent's present life began.
    pub fn life_began(&self) -> Duration {
        self.life_began
    }

    /// The agent read a place.
    pub fn note_read(&mut self, place: Place) {
        let Some((revision, Wanted::Yes)) = self.current(&place) else { return };
        let there = self.revisions[&revision].published_at <= self.life_began;
        if there && !self.is_shadowed(&place) {
            self.known.insert(revision);
        }
        self.read.insert(place, revision);
    }

    /// The agent read the list at the URL.
    pub fn note_list_read(&mut self) {
        let places = self.revisions.values().map(|entry| &entry.place);
        let items = places.filter(|place| matches!(place, Place::Url(_)));
        for place in items.cloned().collect::<BTreeSet<_>>() {
            self.note_read(place);
        }
    }

    /// Of two files with pods of one name, only the first by its own name counts.
    fn is_shadowed(&self, place: &Place) -> bool {
        let (Place::File(mine), Some((revision, _))) = (place, self.current(place)) else {
            return false;
        };
        let name = &self.revisions[&revision].template.name;
        self.revisions.values().any(|other| {
            let first = matches!(&other.place, Place::File(file) if file < mine);
            first && other.wanted != Wanted::No && other.template.name == *name
        })
    }

    /// Has the agent's present life had the definition of a pod of this revision,
    /// whose sandbox was asked for at `since`, whenever it could have ended it? An
    /// agent that finds the pod in the runtime only, as its text is gone, spoilt or
    /// shadowed when it starts, cannot tell sidecars from other containers. Upstream
    /// then makes up a pod from the containers' names: `Pod.ToAPIPod`.
    pub fn is_defined(&self, revision: u64, since: Duration) -> bool {
        let mut kin = self.kin(revision).map(|entry| entry.template.revision);
        since >= self.life_began || kin.any(|revision| self.known.contains(&revision))
    }

    /// The text at a place became unreadable for good. The agent then runs what
    /// it read last, which need not be what was there last.
    pub fn spoil(&mut self, place: &Place, now: Duration) {
        let current = self.current(place).map(|(revision, _)| revision);
        let last_read = self.read.get(place).copied();
        for revision in current.into_iter().chain(last_read) {
            if let Some(entry) = self.revisions.get_mut(&revision) {
                entry.wanted = Wanted::Spoilt;
                let name = entry.template.name.clone();
                self.shake_name(&name, now);
            }
        }
    }

    /// The text at a place is gone.
    pub fn withdraw(&mut self, place: &Place, now: Duration) {
        if let Some((revision, _)) = self.current(place) {
            let name = self.revisions[&revision].template.name.clone();
            self.retire(place, now);
            self.shake_name(&name, now);
        }
    }

    /// A read failed: while it does, another text of the same name may rightly
    /// take over and give way again.
    pub fn shake_rivals(&mut self, now: Duration) {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in self.revisions.values().filter(|entry| entry.wanted != Wanted::No) {
            *names.entry(&entry.template.name).or_default() += 1;
        }
        let rivals = names.into_iter().filter(|(_, count)| *count > 1);
        let rivals: Vec<String> = rivals.map(|(name, _)| name.to_owned()).collect();
        for name in rivals {
            self.shake_name(&name, now);
        }
    }

    /// The template whose text is at a place now, if it is good.
    pub fn at(&self, place: &Place) -> Option<&PodTemplate> {
        let (revision, wanted) = self.current(place)?;
        (wanted == Wanted::Yes).then(|| &self.revisions[&revision].template)
    }

    /// The last good template of a place, even if its text was spoilt since.
    pub fn last_good(&self, place: &Place) -> Option<&PodTemplate> {
        let (revision, _) = self.current(place)?;
        Some(&self.revisions[&revision].template)
    }

    /// Places whose text is spoilt.
    pub fn spoilt_places(&self) -> BTreeSet<Place> {
        let spoilt = self.revisions.values().filter(|entry| entry.wanted == Wanted::Spoilt);
        spoilt.map(|entry| entry.place.clone()).collect()
    }

    /// Every template that can be read now, by pod name.
    pub fn wanted(&self) -> BTreeMap<String, Vec<&PodTemplate>> {
        let mut by_name: BTreeMap<String, Vec<&PodTemplate>> = BTreeMap::new();
        for entry in self.revisions.values().filter(|e| e.wanted == Wanted::Yes) {
            by_name.entry(entry.template.name.clone()).or_default().push(&entry.template);
        }
        by_name
    }

    /// The template in force for a pod made from this revision: a fixed uid may
    /// have been edited since.
    pub fn in_force(&self, revision: u64) -> Option<&PodTemplate> {
        let wanted = self.kin(revision).filter(|entry| entry.wanted == Wanted::Yes);
        let newest = wanted.max_by_key(|entry| entry.template.revision);
        newest
            .map(|entry| &entry.template)
            .or_else(|| self.revisions.get(&revision).map(|entry| &entry.template))
    }

    /// Do the manifests explain stopping a container whose sandbox was asked
    /// for at `since` from this revision?
    pub fn explains_stop(&self, revision: u64, since: Duration) -> bool {
        let wanted = self.kin(revision).any(|entry| entry.wanted == Wanted::Yes);
        let shaken = self
            .kin(revision)
            .any(|entry| entry.shaken_at.is_some_and(|at| at + STOP_LAG >= since));
        !wanted || shaken
    }

    /// Do the manifests explain making a sandbox or starting a container of
    /// this revision now?
    pub fn explains_start(&self, revision: u64, now: Duration) -> bool {
        let gone = |entry: &Revision| entry.wanted == Wanted::No && !entry.unheard;
        self.kin(revision).any(|entry| !gone(entry) || entry.gone_at + START_LAG >= now)
    }

    /// Every text that a pod made from this revision may follow.
    pub fn kin_templates(&self, revision: u64) -> impl Iterator<Item = &PodTemplate> {
        self.kin(revision).map(|entry| &entry.template)
    }

    /// When the first text that a pod made from this revision may follow appeared.
    pub fn first_published(&self, revision: u64) -> Option<Duration> {
        self.kin(revision).map(|entry| entry.first_at).min()
    }

    /// Did the manifests change for a pod of this revision since then?
    pub fn changed_since(&self, revision: u64, since: Duration) -> bool {
        self.kin(revision).any(|entry| {
            entry.wanted == Wanted::No || entry.shaken_at.is_some_and(|at| at >= since)
        })
    }

    /// When a pod of this revision could begin to end: when its last text went or,
    /// while there is one, the last time that something could take it away.
    pub fn ends_from(&self, revision: u64) -> Option<Duration> {
        let wanted = self.kin(revision).any(|entry| entry.wanted != Wanted::No);
        let gone_at = self.kin(revision).map(|entry| entry.gone_at).max();
        let shaken_at = self.kin(revision).filter_map(|entry| entry.shaken_at).max();
        if wanted { shaken_at } else { gone_at }
    }

    /// The revision and, where a fixed uid joins them, its predecessors and successors.
    fn kin(&self, revision: u64) -> impl Iterator<Item = &Revision> {
        let uid =
            self.revisions.get(&revision).and_then(|entry| entry.template.fixed_uid.as_deref());
        self.revisions.iter().filter_map(move |(number, entry)| {
            let kin = *number == revision
                || (uid.is_some() && entry.template.fixed_uid.as_deref() == uid);
            kin.then_some(entry)
        })
    }

    fn current(&self, place: &Place) -> Option<(u64, Wanted)> {
        let mut newest_first = self.revisions.iter().rev();
        newest_first
            .find(|(_, entry)| entry.place == *place && entry.wanted != Wanted::No)
            .map(|(number, entry)| (*number, entry.wanted))
    }

    fn retire(&mut self, place: &Place, now: Duration) {
        for entry in self.revisions.values_mut() {
            if entry.place == *place && entry.wanted != Wanted::No {
                entry.wanted = Wanted::No;
                entry.gone_at = now;
                entry.shaken_at = Some(now);
                entry.unheard = matches!(place, Place::Api(_));
            }
        }
    }

    fn shake_name(&mut self, name: &str, now: Duration) {
        for entry in self.revisions.values_mut() {
            if entry.template.name == name {
                entry.shaken_at = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn an_undisturbed_pod_may_not_be_stopped() {
        let mut oracle = Oracle::default();
        let place = Place::File("a".into());
        let pod = oracle.publish(place.clone(), &PodTemplate::steady("web"), secs(0));
        assert!(!oracle.explains_stop(pod.revision, secs(1)));
        assert!(oracle.explains_start(pod.revision, secs(900)));
        oracle.withdraw(&place, secs(10));
        assert!(oracle.explains_stop(pod.revision, secs(1)));
        assert!(!oracle.explains_start(pod.revision, secs(900)));
    }

    #[test]
    fn the_same_text_again_is_settled_for_later_sandboxes() {
        let mut oracle = Oracle::default();
        let place = Place::File("a".into());
        let pod = oracle.publish(place.clone(), &PodTemplate::steady("web"), secs(0));
        oracle.withdraw(&place, secs(10));
        let again = oracle.publish(place.clone(), &pod, secs(11));
        assert_eq!(again.revision, pod.revision);
        assert!(oracle.explains_stop(pod.revision, secs(5)));
        assert!(!oracle.explains_stop(pod.revision, secs(90)));
        assert_eq!(oracle.wanted()["web"].len(), 1);
    }

    #[test]
    fn what_was_read_last_may_run_while_the_text_is_spoilt() {
        let mut oracle = Oracle::default();
        let place = Place::File("a".into());
        let read = oracle.publish(place.clone(), &PodTemplate::steady("web"), secs(0));
        oracle.note_read(place.clone());
        let unread = oracle.publish(place.clone(), &PodTemplate::steady("web"), secs(10));
        assert!(!oracle.explains_start(read.revision, secs(900)));
        oracle.spoil(&place, secs(901));
        assert!(oracle.explains_start(read.revision, secs(2_000)));
        assert_eq!(oracle.last_good(&place), Some(&unread));
    }

    #[test]
    fn a_new_life_knows_what_it_reads_at_its_start() {
        let mut oracle = Oracle::default();
        let [a, b] = ["a", "b"].map(|name| Place::File(name.into()));
        let shadow = oracle.publish(a.clone(), &PodTemplate::steady("web"), secs(0));
        let pod = oracle.publish(b.clone(), &PodTemplate::steady("web"), secs(0));
        oracle.begin_life(secs(10));
        assert!(!oracle.is_defined(shadow.revision, secs(5)), "not read yet");
        assert!(oracle.is_defined(shadow.revision, secs(11)), "this life made it");
        oracle.note_read(a.clone());
        oracle.note_read(b.clone());
        assert!(oracle.is_defined(shadow.revision, secs(5)));
        assert!(!oracle.is_defined(pod.revision, secs(5)), "another file has its name");
        oracle.withdraw(&a, secs(20));
        let again = oracle.publish(a.clone(), &shadow, secs(30));
        assert!(oracle.is_defined(again.revision, secs(5)), "known when it was taken away");
        oracle.begin_life(secs(40));
        oracle.withdraw(&b, secs(41));
        oracle.publish(b.clone(), &pod, secs(42));
        oracle.withdraw(&a, secs(43));
        oracle.note_read(b);
        assert!(!oracle.is_defined(pod.revision, secs(5)), "it came back too late");
    }

    #[test]
    fn a_spoilt_text_may_go_either_way() {
        let mut oracle = Oracle::default();
        let place = Place::File("a".into());
        let pod = oracle.publish(place.clone(), &PodTemplate::steady("web"), secs(0));
        oracle.spoil(&place, secs(10));
        assert!(oracle.explains_stop(pod.revision, secs(20)));
        assert!(oracle.explains_start(pod.revision, secs(20)));
        assert!(oracle.at(&place).is_none() && oracle.last_good(&place).is_some());
    }
}
