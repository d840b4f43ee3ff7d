//! What the image manager was told to do.
//!
//! Plain data, part of the agent's settings.

use super::docker_config::DockerConfigDirs;
use super::plugins::Provider;
use super::records::Verification;

/// Settings of the image manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSettings {
    /// One pull at a time.
    pub serialize_pulls: bool,
    /// Most pulls at a time if they are not serialized; `None` is any number.
    pub max_parallel_pulls: Option<u32>,
    /// Pulls a second; 0 is any number.
    pub pull_qps: u32,
    /// Pulls that may come at once while `pull_qps` limits them.
    pub pull_burst: u32,
    /// Which images that are here already are checked; `None` keeps no records.
    pub verification: Option<Verification>,
    /// Programs that make registry logins.
    pub credential_providers: Vec<Provider>,
    /// Hash of the files that say which, if there are any.
    pub provider_config_hash: Option<String>,
    /// Where the node's own registry logins may lie.
    pub docker_config_dirs: DockerConfigDirs,
}

impl Default for ImageSettings {
    /// Upstream's defaults, without logins.
    fn default() -> Self {
        Self {
            serialize_pulls: true,
            max_parallel_pulls: None,
            pull_qps: 5,
            pull_burst: 10,
            verification: Some(Verification::NotPreloaded),
            credential_providers: Vec::new(),
            provider_config_hash: None,
            docker_config_dirs: DockerConfigDirs::default(),
        }
    }
}
