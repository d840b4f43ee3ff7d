//! Has admission judge the pods that are new, and keeps its verdicts.

use std::borrow::Cow;

use kubelet_model::{DesiredPod, PodSet, PodUid};

use super::{News, Records, policy};
use crate::admission::{Circumstances, Decision, Known, Recovered, Verdict, Wait, decide};

/// What judging needs besides the pods.
#[derive(Clone, Copy)]
pub struct Judging<'a> {
    /// What holds for all pods.
    pub at: Circumstances<'a>,
    /// What became of a pod before it was judged.
    pub recovered: &'a dyn Fn(&DesiredPod) -> Recovered,
    /// Asks the API server for the Node; returns the question's number.
    pub ask_node: &'a dyn Fn() -> u64,
}

impl Records {
    /// Judges what is not judged yet.
    pub(super) fn judge(
        &mut self,
        desired: &PodSet,
        is_active: &impl Fn(&PodUid) -> bool,
        judging: &Judging<'_>,
    ) -> Vec<News> {
        if !self.has_open() {
            return Vec::new();
        }
        let decisions = {
            let pods = desired.pods.values();
            let known: Vec<Known<'_>> =
                pods.map(|pod| self.known_of(pod, is_active, judging)).collect();
            decide(&known, &judging.at)
        };
        let (mut news, mut question) = (Vec::new(), None);
        for (uid, decision) in decisions {
            let (Some(pod), Some(entry)) = (desired.pods.get(&uid), self.pods.get_mut(&uid)) else {
                continue;
            };
            match decision {
                Decision::Verdict(verdict) => {
                    if let Verdict::Rejected(rejection) = &verdict {
                        news.push(News::Rejected {
                            pod: pod.clone(),
                            rejection: rejection.clone(),
                        });
                    }
                    (entry.verdict, entry.wait) = (Some(verdict), None);
                }
                Decision::Preempt { victims, until, signal } => {
                    let going = victims.iter().filter_map(|uid| desired.pods.get(uid).cloned());
                    news.push(News::Preempt { pod: pod.clone(), victims: going.collect(), signal });
                    entry.wait = Some(Wait::Victims(victims.clone()));
                    entry.verdict = Some(Verdict::Preempting { victims, until });
                }
                Decision::Wait(wait) => {
                    if wait == Wait::Node && entry.asked_node.is_none() {
                        // One question will do for all of them.
                        let number = *question.get_or_insert_with(|| (judging.ask_node)());
                        entry.asked_node = Some(number);
                    }
                    entry.wait = Some(wait);
                }
            }
        }
        news
    }

    fn known_of<'a>(
        &'a self,
        pod: &'a DesiredPod,
        is_active: &impl Fn(&PodUid) -> bool,
        judging: &Judging<'_>,
    ) -> Known<'a> {
        let uid = pod.uid();
        let entry = self.pods.get(uid);
        let allocated = self.allocated.get(uid);
        // What an earlier life gave it is what it is judged by, not what it asks for now.
        let given = allocated.and_then(|allocated| allocated.give(pod));
        let given = given.map_or(Cow::Borrowed(pod), Cow::Owned);
        let verdict = entry.and_then(|entry| entry.verdict.as_ref());
        let recovered = match verdict {
            None => (judging.recovered)(pod),
            Some(_) => Recovered::New,
        };
        Known {
            verdict,
            active: is_active(uid),
            holds: policy::all_held(given.spec(), self.actuated.get(uid)),
            recorded: allocated.is_some(),
            recovered,
            asked_node: entry.and_then(|entry| entry.asked_node),
            pod: given,
        }
    }

    /// The pod is given resources: it was judged, and not refused.
    pub(super) fn is_given(&self, uid: &PodUid) -> bool {
        let verdict = self.pods.get(uid).and_then(|entry| entry.verdict.as_ref());
        verdict.is_some_and(|verdict| !matches!(verdict, Verdict::Rejected(_)))
    }

    /// The pod holds its share of the node while something of it may run.
    pub(super) fn holds(&self, uid: &PodUid) -> bool {
        let verdict = self.pods.get(uid).and_then(|entry| entry.verdict.as_ref());
        verdict.is_some_and(Verdict::holds)
    }
}
