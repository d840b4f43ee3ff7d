//! `klet why`: from what is known of a pod to what a person can do about it.
//!
//! Owns nothing and decides nothing: pure functions over a pod, its status, its
//! worker's progress, its events and the end of its logs. Every waiting state
//! has an answer: statuses are generated from [`kubelet_model::WaitReason`] and
//! nothing else, and a new reason does not compile without an answer.

mod advice;
mod config;
mod containers;
mod exits;
mod image;
mod manifests;
mod not_ready;
mod obstacle;
mod pod;
mod rejected;
mod render;
mod resize;
pub mod stamp;
mod stopping;
#[cfg(test)]
mod tests;
mod volumes;
mod waiting;

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::Mono;
use serde::{Deserialize, Serialize};

use crate::events::Event;
use crate::pod_sources::Namesake;
use crate::progress::Progress;

pub use crate::progress::InFlight;

pub use manifests::{explain_absent, explain_unread};
pub use pod::explain;
pub(crate) use pod::is_about;
pub use render::{ago, length, render};

/// Everything an explanation follows from.
#[derive(Debug, Clone, Copy)]
pub struct WhyFacts<'a> {
    /// The pod as it was asked for.
    pub pod: &'a Pod,
    /// Its status.
    pub status: &'a PodStatus,
    /// What its worker does.
    pub progress: Option<&'a Progress>,
    /// Its events, the newest last.
    pub events: &'a [Event],
    /// The last lines of each container that ended badly.
    pub logs: &'a BTreeMap<String, Vec<String>>,
    /// Where it came from.
    pub manifest: &'a Manifest,
    /// Other manifests of its name.
    pub namesakes: &'a [Namesake],
    /// What its manifest says and nobody acts on.
    pub unheeded: &'a [String],
    /// Wall-clock now.
    pub wall: Timestamp,
    /// Monotonic now.
    pub mono: Mono,
}

impl WhyFacts<'_> {
    /// Wall-clock time of something that began by the other clock.
    fn wall_of(&self, since: Mono) -> Option<Timestamp> {
        let ago = SignedDuration::try_from(self.mono.since(since)).ok()?;
        self.wall.checked_sub(ago).ok()
    }
}

/// Where a pod came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manifest {
    /// A file.
    File(PathBuf),
    /// A file that nobody finds any more: the pod is being removed, or the
    /// manifest was changed into something unusable. Those that are unusable.
    Gone(Vec<String>),
    /// A URL.
    Url {
        /// Which, without its password.
        url: String,
        /// Why it cannot be used as it is now, if it cannot.
        problem: Option<String>,
    },
    /// Not known.
    Unknown,
}

/// What a pod waits for and what can be done about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// `namespace/name`.
    pub pod: String,
    /// One sentence.
    pub headline: String,
    /// What the pod waits for; empty if for nothing.
    pub waiting_for: String,
    /// Since when.
    #[serde(with = "stamp::option")]
    pub since: Option<Timestamp>,
    /// Calls under way, oldest first.
    pub in_flight: Vec<InFlight>,
    /// The last error, in plain words.
    pub last_error: Option<String>,
    /// The last words of the container.
    pub log: Vec<String>,
    /// What comes next, and when.
    pub next: Option<String>,
    /// What the user can do, best first.
    pub advice: Vec<String>,
    /// Other things that are not as they should be.
    pub also: Vec<String>,
    /// Where the pod came from.
    pub manifest: String,
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Finding {
    rank: Rank,
    headline: String,
    waiting_for: String,
    since: Option<Timestamp>,
    error: Option<String>,
    log: Vec<String>,
    next: Option<String>,
    advice: Vec<String>,
}

/// What matters most to whoever asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// As it should be.
    #[default]
    Fine,
    /// On its way, nothing is wrong.
    Underway,
    /// Runs, but takes no traffic or has not the size it should.
    NotReady,
    /// Has failed.
    Failed,
    /// Nothing can happen before this is mended.
    Blocked,
    /// On its way out.
    Ending,
}

impl Finding {
    fn new(rank: Rank, headline: impl Into<String>) -> Self {
        Self { rank, headline: headline.into(), ..Self::default() }
    }
    fn waits_for(mut self, what: impl Into<String>) -> Self {
        self.waiting_for = what.into();
        self
    }
    fn since(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }
    fn error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into()).filter(|error| !error.is_empty());
        self
    }
    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }
    fn advise_all(mut self, advice: Vec<String>) -> Self {
        self.advice.extend(advice);
        self
    }
}
