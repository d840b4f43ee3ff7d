//! One pod's volumes: plan, perform, publish; sleep until something changes.
//!
//! The only writer of the pod's volume state. Ends once everything is undone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::join_all;
use kubelet_model::{EventObject, EventType, PodUid};
use tokio::sync::watch;
use tokio::time::sleep;

use super::layout::PodLayout;
use super::plan::{self, Goal, Observed, Op, Outcome};
use super::{Problem, VolumeState, plugins, reconstruct};
use crate::events::Recorder;
use crate::ports::{Clock, VolumeHost};
use crate::progress::Calls;

/// What the task of a pod works with.
#[derive(Clone)]
pub(super) struct PodTask {
    pub uid: PodUid,
    pub layout: PodLayout,
    pub root_dir: PathBuf,
    pub host: Arc<dyn VolumeHost>,
    pub clock: Arc<dyn Clock>,
    pub recorder: Recorder,
    pub calls: Calls,
    pub goal: watch::Receiver<Goal>,
    pub state: watch::Sender<VolumeState>,
}

impl PodTask {
    /// Works until everything is undone, or nobody is left to ask for anything.
    pub(super) async fn run(mut self) {
        let mut observed = Observed::default();
        // What was last said about each volume, so that each thing is said once.
        let mut told = BTreeMap::new();
        loop {
            let goal = self.goal.borrow_and_update().clone();
            if goal == Goal::Release {
                observed.turn_to_release();
            }
            let plan = plan::plan(&goal, &observed, self.clock.mono());
            self.tell(&goal, &plan.state, &mut told);
            let ended = plan.state == VolumeState::Gone;
            self.publish(plan.state);
            if ended {
                return;
            }
            if !plan.ops.is_empty() {
                for op in &plan.ops {
                    observed.note_begun(op, &goal);
                }
                let outcomes = join_all(plan.ops.iter().map(|op| self.perform(op, &goal))).await;
                for (op, outcome) in plan.ops.into_iter().zip(outcomes) {
                    observed.note(op, outcome, self.clock.mono());
                }
                continue;
            }
            let wait = plan.wake_at.map(|at| at.since(self.clock.mono()));
            tokio::select! { biased;
                changed = self.goal.changed() => if changed.is_err() { return },
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    async fn perform(&self, op: &Op, goal: &Goal) -> Outcome {
        let _call = self.calls.begin(op.to_string());
        let host = &*self.host;
        let failed = |error: crate::ports::VolumeError| Outcome::Failed(error.to_string());
        match (op, goal) {
            (Op::Share, _) => {
                host.share(&self.root_dir).await.map_or_else(failed, |()| Outcome::Shared)
            }
            (Op::SetUp(name), Goal::Mount(pod)) => {
                let Some(wanted) = pod.volumes.get(name) else { return Outcome::Undone };
                let made = plugins::set_up(host, &self.layout, name, wanted).await;
                made.map_or_else(Outcome::Failed, |made| Outcome::Made(wanted.clone(), made))
            }
            // No plan asks for this.
            (Op::SetUp(_), Goal::Release) => Outcome::Undone,
            (Op::Look, _) => {
                reconstruct::look(host, &self.layout).await.map_or_else(failed, Outcome::Left)
            }
            (Op::TearDown(found), _) => {
                let undone = plugins::tear_down(host, &self.layout, found).await;
                undone.map_or_else(failed, |()| Outcome::Undone)
            }
        }
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

    /// Says what is wrong: to users while the pod starts, to the log always.
    fn tell(&self, goal: &Goal, state: &VolumeState, told: &mut BTreeMap<String, String>) {
        let VolumeState::Waiting { problems, .. } = state else { return };
        for Problem { volume, message } in problems {
            if told.get(volume) == Some(message) {
                continue;
            }
            told.insert(volume.clone(), message.clone());
            tracing::warn!(pod = %self.uid, volume, error = message, "volume not ready; trying again");
            if let Goal::Mount(pod) = goal {
                self.record(&pod.object, message);
            }
        }
    }

    fn record(&self, object: &EventObject, message: &str) {
        self.recorder.record(object, EventType::Warning, "FailedMount", message);
    }
}
