//! One row per check: the setting, and what the problem must say. A configuration
//! that differs from a good one in that setting only must give that problem only.

use serde_json::{Value, json};

use super::*;
use crate::decode::known;
use crate::defaults;

fn host() -> Host {
    Host { cgroup_v2: true, online_cpus: Some((0..4).collect()) }
}

fn problems_on(host: &Host, settings: Value, flags: &Flags) -> Vec<String> {
    // Defaults never hide an explicit zero here: flags can set one after defaulting.
    let (mut config, unknown) = known(&settings).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    let explicit = crate::decode::to_tree(&config);
    defaults::apply(&mut config);
    defaults::apply_legacy(&mut config);
    let mut tree = crate::decode::to_tree(&config);
    for (path, value) in crate::path::leaves(&explicit) {
        path.set(&mut tree, value.clone());
    }
    let (config, _) = known(&tree).unwrap();
    let gates = FeatureGates::new(&config.feature_gates.clone().unwrap_or_default());
    let (problems, _) = validate(&config, flags, &gates, host);
    problems.iter().map(ToString::to_string).collect()
}

fn check(settings: Value, needle: &str) {
    let problems = problems_on(&host(), settings.clone(), &Flags::default());
    assert_eq!(problems.len(), 1, "{settings}: {problems:#?}");
    assert!(problems[0].contains(needle), "{settings}: {} lacks {needle:?}", problems[0]);
}

fn good(settings: Value) {
    assert_eq!(
        problems_on(&host(), settings.clone(), &Flags::default()),
        Vec::<String>::new(),
        "{settings}"
    );
}

#[test]
fn the_defaults_are_good() {
    good(json!({}));
}

#[test]
fn numbers() {
    for (field, value, needle) in [
        ("nodeLeaseDurationSeconds", json!(-1), "1 or more"),
        ("nodeStatusMaxImages", json!(-2), "-1 or more"),
        ("eventBurst", json!(-1), "0 or more"),
        ("eventRecordQPS", json!(-1), "0 or more"),
        ("kubeAPIBurst", json!(-1), "0 or more"),
        ("kubeAPIQPS", json!(-1), "0 or more"),
        ("maxPods", json!(-1), "0 or more"),
        ("podsPerCore", json!(-1), "0 or more"),
        ("maxOpenFiles", json!(-1), "0 or more"),
        ("registryBurst", json!(-1), "0 or more"),
        ("registryPullQPS", json!(-1), "0 or more"),
        ("oomScoreAdj", json!(1001), "from -1000 to 1000"),
        ("oomScoreAdj", json!(-1001), "from -1000 to 1000"),
        ("iptablesDropBit", json!(32), "from 0 to 31"),
        ("iptablesMasqueradeBit", json!(-1), "from 0 to 31"),
        ("port", json!(65536), "from 1 to 65535"),
        ("port", json!(0), "from 1 to 65535"),
        ("readOnlyPort", json!(-1), "from 0 to 65535"),
        ("healthzPort", json!(70000), "from 0 to 65535"),
        ("imageGCHighThresholdPercent", json!(101), "from 0 to 100"),
        ("imageGCLowThresholdPercent", json!(-1), "from 0 to 100"),
        ("imageGCLowThresholdPercent", json!(85), "less than imageGCHighThresholdPercent"),
        ("maxParallelImagePulls", json!(0), "1 or more"),
        ("containerLogMaxFiles", json!(1), "2 or more"),
        ("containerLogMaxWorkers", json!(0), "1 or more"),
        ("memoryThrottlingFactor", json!(0.0), "more than 0"),
        ("memoryThrottlingFactor", json!(1.1), "more than 0"),
    ] {
        check(json!({ field: value }), needle);
    }
    good(
        json!({"readOnlyPort": 0, "healthzPort": 0, "nodeStatusMaxImages": -1, "memoryThrottlingFactor": 1.0}),
    );
}

#[test]
fn durations() {
    for (field, value, needle) in [
        ("syncFrequency", "0s", "longer than zero"),
        ("runtimeRequestTimeout", "0s", "longer than zero"),
        ("imageMinimumGCAge", "-1s", "0s or more"),
        ("imageMaximumGCAge", "-1s", "0s or more"),
        ("imageMaximumGCAge", "2m", "longer than imageMinimumGCAge"),
        ("cpuCFSQuotaPeriod", "999us", "from 1ms to 1s"),
        ("cpuCFSQuotaPeriod", "1.001s", "from 1ms to 1s"),
        ("containerLogMonitorInterval", "2s", "3s or more"),
        ("shutdownGracePeriod", "500ms", "1s or longer"),
        ("shutdownGracePeriod", "-1s", "shutdownGracePeriod"),
        ("shutdownGracePeriodCriticalPods", "1s", "not be longer than shutdownGracePeriod"),
    ] {
        let problems = problems_on(&host(), json!({ field: value }), &Flags::default());
        assert!(problems.iter().any(|problem| problem.contains(needle)), "{field}: {problems:?}");
    }
    good(
        json!({"imageMaximumGCAge": "3m", "shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"}),
    );
    check(json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "301s"}}), "from 1s to 300s");
    check(json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "999ms"}}), "from 1s to 300s");
}

#[test]
fn words() {
    let long_socket = format!("unix:///{}", "x".repeat(107));
    for (field, value, needle) in [
        ("topologyManagerPolicy", "strict", "\"best-effort\""),
        ("topologyManagerScope", "node", "\"container\" or \"pod\""),
        ("cpuManagerPolicy", "dynamic", "\"none\" or \"static\""),
        ("memoryManagerPolicy", "static", "\"None\" or \"Static\""),
        ("hairpinMode", "veth", "\"hairpin-veth\""),
        ("imagePullCredentialsVerificationPolicy", "Sometimes", "\"AlwaysVerify\""),
        ("memoryReservationPolicy", "All", "\"TieredReservation\""),
        ("configMapAndSecretChangeDetectionStrategy", "Poll", "\"Watch\""),
        ("tlsMinVersion", "TLS12", "VersionTLS12"),
        ("address", "localhost", "IP address"),
        ("healthzBindAddress", "", "IP address"),
        ("podLogsDir", "logs", "absolute"),
        ("podLogsDir", "/var/../log", "without ., .."),
        ("podLogsDir", "/var/log/", "trailing"),
        ("podLogsDir", "/var/lög", "ASCII"),
        ("containerLogMaxSize", "big", "not a quantity"),
        ("showHiddenMetricsForVersion", "1.30", "1.35"),
        ("containerRuntimeEndpoint", "", "socket"),
        ("containerRuntimeEndpoint", "tcp://127.0.0.1:1", "unix:///path"),
        ("containerRuntimeEndpoint", "run/c.sock", "unix:///path"),
        ("imageServiceEndpoint", "unix://run/c.sock", "unix:///path"),
        ("imageServiceEndpoint", &long_socket, "shorter"),
        ("reservedSystemCPUs", "0-", "range of CPUs"),
        ("reservedSystemCPUs", "0-5", "no CPU 4, 5"),
        ("systemCgroups", "/system", "cgroupRoot"),
    ] {
        check(json!({ field: value }), needle);
    }
    check(json!({"authorization": {"mode": "RBAC"}}), "\"AlwaysAllow\" or \"Webhook\"");
    check(json!({"memorySwap": {"swapBehavior": "All"}}), "\"LimitedSwap\"");
    check(json!({"logging": {"format": "xml"}}), "\"text\" or \"json\"");
    check(json!({"runOnce": true}), "withdrawn");
    good(
        json!({"showHiddenMetricsForVersion": "1.35", "reservedSystemCPUs": "0,3", "tlsMinVersion": "VersionTLS13"}),
    );
}

#[test]
fn combinations() {
    for (settings, needle) in [
        (
            json!({"maxParallelImagePulls": 3, "serializeImagePulls": true}),
            "serializeImagePulls: false",
        ),
        (
            json!({"enableSystemLogQuery": true, "enableSystemLogHandler": false}),
            "enableSystemLogHandler",
        ),
        (
            json!({"serverTLSBootstrap": true, "featureGates": {"RotateKubeletServerCertificate": false}}),
            "needs the feature gate",
        ),
        (
            json!({"cpuCFSQuotaPeriod": "50ms", "featureGates": {"CustomCPUCFSQuotaPeriod": false}}),
            "CustomCPUCFSQuotaPeriod",
        ),
        (json!({"preloadedImagesVerificationAllowlist": ["a/b"]}), "NeverVerifyAllowlistedImages"),
        (
            json!({"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages",
                   "preloadedImagesVerificationAllowlist": ["a*"]}),
            "end in /*",
        ),
        (
            json!({"imagePullCredentialsVerificationPolicy": "AlwaysVerify",
                   "featureGates": {"KubeletEnsureSecretPulledImages": false}}),
            "KubeletEnsureSecretPulledImages",
        ),
        (
            json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
                   "featureGates": {"KubeletCrashLoopBackOffMax": false}}),
            "KubeletCrashLoopBackOffMax",
        ),
        (json!({"memoryReservationPolicy": "TieredReservation"}), "MemoryQoS"),
        (json!({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/kube"}), "cannot be used with"),
        (
            json!({"shutdownGracePeriod": "30s", "shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 1}]}),
            "cannot stand with",
        ),
        (
            json!({"shutdownGracePeriod": "30s",
                   "featureGates": {"GracefulNodeShutdown": false, "GracefulNodeShutdownBasedOnPodPriority": false,
                                    "WindowsGracefulNodeShutdown": false}}),
            "GracefulNodeShutdown",
        ),
        (
            json!({"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 1}],
                   "featureGates": {"GracefulNodeShutdownBasedOnPodPriority": false}}),
            "GracefulNodeShutdownBasedOnPodPriority",
        ),
        (json!({"registerWithTaints": [{"key": "a", "effect": "Never"}]}), "NoSchedule"),
        (
            json!({"registerWithTaints": [{"key": "a b", "effect": "NoExecute"}]}),
            "the name must be",
        ),
        (
            json!({"registerWithTaints": [{"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]}),
            "timeAdded",
        ),
        (json!({"tracing": {"samplingRatePerMillion": 1000001}}), "from 0 to 1000000"),
        (json!({"tracing": {"endpoint": "http://x"}}), "scheme"),
        (json!({"tlsCipherSuites": ["TLS_NONE"]}), "cipher suite"),
        (json!({"tlsCurvePreferences": [29, 29]}), "twice"),
        (json!({"tlsCurvePreferences": [1]}), "known curve"),
        (json!({"userNamespaces": {"idsPerPod": 65535}}), "multiple of 65536"),
        (json!({"userNamespaces": {"idsPerPod": 4294967296_i64}}), "multiple of 65536"),
    ] {
        check(settings, needle);
    }
    good(json!({"tracing": {"endpoint": "localhost:4317"}, "tlsCurvePreferences": [29, 23],
                "tlsCipherSuites": ["TLS_AES_128_GCM_SHA256"], "userNamespaces": {"idsPerPod": 131072}}));
}

#[test]
fn reservations() {
    for (settings, needle) in [
        (json!({"systemReserved": {"gpu": "1"}}), "only cpu, memory"),
        (json!({"kubeReserved": {"cpu": "-1"}}), "negative"),
        (json!({"kubeReserved": {"cpu": "lots"}}), "not a quantity"),
        (json!({"enforceNodeAllocatable": ["pods", "pods"]}), "twice"),
        (json!({"enforceNodeAllocatable": ["none", "pods"]}), "cannot stand with others"),
        (json!({"enforceNodeAllocatable": ["everything"]}), "must be one of"),
        (json!({"enforceNodeAllocatable": ["system-reserved"]}), "needs systemReservedCgroup"),
        (
            json!({"enforceNodeAllocatable": ["kube-reserved-compressible"]}),
            "needs kubeReservedCgroup",
        ),
        (
            json!({"enforceNodeAllocatable": ["kube-reserved", "kube-reserved-compressible"], "kubeReservedCgroup": "/k"}),
            "cannot stand with kube-reserved-compressible",
        ),
        (json!({"cgroupsPerQOS": false}), "needs cgroupsPerQOS: true"),
        (
            json!({"reservedMemory": [{"numaNode": 0, "limits": {"cpu": "1"}}]}),
            "memory or hugepages",
        ),
        (
            json!({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "0"}}]}),
            "must not be zero",
        ),
        (
            json!({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1"}}, {"numaNode": 0, "limits": {"memory": "1"}}]}),
            "names it twice",
        ),
        (json!({"qosReserved": {"cpu": "5%"}}), "only memory"),
        (json!({"qosReserved": {"memory": "5"}}), "percentage"),
        (json!({"qosReserved": {"memory": "101%"}}), "percentage"),
        (json!({"cpuManagerPolicyOptions": {"fast": "true"}}), "the option must be one of"),
        (json!({"cpuManagerPolicyOptions": {"full-pcpus-only": "yes"}}), "not a boolean"),
        (
            json!({"cpuManagerPolicyOptions": {"align-by-socket": "true"}}),
            "CPUManagerPolicyAlphaOptions",
        ),
        (json!({"topologyManagerPolicyOptions": {"x": "true"}}), "the option must be"),
        (json!({"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "7"}}), "8 or more"),
    ] {
        check(settings, needle);
    }
    good(json!({"enforceNodeAllocatable": ["none"], "cgroupsPerQOS": false}));
    good(
        json!({"systemReserved": {"cpu": "200m", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "1000"}}),
    );
}

#[test]
fn eviction() {
    for (settings, needle) in [
        (json!({"evictionHard": {"memory.free": "5%"}}), "the signal must be one of"),
        (json!({"evictionHard": {"memory.available": "0"}}), "more than zero"),
        (json!({"evictionHard": {"memory.available": "-5%"}}), "from 0% to 100%"),
        (json!({"evictionHard": {"memory.available": "101%"}}), "from 0% to 100%"),
        (json!({"evictionHard": {"memory.available": "x%"}}), "not a percentage"),
        (json!({"evictionHard": {"memory.available": "much"}}), "not a quantity"),
        (json!({"evictionSoft": {"memory.available": "1Gi"}}), "evictionSoftGracePeriod"),
        (json!({"evictionSoftGracePeriod": {"memory.available": "-1s"}}), "negative"),
        (json!({"evictionSoftGracePeriod": {"memory.available": "1"}}), "without a unit"),
        (json!({"evictionMinimumReclaim": {"memory.available": "0%"}}), "more than 0%"),
        (json!({"evictionMinimumReclaim": {"memory.available": "-1Gi"}}), "negative"),
    ] {
        check(settings, needle);
    }
    good(
        json!({"evictionHard": {"memory.available": "0%", "pid.available": "100%"}, "evictionSoft": {"nodefs.available": "0%"}}),
    );
    good(
        json!({"evictionSoft": {"memory.available": "1.5Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"},
                "evictionMinimumReclaim": {"memory.available": "0"}}),
    );
}

#[test]
fn logging() {
    for (settings, needle) in [
        (json!({"logging": {"flushFrequency": "-1s"}}), "longer than zero"),
        (json!({"logging": {"verbosity": 2147483648_u32}}), "from 0 to 2147483647"),
        (
            json!({"logging": {"format": "json", "vmodule": [{"filePattern": "a", "verbosity": 1}]}}),
            "text format only",
        ),
        (
            json!({"logging": {"vmodule": [{"filePattern": "", "verbosity": 1}]}}),
            "must not be empty",
        ),
        (json!({"logging": {"options": {"text": {"splitStream": true}}}}), "LoggingAlphaOptions"),
        (
            json!({"logging": {"options": {"json": {"infoBufferSize": "4Ki"}}}}),
            "LoggingAlphaOptions",
        ),
    ] {
        check(settings, needle);
    }
    good(
        json!({"logging": {"flushFrequency": 5000000000_i64, "options": {"json": {"splitStream": true}}},
                "featureGates": {"LoggingAlphaOptions": true}}),
    );
}

#[test]
fn feature_gates() {
    check(json!({"featureGates": {"Nonsense": true}}), "there is no feature gate");
    check(json!({"featureGates": {"NodeSwap": false}}), "locked to true");
    check(
        json!({"featureGates": {"ResourceHealthStatus": false}}),
        "ResourceHealthStatusMessage is on but needs",
    );
}

#[test]
fn a_host_with_cgroup_v1() {
    let v1 = Host { cgroup_v2: false, online_cpus: None };
    let problems = |settings: Value| problems_on(&v1, settings, &Flags::default()).join("\n");
    assert!(problems(json!({})).contains("this host uses cgroup v1"));
    assert_eq!(problems(json!({"failCgroupV1": false})), "");
    assert!(
        problems(json!({"failCgroupV1": false, "singleProcessOOMKill": false}))
            .contains("singleProcessOOMKill")
    );
    assert_eq!(problems(json!({"failCgroupV1": false, "singleProcessOOMKill": true})), "");
    assert!(
        problems(json!({"failCgroupV1": false, "memorySwap": {"swapBehavior": "LimitedSwap"}}))
            .contains("cgroup v2")
    );
}

#[test]
fn command_line() {
    let with = |change: &dyn Fn(&mut Flags)| {
        let mut flags = Flags::default();
        change(&mut flags);
        problems_on(&host(), json!({}), &flags).join("\n")
    };
    let label = |key: &str, value: &str| {
        with(&|f| drop(f.node_labels.insert(key.to_owned(), value.to_owned())))
    };
    assert_eq!(with(&|f| f.kubeconfig = Some("/k".into())), "");
    assert!(with(&|f| f.bootstrap_kubeconfig = Some("/k".into())).contains("--kubeconfig"));
    let both = |f: &mut Flags| {
        f.bootstrap_kubeconfig = Some("/b".into());
        f.kubeconfig = Some("/k".into());
    };
    assert_eq!(with(&both), "");
    assert!(with(&|f| f.cloud_provider = Some("aws".into())).contains("external"));
    assert_eq!(with(&|f| f.cloud_provider = Some("external".into())), "");
    assert!(with(&|f| f.exit_on_lock_contention = true).contains("--lock-file"));
    assert!(with(&|f| f.offline_autonomy = true).contains("--kubeconfig"));
    assert!(with(&|f| f.root_dir = "var/lib".into()).contains("absolute"));
    assert!(with(&|f| f.root_dir = "/var/../lib".into()).contains("without . and .."));
    assert!(with(&|f| f.hostname_override = Some("  ".into())).contains("not a host name"));
    assert!(with(&|f| f.image_credential_provider_config = Some("/c".into())).contains("together"));
    assert!(label("node-role.kubernetes.io/x", "").contains("may not give itself"));
    assert!(label("a b", "").contains("the name must be"));
    assert!(label("a", "b c").contains("a value must be"));
    assert_eq!(label("node.kubernetes.io/x", "y"), "");
    let node_ip = |text: &str| with(&|f| f.node_ip = Some(text.to_owned()));
    for good in ["10.0.0.1", "::", "10.0.0.1,fd00::1", "nonsense", "0.0.0.0"] {
        assert_eq!(node_ip(good), "", "{good}");
    }
    assert!(node_ip("10.0.0.1,10.0.0.2").contains("one IPv4 and one IPv6"));
    assert!(node_ip("10.0.0.1,::").contains("cannot be part of a pair"));
    assert!(node_ip("10.0.0.1,fd00::1,fd00::2").contains("at most"));
}

#[test]
fn a_standalone_node_cannot_ask_the_api_server() {
    check(json!({"authentication": {"webhook": {"enabled": true}}}), "set it to false");
    check(json!({"authorization": {"mode": "Webhook"}}), "set it to AlwaysAllow");
}

#[test]
fn all_problems_are_listed_at_once() {
    let settings =
        json!({"port": 70000, "maxPods": -1, "runOnce": true, "featureGates": {"Nonsense": true}});
    assert_eq!(problems_on(&host(), settings, &Flags::default()).len(), 4);
}
