//! What becomes of work on volumes: it fails, is done though the answer is lost, or
//! takes longer than anybody waits.
//!
//! An agent that dies takes what it does itself along, but not what it has asked the
//! kernel for: a call that is under way may end long after, in another life's time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet::ports::VolumeError;
use mounts::MountsError;
use tokio::time::sleep;

use super::mount_table::Twist;
use crate::world::{Life, State, World};

/// How long a caller waits for work.
const PATIENCE: Duration = Duration::from_secs(20);

/// Work that ends in one call of the kernel.
const CALLS: [&str; 7] =
    ["mount tmpfs", "mount hugetlbfs", "mount share", "mount disk", "bind", "bind file", UNMOUNT];
const UNMOUNT: &str = "unmount";

/// The volume port of one life.
#[derive(Clone)]
pub struct SimVolumes {
    world: Arc<World>,
    life: Life,
}

impl SimVolumes {
    /// A handle for one life.
    pub fn new(world: Arc<World>, life: Life) -> Self {
        Self { world, life }
    }

    /// Every call counts, whatever becomes of it.
    pub(super) fn count(&self, what: &str, place: &Path) {
        self.world.lock().volumes.count(what, &place.display().to_string());
    }

    async fn gate(&self) {
        if !self.life.is_alive() {
            std::future::pending::<()>().await;
        }
    }

    /// Does some work at a place, one after another.
    pub(super) async fn run<T, E>(
        &self,
        key: &Path,
        what: &'static str,
        effect: E,
    ) -> Result<T, VolumeError>
    where
        T: Send + 'static,
        E: FnOnce(&mut State) -> Result<T, VolumeError> + Send + 'static,
    {
        self.gate().await;
        self.count(what, key);
        self.await_others(key, what).await?;
        let (twist, delay) = {
            let mut state = self.world.lock();
            let twist = state.volumes.next_hang(what).or_else(|| state.volume_twist());
            (twist, state.delay())
        };
        sleep(delay).await;
        self.gate().await;
        let failed = || Err(MountsError::Busy { path: key.to_owned() }.into());
        match twist {
            None => self.world.act(what, key, effect),
            Some(Twist::Fail) => {
                self.world.lock().note("", format!("{what} {} fails", key.display()));
                failed()
            }
            Some(Twist::LoseAnswer) => {
                let done = self.world.act(what, key, effect);
                self.world.lock().note("", format!("{what} {}: answer lost", key.display()));
                done.and_then(|_| failed())
            }
            Some(Twist::CrashBefore) => {
                self.world.request_crash(&self.life, "before work on a volume");
                std::future::pending().await
            }
            Some(Twist::CrashAfter) => {
                let _ = self.world.act(what, key, effect);
                self.world.request_crash(&self.life, "after work on a volume");
                std::future::pending().await
            }
            Some(Twist::Hang(long)) => self.hang(key, what, long, effect).await,
        }
    }

    /// The work goes on; the caller gives up. Another life knows nothing of it.
    async fn hang<T, E>(
        &self,
        key: &Path,
        what: &'static str,
        long: Duration,
        effect: E,
    ) -> Result<T, VolumeError>
    where
        T: Send + 'static,
        E: FnOnce(&mut State) -> Result<T, VolumeError> + Send + 'static,
    {
        let busy = (self.life.number, key.to_owned());
        let (was, outlives) = {
            let mut state = self.world.lock();
            state.note("", format!("{what} {} hangs {}s", key.display(), long.as_secs()));
            let until = state.now() + long;
            state.volumes.busy.insert(busy.clone(), until);
            let odds = state.faults.outlives;
            let outlives = CALLS.contains(&what) && state.chance(odds);
            (state.volumes.mounts.get(key).copied(), outlives)
        };
        let port = self.clone();
        tokio::spawn(async move {
            sleep(long).await;
            let place = &busy.1;
            if port.life.is_alive() {
                let _ = port.world.act(what, place, effect);
            } else if outlives {
                port.world.act_late(what, place, was, effect);
            }
            port.world.lock().volumes.busy.remove(&busy);
        });
        sleep(PATIENCE).await;
        Err(under_way(key, what))
    }

    async fn await_others(&self, key: &Path, what: &'static str) -> Result<(), VolumeError> {
        let busy = (self.life.number, key.to_owned());
        let give_up_at = self.world.now() + PATIENCE;
        loop {
            let now = self.world.now();
            let until = self.world.lock().volumes.busy.get(&busy).copied();
            let Some(until) = until else { return Ok(()) };
            if until > give_up_at {
                sleep(give_up_at.saturating_sub(now)).await;
                return Err(under_way(key, what));
            }
            // The other wakes at that very instant; its turn comes first.
            sleep(until.saturating_sub(now) + Duration::from_millis(1)).await;
        }
    }
}

fn under_way(path: &Path, what: &str) -> VolumeError {
    VolumeError::UnderWay { what: what.to_owned(), path: path.to_owned(), waited: PATIENCE }
}

impl World {
    fn act<T>(
        &self,
        what: &str,
        key: &Path,
        effect: impl FnOnce(&mut State) -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        let mut state = self.lock();
        state.note("", format!("{what} {}", key.display()));
        effect(&mut state)
    }

    /// A call ends whose caller is dead. It holds on to the directory and the mount that
    /// it found when it began: it mounts on no directory that was removed and unmounts
    /// no other mount.
    fn act_late<T>(
        &self,
        what: &str,
        key: &Path,
        was: Option<u64>,
        effect: impl FnOnce(&mut State) -> Result<T, VolumeError>,
    ) {
        let mut state = self.lock();
        let is = state.volumes.mounts.get(key).copied();
        let held = state.files.has(key) && (what != UNMOUNT || is == was);
        let end = if held { "ends after its caller" } else { "comes to nothing" };
        state.note("", format!("{what} {} {end}", key.display()));
        if held {
            // Nobody is there to be told.
            let _ = effect(&mut state);
        }
    }
}
