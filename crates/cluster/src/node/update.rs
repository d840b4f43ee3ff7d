//! Keeps the Node registered and its status up to date.
//!
//! Owns when what was written last. Looks at the facts now and then and when poked, and
//! writes them if they changed or were not written for long; until the node is first
//! ready it looks ten times a second, because nothing tells when a runtime's network
//! becomes ready. Upstream: pkg/kubelet/kubelet_node_status.go, fastStatusUpdateOnce of
//! pkg/kubelet/kubelet.go.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use super::context::{Context, NodeError};
use super::facts::NodeFacts;
use super::health::{REGISTER, UPDATE};
use super::own::OwnNode;
use super::status::{LastWrite, Outcome, Told};
use super::{conditions, patch, registration, status};

/// Attempts of one update.
const TRIES: u32 = 5;
/// Pauses between attempts to register.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(7);
/// How often a node that is about to become ready is looked at, and for how long.
const FAST: Duration = Duration::from_millis(100);
const READY_GRACE: Duration = Duration::from_secs(120);
/// Time between updates, however often somebody asks for one.
const GAP: Duration = Duration::from_millis(100);

/// Registers the node and writes its status.
pub(super) struct Updates {
    context: Arc<Context>,
    registered: bool,
    /// When the status was last written, and how long until it is again though nothing
    /// changed.
    reported: Option<(Instant, Duration)>,
    /// How the server took it.
    last_write: Option<LastWrite>,
    /// What the runtime was told.
    networks: String,
    /// Logged once, until it changes; and so are the problems.
    network_error: Option<String>,
    told: Told,
    problems: Vec<String>,
}

impl Updates {
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            registered: false,
            reported: None,
            last_write: None,
            networks: String::new(),
            network_error: None,
            told: Told::default(),
            problems: Vec::new(),
        }
    }

    /// Runs for ever.
    pub async fn run(mut self) {
        let context = Arc::clone(&self.context);
        let every = context.settings.update_every;
        let fast_end = Instant::now() + READY_GRACE;
        let mut fast = Some(Instant::now());
        self.sync(true).await;
        let mut last = Instant::now();
        let mut next = last + context.jittered(every);
        loop {
            let fast_next = fast.unwrap_or(next);
            tokio::select! { biased;
                () = sleep_until(next) => {
                    self.sync(false).await;
                    last = Instant::now();
                    next = last + context.jittered(every);
                }
                () = context.poke.notified() => next = next.min(last + GAP),
                () = sleep_until(fast_next), if fast.is_some() => {
                    let is_over = self.look_fast(Instant::now() >= fast_end).await;
                    fast = (!is_over).then(|| Instant::now() + FAST);
                    if is_over {
                        context.health.send_modify(|health| health.settled = true);
                    }
                }
            }
        }
    }

    /// Registers if need be, then updates the status.
    async fn sync(&mut self, anew: bool) {
        if self.context.settings.register && !self.registered {
            self.register(anew).await;
        }
        let mut tells = true;
        for attempt in 0..TRIES {
            let error = match self.try_update(attempt, anew, &mut tells).await {
                Ok(()) => return,
                Err(error) => error,
            };
            tracing::warn!(%error, attempt, "cannot update the node's status");
            self.context.fails(UPDATE, &error.to_string());
            if attempt > 0 {
                self.context.reports.reconnect().await;
            }
            sleep(error.wait()).await;
        }
    }

    /// Until it worked.
    async fn register(&mut self, anew: bool) {
        let mut pause = PAUSE_FIRST;
        let mut tells = true;
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            match self.try_register(anew, std::mem::take(&mut tells)).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(%error, retry = ?pause, "cannot register the node");
                    self.context.fails(REGISTER, &error.to_string());
                    pause = pause.max(error.wait());
                }
            }
        }
        self.registered = true;
        self.context.works(REGISTER, |health, now| health.registered = Some(now));
        tracing::info!(node = self.context.settings.name, "the node is registered");
    }

    async fn try_register(&mut self, anew: bool, tells: bool) -> Result<(), NodeError> {
        let facts = self.context.gather(anew).await?;
        let (settings, now) = (&self.context.settings, self.context.now());
        let (node, outcome) = registration::initial(settings, &facts, now, &mut self.told);
        self.tell(outcome, tells);
        let refused = match self.context.create_node(node.clone()).await {
            Ok(_) => return Ok(()),
            Err(NodeError::Create(error)) if error.is_conflict() => None,
            // Who may not make it may still have it.
            Err(NodeError::Create(error)) if error.code() == Some(403) => Some(error),
            Err(error) => return Err(error),
        };
        let existing = match (self.context.get_node(false).await, refused) {
            (Ok(existing), _) => existing,
            (Err(error), Some(refused)) if error.is_not_found() => {
                return Err(NodeError::Create(refused));
            }
            (Err(error), _) => return Err(NodeError::Get(error)),
        };
        let mut agreed = existing.object().clone();
        if registration::reconcile(&mut agreed, &node, facts.devices.forgotten) {
            let patch = patch::between(existing.object(), &agreed);
            self.context.patch_node(patch).await?;
        }
        Ok(())
    }

    async fn try_update(
        &mut self,
        attempt: u32,
        anew: bool,
        tells: &mut bool,
    ) -> Result<(), NodeError> {
        let original = match (attempt, self.context.latest.get()) {
            (0, Some(node)) => node,
            (0, None) => self.context.get_node(true).await.map_err(NodeError::Get)?,
            _ => self.context.get_node(false).await.map_err(NodeError::Get)?,
        };
        let facts = self.context.gather(anew).await?;
        let networks_changed = self.tell_networks(&original.pod_cidrs()).await;
        let mut told = self.told.clone();
        let (node, outcome) = self.evaluate(&original, &facts, &mut told);
        let changed = networks_changed || self.differs(&original, &node);
        self.told = told;
        self.tell(outcome, std::mem::take(tells));
        let due = self.reported.is_none_or(|(at, period)| at.elapsed() >= period);
        if !changed && !due {
            self.context.reports.volumes_reported(&original.volumes_in_use());
            return Ok(());
        }
        let written = self.write(&original, &node, changed).await?;
        self.context.reports.volumes_reported(&written.volumes_in_use());
        Ok(())
    }

    /// Whether this need not be done again.
    async fn look_fast(&mut self, out_of_time: bool) -> bool {
        if out_of_time {
            tracing::error!(node = self.context.settings.name, "the node is slow to become ready");
            return true;
        }
        // Without a Node, or one that nobody has written yet, there is nothing to hurry.
        let Some(original) = self.context.latest.get() else { return false };
        if original.is_ready() {
            return true;
        }
        if conditions::find(original.object(), "Ready").is_none() {
            return false;
        }
        self.tell_networks(&original.pod_cidrs()).await;
        let Ok(facts) = self.context.gather(true).await else { return false };
        let mut told = self.told.clone();
        let (node, outcome) = self.evaluate(&original, &facts, &mut told);
        let ready = conditions::find(&node, "Ready");
        if !ready.is_some_and(|ready| ready["status"] == "True") {
            return false;
        }
        self.told = told;
        self.tell(outcome, true);
        if let Err(error) = self.write(&original, &node, true).await {
            tracing::warn!(%error, "cannot write that the node is ready");
            self.sync(false).await;
        }
        true
    }

    /// The Node as it should be by these facts.
    fn evaluate(&self, original: &OwnNode, facts: &NodeFacts, told: &mut Told) -> (Value, Outcome) {
        let mut node = original.object().clone();
        registration::set_required_labels(&mut node);
        let (settings, now) = (&self.context.settings, self.context.now());
        let outcome = status::set(&mut node, settings, facts, now, told);
        (node, outcome)
    }

    /// Is there more to write than the time?
    fn differs(&self, original: &OwnNode, node: &Value) -> bool {
        let labels = |node: &Value| node.pointer("/metadata/labels").cloned();
        labels(original.object()) != labels(node)
            || status::differs(original.object(), node, self.last_write.as_ref())
    }

    async fn write(
        &mut self,
        original: &OwnNode,
        node: &Value,
        changed: bool,
    ) -> Result<OwnNode, NodeError> {
        let every = self.context.settings.report_every;
        // After a change the next report comes at another time than those of other nodes;
        // from then on they are regular.
        let period = match changed || self.reported.is_none() {
            true => every / 2 + (self.context.spread)(every),
            false => every,
        };
        let written = self.context.patch_node(patch::between(original.object(), node)).await?;
        self.reported = Some((Instant::now(), period));
        let (wanted, answered) = (node.clone(), written.object().clone());
        self.last_write = Some(LastWrite { wanted, answered });
        self.context.works(UPDATE, |health, now| health.status_written = Some(now));
        Ok(written)
    }

    /// Whether the pods' networks have changed.
    async fn tell_networks(&mut self, networks: &[String]) -> bool {
        let networks = networks.join(",");
        if networks.is_empty() || networks == self.networks {
            return false;
        }
        match self.context.reports.pod_networks(&networks).await {
            Ok(()) => {
                tracing::info!(networks, "the networks of pods have changed");
                (self.networks, self.network_error) = (networks, None);
            }
            Err(error) if self.network_error.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::warn!(error, networks, "cannot tell the networks of pods");
                self.network_error = Some(error);
            }
        }
        true
    }

    fn tell(&mut self, outcome: Outcome, tells_events: bool) {
        if tells_events {
            for event in outcome.events {
                self.context.reports.event(event);
            }
        }
        if outcome.problems != self.problems {
            for problem in &outcome.problems {
                tracing::warn!(problem, "a part of the node's status cannot be told");
            }
            self.problems = outcome.problems;
        }
    }
}
