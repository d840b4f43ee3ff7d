//! From the checked configuration to how the node joins its cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api_client::{Access, ApiError, KubeconfigError};
use cluster::certificates::StoreError;
use cluster::node::{NodeSettings, NodeTaint, Reserved, declared_features};
use cluster::objects::Strategy;
use kubelet_config::{Config, Flags};
use kubelet_model::quantity::Quantity;

use crate::container_manager::allocatable::{self, kept_free};
use crate::container_manager::{disk_bytes, machine_capacity};
use crate::ports::{Clock as _, SystemClock};

use super::certificates::{self, Credentials};
use super::member::MemberSettings;

/// Bytes of a kubeconfig that are read.
const KUBECONFIG_MAX: u64 = 1 << 20;

/// A kubeconfig that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// It cannot be read.
    #[error("--{flag} {}: {source}", .path.display())]
    Unreadable {
        /// Which flag names it.
        flag: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It does not say how to reach an API server.
    #[error("--{flag} {}: {source}", .path.display())]
    Unusable {
        /// Which flag names it.
        flag: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: KubeconfigError,
    },
    /// The client certificate, or the kubeconfig that names it, cannot be kept.
    #[error("client certificate: {0}")]
    Store(#[from] StoreError),
    /// There is no client for the API server.
    #[error("API client: {0}")]
    Client(#[from] ApiError),
}

/// How the node joins its cluster.
#[derive(Debug, Clone)]
pub struct JoinSettings {
    /// How the API server is reached, and as whom.
    pub credentials: Credentials,
    /// Requests in a second, and at once, without heartbeats, events and watches.
    pub rate: (u32, u32),
    /// How the node takes part in it.
    pub member: MemberSettings,
}

/// What flags and configuration say; `None` for a node on its own.
///
/// # Errors
/// The kubeconfig cannot be used.
pub fn settings(
    config: &Config,
    flags: &Flags,
    node_name: &str,
) -> Result<Option<JoinSettings>, JoinError> {
    let Some(path) = &flags.kubeconfig else { return Ok(None) };
    let wire = config.wire();
    let count = |value: Option<i32>| value.and_then(|value| u32::try_from(value).ok());
    let gates = |name: &str| config.feature_gates.enabled(name);
    let qps = count(wire.event_record_qps).filter(|qps| *qps > 0);
    Ok(Some(JoinSettings {
        credentials: certificates::credentials(
            path,
            flags.bootstrap_kubeconfig.as_deref(),
            &flags.cert_dir,
            wire.rotate_certificates.unwrap_or(false),
            SystemClock::new().wall(),
        )?,
        rate: rate(wire.kube_api_qps, wire.kube_api_burst),
        member: MemberSettings {
            node: node(config, flags, node_name, &gates),
            reserved: reserved(config, flags),
            strategy: match wire.config_map_and_secret_change_detection_strategy.as_deref() {
                Some("Get") => Strategy::Get,
                Some("Cache") => Strategy::Cache,
                _ => Strategy::Watch,
            },
            sync_frequency: config.sync_frequency,
            events: qps.map(|qps| (qps, count(wire.event_burst).unwrap_or(qps))),
            trust_bundles: gates("ClusterTrustBundleProjection"),
            pod_certificates: gates("PodCertificateRequest"),
        },
    }))
}

/// `kubeAPIQPS` and `kubeAPIBurst`. As upstream's clients, 0 is no absence of a limit but
/// their own: 5 a second. Less than 0 is refused before.
fn rate(qps: Option<i32>, burst: Option<i32>) -> (u32, u32) {
    let given = |value: Option<i32>, default: i32, zero: u32| {
        let value = u32::try_from(value.unwrap_or(default)).unwrap_or_default();
        if value == 0 { zero } else { value }
    };
    (given(qps, 50, 5), given(burst, 100, 10))
}

/// What a kubeconfig says that a flag names.
pub(super) fn access(flag: &'static str, path: &Path) -> Result<Access, JoinError> {
    let unreadable = |source| JoinError::Unreadable { flag, path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > KUBECONFIG_MAX {
        let why = format!("{size} bytes are more than a kubeconfig has");
        return Err(unreadable(std::io::Error::other(why)));
    }
    let text = std::fs::read(path).map_err(unreadable)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    Access::parse(&text, dir).map_err(|source| JoinError::Unusable {
        flag,
        path: path.to_owned(),
        source,
    })
}

pub(super) fn node(
    config: &Config,
    flags: &Flags,
    node_name: &str,
    gates: &dyn Fn(&str) -> bool,
) -> NodeSettings {
    let wire = config.wire();
    let count = |value: Option<i32>| value.and_then(|value| u32::try_from(value).ok());
    let labels = flags.node_labels.iter().map(|(key, value)| (key.clone(), value.clone()));
    let taints = wire.register_with_taints.iter().flatten().map(|taint| NodeTaint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.clone(),
    });
    let frequency = wire.node_status_update_frequency.map(|f| f.to_std());
    let report = wire.node_status_report_frequency.map(|f| f.to_std());
    NodeSettings {
        name: node_name.to_owned(),
        hostname: node_name.to_owned(),
        node_ips: node_ips(flags.node_ip.as_deref()),
        external_cloud: flags.cloud_provider.as_deref() == Some("external"),
        labels: labels.collect(),
        taints: taints.collect(),
        register: wire.register_node.unwrap_or(true),
        provider_id: wire.provider_id.clone().unwrap_or_default(),
        controller_attaches: wire.enable_controller_attach_detach.unwrap_or(true),
        max_pods: count(wire.max_pods).unwrap_or(110),
        pods_per_core: count(wire.pods_per_core).unwrap_or_default(),
        max_images: wire.node_status_max_images.unwrap_or(50),
        isolates_local_storage: wire.local_storage_capacity_isolation.unwrap_or(true),
        port: config.server.api.map_or(0, |address| address.port()),
        version: kubelet_config::KUBERNETES_VERSION.to_owned(),
        declared_features: gates("NodeDeclaredFeatures").then(|| declared_features(gates, false)),
        update_every: frequency.unwrap_or(Duration::from_secs(10)),
        report_every: report.unwrap_or(Duration::from_secs(300)),
        lease_seconds: count(wire.node_lease_duration_seconds).unwrap_or(40),
    }
}

fn node_ips(given: Option<&str>) -> Vec<IpAddr> {
    let list = given.into_iter().flat_map(|list| list.split(','));
    list.filter_map(|ip| ip.trim().parse().ok()).collect()
}

/// What is reserved, and what must stay free.
pub(super) fn reserved(config: &Config, flags: &Flags) -> Reserved {
    let wire = config.wire();
    let capacity = machine_capacity();
    let thresholds = wire.eviction_hard.as_ref();
    let thresholds = thresholds.filter(|_| !flags.experimental_allocatable_ignore_eviction);
    let both = [&wire.system_reserved, &wire.kube_reserved];
    let sum = |pick: fn(&allocatable::Reserved) -> Option<i64>| {
        let amounts = both.into_iter().map(|map| allocatable::Reserved::parse(map.as_ref()));
        amounts.filter_map(|amounts| pick(&amounts)).fold(0, i64::saturating_add)
    };
    let positive = |amount: i64| u64::try_from(amount).unwrap_or_default();
    let disk = both.into_iter().map(|map| disk_reserved(map.as_ref()));
    let disk = disk.fold(0, u64::saturating_add);
    let total = disk_bytes(&flags.root_dir).unwrap_or_default();
    Reserved {
        cpu_milli: positive(sum(|amounts| amounts.cpu_milli)),
        memory_bytes: positive(
            sum(|amounts| amounts.memory_bytes).saturating_add(kept_free(thresholds, &capacity)),
        ),
        ephemeral_storage_bytes: disk.saturating_add(disk_kept_free(thresholds, total)),
    }
}

/// Bytes of the node's own disk that pods may use; nothing where that is not limited.
pub(crate) fn storage_bytes(config: &Config, flags: &Flags) -> i64 {
    let limited = config.wire().local_storage_capacity_isolation.unwrap_or(true);
    let has = disk_bytes(&flags.root_dir).filter(|_| limited).unwrap_or_default();
    let left = has.saturating_sub(reserved(config, flags).ephemeral_storage_bytes);
    i64::try_from(left).unwrap_or(i64::MAX)
}

fn disk_reserved(map: Option<&BTreeMap<String, String>>) -> u64 {
    let amount = map.and_then(|map| Quantity::parse(map.get("ephemeral-storage")?));
    amount.and_then(|amount| u64::try_from(amount.units()).ok()).unwrap_or_default()
}

/// Of `evictionHard`: an amount, or a part of what there is.
fn disk_kept_free(thresholds: Option<&BTreeMap<String, String>>, total: u64) -> u64 {
    let Some(text) = thresholds.and_then(|all| all.get("nodefs.available")) else { return 0 };
    match text.trim().strip_suffix('%') {
        Some(percent) => {
            let part = f64::from(percent.parse::<f32>().unwrap_or(0.0) / 100.0);
            // As upstream rounds; no disk is large enough for it to matter.
            (total as f64 * part) as u64
        }
        None => Quantity::parse(text).map_or(0, Quantity::units).try_into().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_requests_is_upstreams() {
        for (qps, burst, expected) in [
            (None, None, (50, 100)),
            (Some(7), Some(9), (7, 9)),
            (Some(0), None, (5, 100)),
            (Some(0), Some(0), (5, 10)),
        ] {
            assert_eq!(rate(qps, burst), expected, "{qps:?}, {burst:?}");
        }
    }
}
