//! Work under way on the kernel's files and mounts.
//!
//! Each piece runs on a thread of its own. A caller waits a while; after that the
//! work goes on, and whoever asks for the same meanwhile gets its answer, so that
//! nothing is begun twice. Work on one path is done one after another, looks aside.
//! A walk through a volume is waited for as long as it gets on. An answer that was
//! there before it was asked for is given only of a walk whose caller had given up:
//! such a walk is never begun again in vain. Of all else it is not, for much may have
//! changed since, and it can be done again.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::super::volumes::VolumeError;

/// How long a caller waits for work that takes milliseconds, or for the next file of a
/// walk.
const PATIENCE: Duration = Duration::from_secs(20);
/// Parts of the patience after which it is seen whether a walk gets on.
const LOOKS: u32 = 20;

/// The work under way. Cheap to clone.
#[derive(Clone)]
pub(super) struct Flights {
    table: Arc<Mutex<Table>>,
    patience: Duration,
}

impl Default for Flights {
    fn default() -> Self {
        Self { table: Arc::default(), patience: PATIENCE }
    }
}

#[derive(Default)]
struct Table {
    begun: u64,
    by_place: BTreeMap<Place, Flight>,
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
    /// Its caller gave up, and asks again for the answer.
    kept: bool,
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
            Some(answer) => answer.landed_at < asked_at && !self.kept,
            // Its work panicked.
            None => self.answer.has_changed().is_err(),
        }
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
    /// Where a walk tells how far it has come.
    visited: Option<&'a AtomicU64>,
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
        self.ask(self.question(path, what, false, None), move |_: &AtomicU64| work()).await
    }

    /// The same for what changes nothing: it need not wait for a walk through the volume.
    pub(super) async fn look<T, W>(
        &self,
        path: &Path,
        what: String,
        work: W,
    ) -> Result<T, VolumeError>
    where
        T: Clone + Send + Sync + 'static,
        W: FnOnce() -> Result<T, VolumeError> + Send + 'static,
    {
        let place = Place { path: path.to_owned(), beside: false };
        let walks = self.lock().by_place.get(&place).is_some_and(|flight| flight.steps.is_some());
        self.ask(self.question(path, what, walks, None), move |_: &AtomicU64| work()).await
    }

    /// The same for a walk, which tells how many files it has visited.
    pub(super) async fn walk<T, W>(
        &self,
        path: &Path,
        what: String,
        visited: &AtomicU64,
        work: W,
    ) -> Result<T, VolumeError>
    where
        T: Clone + Send + Sync + 'static,
        W: FnOnce(&AtomicU64) -> Result<T, VolumeError> + Send + 'static,
    {
        self.ask(self.question(path, what, false, Some(visited)), work).await
    }

    fn question<'a>(
        &self,
        path: &Path,
        what: String,
        beside: bool,
        visited: Option<&'a AtomicU64>,
    ) -> Question<'a> {
        let place = Place { path: path.to_owned(), beside };
        Question { place, what, asked_at: Instant::now(), visited }
    }

    async fn ask<T, W>(&self, question: Question<'_>, work: W) -> Result<T, VolumeError>
    where
        T: Clone + Send + Sync + 'static,
        W: FnOnce(&AtomicU64) -> Result<T, VolumeError> + Send + 'static,
    {
        let mut work = Some(work);
        loop {
            let mut flight = self.board(&question, &mut work);
            let path = || question.place.path.clone();
            let Some(answer) = self.landing(&mut flight, &question).await else {
                self.keep(&question, flight.number);
                let (what, waited) = (flight.what, self.patience);
                return Err(VolumeError::UnderWay { what, path: path(), waited });
            };
            self.leave(&question.place, flight.number);
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
        let walks = question.visited.filter(|_| flight.what == question.what);
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
            if let Some(visited) = walks.filter(|_| steps != seen) {
                visited.store(steps, Ordering::Relaxed);
                (since, seen) = (Instant::now(), steps);
            } else if Instant::now() >= give_up_at {
                return None;
            }
        }
    }

    /// The work at this place that is under way, or ended since it was asked for; else
    /// this work, begun.
    fn board<T, W>(&self, question: &Question<'_>, work: &mut Option<W>) -> Flight
    where
        T: Send + Sync + 'static,
        W: FnOnce(&AtomicU64) -> Result<T, VolumeError> + Send + 'static,
    {
        let mut table = self.lock();
        // Whoever waits for one has it in hand, so nobody misses what goes here.
        table.by_place.retain(|_, flight| !flight.is_over(question.asked_at));
        if let Some(flight) = table.by_place.get(&question.place) {
            return flight.clone();
        }
        let (sender, answer) = watch::channel(None);
        let steps = Arc::new(AtomicU64::new(0));
        if let Some(work) = work.take() {
            let steps = Arc::clone(&steps);
            // Not a task: nothing can end it, and a crash is simulated elsewhere.
            tokio::task::spawn_blocking(move || {
                let result = Arc::new(work(&steps));
                sender.send_replace(Some(Answer { result, landed_at: Instant::now() }));
            });
        }
        table.begun += 1;
        let steps = question.visited.map(|_| steps);
        let what = question.what.clone();
        let flight = Flight { number: table.begun, what, answer, steps, kept: false };
        table.by_place.insert(question.place.clone(), flight.clone());
        flight
    }

    /// The caller gives up; it asks again for the answer of a walk. Whatever else is
    /// done at the place puts an end to that.
    fn keep(&self, question: &Question<'_>, number: u64) {
        if question.visited.is_none() {
            return;
        }
        let mut table = self.lock();
        let own = table.by_place.get_mut(&question.place);
        if let Some(flight) = own.filter(|own| own.number == number && own.what == question.what) {
            flight.kept = true;
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
        self.board(&self.question(path, "holding".to_owned(), false, None), &mut Some(wait));
        release
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("flights lock: no code panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn impatient() -> Flights {
        Flights { patience: Duration::from_millis(50), ..Flights::default() }
    }

    fn place(path: &Path) -> Place {
        Place { path: path.to_owned(), beside: false }
    }

    #[tokio::test]
    async fn work_that_hangs_is_not_begun_twice() {
        let patience = Duration::from_millis(50);
        let host = Flights { patience, ..Flights::default() };
        let path = Path::new("/somewhere");
        let (release, held) = mpsc::channel::<()>();
        let slow = move || {
            held.recv().ok();
            Ok(7_u32)
        };
        let twice = || -> Result<u32, VolumeError> { panic!("begun twice") };
        let error = host.run(path, "slow".to_owned(), slow).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "slow /somewhere is still under way after 0 s; if it lasts, look at the disk or \
             server behind it"
        );
        assert_eq!(host.run(path, "slow".to_owned(), twice).await, Err(error.clone()));
        let other = host.run(path, "other".to_owned(), || Ok(1_u8)).await;
        assert_eq!(other, Err(error), "one after another");
        let patient = Flights { patience: PATIENCE, ..host.clone() };
        let ask = patient.run(path, "slow".to_owned(), twice);
        let land = async { release.send(()).unwrap() };
        assert_eq!(tokio::join!(ask, land).0, Ok(7));
        assert_eq!(host.run(path, "other".to_owned(), || Ok(1_u8)).await, Ok(1));
    }

    #[tokio::test]
    async fn an_answer_from_before_the_question_is_not_given() {
        let host = impatient();
        let path = Path::new("/somewhere");
        let (release, held) = mpsc::channel::<()>();
        let slow = move || {
            held.recv().ok();
            Ok("of yesterday")
        };
        let hung = host.run(path, "looking".to_owned(), slow).await;
        assert!(matches!(hung, Err(VolumeError::UnderWay { .. })), "{hung:?}");
        let mut landed = host.lock().by_place[&place(path)].answer.clone();
        release.send(()).unwrap();
        landed.wait_for(Option::is_some).await.unwrap();
        let fresh = host.run(path, "looking".to_owned(), || Ok("of today")).await;
        assert_eq!(fresh, Ok("of today"));
        assert!(host.lock().by_place.is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn what_panicked_unheard_is_done_again() {
        let host = impatient();
        let path = Path::new("/somewhere");
        let (release, held) = mpsc::channel::<()>();
        let breaks = move || -> Result<u8, VolumeError> {
            held.recv().ok();
            panic!("as the test wants")
        };
        assert!(host.run(path, "breaking".to_owned(), breaks).await.is_err());
        let mut landed = host.lock().by_place[&place(path)].answer.clone();
        drop(release);
        assert!(landed.wait_for(Option::is_some).await.is_err());
        assert_eq!(host.run(path, "breaking".to_owned(), || Ok(3_u8)).await, Ok(3));
    }

    #[tokio::test]
    async fn work_that_panics_is_told() {
        let host = Flights::default();
        let work = || -> Result<(), VolumeError> { panic!("as the test wants") };
        let error = host.run(Path::new("/x"), "breaking".to_owned(), work).await.unwrap_err();
        assert_eq!(error.to_string(), "breaking /x ended without an answer; the log says more");
    }

    /// A walk that takes a step whenever it is told to, and ends when nobody tells.
    fn steps() -> (mpsc::Sender<()>, impl FnOnce(&AtomicU64) -> Result<u64, VolumeError>) {
        let (step, told) = mpsc::channel::<()>();
        let walk = move |steps: &AtomicU64| {
            while told.recv().is_ok() {
                steps.fetch_add(1, Ordering::Relaxed);
            }
            Ok(steps.load(Ordering::Relaxed))
        };
        (step, walk)
    }

    #[tokio::test]
    async fn a_walk_is_waited_for_as_long_as_it_gets_on() {
        let flights = Flights { patience: Duration::from_secs(1), ..Flights::default() };
        let (path, visited) = (Path::new("/volume"), AtomicU64::new(0));
        let (step, walk) = steps();
        let goes_on = async {
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(300)).await;
                step.send(()).unwrap();
            }
            drop(step);
        };
        let asked = flights.walk(path, "walking".to_owned(), &visited, walk);
        assert_eq!(tokio::join!(asked, goes_on).0, Ok(8), "it took longer than the patience");
        assert!(visited.load(Ordering::Relaxed) > 0, "nobody heard of it");
    }

    #[tokio::test]
    async fn a_walk_that_halts_is_not_begun_again() {
        let (flights, path) = (impatient(), Path::new("/volume"));
        let (visited, what) = (AtomicU64::new(0), || "walking".to_owned());
        let again = |_: &AtomicU64| -> Result<u64, VolumeError> { panic!("begun again") };
        let (step, walk) = steps();
        let halts = flights.walk(path, what(), &visited, walk).await;
        assert!(matches!(halts, Err(VolumeError::UnderWay { .. })), "{halts:?}");
        let looked = flights.look(path, "looking".to_owned(), || Ok(true)).await;
        assert_eq!(looked, Ok(true), "a look does not wait for it");
        let changed = flights.run(path, "changing".to_owned(), || Ok(())).await;
        assert!(matches!(changed, Err(VolumeError::UnderWay { .. })), "a change does");
        let joined = flights.walk(path, what(), &visited, again).await;
        assert!(matches!(joined, Err(VolumeError::UnderWay { .. })), "{joined:?}");
        // It ends while nobody waits.
        let mut landed = flights.lock().by_place[&place(path)].answer.clone();
        step.send(()).unwrap();
        drop(step);
        landed.wait_for(Option::is_some).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(flights.look(path, "looking".to_owned(), || Ok(true)).await, Ok(true));
        assert_eq!(flights.walk(path, what(), &visited, again).await, Ok(1));
        assert!(flights.lock().by_place.is_empty(), "nothing is kept");
        let anew = flights.walk(path, what(), &visited, |_: &AtomicU64| Ok(7_u64)).await;
        assert_eq!(anew, Ok(7), "an answer is given once");
    }
}
