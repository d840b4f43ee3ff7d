//! One pod's volumes: plan, perform, publish; sleep until something changes.
//!
//! The only writer of the pod's volume state. Follows the objects that files come
//! from, unless the pod ends: then its files stay as they are. Ends once
//! everything is undone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::claims::Claims;
use futures_util::future::join_all;
use kubelet_model::{EventObject, EventType, Mono, ObjectKey, PodUid};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep};

use super::attach::{Attachments, NodeView};
use super::clean::Place;
use super::csi::CsiSpec;
use super::desired::{PodVolumes, Wanted};
use super::devices::Devices;
use super::growth::Grower;
use super::layout::{PodLayout, VolumeName};
use super::plan::{self, Contents, Doing, Goal, Ingredients, Lack, Observed, Op, Outcome, Plan};
use super::plugins::{Means, NotMade, Tells};
use super::pod_event::ToldProblem;
use super::{
    Problem, Step, VolumeMetrics, VolumeMountable, VolumeState, plugins, pod_event, reconstruct,
};
use crate::events::Recorder;
use crate::lane::Lane;
use crate::object_cache::{ObjectWatch, Objects};
use crate::plugin_manager::{DriverWatch, Drivers};
use crate::pod_sources::PodSetReader;
use crate::ports::{Clock, Fs, Jitter, VolumeHost};
use crate::progress::Calls;

/// Pause between looks whether a pod whose manifest is gone is wanted again. Its
/// worker usually says before that it ends.
const UNWANTED_PAUSE: Duration = Duration::from_secs(1);

/// Longest turn at making volumes: those of the node itself take milliseconds, and others
/// are not kept waiting by what takes longer.
const TURN_MAX: Duration = Duration::from_millis(200);

/// What the task of a pod works with.
#[derive(Clone)]
pub(super) struct PodTask {
    pub uid: PodUid,
    pub layout: PodLayout,
    pub root_dir: PathBuf,
    pub node_name: String,
    pub host: Arc<dyn VolumeHost>,
    pub fs: Arc<dyn Fs>,
    pub drivers: Drivers,
    pub devices: Devices,
    pub attachments: Attachments,
    pub claims: Option<Claims>,
    pub metrics: VolumeMetrics,
    pub republish_every: Duration,
    pub clock: Arc<dyn Clock>,
    pub jitter: Jitter,
    pub recorder: Recorder,
    pub calls: Calls,
    pub objects: Objects,
    pub desired: PodSetReader,
    pub goal: watch::Receiver<Goal>,
    pub state: watch::Sender<VolumeState>,
    pub hurry: Arc<Notify>,
    pub place: Place,
    pub makers: Arc<Semaphore>,
}

impl PodTask {
    /// Works until everything is undone, or nobody is left to ask for anything.
    pub(super) async fn run(mut self) {
        let mut observed = Observed::new(self.republish_every);
        let mut node = self.attachments.follow();
        // What was last said about each volume, and how often.
        let mut told = BTreeMap::new();
        let mut told_of_pod = None;
        let mut asked_again = false;
        // Found on the disk, and not known what they are.
        let mut unknown = BTreeSet::new();
        let mut followed = Followed::default();
        let wanted = Instant::now();
        loop {
            let goal = self.goal.borrow_and_update().clone();
            if goal == Goal::Release {
                observed.turn_to_release();
            }
            // Before they are read, so that no change goes unnoticed.
            let view = Arc::clone(&node.borrow_and_update());
            let view = view.or_kept(self.objects.kept_node().as_deref());
            observed.may_undo(view.may_undo(&self.uid));
            let keys = || self.keys(&goal, &view);
            followed.turn_to(&goal, &observed, &self.objects, &self.drivers, keys);
            let contents = self.contents(&goal, &view);
            self.tell_of_attach(&goal, &view, &contents);
            if matches!(goal, Goal::Mount(_)) && !self.desired.wants(&self.uid) {
                // Objects go after the pods of their manifest: what went with the pod
                // is not missing.
                tokio::select! { biased;
                    changed = self.goal.changed() => if changed.is_err() { return },
                    () = sleep(UNWANTED_PAUSE) => {}
                }
                continue;
            }
            let now = self.clock.mono();
            let waits = matches!(*self.state.borrow(), VolumeState::Waiting { .. });
            observed.note_wait(waits && matches!(goal, Goal::Mount(_)), now);
            let plan = plan::plan(&goal, &observed, &contents, now);
            self.ask_again(&plan.problems, &contents, &mut asked_again);
            let tell_again_at = self.tell(&goal, &plan.problems, &mut told);
            let tell_at = self.tell_of_pod(&goal, &plan, &mut told_of_pod);
            if goal == Goal::Release {
                self.count_leaving(&observed);
            }
            if plan.state == VolumeState::Gone {
                // Whoever cleans up comes to an end before the pod may come back.
                let _place = self.place.lock().await;
                self.attachments.gone(&self.uid);
                self.publish(plan.state);
                return;
            }
            self.publish(plan.state);
            if !plan.ops.is_empty() {
                for op in &plan.ops {
                    observed.note_begun(op, &goal, &contents);
                }
                // Nobody cleans up where something is being made.
                let makes = goal != Goal::Release;
                let place = if makes { Some(self.place.lock().await) } else { None };
                let lane = Lane::new(TURN_MAX);
                if makes {
                    lane.take(&self.makers).await;
                }
                let all = plan.ops.iter();
                let all = all.map(|op| self.timed(op, &goal, &contents, &observed, wanted));
                let outcomes = lane.during(join_all(all)).await;
                drop((place, lane));
                for (op, (outcome, size)) in plan.ops.into_iter().zip(outcomes) {
                    if let (Op::TearDown(found), Outcome::Undone) = (&op, &outcome) {
                        self.attachments.undone(&self.uid, &found.name);
                    }
                    self.count(&observed, &op, &outcome, &mut unknown);
                    self.tell_of_growth(&goal, &observed, &op, &outcome);
                    observed.note(op.clone(), outcome, self.clock.mono());
                    if let (Op::SetUp(name), Some(bytes)) = (&op, size) {
                        observed.note_size(name, bytes);
                    }
                }
                continue;
            }
            drop(contents);
            // A node of its own hears nothing, and volumes of other kinds need not.
            let hears = view.in_cluster && (goal.may_be_attached() || !view.may_undo(&self.uid));
            let wake_at = plan.wake_at.into_iter().chain(tell_at).chain(tell_again_at).min();
            let wait = wake_at.map(|at| at.since(self.clock.mono()));
            tokio::select! { biased;
                changed = self.goal.changed() => if changed.is_err() { return },
                () = object_changed(&mut followed.objects) => {}
                changed = node.changed(), if hears => if changed.is_err() { return },
                () = driver_changed(&mut followed.drivers) => observed.forgive(),
                () = self.hurry.notified() => observed.forgive(),
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    /// The objects that decide what volumes are.
    fn keys(&self, goal: &Goal, node: &NodeView) -> BTreeSet<ObjectKey> {
        match goal {
            Goal::Mount(pod) => pod.objects(&|key| self.objects.get(key), node, &self.node_name),
            Goal::Keep(_) | Goal::Release => BTreeSet::new(),
        }
    }

    /// What volumes are made of, as it is now. Those that a cluster has to attach are
    /// held from then on.
    fn contents(&self, goal: &Goal, node: &NodeView) -> Contents {
        let Goal::Mount(pod) = goal else { return Contents::new() };
        let Self { drivers, objects, node_name, .. } = self;
        let world = plugins::World { drivers, objects, node, node_name };
        let held = pod.volumes.values().filter_map(|wanted| plugins::attachable(wanted, &world));
        self.attachments.hold(&self.uid, held.collect());
        let of = |wanted: &Wanted| match wanted {
            Wanted::Payload(spec) => {
                let content = spec.content(|key| objects.find(key));
                Some(content.map(Ingredients::Files).map_err(Lack::to_mount))
            }
            Wanted::Csi(spec) => Some(plugins::for_driver(spec, &world)),
            Wanted::Claim(claim) => Some(plugins::for_claim(claim, &world)),
            Wanted::Disk(spec) => Some(plugins::for_disk(spec, &world)),
            _ => None,
        };
        let awaited = self.keys(goal, node).iter().any(|key| objects.is_awaited(key));
        let mut all = Contents::new();
        for (name, wanted) in &pod.volumes {
            if let Some(found) = of(wanted) {
                let lacks = |lack: Lack| Lack { awaited: awaited || lack.awaited, ..lack };
                all.insert(name.clone(), found.map_err(lacks));
            }
        }
        all
    }

    /// Does one thing. Returns what it came to, and of a volume that is made how large the
    /// cluster knows it to be.
    pub(super) async fn perform(
        &self,
        op: &Op,
        goal: &Goal,
        contents: &Contents,
    ) -> (Outcome, Option<i64>) {
        let what = op.to_string();
        let call = self.calls.begin(what.clone());
        let object = match goal {
            Goal::Mount(pod) => Some(&pod.object),
            Goal::Keep(_) | Goal::Release => None,
        };
        let host = &*self.host;
        let means = plugins::Means {
            host,
            fs: &*self.fs,
            layout: &self.layout,
            drivers: &self.drivers,
            objects: &self.objects,
            devices: &self.devices,
            root_dir: &self.root_dir,
            node_name: &self.node_name,
            metrics: &self.metrics,
            tells: Tells { recorder: &self.recorder, object, call: &call, what: &what },
        };
        let failed = |error: crate::ports::VolumeError| Outcome::Failed(error.to_string());
        let outcome = match (op, goal) {
            (Op::Share, _) => {
                host.share(&self.root_dir).await.map_or_else(failed, |()| Outcome::Shared)
            }
            (Op::SetUp(name), Goal::Mount(pod)) => {
                return self.set_up(&means, name, pod, contents).await;
            }
            (Op::Grow(name), Goal::Mount(pod)) => match contents.get(name) {
                Some(Ok(Ingredients::Driver(spec))) => self.grow(&means, name, spec, pod).await,
                _ => Outcome::Undone,
            },
            // No plan asks for this.
            (Op::SetUp(_) | Op::Grow(_), Goal::Keep(_) | Goal::Release) => Outcome::Undone,
            (Op::Look, _) => {
                reconstruct::look(host, &self.layout).await.map_or_else(failed, Outcome::Left)
            }
            (Op::TearDown(found), _) => {
                let undone = plugins::tear_down(&means, found).await;
                undone.map_or_else(Outcome::Failed, |()| Outcome::Undone)
            }
        };
        (outcome, None)
    }

    /// Makes a volume. One that has become larger fills that before it counts as made.
    async fn set_up(
        &self,
        means: &Means<'_>,
        name: &VolumeName,
        pod: &PodVolumes,
        contents: &Contents,
    ) -> (Outcome, Option<i64>) {
        let Some(wanted) = pod.volumes.get(name) else { return (Outcome::Undone, None) };
        let ingredients = contents.get(name).and_then(|all| all.as_ref().ok());
        let at = self.clock.wall().into();
        let mut made = match plugins::set_up(means, name, wanted, ingredients, at).await {
            Ok(made) => made,
            Err(NotMade { doing, why }) => return (Outcome::NotMade(doing, why), None),
        };
        if let Wanted::Claim(claim) = wanted {
            made.gid = claim.gid(&|key| self.objects.get(key));
        }
        self.tell_of_device(&pod.object, name, &made);
        let (mut digest, mut size) = (None, None);
        match (ingredients, self.grower(means, &pod.object)) {
            (Some(Ingredients::Files(content)), _) => digest = Some(content.digest.clone()),
            (Some(Ingredients::Driver(spec)), Some(grower)) => {
                size = match grower.at_mount(name, spec).await {
                    Ok(size) => size,
                    Err(why) => {
                        let block = spec.is_block();
                        let doing = if block { Doing::ExpandDevice } else { Doing::Expand };
                        return (Outcome::NotMade(doing, why), None);
                    }
                };
            }
            _ => {}
        }
        (Outcome::Made(wanted.clone(), made, digest), size)
    }

    /// Has a volume that is made fill what it has become.
    async fn grow(
        &self,
        means: &Means<'_>,
        name: &VolumeName,
        spec: &CsiSpec,
        pod: &PodVolumes,
    ) -> Outcome {
        let of_cluster = spec.persistent.as_ref().is_some_and(|own| own.sizes.is_some());
        if let Some(grower) = self.grower(means, &pod.object).filter(|_| of_cluster) {
            let reached = grower.online(name, spec).await;
            return reached.map_or_else(Outcome::Failed, |at| Outcome::Sized(at.bytes, at.all));
        }
        let grown = plugins::grow(means, name, spec).await;
        let bytes = spec.wanted_bytes().unwrap_or_default();
        grown.map_or_else(Outcome::Failed, |()| Outcome::Grown(bytes))
    }

    /// Grows volumes of a cluster, if there is one.
    fn grower<'a>(&'a self, means: &'a Means<'a>, pod: &'a EventObject) -> Option<Grower<'a>> {
        let (clock, recorder) = (&*self.clock, &self.recorder);
        self.claims.as_ref().map(|claims| Grower { means, claims, clock, recorder, pod })
    }

    fn publish(&self, state: VolumeState) {
        self.state.send_if_modified(|old| {
            let news = *old != state;
            if news {
                *old = state;
            }
            news
        });
    }

    /// Says what is wrong: to users while the pod starts, with every try, and to the log
    /// once. When it is said again of what nobody can try.
    fn tell(
        &self,
        goal: &Goal,
        problems: &[Problem],
        told: &mut BTreeMap<String, ToldProblem>,
    ) -> Option<Mono> {
        told.retain(|volume, _| problems.iter().any(|problem| problem.volume == *volume));
        let now = self.clock.mono();
        for problem in problems {
            let before = told.get(&problem.volume);
            let Some(news) = ToldProblem::of(problem, before, now) else { continue };
            if news.times == 1 {
                let Problem { volume, message, .. } = problem;
                tracing::warn!(pod = %self.uid, volume, error = message, "volume not ready; trying again");
            }
            if let (Goal::Mount(pod), Some(reason)) = (goal, pod_event::reason(problem.step)) {
                self.record(&pod.object, reason, &problem.message);
            }
            told.insert(problem.volume.clone(), news);
        }
        told.values().filter_map(|one| one.again_at).min()
    }

    /// Has drivers that can attach fewer volumes than they said asked again, once.
    fn ask_again(&self, problems: &[Problem], contents: &Contents, asked: &mut bool) {
        let full = problems.iter().any(|problem| problem.step == Step::AttachLimit);
        if full && !*asked {
            let lacks = contents.values().filter_map(|found| found.as_ref().err());
            lacks.filter_map(|lack| lack.full.as_ref()).for_each(|one| self.drivers.ask_again(one));
        }
        *asked = full;
    }

    /// Says that a pod waits for volumes of which it is not known what they are, again
    /// and again; and when next.
    fn tell_of_pod(&self, goal: &Goal, plan: &Plan, told: &mut Option<Told>) -> Option<Mono> {
        let text = match (goal, &plan.state) {
            (Goal::Mount(_), VolumeState::Waiting { volumes, .. }) => {
                pod_event::unprocessed(volumes, &plan.problems)
            }
            _ => None,
        };
        let (Some(text), Goal::Mount(pod)) = (text, goal) else {
            *told = None;
            return None;
        };
        let now = self.clock.mono();
        match told {
            Some(told) if told.text == text && told.again_at > now => Some(told.again_at),
            _ => {
                self.record(&pod.object, "FailedMount", &pod_event::event(&text));
                let again_at = now + self.jitter.spread(pod_event::PAUSE);
                *told = Some(Told { text, again_at });
                Some(again_at)
            }
        }
    }

    /// Says that the pod has a device, as upstream: where the node has it, and where
    /// the pod.
    fn tell_of_device(&self, object: &EventObject, name: &VolumeName, made: &VolumeMountable) {
        let (Some(global), link) = (&made.device, &made.host_path) else { return };
        let name = made.persistent.as_ref().unwrap_or(name);
        let dir = link.parent().unwrap_or(link);
        for (what, path) in [("globalMapPath", global.as_path()), ("volumeMapPath", dir)] {
            let text = format!(
                "MapVolume.MapPodDevice succeeded for volume \"{name}\" {what} \"{}\"",
                path.display()
            );
            self.recorder.record(object, EventType::Normal, "SuccessfulMountVolume", text);
        }
    }

    /// Says that a disk is the node's to reach for, as upstream, where no controller attaches.
    fn tell_of_attach(&self, goal: &Goal, node: &NodeView, contents: &Contents) {
        let Goal::Mount(pod) = goal else { return };
        for name in self.attachments.take(&self.uid, node, contents) {
            let text = format!("AttachVolume.Attach succeeded for volume \"{name}\" ");
            self.recorder.record(&pod.object, EventType::Normal, "SuccessfulAttachVolume", text);
        }
    }

    /// Says that a volume has grown, as upstream. What this life of the agent asks for
    /// first is no news: nobody knows whether the volume was smaller before.
    fn tell_of_growth(&self, goal: &Goal, observed: &Observed, op: &Op, outcome: &Outcome) {
        let (Goal::Mount(pod), Op::Grow(name), Outcome::Grown(_)) = (goal, op, outcome) else {
            return;
        };
        if let Some(name) = observed.grown(name) {
            let node = &self.node_name;
            let text =
                format!("MountVolume.NodeExpandVolume succeeded for volume \"{name}\" {node}");
            let (normal, reason) = (EventType::Normal, "FileSystemResizeSuccessful");
            self.recorder.record(&pod.object, normal, reason, text);
        }
    }

    fn record(&self, object: &EventObject, reason: &'static str, message: &str) {
        self.recorder.record(object, EventType::Warning, reason, message);
    }
}

/// What was last said of the pod, and when it is said again.
struct Told {
    text: String,
    again_at: Mono,
}

/// The objects that a pod's files come from, and the drivers if it needs one.
#[derive(Default)]
struct Followed {
    objects: Option<(BTreeSet<ObjectKey>, ObjectWatch)>,
    drivers: Option<DriverWatch>,
}

impl Followed {
    /// Follows what the goal needs, and nothing else.
    fn turn_to(
        &mut self,
        goal: &Goal,
        observed: &Observed,
        objects: &Objects,
        drivers: &Drivers,
        keys: impl Fn() -> BTreeSet<ObjectKey>,
    ) {
        if !observed.needs_drivers(goal) {
            self.drivers = None;
        } else if self.drivers.is_none() {
            self.drivers = Some(drivers.follow());
        }
        // One object names the next: a change in between is noticed by looking again.
        loop {
            let keys = keys();
            if keys.is_empty() {
                self.objects = None;
                return;
            }
            if self.objects.as_ref().is_some_and(|(followed, _)| *followed == keys) {
                return;
            }
            self.objects = Some((keys.clone(), objects.follow(keys)));
        }
    }
}

/// Returns once one of the objects has changed.
async fn object_changed(objects: &mut Option<(BTreeSet<ObjectKey>, ObjectWatch)>) {
    match objects {
        Some((_, watch)) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Returns once a driver has come or gone.
async fn driver_changed(drivers: &mut Option<DriverWatch>) {
    match drivers {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}
