//! One probe of one container: a timer, a look at the status, a try.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodStatus, Probe};
use kubelet_model::{ContainerId, DesiredPod, EventObject, EventType};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::Shared;
use super::ask::{self, Outcome};
use super::plan::{Change, Course, Moment, Next, Rules, Seen, Verdict};
use super::question::{self, Question};
use super::table::Ticket;
use crate::status_manager::is_terminal;

/// Probes fire together at multiples of this, so that a thousand of them wake the
/// agent fifty times a second and not a thousand times.
const GRID: Duration = Duration::from_millis(20);

pub(super) struct Worker {
    shared: Arc<Shared>,
    ticket: Ticket,
    rules: Rules,
    question: Result<Question, String>,
    timeout: Duration,
    period: Duration,
    host_network: bool,
    /// What events are about; `None` only for a container its pod does not have.
    object: Option<EventObject>,
    trigger: Arc<Notify>,
    course: Course,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        pod: &DesiredPod,
        container: &Container,
        probe: &Probe,
        ticket: Ticket,
        trigger: Arc<Notify>,
        sidecar: bool,
    ) -> Self {
        let deleting = pod.pod().metadata.deletion_timestamp.is_some();
        let name = format!("{}({})", pod.full_name(), pod.uid());
        Self {
            rules: Rules::new(ticket.key.kind, probe, sidecar, deleting),
            question: question::question(probe, container, &name),
            timeout: question::timeout(probe),
            period: question::period(probe),
            host_network: pod.spec().host_network == Some(true),
            object: EventObject::container(pod, &container.name),
            shared,
            ticket,
            trigger,
            course: Course::default(),
        }
    }

    /// Works until told to stop, or until the pod has ended.
    pub(super) async fn run(mut self, stop: oneshot::Receiver<()>) {
        tokio::select! { biased;
            // The sender is never used, only dropped.
            _ = stop => {}
            () = self.work() => {}
        }
    }

    async fn work(&mut self) {
        let ports = &self.shared.ports;
        let trigger = Arc::clone(&self.trigger);
        if self.period > ports.clock.mono().0 {
            // An agent that starts finds many containers at once. One that has only
            // now started is not kept waiting for that.
            let spread = ports.jitter.spread(self.period);
            tokio::select! { biased;
                () = trigger.notified() => {}
                () = sleep(spread.saturating_sub(self.period) * 2) => {}
            }
        }
        let mut ticker = interval_at(self.in_a_period(), self.period);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while self.tick().await {
            tokio::select! { biased;
                _ = ticker.tick() => {}
                () = trigger.notified() => ticker.reset_at(self.in_a_period()),
            }
        }
    }

    /// A period from now, or a little later.
    fn in_a_period(&self) -> Instant {
        let past = self.shared.ports.clock.mono().0.as_millis() % GRID.as_millis();
        let late = (GRID.as_millis() - past) % GRID.as_millis();
        Instant::now() + self.period + Duration::from_millis(late as u64)
    }

    /// One turn; false if it was the last.
    async fn tick(&mut self) -> bool {
        let began = self.shared.ports.clock.mono();
        let status = self.shared.statuses.get(&self.ticket.uid);
        let seen = look(status.as_deref(), self.ticket.key.container.as_str());
        let moment = Moment {
            now: self.shared.ports.clock.wall(),
            agent_started: self.shared.agent_started(),
        };
        let (changes, next) = self.course.tick(self.rules, &seen, moment);
        self.shared.table().apply(&self.ticket, changes);
        let id = match next {
            Next::Wait => return true,
            Next::End => return false,
            Next::Probe(id) => id,
        };
        let ip = self.address(status.as_deref());
        let ports = &self.shared.ports;
        let outcome = ask::ask(ports, &self.question, &id, ip, self.timeout).await;
        let verdict = self.tell(outcome);
        let took = self.shared.ports.clock.mono().since(began);
        let change = self.course.count(self.rules, &id, verdict);
        let mut table = self.shared.table();
        table.count(&self.ticket, |tally| match verdict {
            Verdict::Well => tally.succeed(took),
            Verdict::Unwell => tally.fail(),
            Verdict::Void => {}
        });
        table.apply(&self.ticket, change.into_iter().collect());
        true
    }

    /// The pod's address; on the host's network any of the host's will do.
    fn address<'a>(&self, status: Option<&'a PodStatus>) -> Option<&'a str> {
        let known = status.and_then(|status| status.pod_ip.as_deref()).filter(|ip| !ip.is_empty());
        known.or(self.host_network.then_some("127.0.0.1"))
    }

    /// Tells users of an outcome that is not plain success.
    fn tell(&self, outcome: Outcome) -> Verdict {
        let kind = self.rules.kind.as_str();
        let (verdict, reason, message) = match outcome {
            Outcome::Success => return Verdict::Well,
            Outcome::Warning(output) => {
                (Verdict::Well, "ProbeWarning", format!("{kind} probe warning: {output}"))
            }
            Outcome::Failure(output) => {
                (Verdict::Unwell, "Unhealthy", format!("{kind} probe failed: {output}"))
            }
            Outcome::Error { state, why } => (
                Verdict::Void,
                "Unhealthy",
                format!("{kind} probe errored and resulted in {state} state: {why}"),
            ),
        };
        if let Some(object) = &self.object {
            self.shared.recorder.record(object, EventType::Warning, reason, message);
        }
        verdict
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let left = self.course.instance().cloned().map(Change::Forget);
        self.shared.table().retire(&self.ticket, left);
    }
}

/// The container as its pod's status shows it.
fn look(status: Option<&PodStatus>, name: &str) -> Seen {
    let Some(status) = status else { return Seen::Nothing };
    if is_terminal(status) {
        return Seen::PodEnded;
    }
    let find = |list: &Option<Vec<ContainerStatus>>| {
        let found = list.iter().flatten().find(|c| c.name == name)?;
        let id = found.container_id.as_deref()?;
        let id = id.split_once("://").map_or(id, |(_, id)| id);
        (!id.is_empty()).then(|| Seen::Instance {
            id: ContainerId::new(id),
            running_since: found
                .state
                .as_ref()
                .and_then(|state| state.running.as_ref())
                // Since when is not known: then for long, so that nobody waits for it.
                .map(|running| {
                    running.started_at.as_ref().map_or_else(Default::default, |at| at.0)
                }),
            started: found.started == Some(true),
        })
    };
    find(&status.container_statuses)
        .or_else(|| find(&status.init_container_statuses))
        .unwrap_or(Seen::Nothing)
}
