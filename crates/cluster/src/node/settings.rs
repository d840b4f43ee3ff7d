//! How the node is to present itself. Pure data, from flags and configuration.

use std::net::IpAddr;
use std::time::Duration;

/// The operating system, in Go's words.
pub(super) const OS: &str = "linux";

/// The architecture, in Go's words.
pub(super) const ARCH: &str = match std::env::consts::ARCH.as_bytes() {
    b"x86_64" => "amd64",
    b"aarch64" => "arm64",
    b"x86" => "386",
    _ => std::env::consts::ARCH,
};

/// Features a node may declare: the gate that turns each on has its name.
const DECLARABLE: [&str; 5] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
    HOST_NETWORK_USERS,
];
/// Needs the runtime as well.
const HOST_NETWORK_USERS: &str = "UserNamespacesHostNetworkSupport";

/// How the node is to present itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Name of the Node object and of its lease.
    pub name: String,
    /// Name of the host, or what was given instead of it.
    pub hostname: String,
    /// `--node-ip`: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    /// `--cloud-provider=external`: somebody else knows the addresses.
    pub external_cloud: bool,
    /// `--node-labels`.
    pub labels: Vec<(String, String)>,
    /// `registerWithTaints`.
    pub taints: Vec<NodeTaint>,
    /// `registerNode`: whether the Node object is made, or only kept up to date.
    pub register: bool,
    /// `providerID`; empty if there is none.
    pub provider_id: String,
    /// `enableControllerAttachDetach`.
    pub controller_attaches: bool,
    /// `maxPods`.
    pub max_pods: u32,
    /// `podsPerCore`; 0 is no limit.
    pub pods_per_core: u32,
    /// `nodeStatusMaxImages`; below zero is no limit.
    pub max_images: i32,
    /// `localStorageCapacityIsolation`.
    pub isolates_local_storage: bool,
    /// Port of the node's own server.
    pub port: u16,
    /// `kubeletVersion`, such as `v1.36.4`.
    pub version: String,
    /// Sorted; `None` with the gate NodeDeclaredFeatures off.
    pub declared_features: Option<Vec<String>>,
    /// `nodeStatusUpdateFrequency`: how often facts are looked at.
    pub update_every: Duration,
    /// `nodeStatusReportFrequency`: how often they are written though nothing changed.
    pub report_every: Duration,
    /// `nodeLeaseDurationSeconds`.
    pub lease_seconds: u32,
}

/// A taint the node registers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTaint {
    /// Key.
    pub key: String,
    /// Value; may be empty.
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

impl NodeSettings {
    /// How long the server may take over what tells it that the node lives.
    pub(super) fn heartbeat_limit(&self) -> Duration {
        self.update_every.min(Duration::from_secs(self.lease_seconds.into()))
    }

    /// A quarter of what the lease lasts.
    pub(super) fn renew_every(&self) -> Duration {
        Duration::from_secs(self.lease_seconds.into()) / 4
    }
}

/// What the node declares, by which gates are on and whether the runtime can run pods
/// of the host's network in a user namespace.
pub fn declared_features(is_on: &dyn Fn(&str) -> bool, host_network_users: bool) -> Vec<String> {
    let has = |name: &str| is_on(name) && (name != HOST_NETWORK_USERS || host_network_users);
    DECLARABLE.into_iter().filter(|name| has(name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::test_parts::settings;

    #[test]
    fn a_feature_is_declared_when_it_is_on_and_the_runtime_can() {
        assert!(DECLARABLE.is_sorted());
        assert_eq!(declared_features(&|_| true, true), DECLARABLE);
        assert_eq!(declared_features(&|_| true, false), DECLARABLE[..4]);
        let only = |name: &str| name == "InPlacePodVerticalScalingInitContainers";
        assert_eq!(declared_features(&only, true), [DECLARABLE[2]]);
    }

    #[test]
    fn limits_follow_the_lease() {
        let mut settings = settings();
        assert_eq!(settings.renew_every(), Duration::from_secs(10));
        assert_eq!(settings.heartbeat_limit(), Duration::from_secs(10));
        settings.lease_seconds = 1;
        assert_eq!(settings.renew_every(), Duration::from_millis(250));
        assert_eq!(settings.heartbeat_limit(), Duration::from_secs(1));
    }
}
