//! What a pod's task does and finds, in figures.
//!
//! Adds nothing but figures: what is done, and when, is the task's own.

use std::collections::BTreeSet;

use kubelet_model::ObjectKey;
use tokio::time::Instant;

use super::desired::Wanted;
use super::metrics::{Operation, of_driver, plugin_of};
use super::plan::{Contents, Found, Goal, Observed, Op, Outcome};
use super::pod::PodTask;
use super::reconstruct;

impl PodTask {
    /// Does one thing, see [`PodTask::perform`]. The pod has wanted its volumes since then.
    pub(super) async fn timed(
        &self,
        op: &Op,
        goal: &Goal,
        contents: &Contents,
        observed: &Observed,
        wanted: Instant,
    ) -> (Outcome, Option<i64>) {
        let named = self.operation(op, goal);
        let began = Instant::now();
        let (outcome, size) = self.perform(op, goal, contents).await;
        let Some((plugin, what)) = named else { return (outcome, size) };
        let done = !matches!(outcome, Outcome::Failed(_) | Outcome::NotMade(..));
        self.metrics.time(&plugin, what, began, done);
        if let (Op::SetUp(name), Operation::Mount, true) = (op, what, done)
            && !observed.is_made(name)
        {
            self.metrics.mounted(&plugin, wanted);
        }
        (outcome, size)
    }

    /// What is done, as upstream counts it, and the plugin that it is done with.
    fn operation(&self, op: &Op, goal: &Goal) -> Option<(String, Operation)> {
        let get = |key: &ObjectKey| self.objects.get(key);
        let wanted = |name| match goal {
            Goal::Mount(pod) => pod.volumes.get(name),
            Goal::Keep(_) | Goal::Release => None,
        };
        match op {
            Op::Share | Op::Look => None,
            Op::SetUp(name) => {
                let wanted = wanted(name)?;
                let mapped = matches!(wanted, Wanted::Claim(claim) if claim.uses.mapped);
                let what = if mapped { Operation::Map } else { Operation::Mount };
                Some((plugin_of(wanted, &get)?, what))
            }
            Op::Grow(name) => Some((plugin_of(wanted(name)?, &get)?, Operation::Grow)),
            Op::TearDown(found) => {
                let what = if found.device { Operation::Unmap } else { Operation::Unmount };
                Some((self.plugin_left(found)?, what))
            }
        }
    }

    /// The plugin of what is left, with the driver if that was noted.
    fn plugin_left(&self, found: &Found) -> Option<String> {
        let driver = reconstruct::driver_of(&*self.fs, &self.layout, &self.root_dir, found);
        let plugin = found.plugin.as_ref()?;
        Some(driver.map_or_else(|| plugin.plain(), |driver| of_driver(&driver)))
    }

    /// Tells what is still on its way out.
    pub(super) fn count_leaving(&self, observed: &Observed) {
        let left = observed.left().filter_map(|found| self.plugin_left(found));
        self.metrics.set_leaving(&self.uid, left.collect());
    }

    /// Counts what an earlier life of the agent left, and what becomes of it.
    pub(super) fn count(
        &self,
        observed: &Observed,
        op: &Op,
        outcome: &Outcome,
        unknown: &mut BTreeSet<Found>,
    ) {
        match (op, outcome) {
            (Op::Look, Outcome::Left(left)) => {
                let found = left.iter().filter(|one| one.plugin.is_some());
                for one in found.filter(|one| !observed.has_begun(one)) {
                    let known = reconstruct::is_known(&*self.fs, &self.layout, &self.root_dir, one);
                    self.metrics.count_found(known);
                    unknown.extend((!known).then(|| one.clone()));
                }
            }
            (Op::TearDown(found), _) if unknown.contains(found) => {
                self.metrics.count_cleaned(*outcome == Outcome::Undone);
            }
            _ => {}
        }
    }
}
