//! Keeps every wanted object up to date, in one future.
//!
//! Each object has at most one thing under way: a watch, a request or a pause. Nothing
//! is looked at that has not woken up. Upstream: pkg/kubelet/util/manager.

use std::collections::BTreeMap;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiError, Call, Follower, News, Spread};
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable, abortable};
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::entry::{Answer, Doing, Entry, ReadPlan, Way, idle_max, is_immutable, is_unsettled};
use super::lanes::{Connect, Lanes};
use super::{Address, Listener, Read, Settings, Trouble, Use, Wanted};

/// Time after which the server ends a watch, before it is spread: longer than elsewhere, as
/// there are as many watches as pods name objects. Upstream: watch_based_manager.go.
const WATCH_LIMIT: Duration = Duration::from_secs(30 * 60);
/// Pause between looks for watches without readers, while there are such.
const IDLE_EVERY: Duration = Duration::from_secs(60);

/// What has come of something that was under way.
enum Outcome {
    Heard(Box<Follower>, News),
    Asked(Result<Value, ApiError>),
    Rested,
}

type Step = Abortable<Pin<Box<dyn Future<Output = (Address, Outcome)> + Send>>>;

/// Keeps objects up to date while [`Objects::run`] runs.
pub struct Objects {
    settings: Settings,
    wanted: watch::Receiver<Wanted>,
    reads: mpsc::Receiver<Read>,
    listener: Arc<dyn Listener>,
    spread: Spread,
    lanes: Lanes,
    entries: BTreeMap<Address, Entry>,
    steps: FuturesUnordered<Step>,
    idle_look: Option<Instant>,
}

impl Objects {
    pub(super) fn new(
        connect: Connect,
        settings: Settings,
        wanted: watch::Receiver<Wanted>,
        reads: mpsc::Receiver<Read>,
        listener: Arc<dyn Listener>,
        spread: Spread,
    ) -> Self {
        Self {
            settings,
            wanted,
            reads,
            listener,
            spread,
            lanes: Lanes::new(connect),
            entries: BTreeMap::new(),
            steps: FuturesUnordered::new(),
            idle_look: None,
        }
    }

    /// Runs until nobody can want anything any more.
    pub async fn run(mut self) {
        self.wanted.mark_changed();
        loop {
            let idle_look = self.idle_look;
            tokio::select! { biased;
                changed = self.wanted.changed() => match changed {
                    Ok(()) => self.reconcile(),
                    Err(_) => return,
                },
                Some(read) = self.reads.recv() => self.read(read),
                Some(step) = self.steps.next(), if !self.steps.is_empty() => {
                    // What was stopped has nothing to tell.
                    if let Ok((at, outcome)) = step {
                        self.note(at, outcome);
                    }
                }
                () = sleep_until(idle_look.unwrap_or_else(Instant::now)), if idle_look.is_some() => {
                    self.stop_idle();
                }
            }
        }
    }

    fn reconcile(&mut self) {
        let wanted = Arc::clone(&self.wanted.borrow_and_update());
        let mut gone = Vec::new();
        for at in self.entries.keys().filter(|at| !wanted.contains_key(*at)) {
            gone.push(at.clone());
        }
        for at in gone {
            self.forget(&at);
        }
        let now = Instant::now();
        for (at, usage) in wanted.iter() {
            let way = Way::of(at.resource, self.settings.strategy);
            if !self.entries.contains_key(at) {
                self.entries.insert(at.clone(), Entry::new(*usage, way, now));
            }
            let Some(entry) = self.entries.get_mut(at) else { continue };
            entry.usage = *usage;
            if entry.usage == Use::Read && matches!(entry.doing, Doing::Resting(_)) {
                entry.doing = Doing::Nothing;
            }
            if entry.is_to_begin() {
                self.begin(at);
            }
        }
        self.plan_idle_look();
    }

    fn forget(&mut self, at: &Address) {
        self.stop(at, Doing::Nothing);
        let Some(entry) = self.entries.remove(at) else { return };
        for reply in entry.waiting.into_iter().chain(entry.later) {
            // Whoever waits no longer has no use for the answer.
            let _ = reply.send(Err(Trouble::NotWanted(Box::new(at.clone()))));
        }
        self.listener.forget(at);
    }

    /// Ends what is under way for an object.
    fn stop(&mut self, at: &Address, instead: Doing) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        if let Doing::Watching(lane, _) = mem::replace(&mut entry.doing, instead) {
            self.lanes.leave(lane);
        }
    }

    /// Begins to watch an object, or asks for it.
    fn begin(&mut self, at: &Address) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        match entry.way {
            Way::Watched => {
                (entry.synced, entry.failing) = (false, None);
                let (lane, api) = self.lanes.enter();
                let begun = entry.answer.is_some();
                let follower = Follower::new(api, at.selection(), Arc::clone(&self.spread));
                let follower = follower.with_watches_of(WATCH_LIMIT).begun(begun);
                self.follow(at, lane, Box::new(follower));
            }
            Way::Cached | Way::Live => {
                let mut path = at.path();
                // A look at whether it has changed may be answered from the server's memory.
                if entry.way == Way::Cached && matches!(entry.answer, Some(Answer::Present(_))) {
                    path.push_str("?resourceVersion=0");
                }
                let api = self.lanes.for_requests();
                let call = Call::get(&path);
                let stop = self.push(at, async move { Outcome::Asked(api.call(call).await) });
                self.set(at, Doing::Asking(stop));
            }
        }
    }

    /// Waits for the next news of a watch.
    fn follow(&mut self, at: &Address, lane: usize, mut follower: Box<Follower>) {
        let stop = self.push(at, async move {
            let news = follower.next().await;
            Outcome::Heard(follower, news)
        });
        self.set(at, Doing::Watching(lane, stop));
    }

    fn push(
        &mut self,
        at: &Address,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> AbortHandle {
        let at = at.clone();
        let work: Pin<Box<dyn Future<Output = (Address, Outcome)> + Send>> =
            Box::pin(async move { (at, work.await) });
        let (step, handle) = abortable(work);
        self.steps.push(step);
        handle
    }

    fn set(&mut self, at: &Address, doing: Doing) {
        if let Some(entry) = self.entries.get_mut(at) {
            entry.doing = doing;
        }
    }

    fn read(&mut self, read: Read) {
        let Read { at, anew, reply } = read;
        // It may have been said only just now that the object is wanted.
        if self.wanted.has_changed().unwrap_or(false) {
            self.reconcile();
        }
        let Some(entry) = self.entries.get_mut(&at) else {
            let _ = reply.send(Err(Trouble::NotWanted(Box::new(at))));
            return;
        };
        let now = Instant::now();
        entry.used = now;
        let fresh = match entry.way {
            Way::Cached => (self.settings.ttl)(),
            Way::Watched | Way::Live => Duration::ZERO,
        };
        match entry.read(&at, anew, fresh, now) {
            ReadPlan::Tell(answer) => {
                let _ = reply.send(answer);
            }
            ReadPlan::Wait => wait(&mut entry.waiting, reply),
            ReadPlan::WaitForNext => wait(&mut entry.later, reply),
            ReadPlan::Begin => {
                wait(&mut entry.waiting, reply);
                self.begin(&at);
                self.plan_idle_look();
            }
        }
    }

    fn note(&mut self, at: Address, outcome: Outcome) {
        match outcome {
            Outcome::Heard(follower, news) => self.note_news(&at, follower, news),
            Outcome::Asked(answer) => self.note_answer(&at, answer),
            Outcome::Rested => self.begin(&at),
        }
    }

    /// Takes news of the object; what a server tells of others is no news.
    fn note_news(&mut self, at: &Address, follower: Box<Follower>, news: News) {
        let mut settled = false;
        match news {
            News::All(objects) => match objects.into_iter().find(|object| at.names(object)) {
                Some(object) => settled = self.present(at, object),
                None => self.absent(at, at.not_found()),
            },
            News::Put(object) if at.names(&object) => settled = self.present(at, object),
            News::Gone(object) if at.names(&object) => self.absent(at, at.not_found()),
            News::Put(_) | News::Gone(_) => {}
            News::Failing(error) => {
                tracing::debug!(object = %at, %error, "object cannot be watched for now");
                self.fail(at, error);
            }
        }
        if settled {
            tracing::debug!(object = %at, "no longer watched: it is immutable");
            self.stop(at, Doing::Settled);
        } else if let Some(Entry { doing: Doing::Watching(lane, _), .. }) = self.entries.get(at) {
            let lane = *lane;
            self.follow(at, lane, follower);
        }
        self.answer_readers(at);
    }

    fn note_answer(&mut self, at: &Address, answer: Result<Value, ApiError>) {
        if let Some(entry) = self.entries.get_mut(at) {
            let waits = is_unsettled(at, answer.as_ref().ok());
            entry.unsettled = if waits { entry.unsettled.saturating_add(1) } else { 0 };
        }
        match answer {
            Ok(object) if at.names(&object) => drop(self.present(at, object)),
            Ok(_) => {
                let why = "another object than was asked for".to_owned();
                self.fail(at, ApiError::Unusable(why));
            }
            Err(error) if error.is_not_found() => self.absent(at, error.to_string()),
            Err(error) => {
                tracing::debug!(object = %at, %error, "object cannot be read for now");
                self.fail(at, error);
            }
        }
        self.answer_readers(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        entry.doing = Doing::Nothing;
        if !entry.later.is_empty() {
            entry.waiting = mem::take(&mut entry.later);
            self.begin(at);
        } else if entry.usage == Use::Held {
            let usual = match entry.way {
                Way::Cached => self.settings.sync_frequency.max((self.settings.ttl)()),
                Way::Watched | Way::Live => self.settings.sync_frequency,
            };
            let pause = entry.pause(usual.max(Duration::from_secs(1)));
            let pause = pause + (self.spread)(pause / 10);
            let stop = self.push(at, async move {
                sleep(pause).await;
                Outcome::Rested
            });
            self.set(at, Doing::Resting(stop));
        }
    }

    /// Takes an object; returns whether it can change no more.
    fn present(&mut self, at: &Address, object: Value) -> bool {
        let Some(entry) = self.entries.get_mut(at) else { return false };
        let revision = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let revision = revision.to_owned();
        let settled = entry.way == Way::Watched && is_immutable(at, &object);
        entry.note_success(Instant::now());
        if entry.is_known(&revision) {
            return settled;
        }
        entry.answer = Some(match self.listener.present(at, object) {
            Ok(()) => Answer::Present(revision),
            Err(why) => {
                tracing::warn!(object = %at, why, "object cannot be used");
                Answer::Unusable(revision, why)
            }
        });
        settled
    }

    fn absent(&mut self, at: &Address, words: String) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        entry.note_success(Instant::now());
        if !matches!(entry.answer, Some(Answer::Absent(_))) {
            self.listener.absent(at);
        }
        entry.answer = Some(Answer::Absent(words));
    }

    fn fail(&mut self, at: &Address, error: ApiError) {
        if let Some(entry) = self.entries.get_mut(at) {
            entry.failing = Some(error);
            entry.failures = entry.failures.saturating_add(1);
        }
    }

    /// Tells those who wait, if there is something to tell.
    fn answer_readers(&mut self, at: &Address) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        let Some(outcome) = entry.outcome(at) else { return };
        for reply in entry.waiting.drain(..) {
            let _ = reply.send(outcome.clone());
        }
    }

    fn stop_idle(&mut self) {
        let (now, max) = (Instant::now(), idle_max(self.settings.sync_frequency));
        let mut idle = Vec::new();
        for (at, entry) in &self.entries {
            if entry.is_idle(max, now) {
                idle.push(at.clone());
            }
        }
        for at in idle {
            tracing::debug!(object = %at, "no longer watched: nobody reads it");
            self.stop(&at, Doing::Nothing);
        }
        self.idle_look = None;
        self.plan_idle_look();
    }

    fn plan_idle_look(&mut self) {
        if self.idle_look.is_none() && self.entries.values().any(Entry::may_idle) {
            self.idle_look = Some(Instant::now() + IDLE_EVERY);
        }
    }
}

fn wait(waiting: &mut Vec<super::Reply>, reply: super::Reply) {
    waiting.retain(|other| !other.is_closed());
    waiting.push(reply);
}
