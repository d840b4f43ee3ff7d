//! Asks the runtime whether it and its network are ready.

use std::sync::Arc;
use std::time::Duration;

use cri::v1;
use tokio::time::Instant;

use super::relist::{Health, Relister};
use super::{RuntimeState, ready};

/// How often a runtime that is ready is asked whether it and its network still are.
const STATUS_PERIOD: Duration = Duration::from_secs(5);
/// How often one that is not ready is asked.
const STATUS_PERIOD_DOWN: Duration = Duration::from_secs(1);

impl Relister {
    pub(super) fn ask_health(&mut self) {
        let runtime = Arc::clone(&self.ports.runtime);
        // The name may change while the runtime is away, not while it answers.
        let ask_name = self.health_problem.is_some();
        self.health = Some(Box::pin(async move {
            let name = if ask_name { Some(runtime.version().await?.runtime_name) } else { None };
            Ok((name, runtime.status().await?))
        }));
    }

    pub(super) fn on_health(&mut self, health: Health) {
        match health {
            Ok((name, status)) => {
                let unready = ready::unready(&status);
                self.health_problem.clone_from(&unready);
                if unready.is_none() {
                    let now = self.ports.clock.mono();
                    self.state.heard(|contact| contact.ready = Some(now));
                }
                self.publish_state(|state| {
                    if unready.is_none() {
                        state.handlers = handlers(&status);
                    }
                    (state.unready, state.answered) = (unready, true);
                    state.name = name.unwrap_or_else(|| std::mem::take(&mut state.name));
                    state.network_problem = ready::without_network(&status);
                    state.recursive_read_only = recursive_read_only(&status);
                    let features = status.features.as_ref();
                    state.groups_policy = features.map(|f| f.supplemental_groups_policy);
                    state.strict_groups = Some(state.groups_policy == Some(true));
                });
            }
            Err(error) => {
                self.health_problem = Some(error.to_string());
                self.publish_state(|_| {});
            }
        }
        let ready = self.health_problem.is_none();
        let period = if ready { STATUS_PERIOD } else { STATUS_PERIOD_DOWN };
        self.next_health = Instant::now() + period;
    }

    pub(super) fn publish_state(&self, edit: impl FnOnce(&mut RuntimeState)) {
        let problem = self.listing_problem.clone().or_else(|| self.health_problem.clone());
        self.state.update(|state| {
            edit(state);
            state.problem = problem;
        });
    }
}

/// By name: the order in which a runtime tells them is no news.
fn handlers(status: &v1::StatusResponse) -> Vec<v1::RuntimeHandler> {
    let mut handlers = status.runtime_handlers.clone();
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    handlers
}

/// Handlers that can make a mount read-only all the way down.
fn recursive_read_only(status: &v1::StatusResponse) -> Vec<String> {
    let able = |handler: &&v1::RuntimeHandler| {
        handler.features.as_ref().is_some_and(|features| features.recursive_read_only_mounts)
    };
    status.runtime_handlers.iter().filter(able).map(|handler| handler.name.clone()).collect()
}
