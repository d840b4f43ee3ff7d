//! Every flag of the kubelet: name, kind, what it sets, and its help.
//!
//! A table of facts; names and targets are upstream's, besides those of the area
//! [`KLET`]; the words are ours.
//! Upstream: cmd/kubelet/app/options.

use super::value::Kind::{self, *};

/// What a flag acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A field of the configuration, by its dotted path.
    Config(&'static str),
    /// A field of [`super::Flags`].
    Flags,
    /// Accepted so that old command lines still work; there is nothing it could change.
    Nothing,
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Long name, without dashes.
    pub name: &'static str,
    /// What its text means.
    pub kind: Kind,
    /// What it acts on.
    pub target: Target,
    /// Better said in the configuration file, or about to go.
    pub deprecated: bool,
    /// Heading in help.
    pub area: &'static str,
    /// Help.
    pub help: &'static str,
}

const CONFIG: &str = "Configuration";
const NODE: &str = "Node identity and registration";
const PODS: &str = "Pods and where they come from";
const RUNTIME: &str = "Container runtime and images";
const SERVER: &str = "API server of the agent";
const API: &str = "Kubernetes API client";
const RESOURCES: &str = "CPU, memory and reservations";
const EVICTION: &str = "Eviction and clean-up";
const NETWORK: &str = "Networking";
const VOLUMES: &str = "Volumes";
const HOST: &str = "Process and host";
const LOGS: &str = "Logging";
/// Of these, upstream has none.
pub(super) const KLET: &str = "klet's own";
const IGNORED: &str = "Accepted without effect";

const fn cfg(
    name: &'static str,
    kind: Kind,
    field: &'static str,
    area: &'static str,
    help: &'static str,
) -> Flag {
    Flag { name, kind, target: Target::Config(field), deprecated: true, area, help }
}
/// Sets a field of the configuration and is there to stay.
const fn keep(
    name: &'static str,
    kind: Kind,
    field: &'static str,
    area: &'static str,
    help: &'static str,
) -> Flag {
    Flag { name, kind, target: Target::Config(field), deprecated: false, area, help }
}
const fn own(name: &'static str, kind: Kind, area: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, target: Target::Flags, deprecated: false, area, help }
}
const fn old(name: &'static str, kind: Kind, area: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, target: Target::Flags, deprecated: true, area, help }
}
const fn none(name: &'static str, kind: Kind) -> Flag {
    Flag {
        name,
        kind,
        target: Target::Nothing,
        deprecated: true,
        area: IGNORED,
        help: "Was a setting of cAdvisor; this agent has its own statistics",
    }
}

/// All flags.
#[rustfmt::skip]
pub static FLAGS: &[Flag] = &[
    own("config", Text, CONFIG, "File with a KubeletConfiguration; flags override it"),
    own("config-dir", Text, CONFIG, "Directory of drop-in files (*.conf) that override --config, in lexical order"),
    cfg("feature-gates", BoolMap, "featureGates", CONFIG, "Features to switch on or off, merged with those of the file"),

    own("kubeconfig", Text, NODE, "How to reach the API server; without it the node runs on its own"),
    own("bootstrap-kubeconfig", Text, NODE, "Credentials to obtain the first client certificate with"),
    own("hostname-override", Text, NODE, "Name of the node, in place of the host's name"),
    own("node-ip", Text, NODE, "Address of the node, or one IPv4 and one IPv6 address separated by a comma"),
    own("node-labels", Labels, NODE, "Labels the node registers with"),
    own("cloud-provider", Text, NODE, "Empty, or external when a cloud controller manages the node"),
    keep("provider-id", Text, "providerID", NODE, "Id of the node in its provider's inventory"),
    cfg("register-node", Bool, "registerNode", NODE, "Register with the API server"),
    cfg("register-with-taints", Taints, "registerWithTaints", NODE, "Taints the node registers with"),
    cfg("node-status-update-frequency", Duration, "nodeStatusUpdateFrequency", NODE, "How often node status is computed"),
    cfg("node-status-max-images", Int32, "nodeStatusMaxImages", NODE, "Most images listed in node status; -1 lists all"),

    cfg("pod-manifest-path", Text, "staticPodPath", PODS, "Directory of static pods, or one manifest; names starting with a dot are skipped"),
    cfg("file-check-frequency", Duration, "fileCheckFrequency", PODS, "How often the manifest path is read again"),
    cfg("manifest-url", Text, "staticPodURL", PODS, "URL of more static pods"),
    cfg("manifest-url-header", Headers, "staticPodURLHeader", PODS, "Headers sent to the manifest URL; may be repeated"),
    cfg("http-check-frequency", Duration, "httpCheckFrequency", PODS, "How often the manifest URL is read again"),
    cfg("sync-frequency", Duration, "syncFrequency", PODS, "Longest time between two synchronisations of a pod"),
    cfg("max-pods", Int32, "maxPods", PODS, "Most pods on this node"),
    cfg("pods-per-core", Int32, "podsPerCore", PODS, "Most pods per CPU core, within --max-pods; 0 is no limit"),
    cfg("pod-max-pids", Int64, "podPidsLimit", PODS, "Most processes per pod; -1 is what the node allows"),
    cfg("runonce", Bool, "runOnce", PODS, "Withdrawn; true is refused"),
    own("seccomp-default", Bool, PODS, "Use the runtime's default seccomp profile where a pod names none"),
    cfg("allowed-unsafe-sysctls", List, "allowedUnsafeSysctls", PODS, "Unsafe sysctls, or prefixes ending in *, that pods may set"),

    cfg("container-runtime-endpoint", Text, "containerRuntimeEndpoint", RUNTIME, "Socket of the container runtime, e.g. unix:///run/containerd/containerd.sock"),
    cfg("image-service-endpoint", Text, "imageServiceEndpoint", RUNTIME, "Socket of the image service, if it is not the runtime's"),
    cfg("runtime-request-timeout", Duration, "runtimeRequestTimeout", RUNTIME, "Limit of one runtime call, except pulls, logs, exec and attach"),
    own("runtime-cgroups", Text, RUNTIME, "Cgroup the runtime runs in, for accounting"),
    own("image-credential-provider-config", Text, RUNTIME, "File or directory that configures registry credential plugins"),
    own("image-credential-provider-bin-dir", Text, RUNTIME, "Directory of registry credential plugins"),
    cfg("registry-qps", Int32, "registryPullQPS", RUNTIME, "Image pulls per second; 0 is unlimited"),
    cfg("registry-burst", Int32, "registryBurst", RUNTIME, "Burst of image pulls, while --registry-qps is not 0"),
    cfg("serialize-image-pulls", Bool, "serializeImagePulls", RUNTIME, "Pull one image at a time"),
    cfg("minimum-image-ttl-duration", Duration, "imageMinimumGCAge", RUNTIME, "Unused images younger than this stay"),
    cfg("image-gc-high-threshold", Int32, "imageGCHighThresholdPercent", RUNTIME, "Percentage of disk in use that starts image collection; 100 turns it off"),
    cfg("image-gc-low-threshold", Int32, "imageGCLowThresholdPercent", RUNTIME, "Percentage of disk in use that image collection aims for"),
    cfg("container-log-max-size", Text, "containerLogMaxSize", RUNTIME, "Size at which a container log is rotated"),
    cfg("container-log-max-files", Int32, "containerLogMaxFiles", RUNTIME, "Log files kept per container, at least 2"),

    cfg("enable-server", Bool, "enableServer", SERVER, "Serve the HTTPS API"),
    cfg("address", Ip, "address", SERVER, "Address the API listens on; 0.0.0.0 or :: is all"),
    cfg("port", Int32, "port", SERVER, "Port of the HTTPS API"),
    cfg("read-only-port", Int32, "readOnlyPort", SERVER, "Port of the read-only API without authentication; 0 turns it off"),
    cfg("healthz-port", Int32, "healthzPort", SERVER, "Port of the health endpoint; 0 turns it off"),
    cfg("healthz-bind-address", Ip, "healthzBindAddress", SERVER, "Address of the health endpoint"),
    cfg("anonymous-auth", Bool, "authentication.anonymous.enabled", SERVER, "Let callers without credentials in as system:anonymous"),
    cfg("authentication-token-webhook", Bool, "authentication.webhook.enabled", SERVER, "Have bearer tokens reviewed by the API server"),
    cfg("authentication-token-webhook-cache-ttl", Duration, "authentication.webhook.cacheTTL", SERVER, "How long a token review is kept"),
    cfg("authorization-mode", Text, "authorization.mode", SERVER, "AlwaysAllow, or Webhook to have access reviewed by the API server"),
    cfg("authorization-webhook-cache-authorized-ttl", Duration, "authorization.webhook.cacheAuthorizedTTL", SERVER, "How long a granted access is kept"),
    cfg("authorization-webhook-cache-unauthorized-ttl", Duration, "authorization.webhook.cacheUnauthorizedTTL", SERVER, "How long a refused access is kept"),
    cfg("client-ca-file", Text, "authentication.x509.clientCAFile", SERVER, "Authorities that sign callers' certificates"),
    own("cert-dir", Text, SERVER, "Directory of certificates, unless the TLS files are named"),
    cfg("tls-cert-file", Text, "tlsCertFile", SERVER, "Serving certificate with its chain; self-signed if not given"),
    cfg("tls-private-key-file", Text, "tlsPrivateKeyFile", SERVER, "Key of the serving certificate"),
    cfg("tls-cipher-suites", List, "tlsCipherSuites", SERVER, "Cipher suites to offer"),
    cfg("tls-min-version", Text, "tlsMinVersion", SERVER, "VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13"),
    cfg("rotate-server-certificates", Bool, "serverTLSBootstrap", SERVER, "Request and renew the serving certificate at the API server"),
    cfg("enable-debugging-handlers", Bool, "enableDebuggingHandlers", SERVER, "Serve logs, exec, attach and port forwarding"),
    cfg("contention-profiling", Bool, "enableContentionProfiling", SERVER, "Profile lock contention"),
    cfg("streaming-connection-idle-timeout", Duration, "streamingConnectionIdleTimeout", SERVER, "Idle limit of streams"),

    cfg("rotate-certificates", Bool, "rotateCertificates", API, "Renew the client certificate before it expires"),
    cfg("kube-api-content-type", Text, "contentType", API, "Content type of API requests"),
    cfg("kube-api-qps", Int32, "kubeAPIQPS", API, "API requests per second, without events and heartbeats"),
    cfg("kube-api-burst", Int32, "kubeAPIBurst", API, "Burst of API requests"),
    cfg("event-qps", Int32, "eventRecordQPS", API, "Events per second"),
    cfg("event-burst", Int32, "eventBurst", API, "Burst of events"),

    cfg("cgroups-per-qos", Bool, "cgroupsPerQOS", RESOURCES, "One cgroup per quality-of-service class and per pod"),
    cfg("cgroup-driver", Text, "cgroupDriver", RESOURCES, "cgroupfs or systemd, where the runtime does not tell"),
    cfg("cgroup-root", Text, "cgroupRoot", RESOURCES, "Root cgroup of pods"),
    cfg("cpu-cfs-quota", Bool, "cpuCFSQuota", RESOURCES, "Enforce CPU limits"),
    cfg("cpu-cfs-quota-period", Duration, "cpuCFSQuotaPeriod", RESOURCES, "Period of CPU limits, 1ms to 1s"),
    cfg("cpu-manager-policy", Text, "cpuManagerPolicy", RESOURCES, "none or static"),
    cfg("cpu-manager-policy-options", MapOne, "cpuManagerPolicyOptions", RESOURCES, "One option of the CPU policy; repeat for more"),
    cfg("cpu-manager-reconcile-period", Duration, "cpuManagerReconcilePeriod", RESOURCES, "How often CPU sets are re-applied"),
    cfg("memory-manager-policy", Text, "memoryManagerPolicy", RESOURCES, "None or Static"),
    cfg("reserved-memory", ReservedMemory, "reservedMemory", RESOURCES, "Memory kept per NUMA node, e.g. 0:memory=1Gi,hugepages-2Mi=64Mi"),
    cfg("topology-manager-policy", Text, "topologyManagerPolicy", RESOURCES, "none, best-effort, restricted or single-numa-node"),
    cfg("topology-manager-policy-options", Map, "topologyManagerPolicyOptions", RESOURCES, "Options of the topology policy"),
    cfg("topology-manager-scope", Text, "topologyManagerScope", RESOURCES, "container or pod"),
    cfg("qos-reserved", Map, "qosReserved", RESOURCES, "Percentage of requests reserved, e.g. memory=50%; needs QOSReserved"),
    cfg("system-reserved", Map, "systemReserved", RESOURCES, "Resources kept for the system, e.g. cpu=200m,memory=500Mi,pid=1000"),
    cfg("kube-reserved", Map, "kubeReserved", RESOURCES, "Resources kept for Kubernetes daemons"),
    cfg("reserved-cpus", Text, "reservedSystemCPUs", RESOURCES, "CPUs kept for the system, e.g. 0-1,8; overrides reserved cpu amounts"),
    cfg("system-reserved-cgroup", Text, "systemReservedCgroup", RESOURCES, "Cgroup that --system-reserved is enforced on"),
    cfg("kube-reserved-cgroup", Text, "kubeReservedCgroup", RESOURCES, "Cgroup that --kube-reserved is enforced on"),
    cfg("enforce-node-allocatable", List, "enforceNodeAllocatable", RESOURCES, "none, or some of pods, system-reserved, kube-reserved and their -compressible forms"),
    cfg("kubelet-cgroups", Text, "kubeletCgroups", RESOURCES, "Cgroup to run the agent in"),
    cfg("system-cgroups", Text, "systemCgroups", RESOURCES, "Cgroup to move system processes to"),

    cfg("eviction-hard", Thresholds, "evictionHard", EVICTION, "Thresholds that evict at once, e.g. memory.available<1Gi"),
    cfg("eviction-soft", Thresholds, "evictionSoft", EVICTION, "Thresholds that evict after a grace period"),
    cfg("eviction-soft-grace-period", Map, "evictionSoftGracePeriod", EVICTION, "Those grace periods, e.g. memory.available=1m30s"),
    cfg("eviction-max-pod-grace-period", Int32, "evictionMaxPodGracePeriod", EVICTION, "Most seconds a soft-evicted pod gets to stop; negative leaves it to the pod"),
    cfg("eviction-minimum-reclaim", Map, "evictionMinimumReclaim", EVICTION, "How far to go beyond a threshold, e.g. imagefs.available=2Gi"),
    cfg("eviction-pressure-transition-period", Duration, "evictionPressureTransitionPeriod", EVICTION, "How long a pressure condition stays after the pressure"),
    cfg("kernel-memcg-notification", Bool, "kernelMemcgNotification", EVICTION, "Let the kernel tell of memory thresholds, in place of polling"),
    old("minimum-container-ttl-duration", Duration, EVICTION, "Dead containers younger than this stay"),
    old("maximum-dead-containers-per-container", Int32, EVICTION, "Dead instances kept per container"),
    old("maximum-dead-containers", Int32, EVICTION, "Dead containers kept on the node; negative is no limit"),
    old("experimental-allocatable-ignore-eviction", Bool, EVICTION, "Leave eviction thresholds out of node allocatable"),

    cfg("cluster-dns", List, "clusterDNS", NETWORK, "DNS servers for pods that use cluster DNS"),
    cfg("cluster-domain", Text, "clusterDomain", NETWORK, "Search domain of the cluster"),
    cfg("resolv-conf", Text, "resolvConf", NETWORK, "Resolver file that containers' DNS derives from"),
    cfg("pod-cidr", Text, "podCIDR", NETWORK, "Pod addresses in standalone mode"),
    cfg("hairpin-mode", Text, "hairpinMode", NETWORK, "promiscuous-bridge, hairpin-veth or none"),
    cfg("make-iptables-util-chains", Bool, "makeIPTablesUtilChains", NETWORK, "Keep the kubelet's iptables chains"),

    cfg("volume-plugin-dir", Text, "volumePluginDir", VOLUMES, "Directory of flex volume plugins"),
    cfg("volume-stats-agg-period", Duration, "volumeStatsAggPeriod", VOLUMES, "How often volume usage is measured; negative is never"),
    cfg("enable-controller-attach-detach", Bool, "enableControllerAttachDetach", VOLUMES, "Leave attaching volumes to the controller"),
    cfg("local-storage-capacity-isolation", Bool, "localStorageCapacityIsolation", VOLUMES, "Enforce local storage limits"),
    old("experimental-mounter-path", Text, VOLUMES, "Program to mount with"),

    own("root-dir", Text, HOST, "Directory of the agent's state"),
    own("lock-file", Text, HOST, "File to lock, so that one agent runs at a time"),
    own("exit-on-lock-contention", Bool, HOST, "Exit when another process opens --lock-file"),
    cfg("oom-score-adj", Int32, "oomScoreAdj", HOST, "Out-of-memory score adjustment of the agent, -1000 to 1000"),
    cfg("max-open-files", Int64, "maxOpenFiles", HOST, "Open-file limit of the agent"),
    cfg("fail-swap-on", Bool, "failSwapOn", HOST, "Refuse to start while swap is on"),
    keep("fail-cgroupv1", Bool, "failCgroupV1", HOST, "Refuse to start on cgroup v1"),
    cfg("protect-kernel-defaults", Bool, "protectKernelDefaults", HOST, "Fail on unexpected kernel settings instead of changing them"),
    own("housekeeping-interval", Duration, HOST, "How often container statistics are taken"),

    keep("v", Level, "logging.verbosity", LOGS, "How much to log; higher is more"),
    keep("vmodule", VModule, "logging.vmodule", LOGS, "Verbosity by source file, in text format"),
    cfg("logging-format", Text, "logging.format", LOGS, "text or json"),
    keep("log-flush-frequency", Duration, "logging.flushFrequency", LOGS, "Longest time a log line stays buffered"),
    cfg("log-text-split-stream", Bool, "logging.options.text.splitStream", LOGS, "In text format, errors to stderr and the rest to stdout; needs LoggingAlphaOptions"),
    cfg("log-text-info-buffer-size", Quantity, "logging.options.text.infoBufferSize", LOGS, "Buffer for the rest, in text format; needs LoggingAlphaOptions"),
    cfg("log-json-split-stream", Bool, "logging.options.json.splitStream", LOGS, "In JSON format, errors to stderr and the rest to stdout; needs LoggingAlphaOptions"),
    cfg("log-json-info-buffer-size", Quantity, "logging.options.json.infoBufferSize", LOGS, "Buffer for the rest, in JSON format; needs LoggingAlphaOptions"),

    own("profile", Text, KLET, "Defaults for a purpose. secure: every item of CIS Kubernetes Benchmark 4.2 passes, and what contradicts one is refused"),
    own("streams-need-create", Bool, KLET, "Ask for the right to create, not get, for exec, attach, run and port-forward over a WebSocket too; on with --profile=secure"),
    own("offline-autonomy", Bool, KLET, "Keep assigned pods on disk, with the objects they use, Secrets included, and start them again after a reboot without an API server"),

    none("application-metrics-count-limit", Int64),
    none("boot-id-file", Text),
    none("container-hints", Text),
    none("containerd", Text),
    none("containerd-namespace", Text),
    none("enable-load-reader", Bool),
    none("event-storage-age-limit", Text),
    none("event-storage-event-limit", Text),
    none("global-housekeeping-interval", Duration),
    none("log-cadvisor-usage", Bool),
    none("machine-id-file", Text),
    none("storage-driver-buffer-duration", Duration),
    none("storage-driver-db", Text),
    none("storage-driver-host", Text),
    none("storage-driver-password", Text),
    none("storage-driver-secure", Bool),
    none("storage-driver-table", Text),
    none("storage-driver-user", Text),
];

/// The flag of that name.
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}
