//! What to do about one pod's volumes next. Pure.
//!
//! The same facts give the same operations, and facts that are settled give
//! none. Volumes of a pod that lives are never undone, wanted or not: something
//! may still use them. Upstream: pkg/kubelet/volumemanager/reconciler.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubelet_model::Mono;

use super::desired::{PodVolumes, Wanted};
use super::layout::{PluginName, VolumeName};
use super::{Problem, VolumeMountable, VolumeState};

/// Pause after the first failure of an operation; doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(122);

/// What a pod's volumes should become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    /// Made.
    Mount(Arc<PodVolumes>),
    /// Undone, whatever there is.
    Release,
}

/// What is left of a volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Its name.
    pub name: VolumeName,
    /// Its kind; `None` if only parts of it are bound somewhere.
    pub plugin: Option<PluginName>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Op {
    /// Let containers see mounts made later.
    Share,
    /// Make a volume.
    SetUp(VolumeName),
    /// See what is left.
    Look,
    /// Undo a volume.
    TearDown(Found),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share => f.write_str("share the mounts of the state directory"),
            Self::SetUp(name) => write!(f, "mount volume {name}"),
            Self::Look => f.write_str("look for volumes that are left"),
            Self::TearDown(found) => write!(f, "unmount volume {}", found.name),
        }
    }
}

/// What is known of a pod's volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// What was made, and how it was wanted then.
    made: BTreeMap<VolumeName, (Wanted, VolumeMountable)>,
    /// What was begun, and may come to be even if it failed.
    begun: BTreeSet<Found>,
    shared: bool,
    /// What is left to undo, once somebody has looked.
    left: Option<BTreeSet<Found>>,
    failures: BTreeMap<Op, Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    message: String,
    count: u32,
    retry_at: Mono,
}

/// What an operation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Mounts are shared.
    Shared,
    /// A volume is made, as it was wanted.
    Made(Wanted, VolumeMountable),
    /// This is left.
    Left(BTreeSet<Found>),
    /// A volume is undone.
    Undone,
    /// It failed.
    Failed(String),
}

/// What to do now, what others are told, and when time alone changes the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub ops: Vec<Op>,
    pub state: VolumeState,
    pub wake_at: Option<Mono>,
}

impl Observed {
    /// The pod ends: failures to make something matter no more.
    pub(super) fn turn_to_release(&mut self) {
        self.failures.retain(|op, _| matches!(op, Op::Look | Op::TearDown(_)));
    }

    /// An operation begins.
    pub(super) fn note_begun(&mut self, op: &Op, goal: &Goal) {
        let (Op::SetUp(name), Goal::Mount(pod)) = (op, goal) else { return };
        let plugin = match pod.volumes.get(name) {
            Some(Wanted::EmptyDir { .. }) => Some(PluginName::empty_dir()),
            _ => None,
        };
        self.begun.insert(Found { name: name.clone(), plugin });
    }

    /// An operation has ended.
    pub(super) fn note(&mut self, op: Op, outcome: Outcome, now: Mono) {
        match (&op, outcome) {
            (_, Outcome::Failed(message)) => {
                let count = self.failures.get(&op).map_or(0, |failure| failure.count);
                let pause = PAUSE_FIRST.saturating_mul(1 << count.min(16)).min(PAUSE_MAX);
                let count = count.saturating_add(1);
                self.failures.insert(op, Failure { message, count, retry_at: now + pause });
                return;
            }
            (Op::SetUp(name), Outcome::Made(wanted, mountable)) => {
                self.made.insert(name.clone(), (wanted, mountable));
            }
            (Op::Look, Outcome::Left(mut left)) => {
                left.append(&mut self.begun);
                self.left = Some(left);
            }
            (Op::TearDown(found), _) => {
                if let Some(left) = &mut self.left {
                    left.remove(found);
                }
            }
            (Op::Share, _) => self.shared = true,
            (Op::SetUp(_) | Op::Look, _) => {}
        }
        self.failures.remove(&op);
    }
}

/// Decides.
pub(super) fn plan(goal: &Goal, observed: &Observed, now: Mono) -> Plan {
    match goal {
        Goal::Mount(pod) => plan_mount(pod, observed, now),
        Goal::Release => plan_release(observed, now),
    }
}

fn plan_mount(pod: &PodVolumes, observed: &Observed, now: Mono) -> Plan {
    let is_made = |name: &VolumeName, wanted: &Wanted| {
        observed.made.get(name).is_some_and(|(as_wanted, _)| as_wanted == wanted)
    };
    let missing = pod.volumes.iter().filter(|(name, wanted)| !is_made(name, wanted));
    let missing: BTreeMap<_, _> = missing.collect();
    let share_first = pod.shares && !observed.shared;
    if missing.is_empty() && !share_first {
        let all = pod.volumes.keys().filter_map(|name| {
            let (_, mountable) = observed.made.get(name)?;
            Some((name.as_str().to_owned(), mountable.clone()))
        });
        return Plan {
            ops: Vec::new(),
            state: VolumeState::Ready(Arc::new(all.collect())),
            wake_at: None,
        };
    }
    let mut problems = Vec::new();
    let mut due = Vec::new();
    for (name, wanted) in &missing {
        match wanted {
            Wanted::Refused(why) => problems.push(set_up_problem(name, why)),
            _ => due.push(Op::SetUp((*name).clone())),
        }
    }
    if share_first {
        due = vec![Op::Share];
    }
    let paced = pace(due, observed, now);
    problems.extend(paced.failed.iter().map(|(op, message)| match op {
        Op::SetUp(name) => set_up_problem(name, message),
        _ => Problem { volume: String::new(), message: (*message).to_owned() },
    }));
    let volumes = missing.keys().map(|name| name.as_str().to_owned()).collect();
    let state = VolumeState::Waiting { volumes, problems, retry_at: paced.wake_at };
    Plan { ops: paced.ops, state, wake_at: paced.wake_at }
}

fn plan_release(observed: &Observed, now: Mono) -> Plan {
    let due: Vec<Op> = match &observed.left {
        None => vec![Op::Look],
        Some(left) if left.is_empty() => {
            return Plan { ops: Vec::new(), state: VolumeState::Gone, wake_at: None };
        }
        Some(left) => left.iter().cloned().map(Op::TearDown).collect(),
    };
    let names = due.iter().filter_map(|op| match op {
        Op::TearDown(found) => Some(found.name.as_str().to_owned()),
        _ => None,
    });
    let volumes = names.collect();
    let paced = pace(due, observed, now);
    let problem = |(op, message): &(Op, &str)| match op {
        Op::TearDown(found) => Problem {
            volume: found.name.to_string(),
            message: format!(
                "UnmountVolume.TearDown failed for volume \"{}\" : {message}",
                found.name
            ),
        },
        _ => Problem { volume: String::new(), message: (*message).to_owned() },
    };
    let problems = paced.failed.iter().map(problem).collect();
    let state = VolumeState::Waiting { volumes, problems, retry_at: paced.wake_at };
    Plan { ops: paced.ops, state, wake_at: paced.wake_at }
}

struct Paced<'a> {
    ops: Vec<Op>,
    failed: Vec<(Op, &'a str)>,
    wake_at: Option<Mono>,
}

/// Those whose pause is over, and what is known of those that failed.
fn pace(due: Vec<Op>, observed: &Observed, now: Mono) -> Paced<'_> {
    let mut paced = Paced { ops: Vec::new(), failed: Vec::new(), wake_at: None };
    for op in due {
        let Some(failure) = observed.failures.get(&op) else {
            paced.ops.push(op);
            continue;
        };
        paced.failed.push((op.clone(), &failure.message));
        if failure.retry_at > now {
            let earliest = paced.wake_at.map_or(failure.retry_at, |at| at.min(failure.retry_at));
            paced.wake_at = Some(earliest);
        } else {
            paced.ops.push(op);
        }
    }
    paced
}

fn set_up_problem(name: &VolumeName, why: &str) -> Problem {
    Problem {
        volume: name.to_string(),
        message: format!("MountVolume.SetUp failed for volume \"{name}\" : {why}"),
    }
}
