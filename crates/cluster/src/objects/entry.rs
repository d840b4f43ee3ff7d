//! What is known of one object, and what follows from it. Pure: the time is an argument.
//!
//! Upstream: pkg/kubelet/util/manager (watch_based_manager.go, cache_based_manager.go).

use std::time::Duration;

use api_client::ApiError;
use futures_util::future::AbortHandle;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    ATTACHMENTS, Address, CLAIMS, Means, Reply, Resource, Strategy, Trouble, Use, VOLUMES,
};

/// Pause after the first failure of an object that is asked for; doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(800);
/// A watch without readers lasts so many times as long as pods take to be looked at.
const IDLE_SYNCS: u32 = 5;
/// And at least this long.
const IDLE_MIN: Duration = Duration::from_secs(60);

/// How one object is kept up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By a watch.
    Watched,
    /// By asking once it is older than it may be.
    Cached,
    /// By asking each time.
    Live,
}

impl Way {
    pub(super) fn of(resource: Resource, strategy: Strategy) -> Self {
        match (resource.means, strategy) {
            (Means::Watch, _) | (Means::Configured, Strategy::Watch) => Self::Watched,
            (Means::Configured, Strategy::Cache) => Self::Cached,
            (Means::Configured, Strategy::Get) | (Means::Get, _) => Self::Live,
        }
    }
}

/// How long a watch lasts without readers.
pub(super) fn idle_max(sync_frequency: Duration) -> Duration {
    sync_frequency.saturating_mul(IDLE_SYNCS).max(IDLE_MIN)
}

/// What is going on for an object. Ends when dropped.
pub(super) enum Doing {
    /// Nothing.
    Nothing,
    /// Nothing any more: it cannot change.
    Settled,
    /// A watch, on which connection.
    Watching(usize, AbortHandle),
    /// A request.
    Asking(AbortHandle),
    /// A pause before the next request.
    Resting(AbortHandle),
}

impl Drop for Doing {
    fn drop(&mut self) {
        match self {
            Self::Nothing | Self::Settled => {}
            Self::Watching(_, stop) | Self::Asking(stop) | Self::Resting(stop) => stop.abort(),
        }
    }
}

/// What the server said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is there, as of this revision.
    Present(String),
    /// It is not.
    Absent(String),
    /// It cannot be used, as of this revision.
    Unusable(String, String),
}

/// What is to be done about a reader.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadPlan {
    /// It is told what is known.
    Tell(Result<(), Trouble>),
    /// It waits for what is under way.
    Wait,
    /// It waits for the request after the one that is under way.
    WaitForNext,
    /// It waits for what begins now.
    Begin,
}

/// One object.
pub(super) struct Entry {
    pub(super) usage: Use,
    pub(super) way: Way,
    pub(super) doing: Doing,
    pub(super) answer: Option<Answer>,
    /// When that was said.
    pub(super) answered: Instant,
    /// Whether it was said since the watch has begun.
    pub(super) synced: bool,
    /// Why nothing was said since.
    pub(super) failing: Option<ApiError>,
    pub(super) failures: u32,
    /// Looks in a row at what is about to change.
    pub(super) unsettled: u32,
    /// When it was read last.
    pub(super) used: Instant,
    pub(super) waiting: Vec<Reply>,
    pub(super) later: Vec<Reply>,
}

impl Entry {
    pub(super) fn new(usage: Use, way: Way, now: Instant) -> Self {
        Self {
            usage,
            way,
            doing: Doing::Nothing,
            answer: None,
            answered: now,
            synced: false,
            failing: None,
            failures: 0,
            unsettled: 0,
            used: now,
            waiting: Vec::new(),
            later: Vec::new(),
        }
    }

    /// The server has answered.
    pub(super) fn note_success(&mut self, now: Instant) {
        (self.synced, self.failing, self.failures, self.answered) = (true, None, 0, now);
    }

    /// Is something to be begun, though nobody reads?
    pub(super) fn is_to_begin(&self) -> bool {
        matches!(self.doing, Doing::Nothing)
            && (self.usage == Use::Held || (self.way == Way::Watched && self.answer.is_none()))
    }

    /// What a reader is told of what is known.
    fn told(&self, at: &Address) -> Option<Result<(), Trouble>> {
        Some(match self.answer.as_ref()? {
            Answer::Present(_) => Ok(()),
            Answer::Absent(words) => Err(Trouble::NotFound(words.clone())),
            Answer::Unusable(_, why) => {
                Err(Trouble::Unusable { at: Box::new(at.clone()), why: why.clone() })
            }
        })
    }

    /// What a reader is told of a failure, if nothing better is known.
    fn refused(&self, at: &Address, error: &ApiError) -> Result<(), Trouble> {
        let error = error.clone();
        Err(match self.way {
            Way::Watched => Trouble::Failing { at: Box::new(at.clone()), error },
            Way::Cached | Way::Live => Trouble::Refused(error),
        })
    }

    /// What a reader is told after a request, or the first news of a watch.
    pub(super) fn outcome(&self, at: &Address) -> Option<Result<(), Trouble>> {
        let failed = || self.failing.as_ref().map(|error| self.refused(at, error));
        match self.way {
            Way::Watched if self.synced => self.told(at),
            // What is asked for each time is never older than the question.
            Way::Watched | Way::Live => failed().or_else(|| self.told(at)),
            Way::Cached => self.told(at).or_else(failed),
        }
    }

    /// What is to be done about a reader that comes now.
    pub(super) fn read(&self, at: &Address, anew: bool, fresh: Duration, now: Instant) -> ReadPlan {
        let tell = |outcome: Option<_>, or| outcome.map_or(or, ReadPlan::Tell);
        match (self.way, &self.doing) {
            (_, Doing::Settled) => tell(self.told(at), ReadPlan::Begin),
            (Way::Watched, Doing::Watching(..)) if self.synced || self.failing.is_some() => {
                tell(self.outcome(at), ReadPlan::Wait)
            }
            (Way::Watched, Doing::Watching(..)) => ReadPlan::Wait,
            (Way::Watched, _) => ReadPlan::Begin,
            (Way::Cached, Doing::Asking(_)) if !anew => ReadPlan::Wait,
            (_, Doing::Asking(_)) => ReadPlan::WaitForNext,
            (Way::Cached, _) if !anew && self.is_fresh(fresh, now) => {
                tell(self.told(at), ReadPlan::Begin)
            }
            _ => ReadPlan::Begin,
        }
    }

    /// Upstream asks again whenever there was no object.
    fn is_fresh(&self, fresh: Duration, now: Instant) -> bool {
        matches!(self.answer, Some(Answer::Present(_) | Answer::Unusable(..)))
            && now.saturating_duration_since(self.answered) < fresh
    }

    /// Has nobody read it for so long that its watch may end?
    pub(super) fn is_idle(&self, idle_max: Duration, now: Instant) -> bool {
        self.may_idle() && self.synced && now.saturating_duration_since(self.used) > idle_max
    }

    /// Is it watched for the sake of readers?
    pub(super) fn may_idle(&self) -> bool {
        self.usage == Use::Read && matches!(self.doing, Doing::Watching(..))
    }

    /// Is this what is known already, or older? Revisions of one object grow.
    pub(super) fn is_known(&self, revision: &str) -> bool {
        let Some(Answer::Present(known) | Answer::Unusable(known, _)) = &self.answer else {
            return false;
        };
        let older = || match (revision.parse::<u64>(), known.parse::<u64>()) {
            (Ok(new), Ok(old)) => new < old,
            _ => false,
        };
        // A watch is believed whatever it says: a server may begin anew from a backup.
        known == revision && !revision.is_empty() || self.way == Way::Cached && older()
    }

    /// Pause before it is asked for again though nobody reads, before it is spread.
    pub(super) fn pause(&self, usual: Duration) -> Duration {
        match self.failures.max(self.unsettled) {
            0 => usual,
            n => PAUSE_FIRST.saturating_mul(1 << (n - 1).min(16)).min(usual),
        }
    }
}

/// Is it about to change: to be bound, or attached? Nobody tells a node when, as it may
/// not watch such objects.
pub(super) fn is_unsettled(at: &Address, object: Option<&Value>) -> bool {
    let Some(object) = object else { return at.resource.means == Means::Get };
    match at.resource {
        CLAIMS => object["status"]["phase"] != "Bound",
        VOLUMES => object["spec"]["claimRef"]["uid"].as_str().is_none_or(str::is_empty),
        ATTACHMENTS => object["status"]["attached"] != true,
        _ => false,
    }
}

/// Can the object change no more?
pub(super) fn is_immutable(at: &Address, object: &Value) -> bool {
    at.resource.means == Means::Configured && object["immutable"] == true
}
