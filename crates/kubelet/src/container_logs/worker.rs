//! Looks at the logs of running containers and rotates those that are too large.
//!
//! Owns what is known of each log: its path, size and growth. One that grows is
//! looked at by its growth. A silent one has an alarm on its next write, and is
//! looked at together with all others once per interval.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use cri::CallError;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kubelet_model::ContainerId;
use tokio::time::{Instant, sleep_until};

use super::alarms::Alarms;
use super::rotate::{RotateError, Rotated, rotate};
use super::{RotationPolicy, plan};
use crate::pleg::Observations;
use crate::ports::Ports;

pub(super) struct Worker {
    ports: Ports,
    observations: Observations,
    policy: RotationPolicy,
    max_bytes: u64,
    logs: BTreeMap<ContainerId, Log>,
    alarms: Alarms,
    jobs: FuturesUnordered<BoxFuture<'static, (ContainerId, Outcome)>>,
    /// Rotations under way, and logs that wait for one. Each log is in at most one place.
    rotating: usize,
    queue: VecDeque<ContainerId>,
    began: Instant,
    next_round: Instant,
    /// Containers have started; when to take them up.
    discover_at: Option<Instant>,
}

struct Log {
    /// Where it is; `None` for a container whose output the runtime keeps from us.
    path: Option<PathBuf>,
    /// Its size at the last look.
    seen: Option<(u64, Instant)>,
    rate: Option<u64>,
    due: Instant,
    /// A job for it is under way or waits.
    busy: bool,
}

enum Outcome {
    /// A missing log was asked for; true if it is there now.
    Reopened(Result<bool, CallError>),
    Rotated(Result<Rotated, RotateError>),
}

impl Worker {
    pub(super) fn new(
        ports: Ports,
        observations: Observations,
        policy: RotationPolicy,
        max_bytes: u64,
    ) -> Self {
        let now = Instant::now();
        Self {
            alarms: Alarms::new(Arc::clone(&ports.fs)),
            ports,
            observations,
            policy,
            max_bytes,
            logs: BTreeMap::new(),
            jobs: FuturesUnordered::new(),
            rotating: 0,
            queue: VecDeque::new(),
            began: now,
            next_round: now,
            discover_at: None,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let due = self.logs.values().filter(|log| !log.busy).map(|log| log.due).min();
            let due = due.into_iter().chain(self.discover_at).min().unwrap_or(self.next_round);
            tokio::select! { biased;
                Some((id, outcome)) = self.jobs.next() => self.done(id, outcome),
                // No log is looked at sooner, and many containers may start at once.
                () = self.observations.container_started(), if self.discover_at.is_none() => {
                    self.discover_at = Some(Instant::now() + plan::LOOK_MIN);
                }
                id = self.alarms.next() => self.woken(&id),
                () = sleep_until(self.next_round) => self.round(),
                () = sleep_until(due) => {
                    if self.discover_at.is_some_and(|at| at <= Instant::now()) {
                        self.discover();
                    }
                    self.look();
                }
            }
            self.start_rotations();
        }
    }

    fn round(&mut self) {
        self.next_round = Instant::now() + self.policy.interval;
        self.discover();
        self.look();
    }

    /// Takes up containers that have started and lets go of those that ended.
    fn discover(&mut self) {
        self.discover_at = None;
        let running = self.observations.running();
        let ended = |(id, log): (&ContainerId, &Log)| {
            (!log.busy && !running.contains_key(id)).then(|| id.clone())
        };
        for id in self.logs.iter().filter_map(ended).collect::<Vec<_>>() {
            self.forget(&id);
        }
        let due = Instant::now();
        for (id, path) in running {
            let path = (!path.is_empty()).then(|| PathBuf::from(path));
            let new = || Log { path, seen: None, rate: None, due, busy: false };
            self.logs.entry(id).or_insert_with(new);
        }
    }

    fn forget(&mut self, id: &ContainerId) {
        self.logs.remove(id);
        self.alarms.disarm(id);
    }

    /// A silent log is written to again: measures how fast.
    fn woken(&mut self, id: &ContainerId) {
        let Some(log) = self.logs.get_mut(id).filter(|log| !log.busy) else { return };
        let Some(path) = &log.path else { return };
        let now = Instant::now();
        if let Ok(found) = self.ports.fs.stat(path) {
            log.seen = Some((found.stamp.size, now));
        }
        log.due = now + plan::LOOK_MIN;
    }

    fn look(&mut self) {
        let now = Instant::now();
        let due = self.logs.iter().filter(|(_, log)| !log.busy && log.due <= now);
        let due: Vec<ContainerId> = due.map(|(id, _)| id.clone()).collect();
        for id in due {
            self.look_at(&id, now);
        }
    }

    fn look_at(&mut self, id: &ContainerId, now: Instant) {
        let (max, round) = (self.max_bytes, self.next_round);
        let Some(log) = self.logs.get_mut(id) else { return };
        let Some(path) = &log.path else {
            log.due = round;
            return;
        };
        let found = self.ports.fs.stat(path);
        // The log of a container that has ended is its last word: it stays as it is.
        let wants_change = found.as_ref().map_or(true, |found| found.stamp.size >= max);
        if wants_change && !self.observations.is_running(id) {
            return self.forget(id);
        }
        match found {
            Ok(found) => {
                let size = found.stamp.size;
                let awake = log.note(size, now);
                if size < max {
                    return self.leave(id, size, awake, now);
                }
                log.busy = true;
                self.alarms.disarm(id);
                self.queue.push_back(id.clone());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => self.reopen(id),
            Err(error) => {
                tracing::warn!(container = %id, path = %path.display(), %error, "cannot look at a container's log");
                log.due = round;
            }
        }
    }

    /// Leaves a log alone until it may have grown too large.
    fn leave(&mut self, id: &ContainerId, size: u64, awake: bool, now: Instant) {
        let (max, interval) = (self.max_bytes, self.policy.interval);
        let Some(Log { path: Some(path), rate, due, .. }) = self.logs.get_mut(id) else { return };
        // What is written between the look and the alarm waits for the next
        // write, or for the round: it is no more than one system call takes.
        let wait = if awake {
            self.alarms.disarm(id);
            plan::next_look(size, *rate, max, interval.min(plan::AWAKE_LOOK))
        } else if self.alarms.arm(id, path) {
            interval
        } else {
            plan::next_look(size, *rate, max, interval)
        };
        let common = self.began + plan::common_look(now - self.began);
        let at = if awake && wait >= plan::AWAKE_LOOK { common } else { now + wait };
        // Whatever can wait as long waits for the common round.
        *due = at.min(self.next_round);
    }

    /// The agent may have been killed between moving the log and having it opened anew.
    fn reopen(&mut self, id: &ContainerId) {
        let Some(path) = self.logs.get(id).and_then(|log| log.path.clone()) else { return };
        let (ports, id) = (self.ports.clone(), id.clone());
        self.job(id.clone(), async move {
            let answer = ports.runtime.reopen_container_log(id.as_str()).await;
            Outcome::Reopened(answer.map(|()| ports.fs.stat(&path).is_ok()))
        });
    }

    fn start_rotations(&mut self) {
        while self.rotating < self.policy.max_workers
            && let Some(id) = self.queue.pop_front()
        {
            let Some(path) = self.logs.get(&id).and_then(|log| log.path.clone()) else { continue };
            self.rotating += 1;
            let (ports, max_files) = (self.ports.clone(), self.policy.max_files);
            self.job(id.clone(), async move {
                Outcome::Rotated(rotate(&ports, id.as_str(), &path, max_files).await)
            });
        }
    }

    fn job(&mut self, id: ContainerId, work: impl Future<Output = Outcome> + Send + 'static) {
        if let Some(log) = self.logs.get_mut(&id) {
            log.busy = true;
        }
        self.jobs.push(Box::pin(async move { (id, work.await) }));
    }

    fn done(&mut self, id: ContainerId, outcome: Outcome) {
        if matches!(outcome, Outcome::Rotated(_)) {
            self.rotating -= 1;
        }
        let now = Instant::now();
        let round = self.next_round;
        let Some(log) = self.logs.get_mut(&id) else { return };
        log.busy = false;
        log.due = round;
        match outcome {
            Outcome::Reopened(Ok(true)) => log.due = now,
            Outcome::Reopened(Ok(false)) => {
                tracing::warn!(container = %id, "a container's log is missing, also after the runtime opened it anew");
            }
            Outcome::Rotated(Ok(Rotated::Done)) => {
                tracing::debug!(container = %id, "rotated a container's log");
                // It has grown anew while older ones were compressed.
                log.seen = None;
                log.due = now;
            }
            Outcome::Rotated(Ok(Rotated::NameTaken)) => log.due = now + plan::LOOK_MIN,
            Outcome::Reopened(Err(error)) => {
                if error.is_not_found() {
                    self.forget(&id);
                } else {
                    tracing::warn!(container = %id, %error, "cannot look after a container's log; trying again");
                }
            }
            Outcome::Rotated(Err(error)) => {
                tracing::warn!(container = %id, %error, "cannot rotate a container's log; trying again");
            }
        }
    }
}

impl Log {
    /// Notes its size; true if it grows, as far as is known.
    fn note(&mut self, size: u64, now: Instant) -> bool {
        let before = self.seen.replace((size, now));
        let Some((before, at)) = before else { return self.rate.is_some_and(|rate| rate > 0) };
        let grown = size.saturating_sub(before);
        self.rate = Some(plan::growth(self.rate, grown, now - at));
        grown > 0
    }
}
