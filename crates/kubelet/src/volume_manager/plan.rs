//! What to do about one pod's volumes next. Pure.
//!
//! The same facts give the same operations, and facts that are settled give
//! none. Volumes of a pod that lives are never undone, wanted or not: something
//! may still use them. Files that can no longer be made stay as they were.
//! Upstream: pkg/kubelet/volumemanager/reconciler.

mod pace;
mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubelet_model::Mono;

use super::claims::PlaceKind;
use super::desired::{PodVolumes, Wanted};
pub(super) use super::ingredients::{Contents, Doing, Ingredients, Lack, shown};
use super::layout::{PluginName, VolumeName};
use super::{Problem, Step, VolumeMountable, VolumeState};
use pace::pace;
use standing::{Next, republish, standing};

/// Pause after the first failure of an operation; doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(122);
/// Pause between requests for what is made, to drivers that want them, unless told
/// otherwise.
const REPUBLISH_EVERY: Duration = Duration::from_secs(60);

/// What a pod's volumes should become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    /// Made.
    Mount(Arc<PodVolumes>),
    /// Left as they are: the pod ends.
    Keep(Arc<PodVolumes>),
    /// Undone, whatever there is.
    Release,
}

impl Goal {
    /// Is there a volume that a cluster may have to attach, or keep from a node?
    pub(super) fn may_be_attached(&self) -> bool {
        let may = |wanted: &Wanted| matches!(wanted, Wanted::Claim(_) | Wanted::Disk(_));
        matches!(self, Self::Mount(pod) if pod.volumes.values().any(may))
    }
}

/// What is left of a volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Its name.
    pub name: VolumeName,
    /// Its kind; `None` if only parts of it are bound somewhere.
    pub plugin: Option<PluginName>,
    /// It is a block device.
    pub device: bool,
}

impl Found {
    fn is_csi(&self) -> bool {
        self.plugin.as_ref().is_some_and(|plugin| plugin.as_dir() == PluginName::CSI)
    }

    /// It is a disk of another machine, which a cluster may have attached.
    pub(super) fn is_disk(&self) -> bool {
        let kinds = [PluginName::ISCSI, PluginName::FC];
        self.plugin.as_ref().is_some_and(|plugin| kinds.contains(&plugin.as_dir()))
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Op {
    /// Let containers see mounts made later.
    Share,
    /// Make a volume.
    SetUp(VolumeName),
    /// Have a volume that is made fill what it has become.
    Grow(VolumeName),
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
            Self::Grow(name) => write!(f, "grow volume {name}"),
            Self::Look => f.write_str("look for volumes that are left"),
            Self::TearDown(found) => write!(f, "unmount volume {}", found.name),
        }
    }
}

/// What is known of a pod's volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observed {
    /// What was made.
    made: BTreeMap<VolumeName, Made>,
    /// What was begun, and may come to be even if it failed.
    begun: BTreeSet<Found>,
    shared: bool,
    /// What is left to undo, once somebody has looked.
    left: Option<BTreeSet<Found>>,
    failures: BTreeMap<Op, Failure>,
    /// How often drivers that want it are asked again for what is made.
    republish_every: Duration,
    /// It is not known yet what drivers' volumes an earlier life left attached.
    undo_waits: bool,
    /// Since when the pod waits for its volumes.
    waits_since: Option<Mono>,
}

impl Default for Observed {
    fn default() -> Self {
        Self::new(REPUBLISH_EVERY)
    }
}

/// A volume that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Made {
    /// How it was wanted then.
    wanted: Wanted,
    mountable: VolumeMountable,
    /// Hash of the files it shows, if the agent writes them.
    digest: Option<String>,
    /// How large its driver was told to make it.
    bytes: Option<i64>,
    /// When it was made last.
    at: Mono,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    doing: Doing,
    message: String,
    count: u32,
    retry_at: Mono,
}

/// What an operation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Mounts are shared.
    Shared,
    /// A volume is made, as it was wanted; with the hash of files that were
    /// written.
    Made(Wanted, VolumeMountable, Option<String>),
    /// A volume has become this large.
    Grown(i64),
    /// The cluster knows a volume to be this large; or it grows later if not all is done.
    Sized(i64, bool),
    /// This is left.
    Left(BTreeSet<Found>),
    /// A volume is undone.
    Undone,
    /// It failed.
    Failed(String),
    /// A volume could not be made; what was being done, and why it failed.
    NotMade(Doing, String),
}

/// What to do now, what others are told, and when time alone changes the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub ops: Vec<Op>,
    pub state: VolumeState,
    /// What is wrong, even if all volumes are there.
    pub problems: Vec<Problem>,
    pub wake_at: Option<Mono>,
}

impl Observed {
    /// Nothing is known yet.
    pub(super) fn new(republish_every: Duration) -> Self {
        Self {
            made: BTreeMap::new(),
            begun: BTreeSet::new(),
            shared: false,
            left: None,
            failures: BTreeMap::new(),
            republish_every,
            undo_waits: false,
            waits_since: None,
        }
    }

    /// The pod waits for its volumes, or does not.
    pub(super) fn note_wait(&mut self, waits: bool, now: Mono) {
        self.waits_since = self.waits_since.or(Some(now)).filter(|_| waits);
    }

    /// Whether what drivers mounted may be undone.
    pub(super) fn may_undo(&mut self, may: bool) {
        self.undo_waits = !may;
    }

    /// What users know a volume as that this life of the agent has made grow before.
    pub(super) fn grown(&self, name: &VolumeName) -> Option<&VolumeName> {
        let (name, made) = self.made.get_key_value(name)?;
        made.bytes.map(|_| made.mountable.persistent.as_ref().unwrap_or(name))
    }

    /// Has this life of the agent begun to make it?
    pub(super) fn has_begun(&self, found: &Found) -> bool {
        self.begun.contains(found)
    }

    /// Is it there already?
    pub(super) fn is_made(&self, name: &VolumeName) -> bool {
        self.made.contains_key(name)
    }

    /// What is left to undo, as far as somebody has looked.
    pub(super) fn left(&self) -> impl Iterator<Item = &Found> {
        self.left.iter().flatten()
    }

    /// The pod ends: failures to make something matter no more.
    pub(super) fn turn_to_release(&mut self) {
        self.failures.retain(|op, _| matches!(op, Op::Look | Op::TearDown(_)));
    }

    /// What failed may be tried again at once.
    pub(super) fn forgive(&mut self) {
        self.failures.clear();
    }

    /// An operation begins.
    pub(super) fn note_begun(&mut self, op: &Op, goal: &Goal, contents: &Contents) {
        let (Op::SetUp(name), Goal::Mount(pod)) = (op, goal) else { return };
        let mut device = false;
        let (name, plugin) = match (pod.volumes.get(name), contents.get(name)) {
            (Some(Wanted::EmptyDir { .. }), _) => (name, Some(PluginName::empty_dir())),
            (Some(Wanted::Payload(spec)), _) => (name, Some(spec.kind.plugin())),
            (_, Some(Ok(Ingredients::Driver(spec)))) => {
                device = spec.is_block();
                (spec.place(name), Some(PluginName::csi()))
            }
            (_, Some(Ok(Ingredients::Place(spec)))) => match spec.kind {
                PlaceKind::Local(_) => (&spec.volume, Some(PluginName::local())),
                PlaceKind::HostPath(_) => (&spec.volume, None),
                PlaceKind::Device => {
                    device = true;
                    (&spec.volume, Some(PluginName::local()))
                }
            },
            (Some(Wanted::Share(spec)), _) | (_, Some(Ok(Ingredients::Share(spec)))) => {
                (&spec.volume, Some(PluginName::nfs()))
            }
            (_, Some(Ok(Ingredients::Disk(spec)))) => {
                device = spec.block;
                (&spec.volume, Some(spec.plugin()))
            }
            _ => (name, None),
        };
        self.begun.insert(Found { name: name.clone(), plugin, device });
    }

    /// Is a driver needed to go on?
    pub(super) fn needs_drivers(&self, goal: &Goal) -> bool {
        match goal {
            Goal::Mount(pod) => {
                let is_csi = |w: &Wanted| matches!(w, Wanted::Csi(_) | Wanted::Claim(_));
                pod.volumes.values().any(is_csi)
            }
            Goal::Keep(_) => false,
            Goal::Release => self.left.iter().flatten().any(Found::is_csi),
        }
    }

    /// How large a volume that is made is known to be.
    pub(super) fn note_size(&mut self, name: &VolumeName, bytes: i64) {
        if let Some(made) = self.made.get_mut(name) {
            made.bytes = Some(bytes);
        }
    }

    /// An operation has ended.
    pub(super) fn note(&mut self, op: Op, outcome: Outcome, now: Mono) {
        let failed = match &outcome {
            Outcome::Failed(message) => Some((Doing::SetUp, message.clone())),
            Outcome::NotMade(doing, message) => Some((*doing, message.clone())),
            // Not its turn yet: nothing to tell.
            Outcome::Sized(_, false) => Some((Doing::SetUp, String::new())),
            _ => None,
        };
        if let Some((doing, message)) = failed {
            let count = self.failures.get(&op).map_or(0, |failure| failure.count);
            let retry_at = now + pause(count);
            let count = count.saturating_add(1);
            self.failures.insert(op, Failure { doing, message, count, retry_at });
            return;
        }
        match (&op, outcome) {
            (Op::SetUp(name), Outcome::Made(wanted, mountable, digest)) => {
                // One that is asked for again is as large as before.
                let before = self.made.get(name).filter(|made| made.wanted == wanted);
                let bytes = before.and_then(|made| made.bytes);
                let made = Made { wanted, mountable, digest, bytes, at: now };
                self.made.insert(name.clone(), made);
            }
            (Op::Grow(name), Outcome::Grown(bytes) | Outcome::Sized(bytes, _)) => {
                self.note_size(name, bytes);
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
            (Op::SetUp(_) | Op::Grow(_) | Op::Look, _) => {}
        }
        self.failures.remove(&op);
    }
}

/// Until the next try of what has failed so often before.
pub(super) fn pause(count: u32) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << count.min(16)).min(PAUSE_MAX)
}

/// Decides.
pub(super) fn plan(goal: &Goal, observed: &Observed, contents: &Contents, now: Mono) -> Plan {
    match goal {
        Goal::Mount(pod) => plan_mount(pod, observed, contents, now),
        Goal::Keep(pod) => plan_keep(pod, observed),
        Goal::Release => plan_release(observed, now),
    }
}

fn plan_mount(pod: &PodVolumes, observed: &Observed, contents: &Contents, now: Mono) -> Plan {
    let (mut missing, mut due, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    let mut republish_at: Option<Mono> = None;
    let mut too_many_at: Option<Mono> = None;
    let set_up_problem = |name: &VolumeName, doing, why: &str, tries| {
        set_up_problem(name, shown(name, contents), doing, why, tries)
    };
    for (name, wanted) in &pod.volumes {
        let (is_there, next) = standing(name, wanted, observed, contents, now);
        if let (Next::Nothing, Some(at)) = (&next, republish(name, observed, contents)) {
            republish_at = Some(republish_at.map_or(at, |other| other.min(at)));
        }
        if !is_there {
            missing.push(name.as_str().to_owned());
        }
        match next {
            Next::Nothing => {}
            Next::SetUp => due.push(Op::SetUp(name.clone())),
            Next::Grow => due.push(Op::Grow(name.clone())),
            Next::Impossible(None, why) => problems.push(Problem {
                volume: name.to_string(),
                step: Step::Process,
                message: why.to_owned(),
                tries: 0,
            }),
            Next::Impossible(Some(doing), why) => {
                problems.push(set_up_problem(name, doing, why, 0));
            }
            Next::MayBeTooMany(lack, until) => {
                too_many_at = Some(too_many_at.map_or(until, |other| other.min(until)));
                let doing = lack.to.unwrap_or(Doing::VerifyAttached);
                problems.push(set_up_problem(name, doing, &lack.why, 0));
            }
            Next::TooMany(why) => {
                let waits = set_up_problem(name, Doing::VerifyAttached, why, 0);
                problems.push(Problem { step: Step::AttachLimit, ..waits });
            }
        }
    }
    let share_first = pod.shares && !observed.shared;
    if share_first {
        due = vec![Op::Share];
    }
    let paced = pace(due, observed, now);
    let told = paced.failed.iter().filter(|(_, failure)| !failure.message.is_empty());
    problems.extend(told.map(|(op, failure)| match op {
        Op::SetUp(name) => set_up_problem(name, failure.doing, &failure.message, failure.count),
        Op::Grow(name) => Problem {
            volume: name.to_string(),
            step: Step::Grow,
            message: format!(
                "NodeExpandVolume.NodeExpandVolume failed for volume \"{}\" : {}",
                shown(name, contents),
                failure.message
            ),
            tries: failure.count,
        },
        _ => of_all(failure),
    }));
    let state = if missing.is_empty() && !share_first {
        ready(pod, observed)
    } else {
        let retry_at = paced.wake_at;
        VolumeState::Waiting { volumes: missing, problems: problems.clone(), retry_at }
    };
    let wake_at = paced.wake_at.into_iter().chain(republish_at).chain(too_many_at).min();
    Plan { ops: paced.ops, state, problems, wake_at }
}

/// Nothing starts any more, so whoever asks has all that it will get.
fn plan_keep(pod: &PodVolumes, observed: &Observed) -> Plan {
    let state = ready(pod, observed);
    Plan { ops: Vec::new(), state, problems: Vec::new(), wake_at: None }
}

/// Those that were made.
fn ready(pod: &PodVolumes, observed: &Observed) -> VolumeState {
    let all = pod.volumes.keys().filter_map(|name| {
        let made = observed.made.get(name)?;
        Some((name.as_str().to_owned(), made.mountable.clone()))
    });
    VolumeState::Ready(Arc::new(all.collect()))
}

fn plan_release(observed: &Observed, now: Mono) -> Plan {
    let due: Vec<Op> = match &observed.left {
        None => vec![Op::Look],
        Some(left) if left.is_empty() => {
            let (ops, problems) = (Vec::new(), Vec::new());
            return Plan { ops, state: VolumeState::Gone, problems, wake_at: None };
        }
        Some(left) => {
            // A driver cannot undo what has parts bound elsewhere; those go first.
            let parts = left.iter().any(|found| found.plugin.is_none());
            let waits = |found: &Found| match observed.undo_waits {
                true => found.is_csi() || found.is_disk(),
                false => parts && found.is_csi(),
            };
            let now = left.iter().filter(|found| !waits(found));
            now.cloned().map(Op::TearDown).collect()
        }
    };
    let names: BTreeSet<&VolumeName> =
        observed.left.iter().flatten().map(|found| &found.name).collect();
    let volumes = names.into_iter().map(|name| name.as_str().to_owned()).collect();
    let paced = pace(due, observed, now);
    let problem = |(op, failure): &(Op, &Failure)| match op {
        Op::TearDown(found) => Problem {
            volume: found.name.to_string(),
            step: if found.device { Step::Map } else { Step::Mount },
            message: format!(
                "{} failed for volume \"{}\" : {}",
                if found.device { "UnmapVolume.UnmapPodDevice" } else { "UnmountVolume.TearDown" },
                found.name,
                failure.message
            ),
            tries: failure.count,
        },
        _ => of_all(failure),
    };
    let problems: Vec<Problem> = paced.failed.iter().map(problem).collect();
    let retry_at = paced.wake_at;
    let state = VolumeState::Waiting { volumes, problems: problems.clone(), retry_at };
    Plan { ops: paced.ops, state, problems, wake_at: paced.wake_at }
}

/// A problem of no volume alone.
fn of_all(failure: &Failure) -> Problem {
    let (volume, message) = (String::new(), failure.message.clone());
    Problem { volume, step: Step::Mount, message, tries: failure.count }
}

fn set_up_problem(
    name: &VolumeName,
    shown: &VolumeName,
    doing: Doing,
    why: &str,
    tries: u32,
) -> Problem {
    Problem {
        volume: name.to_string(),
        step: doing.step(),
        message: format!("{} for volume \"{shown}\" : {why}", doing.failed()),
        tries,
    }
}
