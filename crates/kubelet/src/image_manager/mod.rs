//! The image manager: makes sure that a container's image is there and that
//! its pod may use it.
//!
//! Owns pulls under way, their back-off, logins and the records of past pulls.
//! Reads and writes the runtime's images. Records events. Never removes an
//! image. Upstream: pkg/kubelet/images, pkg/credentialprovider.

pub mod docker_config;
mod ensure;
mod failures;
mod flights;
mod keyring;
mod metrics;
pub mod plugins;
mod pod_secrets;
mod progress;
mod puller;
pub mod records;
mod reference;
mod settings;
mod throttle;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cri::v1;
use kubelet_model::Waiting;

pub use ensure::Wish;
pub use metrics::ImageMetrics;
pub use pod_secrets::{BAD_PULL_SECRET, PodSecrets};
pub use progress::{PullProgress, PullState};
pub use settings::ImageSettings;

use crate::events::Recorder;
use crate::ports::Ports;
use crate::settings::Settings;
use docker_config::NodeLogins;
use failures::Failures;
use keyring::Login;
use plugins::Plugins;
use puller::Puller;
use records::Records;

/// How long to wait before the runtime is asked again for its images.
const SETTLE_AGAIN: Duration = Duration::from_secs(10);

/// An image that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct EnsuredImage {
    /// Its id in the runtime.
    pub id: String,
    /// What the runtime told of it, if it was asked.
    pub details: Option<v1::Image>,
}

/// An image that cannot be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageProblem {
    /// What the container's status says.
    pub waiting: Waiting,
    /// When another try makes sense, if that is known.
    pub retry_after: Option<Duration>,
}

/// The image manager. Cheap to clone.
#[derive(Clone)]
pub struct Images(Arc<Manager>);

struct Manager {
    ports: Ports,
    recorder: Recorder,
    metrics: ImageMetrics,
    records: Option<Records>,
    node_logins: NodeLogins,
    plugins: Plugins,
    puller: Puller,
    failures: Failures,
}

impl Images {
    /// Starts the manager; what an earlier agent left unfinished is settled aside.
    pub fn start(
        settings: &Settings,
        ports: &Ports,
        recorder: &Recorder,
        metrics: &ImageMetrics,
    ) -> Self {
        let (fs, clock) = (&ports.fs, &ports.clock);
        let images = &settings.images;
        let records = images.verification.clone().map(|verification| {
            let (fs, clock) = (Arc::clone(fs), Arc::clone(clock));
            Records::new(fs, clock, &settings.root_dir, verification, metrics.clone())
        });
        if let Some(records) = &records {
            let unfinished = records.open();
            if !unfinished.is_empty() {
                ports.tasks.spawn(settle(ports.clone(), records.clone(), unfinished));
            }
        }
        if let Some(hash) = &images.provider_config_hash {
            metrics.configured(hash);
        }
        Self(Arc::new(Manager {
            recorder: recorder.clone(),
            metrics: metrics.clone(),
            records,
            node_logins: NodeLogins::new(Arc::clone(fs), images.docker_config_dirs.clone()),
            plugins: Plugins::new(
                Arc::clone(&ports.programs),
                Arc::clone(clock),
                images.credential_providers.clone(),
                metrics.clone(),
            ),
            puller: Puller::new(Arc::clone(&ports.runtime), Arc::clone(clock), images),
            failures: Failures::default(),
            ports: ports.clone(),
        }))
    }

    /// What is counted.
    pub fn metrics(&self) -> &ImageMetrics {
        &self.0.metrics
    }
}

/// Stands before what a credential provider failed of, in the message of a failed pull.
pub const NO_LOGIN_FROM: &str = "; no login from credential provider ";

impl Manager {
    /// Every login for a repository: the node's own, then the providers'. And why some
    /// of those gave none.
    async fn logins(&self, repository: &str, service_account: &str) -> (Vec<Login>, Vec<String>) {
        let mut node = keyring::Keyring::default();
        node.add(&self.node_logins.get(self.ports.clock.mono()));
        let mut logins = node.find(repository);
        let (given, failed) = self.plugins.keyring(repository, service_account).await;
        logins.extend(given.find(repository));
        (logins, failed)
    }
}

/// Settles unfinished pulls as soon as the runtime tells its images.
async fn settle(ports: Ports, records: Records, unfinished: BTreeSet<String>) {
    loop {
        match ports.runtime.list_images().await {
            Ok(images) => return records.settle(&unfinished, &images),
            Err(error) => tracing::debug!(%error, "unfinished pulls not settled yet"),
        }
        tokio::time::sleep(SETTLE_AGAIN).await;
    }
}

#[cfg(test)]
mod tests;
