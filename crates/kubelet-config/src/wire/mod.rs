//! `KubeletConfiguration` v1beta1: every field, as it is written.
//!
//! All fields are optional, so that "not written" stays apart from "written as
//! zero". `apiVersion` and `kind` are the loader's business. Knows no defaults
//! and checks nothing but types. Upstream:
//! staging/src/k8s.io/kubelet/config/v1beta1/types.go.

use std::collections::BTreeMap;

use crate::go_duration::GoDuration;

mod fields;
mod nested;

pub use fields::WireType;
use fields::wire_struct;
pub use nested::{
    AnonymousAuthentication, Authentication, Authorization, CrashLoopBackOff, DurationOrNanos,
    FormatOptions, Logging, MemoryReservation, MemorySwap, OutputRouting, ShutdownGracePeriod,
    Taint, Tracing, UserNamespaces, VModuleItem, WebhookAuthentication, WebhookAuthorization,
    X509Authentication,
};

/// `apiVersion` of the one supported version.
pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// `kind` of the configuration.
pub const KIND: &str = "KubeletConfiguration";

wire_struct! {
    /// The kubelet's configuration file.
    pub struct KubeletConfiguration {
        /// Serve the authenticated HTTPS API.
        enable_server / "enableServer": bool,
        /// Directory of static pod manifests, or one manifest.
        static_pod_path / "staticPodPath": String,
        /// Root of pod log directories.
        pod_logs_dir / "podLogsDir": String,
        /// Longest time between two synchronisations of a pod.
        sync_frequency / "syncFrequency": GoDuration,
        /// How often the static pod path is read again.
        file_check_frequency / "fileCheckFrequency": GoDuration,
        /// How often the static pod URL is read again.
        http_check_frequency / "httpCheckFrequency": GoDuration,
        /// URL of static pod manifests.
        static_pod_url / "staticPodURL": String,
        /// Headers sent to the static pod URL. Secret.
        static_pod_url_header / "staticPodURLHeader": BTreeMap<String, Vec<String>>,
        /// Address the API listens on.
        address / "address": String,
        /// Port of the authenticated API.
        port / "port": i32,
        /// Port of the unauthenticated read-only API; 0 disables it.
        read_only_port / "readOnlyPort": i32,
        /// Serving certificate.
        tls_cert_file / "tlsCertFile": String,
        /// Key of the serving certificate.
        tls_private_key_file / "tlsPrivateKeyFile": String,
        /// Cipher suites offered.
        tls_cipher_suites / "tlsCipherSuites": Vec<String>,
        /// Key exchange groups offered, by number.
        tls_curve_preferences / "tlsCurvePreferences": Vec<i32>,
        /// Lowest TLS version accepted.
        tls_min_version / "tlsMinVersion": String,
        /// Renew the client certificate.
        rotate_certificates / "rotateCertificates": bool,
        /// Request the serving certificate from the API server.
        server_tls_bootstrap / "serverTLSBootstrap": bool,
        /// Who may call the API.
        authentication / "authentication": Authentication,
        /// What callers may do.
        authorization / "authorization": Authorization,
        /// Image pulls per second; 0 is unlimited.
        registry_pull_qps / "registryPullQPS": i32,
        /// Burst of image pulls.
        registry_burst / "registryBurst": i32,
        /// When credentials are checked for images already present.
        image_pull_credentials_verification_policy / "imagePullCredentialsVerificationPolicy": String,
        /// Preloaded images exempt from that check.
        preloaded_images_verification_allowlist / "preloadedImagesVerificationAllowlist": Vec<String>,
        /// Events per second.
        event_record_qps / "eventRecordQPS": i32,
        /// Burst of events.
        event_burst / "eventBurst": i32,
        /// Serve exec, attach, logs and port forwarding.
        enable_debugging_handlers / "enableDebuggingHandlers": bool,
        /// Profile lock contention.
        enable_contention_profiling / "enableContentionProfiling": bool,
        /// Port of the health endpoint; 0 disables it.
        healthz_port / "healthzPort": i32,
        /// Address of the health endpoint.
        healthz_bind_address / "healthzBindAddress": String,
        /// Out-of-memory score adjustment of the agent.
        oom_score_adj / "oomScoreAdj": i32,
        /// DNS domain of the cluster.
        cluster_domain / "clusterDomain": String,
        /// DNS servers of the cluster.
        cluster_dns / "clusterDNS": Vec<String>,
        /// Idle limit of streams.
        streaming_connection_idle_timeout / "streamingConnectionIdleTimeout": GoDuration,
        /// How often node status is computed.
        node_status_update_frequency / "nodeStatusUpdateFrequency": GoDuration,
        /// How often unchanged node status is reported.
        node_status_report_frequency / "nodeStatusReportFrequency": GoDuration,
        /// Length of the node lease.
        node_lease_duration_seconds / "nodeLeaseDurationSeconds": i32,
        /// Unused images younger than this stay.
        image_minimum_gc_age / "imageMinimumGCAge": GoDuration,
        /// Unused images older than this go; 0 is never.
        image_maximum_gc_age / "imageMaximumGCAge": GoDuration,
        /// Disk usage that starts image collection.
        image_gc_high_threshold_percent / "imageGCHighThresholdPercent": i32,
        /// Disk usage that ends image collection.
        image_gc_low_threshold_percent / "imageGCLowThresholdPercent": i32,
        /// How often volume usage is measured.
        volume_stats_agg_period / "volumeStatsAggPeriod": GoDuration,
        /// Cgroup of the agent.
        kubelet_cgroups / "kubeletCgroups": String,
        /// Cgroup of system processes.
        system_cgroups / "systemCgroups": String,
        /// Root cgroup of pods.
        cgroup_root / "cgroupRoot": String,
        /// One cgroup per quality-of-service class.
        cgroups_per_qos / "cgroupsPerQOS": bool,
        /// cgroupfs or systemd, where the runtime does not tell.
        cgroup_driver / "cgroupDriver": String,
        /// none or static.
        cpu_manager_policy / "cpuManagerPolicy": String,
        /// Kill one process, not the whole container, when out of memory.
        single_process_oom_kill / "singleProcessOOMKill": bool,
        /// Options of the CPU policy.
        cpu_manager_policy_options / "cpuManagerPolicyOptions": BTreeMap<String, String>,
        /// How often CPU sets are re-applied.
        cpu_manager_reconcile_period / "cpuManagerReconcilePeriod": GoDuration,
        /// None or Static.
        memory_manager_policy / "memoryManagerPolicy": String,
        /// How NUMA hints are merged.
        topology_manager_policy / "topologyManagerPolicy": String,
        /// container or pod.
        topology_manager_scope / "topologyManagerScope": String,
        /// Options of the topology policy.
        topology_manager_policy_options / "topologyManagerPolicyOptions": BTreeMap<String, String>,
        /// Requests reserved per quality-of-service class.
        qos_reserved / "qosReserved": BTreeMap<String, String>,
        /// Limit of one runtime call.
        runtime_request_timeout / "runtimeRequestTimeout": GoDuration,
        /// Checked only; the network plugin decides.
        hairpin_mode / "hairpinMode": String,
        /// Most pods on the node.
        max_pods / "maxPods": i32,
        /// Pod address range in standalone mode.
        pod_cidr / "podCIDR": String,
        /// Most processes per pod; -1 is the node's limit.
        pod_pids_limit / "podPidsLimit": i64,
        /// Resolver file containers' DNS derives from.
        resolv_conf / "resolvConf": String,
        /// Withdrawn mode; true is an error.
        run_once / "runOnce": bool,
        /// Enforce CPU limits.
        cpu_cfs_quota / "cpuCFSQuota": bool,
        /// Period of CPU limits.
        cpu_cfs_quota_period / "cpuCFSQuotaPeriod": GoDuration,
        /// Images listed in node status.
        node_status_max_images / "nodeStatusMaxImages": i32,
        /// Open-file limit of the agent.
        max_open_files / "maxOpenFiles": i64,
        /// Content type towards the API server.
        content_type / "contentType": String,
        /// API requests per second.
        kube_api_qps / "kubeAPIQPS": i32,
        /// Burst of API requests.
        kube_api_burst / "kubeAPIBurst": i32,
        /// One image pull at a time.
        serialize_image_pulls / "serializeImagePulls": bool,
        /// Most image pulls at a time.
        max_parallel_image_pulls / "maxParallelImagePulls": i32,
        /// Thresholds that evict at once.
        eviction_hard / "evictionHard": BTreeMap<String, String>,
        /// Thresholds that evict after a grace period.
        eviction_soft / "evictionSoft": BTreeMap<String, String>,
        /// Those grace periods.
        eviction_soft_grace_period / "evictionSoftGracePeriod": BTreeMap<String, String>,
        /// How long pressure stays reported.
        eviction_pressure_transition_period / "evictionPressureTransitionPeriod": GoDuration,
        /// Most grace for a soft-evicted pod, in seconds.
        eviction_max_pod_grace_period / "evictionMaxPodGracePeriod": i32,
        /// How far reclaim goes beyond a threshold.
        eviction_minimum_reclaim / "evictionMinimumReclaim": BTreeMap<String, String>,
        /// Add missing default hard thresholds.
        merge_default_eviction_settings / "mergeDefaultEvictionSettings": bool,
        /// Most pods per CPU core; 0 is no limit.
        pods_per_core / "podsPerCore": i32,
        /// Volumes are attached by the controller.
        enable_controller_attach_detach / "enableControllerAttachDetach": bool,
        /// Fail on unexpected kernel settings instead of changing them.
        protect_kernel_defaults / "protectKernelDefaults": bool,
        /// Keep the kubelet's iptables chains.
        make_iptables_util_chains / "makeIPTablesUtilChains": bool,
        /// No effect any more.
        iptables_masquerade_bit / "iptablesMasqueradeBit": i32,
        /// No effect any more.
        iptables_drop_bit / "iptablesDropBit": i32,
        /// Features switched on or off.
        feature_gates / "featureGates": BTreeMap<String, bool>,
        /// Refuse to start while swap is on.
        fail_swap_on / "failSwapOn": bool,
        /// Swap for pods.
        memory_swap / "memorySwap": MemorySwap,
        /// Size at which a container log is rotated.
        container_log_max_size / "containerLogMaxSize": String,
        /// Rotated logs kept per container.
        container_log_max_files / "containerLogMaxFiles": i32,
        /// Rotations at a time.
        container_log_max_workers / "containerLogMaxWorkers": i32,
        /// How often log sizes are looked at.
        container_log_monitor_interval / "containerLogMonitorInterval": GoDuration,
        /// Watch, Cache or Get.
        config_map_and_secret_change_detection_strategy / "configMapAndSecretChangeDetectionStrategy": String,
        /// Resources kept for the system.
        system_reserved / "systemReserved": BTreeMap<String, String>,
        /// Resources kept for Kubernetes daemons.
        kube_reserved / "kubeReserved": BTreeMap<String, String>,
        /// CPUs kept for the system.
        reserved_system_cpus / "reservedSystemCPUs": String,
        /// Earlier minor version whose hidden metrics are shown.
        show_hidden_metrics_for_version / "showHiddenMetricsForVersion": String,
        /// Cgroup that systemReserved is enforced on.
        system_reserved_cgroup / "systemReservedCgroup": String,
        /// Cgroup that kubeReserved is enforced on.
        kube_reserved_cgroup / "kubeReservedCgroup": String,
        /// Where reservations are enforced.
        enforce_node_allocatable / "enforceNodeAllocatable": Vec<String>,
        /// Unsafe sysctls pods may set.
        allowed_unsafe_sysctls / "allowedUnsafeSysctls": Vec<String>,
        /// Directory of flex volume plugins.
        volume_plugin_dir / "volumePluginDir": String,
        /// The node's id at its provider.
        provider_id / "providerID": String,
        /// Let the kernel tell of memory thresholds.
        kernel_memcg_notification / "kernelMemcgNotification": bool,
        /// The agent's log.
        logging / "logging": Logging,
        /// Serve the host's /var/log.
        enable_system_log_handler / "enableSystemLogHandler": bool,
        /// Answer log queries.
        enable_system_log_query / "enableSystemLogQuery": bool,
        /// Time for pods when the node shuts down.
        shutdown_grace_period / "shutdownGracePeriod": GoDuration,
        /// The part of it for critical pods.
        shutdown_grace_period_critical_pods / "shutdownGracePeriodCriticalPods": GoDuration,
        /// The same by pod priority.
        shutdown_grace_period_by_pod_priority / "shutdownGracePeriodByPodPriority": Vec<ShutdownGracePeriod>,
        /// Restart back-off.
        crash_loop_back_off / "crashLoopBackOff": CrashLoopBackOff,
        /// Memory kept per NUMA node.
        reserved_memory / "reservedMemory": Vec<MemoryReservation>,
        /// Serve profiles.
        enable_profiling_handler / "enableProfilingHandler": bool,
        /// Let the log level be changed over HTTP.
        enable_debug_flags_handler / "enableDebugFlagsHandler": bool,
        /// Default seccomp profile is RuntimeDefault.
        seccomp_default / "seccompDefault": bool,
        /// Where memory throttling begins.
        memory_throttling_factor / "memoryThrottlingFactor": f64,
        /// How memory requests are protected.
        memory_reservation_policy / "memoryReservationPolicy": String,
        /// Taints at registration.
        register_with_taints / "registerWithTaints": Vec<Taint>,
        /// Register the node.
        register_node / "registerNode": bool,
        /// OpenTelemetry traces.
        tracing / "tracing": Tracing,
        /// Enforce local storage limits.
        local_storage_capacity_isolation / "localStorageCapacityIsolation": bool,
        /// Socket of the container runtime.
        container_runtime_endpoint / "containerRuntimeEndpoint": String,
        /// Socket of the image service, if another.
        image_service_endpoint / "imageServiceEndpoint": String,
        /// Refuse to start on cgroup v1.
        fail_cgroup_v1 / "failCgroupV1": bool,
        /// User namespaces of pods.
        user_namespaces / "userNamespaces": UserNamespaces,
    }
}
