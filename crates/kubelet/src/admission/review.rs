//! Judges the pods that nobody has judged yet, one after the other. Pure.
//!
//! Level-triggered: the same facts give the same answers, and a verdict once given is
//! not asked for again. Pods that ran before come first, then those that were admitted
//! in an earlier life of the agent, then the oldest. While pods are made to go for one,
//! whoever would fit without them waits for their end. Upstream: HandlePodAdditions in
//! pkg/kubelet/kubelet.go, which waits in place.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubelet_model::{DesiredPod, Grace, Mono, PodUid};

use super::fit::Held;
use super::inputs::NodeNews;
use super::plan::{Answer, Facts, judge};
use super::preemption::{Candidate, choose};
use super::{NodeView, Verdict, Wait};
use crate::container_manager::amounts::{self, Amounts};
use crate::settings::Settings;
use crate::status_manager::is_terminal;

/// What the runtime is given at the least to end a pod, whatever its grace.
const WAIT_MIN: Duration = Duration::from_secs(10);

/// What became of a pod before this life of the agent, or until it was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recovered {
    /// Something of it runs.
    Runs,
    /// The runtime holds something of it, and nobody has looked whether it is over.
    Unseen,
    /// It ran, and will not again.
    Over,
    /// Nothing of the kind is known.
    New,
}

/// What is known of one pod.
#[derive(Debug)]
pub struct Known<'a> {
    /// The pod with what it is given.
    pub pod: Cow<'a, DesiredPod>,
    /// What was decided about it.
    pub verdict: Option<&'a Verdict>,
    /// Something of it runs or is to run.
    pub active: bool,
    /// What it holds of the node as long as it is active.
    pub holds: Amounts,
    /// An earlier life of the agent admitted it.
    pub recorded: bool,
    /// What became of it.
    pub recovered: Recovered,
    /// The number of the question about the Node that was asked for its sake.
    pub asked_node: Option<u64>,
}

/// What holds for all of them.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// What the agent was told.
    pub settings: &'a Settings,
    /// What the API server says of the Node; `None` without a server.
    pub news: Option<&'a NodeNews>,
    /// What the node is short of.
    pub conditions: &'a [String],
    /// The machine is about to go.
    pub shutting_down: bool,
    /// The runtime knows policies of supplemental groups; `None` until it has answered.
    pub strict_groups: Option<bool>,
    /// Monotonic now.
    pub now: Mono,
}

/// What is new of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It was judged.
    Verdict(Verdict),
    /// These have to go for it; what is missing first.
    Preempt {
        /// Who goes.
        victims: Vec<PodUid>,
        /// When they are waited for no longer.
        until: Mono,
        /// The first resource that is missing.
        signal: String,
    },
    /// It waits.
    Wait(Wait),
}

/// Decides about all pods that are not decided about.
pub fn decide(pods: &[Known<'_>], at: &Circumstances<'_>) -> BTreeMap<PodUid, Decision> {
    let own = at.settings.admission.own_node.as_ref();
    let told = at.news.and_then(|news| news.node.as_deref());
    let node = match (told, own) {
        (Some(told), Some(own)) => Some(told.clone().with_own(own)),
        (Some(told), None) => Some(told.clone()),
        (None, own) => own.cloned(),
    };
    let mut review = Review { node: node.as_ref(), ..Review::begin(pods, at) };
    let mut open: Vec<&Known<'_>> = pods.iter().filter(|pod| pod.verdict.is_none()).collect();
    open.sort_by_key(|known| {
        let meta = &known.pod.asked().metadata;
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        (known.recovered, !known.recorded, created, known.pod.uid().clone())
    });
    for known in open {
        let decision = review.decide(known);
        review.note(known, &decision);
        review.decisions.insert(known.pod.uid().clone(), decision);
    }
    review.decisions
}

/// A review under way.
struct Review<'a> {
    at: &'a Circumstances<'a>,
    node: Option<&'a NodeView>,
    pods: &'a [Known<'a>],
    decisions: BTreeMap<PodUid, Decision>,
    /// Of all pods that are there.
    held: Held,
    /// Of all but those that have been told to go.
    later: Held,
    /// Those that have been told to go, or may be over, and are waited for.
    leaving: BTreeSet<PodUid>,
    /// Some may be over.
    unseen: bool,
    /// Those admitted in this review.
    admitted: BTreeSet<PodUid>,
}

impl<'a> Review<'a> {
    fn begin(pods: &'a [Known<'a>], at: &'a Circumstances<'a>) -> Self {
        let active = |uid: &PodUid| pods.iter().any(|one| one.pod.uid() == uid && one.active);
        let (mut decisions, mut leaving) = (BTreeMap::new(), BTreeSet::new());
        for known in pods {
            let Some(Verdict::Preempting { victims, until }) = known.verdict else { continue };
            let left: Vec<PodUid> = victims.iter().filter(|uid| active(uid)).cloned().collect();
            let decision = if left.is_empty() || at.now >= *until {
                Decision::Verdict(Verdict::Admitted)
            } else {
                leaving.extend(left.iter().cloned());
                Decision::Wait(Wait::Victims(left))
            };
            decisions.insert(known.pod.uid().clone(), decision);
        }
        // One that may be over holds its share until that is known, and nobody is refused
        // for it before.
        let is_unseen = |one: &&Known<'_>| {
            one.verdict.is_none() && one.recovered == Recovered::Unseen && one.active
        };
        let hidden: Vec<PodUid> =
            pods.iter().filter(is_unseen).map(|one| one.pod.uid().clone()).collect();
        let unseen = !hidden.is_empty();
        leaving.extend(hidden);
        let (mut held, mut later) = (Held::default(), Held::default());
        for known in pods.iter().filter(|one| one.active) {
            if !known.verdict.is_some_and(Verdict::holds) && !is_unseen(&known) {
                continue;
            }
            held.add(known.pod.spec(), &known.holds);
            if !leaving.contains(known.pod.uid()) {
                later.add(known.pod.spec(), &known.holds);
            }
        }
        let admitted = BTreeSet::new();
        Self { at, node: None, pods, decisions, held, later, leaving, unseen, admitted }
    }

    fn decide(&self, known: &Known<'_>) -> Decision {
        let (pod, at) = (&*known.pod, self.at);
        if pod.deletion().is_some() {
            return Decision::Verdict(Verdict::Leaving);
        }
        let told = pod.asked().status.as_ref().is_some_and(is_terminal);
        if told || known.recovered == Recovered::Over {
            return Decision::Verdict(Verdict::Over);
        }
        if known.recovered == Recovered::Unseen {
            return Decision::Wait(Wait::Runtime);
        }
        // The server that sent the pod knows the Node, and what it says of it counts. One
        // that was admitted in an earlier life does not need it again.
        if !pod.is_static() && !known.recorded && self.node_is_unheard_of() {
            return Decision::Wait(Wait::Node);
        }
        let fresh = |news: &NodeNews| known.asked_node.is_some_and(|ask| news.answered >= ask);
        let facts = Facts {
            pod,
            node: self.node,
            fresh: at.news.is_none_or(fresh),
            settings: at.settings,
            conditions: at.conditions,
            shutting_down: at.shutting_down,
            strict_groups: at.strict_groups,
        };
        let answer = judge(&facts, &self.held);
        if self.leaving.is_empty() || answer == Answer::Admit {
            return self.decision(known, answer);
        }
        match judge(&facts, &self.later) {
            Answer::Admit | Answer::MakeRoom(_) if self.unseen => Decision::Wait(Wait::Runtime),
            Answer::Admit | Answer::MakeRoom(_) => {
                Decision::Wait(Wait::Victims(self.leaving.iter().cloned().collect()))
            }
            answer => self.decision(known, answer),
        }
    }

    /// There is a server, and it has told nothing of the Node yet.
    fn node_is_unheard_of(&self) -> bool {
        self.at.news.is_some_and(|news| news.node.is_none() && news.answered == 0)
    }

    fn decision(&self, known: &Known<'_>, answer: Answer) -> Decision {
        let shortages = match answer {
            Answer::Admit => return Decision::Verdict(Verdict::Admitted),
            Answer::Reject(rejection) => return Decision::Verdict(Verdict::Rejected(rejection)),
            Answer::AskNode if known.recorded && self.node_is_unheard_of() => {
                return Decision::Verdict(Verdict::Admitted);
            }
            Answer::AskNode => return Decision::Wait(Wait::Node),
            Answer::AskRuntime => return Decision::Wait(Wait::Runtime),
            Answer::MakeRoom(shortages) => shortages,
        };
        let is_there = |one: &&Known<'_>| {
            let admitted = self.admitted.contains(one.pod.uid());
            one.active && (admitted || one.verdict.is_some_and(Verdict::holds))
        };
        let there: Vec<&Known<'_>> = self.pods.iter().filter(is_there).collect();
        let requests: Vec<Amounts> =
            there.iter().map(|one| amounts::pod_requests(one.pod.spec())).collect();
        let candidates = there.iter().zip(&requests);
        let candidates: Vec<Candidate<'_>> =
            candidates.map(|(one, requests)| Candidate { pod: &one.pod, requests }).collect();
        match choose(&known.pod, &candidates, &shortages) {
            Err(rejection) => Decision::Verdict(Verdict::Rejected(rejection)),
            Ok(victims) => {
                let going = candidates.iter().filter(|one| victims.contains(one.pod.uid()));
                let longest = going.map(|one| limit(one.pod)).max().unwrap_or_default();
                let signal = shortages.first().map(|one| one.resource.clone());
                let until = self.at.now + longest;
                Decision::Preempt { victims, until, signal: signal.unwrap_or_default() }
            }
        }
    }

    /// The next pod is judged with this one in mind.
    fn note(&mut self, known: &Known<'_>, decision: &Decision) {
        let spec = known.pod.spec();
        let holds = match decision {
            Decision::Verdict(verdict) => verdict.holds(),
            Decision::Preempt { .. } => true,
            Decision::Wait(_) => false,
        };
        if holds && known.active {
            self.held.add(spec, &known.holds);
            self.later.add(spec, &known.holds);
            self.admitted.insert(known.pod.uid().clone());
        }
        let Decision::Preempt { victims, .. } = decision else { return };
        self.leaving.extend(victims.iter().cloned());
        self.later = Held::default();
        for one in self.pods {
            let there =
                one.verdict.is_some_and(Verdict::holds) || self.admitted.contains(one.pod.uid());
            if one.active && there && !self.leaving.contains(one.pod.uid()) {
                self.later.add(one.pod.spec(), &one.holds);
            }
        }
    }
}

/// How long the end of a pod is waited for.
fn limit(pod: &DesiredPod) -> Duration {
    let grace = Grace::from_secs(Grace::seconds_of(pod.spec())).duration();
    (grace + grace / 2).max(WAIT_MIN)
}
