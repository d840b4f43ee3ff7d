//! How one call goes: its delays, and what goes wrong.
//!
//! An effect is owned by the world, not by the caller: a caller that gives up
//! or crashes may or may not have its call carried out, as with a real runtime.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cri::{CallError, CallErrorKind};
use rand::RngExt;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::model::refused;
use crate::world::{Life, State, World};

/// The client's limit for an ordinary call.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(120);

/// What goes wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Twist {
    /// It fails before it has any effect.
    Refuse(CallErrorKind),
    /// It takes effect, then fails.
    LoseAnswer(CallErrorKind),
    /// It takes effect, and the answer comes too late or never.
    HangAfter(Duration),
    /// It takes effect only after this long.
    HangBefore(Duration),
    /// It begins, then hangs this long, then takes effect.
    HangInside(Duration),
    /// It never takes effect and never answers.
    Vanish,
    /// The agent crashes before the effect.
    CrashBefore,
    /// The agent crashes between effect and answer.
    CrashAfter,
}

impl Twist {
    fn shortened(self) -> Self {
        match self {
            Self::HangAfter(long) => Self::HangAfter(long.min(REQUEST_LIMIT)),
            Self::HangBefore(long) => Self::HangBefore(long.min(REQUEST_LIMIT)),
            Self::HangInside(long) => Self::HangInside(long.min(REQUEST_LIMIT)),
            other => other,
        }
    }
}

/// A call as it is made.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) object: String,
    /// Pod it is about, for the trace.
    pub(crate) pod: String,
    /// The client gives up after this long; a pull has no limit.
    pub(crate) limit: Option<Duration>,
}

struct Fate {
    before: Duration,
    inside: Duration,
    after: Duration,
    twist: Option<Twist>,
    outlives_caller: bool,
}

impl State {
    fn fate(&mut self, call: &Call) -> Fate {
        let scripted = self.script.iter().position(|(name, _)| *name == call.name);
        let twist = match scripted.and_then(|at| self.script.remove(at)) {
            Some((_, twist)) => Some(twist),
            // Hooks and pulls have no limit. By chance they hang no longer than
            // what has one, or nothing would settle in time.
            None if call.limit.is_none() => self.random_twist().map(Twist::shortened),
            None => self.random_twist(),
        };
        Fate {
            before: self.delay(),
            inside: self.delay(),
            after: self.delay(),
            twist,
            outlives_caller: self.rng.random_bool(0.7),
        }
    }

    fn random_twist(&mut self) -> Option<Twist> {
        let faults = &self.faults;
        let (error, lost, hang, crash) =
            (faults.call_error, faults.lost_answer, faults.hang, faults.crash_at_call);
        if self.chance(error) {
            return Some(Twist::Refuse(self.random_error()));
        }
        if self.chance(lost) {
            return Some(Twist::LoseAnswer(self.random_error()));
        }
        if self.chance(hang) {
            let long = Duration::from_millis(self.rng.random_range(3_000..280_000));
            return Some(match self.rng.random_range(0..4) {
                0 => Twist::HangBefore(long),
                1 => Twist::HangInside(long),
                2 => Twist::HangAfter(long),
                _ => Twist::Vanish,
            });
        }
        if self.chance(crash) {
            let before = self.rng.random_bool(0.5);
            return Some(if before { Twist::CrashBefore } else { Twist::CrashAfter });
        }
        None
    }

    pub(crate) fn random_error(&mut self) -> CallErrorKind {
        match self.rng.random_range(0..5) {
            0 => refused(Code::Unknown, "simulated: runtime error"),
            1 => refused(Code::Internal, "simulated: internal error"),
            2 => refused(Code::DeadlineExceeded, "simulated: context deadline exceeded"),
            3 => refused(Code::Unavailable, "simulated: transport is closing"),
            _ => CallErrorKind::Unreachable("simulated: connection reset".into()),
        }
    }
}

fn unreachable() -> CallErrorKind {
    CallErrorKind::Unreachable("simulated: connection refused".into())
}

/// Performs a call that changes the world. `effect` gets the time to spend
/// between beginning and taking effect.
pub(crate) async fn change<T, E, F>(
    world: &Arc<World>,
    life: &Life,
    call: Call,
    effect: E,
) -> Result<T, CallError>
where
    T: Send + 'static,
    E: FnOnce(Arc<World>, Duration) -> F + Send + 'static,
    F: Future<Output = Result<T, CallErrorKind>> + Send + 'static,
{
    gate(life).await;
    let (fate, down) = {
        let mut state = world.lock();
        let fate = state.fate(&call);
        state.count_call(&call);
        let text = match &fate.twist {
            Some(twist) => format!("{} {} … {twist:?}", call.name, call.object),
            None => format!("{} {}", call.name, call.object),
        };
        let down = state.runtime_down;
        state.note(&call.pod, format!("[{}] {text}", life.number));
        (fate, down)
    };
    let (answer, answered) = oneshot::channel();
    if down {
        sleep(fate.before).await;
        return Err(failed(&call, unreachable()));
    }
    tokio::spawn(carry_out(Arc::clone(world), life.clone(), fate, effect, answer));
    let outcome = match call.limit {
        Some(limit) => {
            timeout(limit, answered).await.unwrap_or(Ok(Err(CallErrorKind::TimedOut(limit))))
        }
        None => answered.await,
    };
    gate(life).await;
    let outcome = match (outcome, call.limit) {
        (Ok(outcome), _) => outcome,
        // Nobody will ever answer: the client waits out its limit.
        (Err(_), Some(limit)) => {
            sleep(limit).await;
            Err(CallErrorKind::TimedOut(limit))
        }
        (Err(_), None) => Err(unreachable()),
    };
    outcome.map_err(|kind| {
        let text = format!("[{}] {} failed: {kind}", life.number, call.name);
        world.lock().note(&call.pod, text);
        failed(&call, kind)
    })
}

async fn carry_out<T, E, F>(
    world: Arc<World>,
    life: Life,
    fate: Fate,
    effect: E,
    answer: oneshot::Sender<Result<T, CallErrorKind>>,
) where
    E: FnOnce(Arc<World>, Duration) -> F,
    F: Future<Output = Result<T, CallErrorKind>>,
{
    sleep(fate.before).await;
    let mut inside = fate.inside;
    match &fate.twist {
        Some(Twist::Refuse(kind)) => {
            let _ = answer.send(Err(kind.clone()));
            return;
        }
        Some(Twist::Vanish) => return,
        Some(Twist::CrashBefore) => return world.request_crash(&life, "before an effect"),
        Some(Twist::HangBefore(long)) => sleep(*long).await,
        Some(Twist::HangInside(long)) => inside = *long,
        _ => {}
    }
    if answer.is_closed() && !fate.outlives_caller {
        return;
    }
    let mut outcome = effect(Arc::clone(&world), inside).await;
    match fate.twist {
        Some(Twist::LoseAnswer(kind)) => outcome = Err(kind),
        Some(Twist::HangAfter(long)) => sleep(long).await,
        Some(Twist::CrashAfter) => return world.request_crash(&life, "before an answer"),
        _ => {}
    }
    sleep(fate.after).await;
    if world.lock().runtime_down {
        outcome = Err(unreachable());
    }
    let _ = answer.send(outcome);
}

/// Performs a call that only reads.
pub(crate) async fn look<T>(
    world: &Arc<World>,
    life: &Life,
    name: &'static str,
    object: &str,
    read: impl FnOnce(&mut State) -> Result<T, CallErrorKind>,
) -> Result<T, CallError> {
    gate(life).await;
    let call =
        Call { name, object: object.to_owned(), pod: String::new(), limit: Some(REQUEST_LIMIT) };
    let (wait, trouble) = {
        let mut state = world.lock();
        state.history.note_call(name);
        (state.delay(), state.read_trouble(name))
    };
    sleep(wait).await;
    match trouble {
        Some(Twist::Refuse(kind) | Twist::LoseAnswer(kind)) => return Err(failed(&call, kind)),
        Some(Twist::HangBefore(long)) if long >= REQUEST_LIMIT => {
            sleep(REQUEST_LIMIT).await;
            return Err(failed(&call, CallErrorKind::TimedOut(REQUEST_LIMIT)));
        }
        Some(Twist::HangBefore(long)) => sleep(long).await,
        _ => {}
    }
    gate(life).await;
    let mut state = world.lock();
    if state.runtime_down {
        return Err(failed(&call, unreachable()));
    }
    read(&mut state).map_err(|kind| failed(&call, kind))
}

impl State {
    fn read_trouble(&mut self, name: &'static str) -> Option<Twist> {
        if let Some(at) = self.script.iter().position(|(call, _)| *call == name) {
            return self.script.remove(at).map(|(_, twist)| twist);
        }
        let (error, hang) = (self.faults.call_error, self.faults.hang);
        if self.chance(error) {
            return Some(Twist::Refuse(self.random_error()));
        }
        // Reads are many: a tenth of the rate still hangs some in every run.
        if self.chance(hang / 10.0) {
            let long = Duration::from_millis(self.rng.random_range(1_000..200_000));
            return Some(Twist::HangBefore(long));
        }
        None
    }
}

/// A dead agent's calls go nowhere.
async fn gate(life: &Life) {
    if !life.is_alive() {
        std::future::pending::<()>().await;
    }
}

fn failed(call: &Call, kind: CallErrorKind) -> CallError {
    CallError { call: call.name, object: call.object.clone(), kind }
}
