//! Work under way on the kernel's files and mounts.
//!
//! Each piece runs on a thread of its own. A caller waits a while; after that the
//! work goes on, and whoever asks for the same meanwhile gets its answer, so that
//! nothing is begun twice. Work on one path is done one after another, looks aside.
//! A walk through a volume is waited for as long as it gets on. An answer that was
//! there before it was asked for is given only of a walk whose caller had given up:
//! such a walk is never begun again in vain. Of all else it is not, for much may have
//! changed since, and it can be done again. What hangs keeps its thread, so only so much
//! is under way at once, of one pod and in all; the rest waits, and says so in the end.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::super::volumes::VolumeError;

/// How long a caller waits for work that takes milliseconds, or for the next file of a
/// walk.
const PATIENCE: Duration = Duration::from_secs(20);
/// Parts of the patience after which it is seen whether a walk gets on.
const LOOKS: u32 = 20;

/// How old an answer may be that tells what a volume holds: as long as whoever enforces
/// limits rests between two looks, twice.
const MEASURED_MAX: Duration = Duration::from_secs(120);
/// Work under way at once: half of the threads that tokio has for such work, so that what
/// hangs on dead servers leaves enough for all else.
const UNDER_WAY_MAX: usize = 256;
/// Of one pod: more than anyone mounts at once, and few enough that one pod with a dead
/// server does not stop the others.
const UNDER_WAY_OF_POD_MAX: usize = 32;

/// The work under way. Cheap to clone.
#[derive(Clone)]
pub(super) struct Flights {
    table: Arc<Mutex<Table>>,
    /// Called whenever a piece of work has ended.
    landed: Arc<Notify>,
    patience: Duration,
}

impl Default for Flights {
    fn default() -> Self {
        Self { table: Arc::default(), landed: Arc::default(), patience: PATIENCE }
    }
}

#[derive(Default)]
struct Table {
    begun: u64,
    by_place: BTreeMap<Place, Flight>,
}

impl Table {
    /// The limit that keeps work on a path from being begun.
    fn limit_reached(&self, path: &Path) -> Option<usize> {
        // Hardly ever is there so much that it need be counted.
        if self.by_place.len() < UNDER_WAY_OF_POD_MAX {
            return None;
        }
        let of_pod = pod_of(path).map(|pod| (Some(pod), UNDER_WAY_OF_POD_MAX));
        let limits = of_pod.into_iter().chain([(None, UNDER_WAY_MAX)]);
        limits.filter(|(pod, max)| self.under_way(*pod).count() >= *max).map(|(_, max)| max).next()
    }

    /// What is under way, of one pod or in all.
    fn under_way<'a>(
        &'a self,
        pod: Option<&'a OsStr>,
    ) -> impl Iterator<Item = (&'a Place, &'a Flight)> {
        self.by_place.iter().filter(move |(place, flight)| {
            flight.is_under_way() && (pod.is_none() || pod_of(&place.path) == pod)
        })
    }
}

/// The pod in whose directory a path is.
fn pod_of(path: &Path) -> Option<&OsStr> {
    let names: Vec<&OsStr> = path.components().map(Component::as_os_str).collect();
    let parts = ["volumes", "volumeDevices", "volume-subpaths", "plugins"];
    let is_pod =
        |names: &&[&OsStr]| names[0] == "pods" && parts.iter().any(|part| names[2] == *part);
    names.windows(3).find(is_pod).map(|names| names[1])
}

/// Where something is done, one piece after another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    path: PathBuf,
    /// Beside a walk, which it does not disturb.
    beside: bool,
}

/// A piece of work under way, or done with nobody waiting.
#[derive(Clone)]
struct Flight {
    number: u64,
    what: String,
    answer: watch::Receiver<Option<Answer>>,
    /// How far a walk has come.
    steps: Option<Arc<AtomicU64>>,
    /// Its caller gave up, and asks again for the answer, which may be this old by then.
    kept: Option<Duration>,
}

/// What came of a piece of work.
#[derive(Clone)]
struct Answer {
    /// A `Result<T, VolumeError>`, whose `T` follows from what was asked.
    result: Arc<dyn Any + Send + Sync>,
    landed_at: Instant,
}

impl Flight {
    /// It ended before that time, or without an answer.
    fn is_over(&self, asked_at: Instant) -> bool {
        match &*self.answer.borrow() {
            Some(answer) => {
                let age = asked_at.saturating_duration_since(answer.landed_at);
                answer.landed_at < asked_at && self.kept.is_none_or(|max| age > max)
            }
            // Its work panicked.
            None => self.answer.has_changed().is_err(),
        }
    }

    fn is_under_way(&self) -> bool {
        self.answer.borrow().is_none() && self.answer.has_changed().is_ok()
    }

    fn steps(&self) -> u64 {
        self.steps.as_ref().map_or(0, |steps| steps.load(Ordering::Relaxed))
    }
}

/// What is asked for, and since when.
struct Question<'a> {
    place: Place,
    what: String,
    asked_at: Instant,
    walk: Option<Walk<'a>>,
}

/// How work is done beside other work on its path, and waited for.
#[derive(Clone, Copy)]
pub(super) enum Manner<'a> {
    /// When nothing else is under way there.
    InTurn,
    /// It changes nothing: it need not wait for a walk through the volume.
    Look,
    /// It is to end work that hangs on the path.
    Beside,
    /// It is a walk, and somebody hears how far it is.
    Walk(&'a AtomicU64),
    /// It is a walk that changes nothing. What it finds is soon out of date.
    Measure,
}

/// What is asked of a walk.
#[derive(Clone, Copy)]
struct Walk<'a> {
    /// Where it tells how far it has come, if anybody hears.
    visited: Option<&'a AtomicU64>,
    /// How old its answer may be once its caller has given up.
    age_max: Duration,
}

/// Somebody who waits. Whoever gives up, by itself or because it is dropped, asks again
/// for the answer of a walk.
struct Waiting<'a> {
    flights: &'a Flights,
    question: &'a Question<'a>,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.flights.keep(self.question, self.number);
    }
}

/// Tells that a piece of work has ended, however it did.
struct Landing(Arc<Notify>);

impl Drop for Landing {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

/// What became of the wish to begin something.
enum Boarded {
    On(Flight),
    /// So much is under way that nothing more is begun.
    Full(usize),
}

impl Flights {
    /// Has the work done, or takes the answer of the same work.
    pub(super) async fn run<T, W>(
        &self,
        path: &Path,
        what: String,
        work: W,
    ) -> Result<T, VolumeError>
    where
        T: Clone + Send + Sync + 'static,
        W: FnOnce() -> Result<T, VolumeError> + Send + 'static,
    {
        self.fly(Manner::InTurn, path, what, move |_: &AtomicU64| work()).await
    }

    /// The same in another manner; what walks tells how many files it has visited.
    pub(super) async fn fly<T, W>(
        &self,
        manner: Manner<'_>,
        path: &Path,
        what: String,
        work: W,
    ) -> Result<T, VolumeError>
    where
        T: Clone + Send + Sync + 'static,
        W: FnOnce(&AtomicU64) -> Result<T, VolumeError> + Send + 'static,
    {
        self.ask(self.question(manner, path, what), work).await
    }

    fn question<'a>(&self, manner: Manner<'a>, path: &Path, what: String) -> Question<'a> {
        let mut place = Place { path: path.to_owned(), beside: false };
        place.beside = match manner {
            Manner::Look => {
                self.lock().by_place.get(&place).is_some_and(|flight| flight.steps.is_some())
            }
            Manner::Beside => true,
            Manner::InTurn | Manner::Walk(_) | Manner::Measure => false,
        };
        let walk = match manner {
            Manner::Walk(visited) => Some(Walk { visited: Some(visited), age_max: Duration::MAX }),
            Manner::Measure => Some(Walk { visited: None, age_max: MEASURED_MAX }),
            Manner::InTurn | Manner::Look | Manner::Beside => None,
        };
        Question { place, what, asked_at: Instant::now(), walk }
    }

    async fn ask<T, W>(&self, question: Question<'_>, work: W) -> Result<T, VolumeError>
    where
        T: Clone + Send + Sync + 'static,
        W: FnOnce(&AtomicU64) -> Result<T, VolumeError> + Send + 'static,
    {
        let mut work = Some(work);
        loop {
            // Before the look: whatever ends after it is heard of.
            let landed = self.landed.notified();
            let mut flight = match self.board(&question, &mut work) {
                Boarded::On(flight) => flight,
                Boarded::Full(limit) => {
                    let until = question.asked_at + self.patience;
                    timeout_at(until, landed).await.map_err(|_| self.crowded(&question, limit))?;
                    continue;
                }
            };
            let path = || question.place.path.clone();
            let waiting = Waiting { flights: self, question: &question, number: flight.number };
            let landed = self.landing(&mut flight, &question).await;
            let Some(answer) = landed else {
                drop(waiting);
                let (what, waited) = (flight.what, self.patience);
                return Err(VolumeError::UnderWay { what, path: path(), waited });
            };
            self.leave(&question.place, flight.number);
            drop(waiting);
            if flight.what == question.what {
                let result = answer.as_ref().and_then(|answer| answer.result.downcast_ref());
                let died = || VolumeError::Died { what: flight.what.clone(), path: path() };
                return result.cloned().unwrap_or_else(|| Err(died()));
            }
        }
    }

    /// Waits for an answer, `Some(None)` if there is none; `None` once it has taken too
    /// long. The walk that was asked for may take its time, as long as it gets on.
    async fn landing(
        &self,
        flight: &mut Flight,
        question: &Question<'_>,
    ) -> Option<Option<Answer>> {
        let walks = question.walk.filter(|_| flight.what == question.what);
        let (mut since, mut seen) = (question.asked_at, flight.steps());
        loop {
            let give_up_at = since + self.patience;
            let look_at = give_up_at.min(Instant::now() + self.patience / LOOKS);
            let until = if walks.is_some() { look_at } else { give_up_at };
            let landed = timeout_at(until, flight.answer.wait_for(Option::is_some)).await;
            let landed = landed.map(|answer| answer.ok().and_then(|answer| answer.clone()));
            if let Ok(answer) = landed {
                return Some(answer);
            }
            let steps = flight.steps();
            if let Some(walk) = walks.filter(|_| steps != seen) {
                if let Some(visited) = walk.visited {
                    visited.store(steps, Ordering::Relaxed);
                }
                (since, seen) = (Instant::now(), steps);
            } else if Instant::now() >= give_up_at {
                return None;
            }
        }
    }

    /// The work at this place that is under way, or ended since it was asked for; else
    /// this work, begun, if there is room for it.
    fn board<T, W>(&self, question: &Question<'_>, work: &mut Option<W>) -> Boarded
    where
        T: Send + Sync + 'static,
        W: FnOnce(&AtomicU64) -> Result<T, VolumeError> + Send + 'static,
    {
        let mut table = self.lock();
        // Whoever waits for one has it in hand, so nobody misses what goes here.
        table.by_place.retain(|_, flight| !flight.is_over(question.asked_at));
        if let Some(flight) = table.by_place.get(&question.place) {
            return Boarded::On(flight.clone());
        }
        if let Some(limit) = table.limit_reached(&question.place.path) {
            return Boarded::Full(limit);
        }
        let (sender, answer) = watch::channel(None);
        let steps = Arc::new(AtomicU64::new(0));
        if let Some(work) = work.take() {
            let (steps, landing) = (Arc::clone(&steps), Landing(Arc::clone(&self.landed)));
            // Not a task: nothing can end it, and a crash is simulated elsewhere.
            tokio::task::spawn_blocking(move || {
                let _landing = landing;
                // Dropped before it is told.
                let sender = sender;
                let result = Arc::new(work(&steps));
                sender.send_replace(Some(Answer { result, landed_at: Instant::now() }));
            });
        }
        table.begun += 1;
        let steps = question.walk.map(|_| steps);
        let what = question.what.clone();
        let flight = Flight { number: table.begun, what, answer, steps, kept: None };
        table.by_place.insert(question.place.clone(), flight.clone());
        Boarded::On(flight)
    }

    /// Why nothing was begun.
    fn crowded(&self, question: &Question<'_>, limit: usize) -> VolumeError {
        let table = self.lock();
        let pod = (limit < UNDER_WAY_MAX).then(|| pod_of(&question.place.path)).flatten();
        let oldest = table.under_way(pod).min_by_key(|(_, flight)| flight.number);
        VolumeError::Crowded {
            what: question.what.clone(),
            path: question.place.path.clone(),
            limit,
            oldest: oldest.map_or_else(String::new, |(place, flight)| {
                format!("{} {}", flight.what, place.path.display())
            }),
        }
    }

    /// The caller gives up; it asks again for the answer of a walk. Whatever else is
    /// done at the place puts an end to that.
    fn keep(&self, question: &Question<'_>, number: u64) {
        let Some(walk) = question.walk else { return };
        let mut table = self.lock();
        let own = table.by_place.get_mut(&question.place);
        if let Some(flight) = own.filter(|own| own.number == number && own.what == question.what) {
            flight.kept = Some(walk.age_max);
        }
    }

    fn leave(&self, place: &Place, number: u64) {
        let mut table = self.lock();
        if table.by_place.get(place).is_some_and(|flight| flight.number == number) {
            table.by_place.remove(place);
        }
    }

    /// Work on a path that lasts until the sender is dropped.
    #[cfg(test)]
    pub(super) fn hold(&self, path: &Path) -> std::sync::mpsc::Sender<()> {
        let (release, held) = std::sync::mpsc::channel();
        let wait = move |_: &AtomicU64| -> Result<(), VolumeError> {
            held.recv().ok();
            Ok(())
        };
        self.board(&self.question(Manner::InTurn, path, "holding".to_owned()), &mut Some(wait));
        release
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("flights lock: no code panics while holding it")
    }
}

#[cfg(test)]
mod tests;
