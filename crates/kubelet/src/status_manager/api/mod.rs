//! Writes pods' statuses to the API server, and ends pods that were deleted there.
//!
//! Level-triggered: a pod is looked at when its status here or its copy there has
//! changed, and what differs is patched. So a pod whose status changes often while
//! the server is slow costs one patch for all of it. A pod that is being deleted
//! there goes once its end was written and nothing of it is left here. Owns nothing
//! but what it last looked at. Upstream: syncPod in pkg/kubelet/status.

mod merge;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, ApiError, Call, Patch, path};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use kubelet_model::pod::{CONFIG_HASH, CONFIG_SOURCE};
use kubelet_model::{FullName, PodUid, Source};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use self::merge::goes_beyond;
use super::generate::is_terminal;
use super::{PodView, Statuses};
use crate::pod_manager::{ApiCopies, ApiCopy};
use crate::ports::{Clock, Jitter};

/// Requests under way at once.
const REQUESTS_MAX: usize = 8;
/// Pauses after a failure: they double from the first to the longest.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How soon a status is written again that the server changed or did not keep.
const AGAIN: Duration = Duration::from_secs(10);
/// How long one answer may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Writes statuses.
pub struct StatusWriter {
    /// The server.
    pub api: Arc<dyn Api>,
    /// What is to be written.
    pub statuses: Statuses,
    /// What is there.
    pub copies: ApiCopies,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Spreads retries.
    pub jitter: Jitter,
}

/// One thing to do for a pod.
#[derive(Debug, PartialEq)]
enum Step {
    Patch(Value),
    Delete,
}

/// What was known of a pod when it was last looked at, and what came of it.
struct Looked {
    own: Arc<PodStatus>,
    finished: bool,
    revision: String,
    /// Nothing was left to do.
    done: bool,
    /// The status that was written last, and when.
    sent: Option<(Arc<PodStatus>, Instant)>,
    /// Not before this, after a failure or soon after another write.
    not_before: Option<Instant>,
    failures: u32,
    told: String,
}

/// What came of a step.
struct Answer {
    uid: PodUid,
    /// The status that the step was taken for.
    own: Arc<PodStatus>,
    result: Result<Option<ApiCopy>, ApiError>,
    /// The server holds something else, beyond what was written, than it should.
    surprising: bool,
}

impl StatusWriter {
    /// Works until it is dropped.
    pub async fn run(self) {
        let (mut own, mut theirs) = (self.statuses.follow(), self.copies.follow());
        let mut looked: BTreeMap<PodUid, Looked> = BTreeMap::new();
        let mut under_way = FuturesUnordered::new();
        let mut busy: Vec<PodUid> = Vec::new();
        // Where the next look begins: after the pod that was written for last, so that
        // pods which never rest leave the others their turn.
        let mut last: Option<PodUid> = None;
        // All wait while the server does not answer at all.
        let (mut rest_until, mut refusals): (Option<Instant>, u32) = (None, 0);
        loop {
            own.borrow_and_update();
            theirs.borrow_and_update();
            let now = Instant::now();
            let mut wake = rest_until.filter(|at| *at > now);
            if wake.is_none() && self.copies.is_known() {
                let pods = self.pods();
                // They come by their uids.
                looked
                    .retain(|uid, _| pods.binary_search_by(|(view, ..)| view.uid.cmp(uid)).is_ok());
                let first = pods.partition_point(|(view, ..)| Some(&view.uid) <= last.as_ref());
                let (before, after) = pods.split_at(first);
                for (view, finished, copy) in after.iter().chain(before) {
                    if under_way.len() >= REQUESTS_MAX || busy.contains(&view.uid) {
                        continue;
                    }
                    let known = looked.remove(&view.uid);
                    let now = (now, self.clock.wall());
                    let (step, known) = look(view, *finished, copy, known, now);
                    wake = known.not_before.into_iter().chain(wake).min();
                    looked.insert(view.uid.clone(), known);
                    if let Some(step) = step {
                        last = Some(view.uid.clone());
                        busy.push(view.uid.clone());
                        let (uid, own) = (view.uid.clone(), Arc::clone(&view.status));
                        under_way.push(self.perform(uid, own, copy.clone(), step));
                    }
                }
            }
            tokio::select! { biased;
                Some(answer) = under_way.next(), if !under_way.is_empty() => {
                    let Answer { uid, own: status, result, surprising } = answer;
                    busy.retain(|other| *other != uid);
                    let Some(looked) = looked.get_mut(&uid) else { continue };
                    match result {
                        Ok(copy) => {
                            (rest_until, refusals) = (None, 0);
                            looked.succeed(status, copy.as_ref(), surprising);
                            if let Some(copy) = copy {
                                self.copies.update(copy);
                            }
                        }
                        Err(error) => {
                            let everywhere = is_everywhere(&error);
                            let count = if everywhere { &mut refusals } else { &mut looked.failures };
                            *count = count.saturating_add(1);
                            let pause = self.pause(*count, &error);
                            if everywhere {
                                rest_until = Some(Instant::now() + pause);
                            } else {
                                looked.not_before = Some(Instant::now() + pause);
                            }
                            looked.tell(&uid, &error);
                        }
                    }
                }
                changed = own.changed() => if changed.is_err() { return },
                changed = theirs.changed() => if changed.is_err() { return },
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
            }
        }
    }

    /// Every pod that the server knows, with its copy there.
    fn pods(&self) -> Vec<(PodView, bool, ApiCopy)> {
        let mirrors = self.copies.mirrors();
        let copy_of = |view: &PodView| {
            if is_from_api(view) {
                return self.copies.get(&view.uid);
            }
            let meta = &view.pod.metadata;
            let hash = meta.annotations.as_ref()?.get(CONFIG_HASH)?;
            let name = FullName::of(meta.name.as_deref()?, meta.namespace.as_deref()?);
            let is_its = |m: &&ApiCopy| m.mirror.as_ref() == Some(hash) && m.full_name() == name;
            mirrors.iter().find(is_its).cloned()
        };
        let all = self.statuses.all_with_ends().into_iter();
        all.filter_map(|(view, end)| copy_of(&view).map(|copy| (view, end, copy))).collect()
    }

    async fn perform(&self, uid: PodUid, own: Arc<PodStatus>, copy: ApiCopy, step: Step) -> Answer {
        let place = |rest: &[&str]| path("api/v1", &copy.namespace, rest);
        let mut sent = None;
        let result = match step {
            Step::Patch(change) => {
                let path = place(&["pods", &copy.name, "status"]);
                let call = Call::patch(&path, Patch::Strategic, change.clone()).within(LIMIT);
                sent = Some(change);
                self.api.call(call).await.map(|object| {
                    kubelet_model::manifest::from_api(object).ok().as_ref().and_then(ApiCopy::of)
                })
            }
            Step::Delete => {
                let options = json!({
                    "gracePeriodSeconds": 0, "preconditions": {"uid": copy.uid.as_str()},
                });
                let call = Call::delete(&place(&["pods", &copy.name]), options).within(LIMIT);
                self.api.call(call).await.map(|_| {
                    let (name, namespace) = (&copy.name, &copy.namespace);
                    tracing::info!(pod = name, namespace, %uid, "deleted pod is gone");
                    None
                })
            }
        };
        // Gone: the watch tells. So it does of another pod of its name; but a server may
        // also be at odds with itself for a while, and then it is asked again.
        let result = match result {
            Err(error) if error.is_not_found() => Ok(None),
            result => result,
        };
        let shown = result.as_ref().ok().and_then(Option::as_ref);
        let surprising = shown.zip(sent).is_some_and(|(shown, sent)| {
            change(&own, shown, self.clock.wall()).is_some_and(|rest| goes_beyond(&rest, &sent))
        });
        Answer { uid, own, result, surprising }
    }

    fn pause(&self, failures: u32, error: &ApiError) -> Duration {
        let pause = PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(PAUSE_MAX);
        error.retry_after().unwrap_or_default().max(self.jitter.spread(pause))
    }
}

fn is_from_api(view: &PodView) -> bool {
    let annotations = view.pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(CONFIG_SOURCE)).is_some_and(|s| s == Source::Api.as_str())
}

/// A failure that other pods would meet as well.
fn is_everywhere(error: &ApiError) -> bool {
    error.code().is_none_or(|code| code == 401 || code == 429 || code >= 500)
}

/// Looks at one pod: what to do for it now, and what is to be remembered.
fn look(
    view: &PodView,
    finished: bool,
    copy: &ApiCopy,
    before: Option<Looked>,
    (now, wall): (Instant, Timestamp),
) -> (Option<Step>, Looked) {
    let mut looked = before.unwrap_or_else(|| Looked::new(&view.status));
    let same = Arc::ptr_eq(&looked.own, &view.status)
        && looked.finished == finished
        && looked.revision == copy.revision;
    let waits = looked.not_before.is_some_and(|at| at > now);
    if same && (looked.done || waits) {
        return (None, looked);
    }
    looked.own = Arc::clone(&view.status);
    looked.finished = finished;
    looked.revision.clone_from(&copy.revision);
    (looked.done, looked.not_before) = (false, None);
    let step = step(view, finished, copy, wall);
    let sent = looked.sent.as_ref().filter(|(sent, _)| Arc::ptr_eq(sent, &view.status));
    match (&step, sent) {
        (None, _) => looked.done = true,
        // It was told all there is, whatever it kept of it.
        (Some(Step::Patch(_)), Some(_)) if is_over(finished, copy) => {
            return (Some(Step::Delete), looked);
        }
        // A server that does not keep a status is not asked over and over.
        (Some(Step::Patch(_)), Some((_, at))) if *at + AGAIN > now => {
            looked.not_before = Some(*at + AGAIN);
            return (None, looked);
        }
        _ => {}
    }
    (step, looked)
}

/// What to do for a pod.
fn step(view: &PodView, finished: bool, copy: &ApiCopy, wall: Timestamp) -> Option<Step> {
    if let Some(change) = change(&view.status, copy, wall) {
        return Some(Step::Patch(change));
    }
    is_over(finished, copy).then_some(Step::Delete)
}

/// What the server has to change.
fn change(own: &PodStatus, copy: &ApiCopy, wall: Timestamp) -> Option<Value> {
    let merged = merge::merge(&copy.status, own, wall);
    merge::patch(copy.uid.as_str(), &copy.status, &merged)
}

/// Its end was written, and nothing of it is left.
fn is_over(finished: bool, copy: &ApiCopy) -> bool {
    finished && copy.deleted && copy.mirror.is_none() && is_terminal(&copy.status)
}

impl Looked {
    fn new(own: &Arc<PodStatus>) -> Self {
        Self {
            own: Arc::clone(own),
            finished: false,
            revision: String::new(),
            done: false,
            sent: None,
            not_before: None,
            failures: 0,
            told: String::new(),
        }
    }

    fn succeed(&mut self, status: Arc<PodStatus>, copy: Option<&ApiCopy>, surprising: bool) {
        // A patch over something that was not known, as in a restored store, is not the
        // whole: the rest follows at once.
        self.sent = (!surprising).then(|| (status, Instant::now()));
        self.failures = 0;
        self.told.clear();
        // What was written is what the answer shows. A pod that is being deleted is
        // looked at once more.
        self.done = !surprising && !copy.is_some_and(|copy| copy.deleted);
        if let Some(copy) = copy {
            self.revision.clone_from(&copy.revision);
        }
    }

    fn tell(&mut self, uid: &PodUid, error: &ApiError) {
        let text = error.to_string();
        if self.told != text {
            tracing::warn!(pod = %uid, error = text, "status not written; trying again");
            self.told = text;
        }
    }
}
