//! Watches for shutdowns and ends pods before them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kubelet_model::DesiredPod;
use tokio::time::{sleep, timeout};

use super::ShutdownParts;
use super::plan::{Doomed, drop_in};
use super::record::Record;
use crate::pod_workers::Kill;
use crate::ports::{Clock, Fs, Inhibitor, LoginError, LoginSession};
use crate::status_manager::is_terminal;

/// Pause before the login manager is talked to again. It doubles while that fails.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// How often, and from which pause on, it is asked whether it has read its drop-in.
const LOOKS: u32 = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Upstream's name for the drop-in.
const DROP_IN: &str = "99-kubelet.conf";
/// How pods are told to have ended.
const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Why shutdowns are not watched.
#[derive(Debug, thiserror::Error)]
enum ShutdownError {
    /// It cannot be talked to.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The drop-in cannot be written.
    #[error("cannot write {path}: {source}; set InhibitDelayMaxSec={seconds} in logind.conf")]
    DropIn { path: PathBuf, seconds: u64, source: std::io::Error },
    /// It does not take up what the drop-in says.
    #[error(
        "logind waits {0:?} for pods to end, not the {1:?} of shutdownGracePeriod, though it was told to; is there a drop-in that comes after {DROP_IN}?"
    )]
    TooShort(Duration, Duration),
}

/// Watches.
pub(super) struct ShutdownWatch {
    parts: ShutdownParts,
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    record: Record,
    drop_ins: PathBuf,
    /// Makes a shutdown wait, also while nobody can be talked to.
    lock: Option<Inhibitor>,
    /// What was last said to be wrong.
    problem: Option<String>,
}

impl ShutdownWatch {
    pub(super) fn new(
        parts: ShutdownParts,
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        record: Record,
        drop_ins: PathBuf,
    ) -> Self {
        Self { parts, fs, clock, record, drop_ins, lock: None, problem: None }
    }

    /// Works until it is dropped.
    pub(super) async fn run(mut self) {
        self.record.load();
        let mut pause = AGAIN;
        loop {
            let error = match self.prepare().await {
                Err(error) => error,
                Ok(mut session) => {
                    if self.problem.take().is_some() {
                        tracing::info!("shutdowns are watched for again");
                    }
                    pause = AGAIN;
                    let Err(error) = self.watch(&mut *session).await;
                    error.into()
                }
            };
            let text = error.to_string();
            if self.problem.as_ref() != Some(&text) {
                tracing::error!(
                    error = text,
                    "cannot watch for shutdowns of the machine; pods would end with it"
                );
                self.problem = Some(text);
            }
            sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
    }

    /// Has the login manager wait for us, long enough.
    async fn prepare(&mut self) -> Result<Box<dyn LoginSession>, ShutdownError> {
        let mut session = self.parts.login.open().await?;
        let needed = self.parts.plan.total();
        if session.inhibit_delay().await? < needed {
            self.write_drop_in(needed)?;
            session.reload().await?;
            self.await_delay(&mut *session, needed).await?;
        }
        // The new lock is taken before the old one is let go.
        self.lock = Some(session.inhibit().await?);
        Ok(session)
    }

    fn write_drop_in(&self, needed: Duration) -> Result<(), ShutdownError> {
        let path = self.drop_ins.join(DROP_IN);
        let write = || {
            self.fs.create_dir_all(&self.drop_ins, 0o755)?;
            self.fs.write_in_place(&path, drop_in(needed).as_bytes(), 0o644)
        };
        let failed = |source| {
            let (path, seconds) = (path.clone(), needed.as_secs());
            ShutdownError::DropIn { path, seconds, source }
        };
        write().map_err(failed)
    }

    async fn await_delay(
        &self,
        session: &mut dyn LoginSession,
        needed: Duration,
    ) -> Result<(), ShutdownError> {
        let mut waits = Duration::ZERO;
        for look in 0..LOOKS {
            sleep(LOOK_PAUSE * 2_u32.pow(look)).await;
            waits = session.inhibit_delay().await?;
            if waits >= needed {
                return Ok(());
            }
        }
        Err(ShutdownError::TooShort(waits, needed))
    }

    /// Hears of shutdowns until it no longer can.
    async fn watch(
        &mut self,
        session: &mut dyn LoginSession,
    ) -> Result<std::convert::Infallible, LoginError> {
        let mut goes = session.next().await?;
        loop {
            self.tell(goes);
            goes = if goes {
                self.go(session).await?
            } else {
                self.lock = Some(session.inhibit().await?);
                session.next().await?
            };
        }
    }

    fn tell(&self, goes: bool) {
        tracing::warn!(goes, "the machine is being shut down, or is not after all");
        let what = if goes { "event" } else { "cancellation" };
        let text = format!("Shutdown manager detected shutdown {what}");
        self.parts.events.normal("Shutdown", text);
        self.parts.flag.set(goes);
    }

    /// The machine goes: ends pods, then lets it. Returns what is told next. A shutdown
    /// that is called off spares the pods whose turn has not come.
    async fn go(&mut self, session: &mut dyn LoginSession) -> Result<bool, LoginError> {
        self.record.begin(self.clock.wall());
        let called_off = tokio::select! { biased;
            () = self.end_pods() => None,
            told = spared(session) => Some(told),
        };
        self.record.end(self.clock.wall());
        match called_off {
            Some(told) => told,
            None => {
                tracing::info!("pods have ended; the machine may go");
                self.lock = None;
                session.next().await
            }
        }
    }

    async fn end_pods(&self) {
        let desired = self.parts.desired.current();
        let active: Vec<&DesiredPod> =
            desired.pods.values().filter(|pod| self.is_active(pod)).collect();
        for group in self.parts.plan.doomed(&active) {
            let (period, count) = (group.period, group.pods.len());
            tracing::info!(pods = count, ?period, "ending a group of pods");
            if timeout(period, self.end_group(&group)).await.is_err() {
                tracing::warn!(?period, "not all pods of the group ended in time; going on");
            }
        }
    }

    fn is_active(&self, pod: &DesiredPod) -> bool {
        let told = pod.asked().status.as_ref().is_some_and(is_terminal);
        let known = self.parts.statuses.get(pod.uid());
        !told && !known.is_some_and(|status| is_terminal(&status))
    }

    /// Ends pods side by side, and waits until their volumes are unmounted: the pods that
    /// unmount them may belong to the next group.
    async fn end_group(&self, group: &Doomed<'_>) {
        let ends = group.pods.iter().map(|(pod, grace)| async {
            let kill = Kill {
                reason: REASON.to_owned(),
                message: MESSAGE.to_owned(),
                grace: Some(*grace),
                disruption: Some(MESSAGE.to_owned()),
                evict: false,
            };
            let mut watch = self.parts.killer.kill(pod.uid(), kill).await;
            if let Err(error) = watch.cleaned_up().await {
                tracing::warn!(pod = %pod.full_name(), %error, "pod not seen to end");
            }
        });
        join_all(ends).await;
    }
}

/// Waits until a shutdown is called off. One that nobody can call off any more goes on.
async fn spared(session: &mut dyn LoginSession) -> Result<bool, LoginError> {
    loop {
        match session.next().await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => {
                tracing::warn!(%error, "the login manager is gone; pods are ended all the same");
                std::future::pending::<()>().await;
            }
        }
    }
}
