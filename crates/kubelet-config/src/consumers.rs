//! Who acts on which setting.
//!
//! No configuration is parsed and forgotten: a setting without a consumer is
//! reported when somebody sets it. The tables name every field and every flag
//! exactly once, which the tests check against the declarations. Feature gates
//! are settings of their own: those that change nothing are reported one by one.

use std::collections::BTreeMap;

use crate::flags::{FLAGS, Flags, Target};
use crate::gates;
use crate::path::FieldPath;
use crate::provenance::{Origin, Provenance};

/// Something set that is not acted on yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unconsumed {
    /// A field's path, or a flag with its dashes.
    pub path: String,
    /// Who set it.
    pub origin: Origin,
}

/// Everything somebody set that no module acts on yet.
///
/// `gates` are the settings of feature gates, whoever made them.
pub fn unconsumed(
    provenance: &Provenance,
    flags: &Flags,
    gates: &BTreeMap<String, bool>,
) -> Vec<Unconsumed> {
    let mut out = Vec::new();
    for (path, _) in FIELDS.iter().filter(|(_, module)| module.is_none()) {
        let field = FieldPath::dotted(path);
        let mut origins: Vec<&Origin> = provenance
            .under(&field)
            .map(|(_, origin)| origin)
            .filter(|origin| origin.is_user())
            .collect();
        origins.sort();
        origins.dedup();
        out.extend(
            origins
                .into_iter()
                .map(|origin| Unconsumed { path: (*path).to_owned(), origin: origin.clone() }),
        );
    }
    out.extend(unconsumed_gates(provenance, gates));
    for flag in FLAGS
        .iter()
        .filter(|flag| flag.target == Target::Flags && flags.given.contains_key(flag.name))
    {
        if flag_consumer(flag.name).is_none() {
            let origin = Origin::Flag(flag.name.to_owned());
            out.push(Unconsumed { path: format!("--{}", flag.name), origin });
        }
    }
    out
}

/// Gates that somebody moved away from their default, though nothing depends on them.
///
/// A gate that does not exist is a problem already, and is not repeated here.
fn unconsumed_gates(
    provenance: &Provenance,
    settings: &BTreeMap<String, bool>,
) -> impl Iterator<Item = Unconsumed> {
    settings.iter().filter_map(|(name, value)| {
        let gate = gates::find(name).filter(|gate| gate.default != *value)?;
        if GATES.iter().any(|(consumed, _)| *consumed == gate.name) {
            return None;
        }
        let path = FieldPath::dotted("featureGates").child(name);
        let origin = provenance.origin(&path).filter(|origin| origin.is_user())?.clone();
        Some(Unconsumed { path: path.to_string(), origin })
    })
}

/// The module that acts on a flag that is not part of the configuration.
pub fn flag_consumer(name: &str) -> Option<&'static str> {
    OWN_FLAGS.iter().find(|(flag, _)| *flag == name).and_then(|(_, module)| *module)
}

/// Every flag that is not part of the configuration, and who acts on it.
#[rustfmt::skip]
pub static OWN_FLAGS: &[(&str, Option<&str>)] = &[
    ("config", Some("kubelet_config::load")),
    ("config-dir", Some("kubelet_config::load")),
    ("profile", Some("kubelet_config::load")),
    ("streams-need-create", Some("kubelet::server")),
    ("kubeconfig", Some("kubelet::join")),
    ("bootstrap-kubeconfig", Some("kubelet::join")),
    ("hostname-override", Some("kubelet::node")),
    ("node-ip", Some("kubelet::node")),
    ("node-labels", Some("kubelet::join")),
    ("cloud-provider", Some("kubelet::join")),
    ("runtime-cgroups", Some("kubelet::server")),
    ("image-credential-provider-config", Some("kubelet::image_manager")),
    ("image-credential-provider-bin-dir", Some("kubelet::image_manager")),
    ("cert-dir", Some("kubelet::server")),
    ("seccomp-default", Some("kubelet::runtime_manager")),
    ("minimum-container-ttl-duration", None),
    ("maximum-dead-containers-per-container", Some("kubelet::pod_plan")),
    ("maximum-dead-containers", None),
    ("experimental-allocatable-ignore-eviction", Some("kubelet::container_manager")),
    ("experimental-mounter-path", None),
    ("root-dir", Some("kubelet::node")),
    ("lock-file", Some("klet::process")),
    ("exit-on-lock-contention", Some("klet::process")),
    ("housekeeping-interval", None),
    ("offline-autonomy", Some("kubelet::offline")),
];

/// The feature gates that change something, and who acts on them.
pub static GATES: &[(&str, &str)] = &[
    // Off, ClusterTrustBundleProjection cannot be on.
    ("ClusterTrustBundle", "kubelet_config::gates"),
    // Off, a volume with a clusterTrustBundle cannot be made.
    ("ClusterTrustBundleProjection", "kubelet::join"),
    // On, a serving certificate is asked for though the node has no IP address.
    ("AllowDNSOnlyNodeCSR", "kubelet::server"),
    // Off, the node's API has no /flagz.
    ("ComponentFlagz", "kubelet::server"),
    // Off, the node's API has no /statusz.
    ("ComponentStatusz", "kubelet::server"),
    // Off, the node's API saves no state of containers.
    ("ContainerCheckpoint", "kubelet::server"),
    // Off, containers are stopped with the signal of their image and no status tells it.
    ("ContainerStopSignals", "kubelet::runtime_manager"),
    // Off, a variable that comes from a file is empty.
    ("EnvFiles", "kubelet::runtime_manager"),
    // Off, WebSocket streams of version 5 are left to the API server to translate.
    ("ExtendWebSocketsToKubelet", "kubelet::server"),
    // Off by name, the runtime is listed every second and its events are not followed.
    ("EventedPLEG", "kubelet::pleg"),
    // Off, pods end with the machine.
    ("GracefulNodeShutdown", "kubelet::node_shutdown"),
    // Off, only the two simple periods count.
    ("GracefulNodeShutdownBasedOnPodPriority", "kubelet::node_shutdown"),
    // Off, the longest restart wait cannot be configured and is the old constant.
    ("KubeletCrashLoopBackOffMax", "kubelet_config::defaults"),
    // Off, an image that is here may be used by every pod, and no records are kept.
    ("KubeletEnsureSecretPulledImages", "kubelet::image_manager"),
    // On, file systems with project quotas count emptyDir volumes of pods with own users.
    ("LocalStorageCapacityIsolationFSQuotaMonitoring", "kubelet::volume_manager"),
    // Off, the node's object declares no features.
    ("NodeDeclaredFeatures", "kubelet::join"),
    // Off, pods that name resources as a whole are refused.
    ("PodLevelResources", "kubelet::admission"),
    // Off, a container's log is shown with both of its streams together only.
    ("PodLogsQuerySplitStreams", "kubelet::server"),
    // Off, tolerations that compare numbers suffer nothing.
    ("TaintTolerationComparisonOperators", "kubelet::admission"),
    // Off, a volume with a podCertificate cannot be made.
    ("PodCertificateRequest", "kubelet::join"),
    // Off, only ReadWriteOncePod volumes are mounted with their SELinux label.
    ("SELinuxMount", "kubelet::volume_manager"),
    // Off, serverTLSBootstrap is refused.
    ("RotateKubeletServerCertificate", "kubelet::server"),
];

/// Every field of the configuration, and who acts on it.
#[rustfmt::skip]
pub static FIELDS: &[(&str, Option<&str>)] = &[
    ("enableServer", Some("kubelet::server")),
    ("staticPodPath", Some("kubelet::pod_sources")),
    ("podLogsDir", Some("kubelet::runtime_manager")),
    ("syncFrequency", Some("kubelet::pod_workers")),
    ("fileCheckFrequency", Some("kubelet::pod_sources")),
    ("httpCheckFrequency", Some("kubelet::pod_sources")),
    ("staticPodURL", Some("kubelet::pod_sources")),
    ("staticPodURLHeader", Some("kubelet::pod_sources")),
    ("address", Some("kubelet::server")),
    ("port", Some("kubelet::server")),
    ("readOnlyPort", Some("kubelet::server")),
    ("tlsCertFile", Some("kubelet::server")),
    ("tlsPrivateKeyFile", Some("kubelet::server")),
    ("tlsCipherSuites", Some("kubelet::server")),
    ("tlsCurvePreferences", Some("kubelet::server")),
    ("tlsMinVersion", Some("kubelet::server")),
    ("rotateCertificates", Some("kubelet::join")),
    ("serverTLSBootstrap", Some("kubelet::server")),
    ("authentication.x509.clientCAFile", Some("kubelet::server")),
    ("authentication.webhook.enabled", Some("kubelet_config::validate")),
    ("authentication.webhook.cacheTTL", Some("kubelet::server")),
    ("authentication.anonymous.enabled", Some("kubelet::server")),
    ("authorization.mode", Some("kubelet_config::validate")),
    ("authorization.webhook.cacheAuthorizedTTL", Some("kubelet::server")),
    ("authorization.webhook.cacheUnauthorizedTTL", Some("kubelet::server")),
    ("registryPullQPS", Some("kubelet::image_manager")),
    ("registryBurst", Some("kubelet::image_manager")),
    ("imagePullCredentialsVerificationPolicy", Some("kubelet::image_manager")),
    ("preloadedImagesVerificationAllowlist", Some("kubelet::image_manager")),
    ("eventRecordQPS", Some("kubelet::join")),
    ("eventBurst", Some("kubelet::join")),
    ("enableDebuggingHandlers", Some("kubelet::server")),
    ("enableContentionProfiling", None),
    ("healthzPort", Some("kubelet::server")),
    ("healthzBindAddress", Some("kubelet::server")),
    ("oomScoreAdj", Some("klet::process")),
    ("clusterDomain", Some("kubelet::runtime_manager")),
    ("clusterDNS", Some("kubelet::runtime_manager")),
    ("streamingConnectionIdleTimeout", Some("kubelet::server")),
    ("nodeStatusUpdateFrequency", Some("kubelet::join")),
    ("nodeStatusReportFrequency", Some("kubelet::join")),
    ("nodeLeaseDurationSeconds", Some("kubelet::join")),
    ("imageMinimumGCAge", None),
    ("imageMaximumGCAge", None),
    ("imageGCHighThresholdPercent", None),
    ("imageGCLowThresholdPercent", None),
    ("volumeStatsAggPeriod", None),
    ("kubeletCgroups", None),
    ("systemCgroups", None),
    ("cgroupRoot", Some("kubelet::container_manager")),
    ("cgroupsPerQOS", Some("kubelet::container_manager")),
    ("cgroupDriver", Some("kubelet::container_manager")),
    ("cpuManagerPolicy", None),
    ("singleProcessOOMKill", Some("kubelet::runtime_manager")),
    ("cpuManagerPolicyOptions", None),
    ("cpuManagerReconcilePeriod", None),
    ("memoryManagerPolicy", None),
    ("topologyManagerPolicy", None),
    ("topologyManagerScope", None),
    ("topologyManagerPolicyOptions", None),
    ("qosReserved", None),
    ("runtimeRequestTimeout", Some("kubelet::node")),
    ("hairpinMode", None),
    ("maxPods", Some("kubelet::join")),
    ("podCIDR", None),
    ("podPidsLimit", Some("kubelet::container_manager")),
    ("resolvConf", Some("kubelet::runtime_manager")),
    ("runOnce", Some("kubelet_config::validate")),
    ("cpuCFSQuota", Some("kubelet::runtime_manager")),
    ("cpuCFSQuotaPeriod", Some("kubelet::runtime_manager")),
    ("nodeStatusMaxImages", Some("kubelet::join")),
    ("maxOpenFiles", Some("klet::process")),
    ("contentType", None),
    ("kubeAPIQPS", Some("kubelet::join")),
    ("kubeAPIBurst", Some("kubelet::join")),
    ("serializeImagePulls", Some("kubelet::image_manager")),
    ("maxParallelImagePulls", Some("kubelet::image_manager")),
    ("evictionHard", None),
    ("evictionSoft", None),
    ("evictionSoftGracePeriod", None),
    ("evictionPressureTransitionPeriod", None),
    ("evictionMaxPodGracePeriod", None),
    ("evictionMinimumReclaim", None),
    ("mergeDefaultEvictionSettings", Some("kubelet_config::defaults")),
    ("podsPerCore", Some("kubelet::join")),
    ("enableControllerAttachDetach", Some("kubelet::join")),
    ("protectKernelDefaults", None),
    ("makeIPTablesUtilChains", None),
    ("iptablesMasqueradeBit", None),
    ("iptablesDropBit", None),
    ("featureGates", Some("kubelet_config::gates")),
    ("failSwapOn", None),
    ("memorySwap.swapBehavior", Some("kubelet::runtime_manager")),
    ("containerLogMaxSize", Some("kubelet::container_logs")),
    ("containerLogMaxFiles", Some("kubelet::container_logs")),
    ("containerLogMaxWorkers", Some("kubelet::container_logs")),
    ("containerLogMonitorInterval", Some("kubelet::container_logs")),
    ("configMapAndSecretChangeDetectionStrategy", Some("kubelet::join")),
    ("systemReserved", Some("kubelet::container_manager")),
    ("kubeReserved", Some("kubelet::container_manager")),
    ("reservedSystemCPUs", None),
    ("showHiddenMetricsForVersion", None),
    ("systemReservedCgroup", Some("kubelet::container_manager")),
    ("kubeReservedCgroup", Some("kubelet::container_manager")),
    ("enforceNodeAllocatable", Some("kubelet::container_manager")),
    ("allowedUnsafeSysctls", Some("kubelet::runtime_manager")),
    ("volumePluginDir", None),
    ("providerID", Some("kubelet::join")),
    ("kernelMemcgNotification", None),
    ("logging.format", Some("klet::logging")),
    ("logging.flushFrequency", None),
    ("logging.verbosity", Some("klet::logging")),
    ("logging.vmodule", None),
    ("logging.options.text.splitStream", None),
    ("logging.options.text.infoBufferSize", None),
    ("logging.options.json.splitStream", None),
    ("logging.options.json.infoBufferSize", None),
    ("enableSystemLogHandler", Some("kubelet::server")),
    ("enableSystemLogQuery", Some("kubelet::server")),
    ("shutdownGracePeriod", Some("kubelet::node_shutdown")),
    ("shutdownGracePeriodCriticalPods", Some("kubelet::node_shutdown")),
    ("shutdownGracePeriodByPodPriority", Some("kubelet::node_shutdown")),
    ("crashLoopBackOff.maxContainerRestartPeriod", Some("kubelet::pod_plan")),
    ("reservedMemory", None),
    ("enableProfilingHandler", Some("kubelet::server")),
    ("enableDebugFlagsHandler", Some("kubelet::server")),
    ("seccompDefault", Some("kubelet::runtime_manager")),
    ("memoryThrottlingFactor", None),
    ("memoryReservationPolicy", None),
    ("registerWithTaints", Some("kubelet::join")),
    ("registerNode", Some("kubelet::join")),
    ("tracing.endpoint", None),
    ("tracing.samplingRatePerMillion", None),
    ("localStorageCapacityIsolation", Some("kubelet::eviction")),
    ("containerRuntimeEndpoint", Some("kubelet::node")),
    ("imageServiceEndpoint", Some("kubelet::node")),
    ("failCgroupV1", Some("kubelet_config::validate")),
    ("userNamespaces.idsPerPod", Some("kubelet::runtime_manager")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::KubeletConfiguration;

    #[test]
    fn every_field_is_listed_once() {
        let mut listed: Vec<&str> = FIELDS.iter().map(|(path, _)| *path).collect();
        let mut declared = KubeletConfiguration::all_settings();
        listed.sort_unstable();
        declared.sort_unstable();
        assert_eq!(listed, declared);
    }

    #[test]
    fn every_flag_outside_the_configuration_is_listed_once() {
        let mut listed: Vec<&str> = OWN_FLAGS.iter().map(|(name, _)| *name).collect();
        let mut declared: Vec<&str> = FLAGS
            .iter()
            .filter(|flag| flag.target == Target::Flags)
            .map(|flag| flag.name)
            .collect();
        listed.sort_unstable();
        declared.sort_unstable();
        assert_eq!(listed, declared);
    }

    #[test]
    fn gates_with_a_consumer_exist() {
        for (name, _) in GATES {
            assert!(gates::find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn config_flags_name_fields_that_exist() {
        for flag in FLAGS {
            if let Target::Config(path) = flag.target {
                assert!(FIELDS.iter().any(|(field, _)| *field == path), "--{}: {path}", flag.name);
            }
        }
    }
}
