//! Default values of the configuration.
//!
//! Pure. A field counts as unset when it is absent or, for fields whose zero
//! has no meaning of its own, zero or empty. Run after every layer that may
//! leave fields unset; running it twice changes nothing. Upstream:
//! pkg/kubelet/apis/config/v1beta1/defaults.go, cmd/kubelet/app/options.

use std::collections::BTreeMap;

use crate::gates::FeatureGates;
use crate::go_duration::GoDuration;
use crate::wire::{DurationOrNanos, KubeletConfiguration, OutputRouting};

/// Hard eviction thresholds a configuration file gets when it names none.
pub const EVICTION_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

/// A type whose zero may stand for "not set".
trait Zero {
    fn is_zero(&self) -> bool;
}
impl Zero for i32 {
    fn is_zero(&self) -> bool {
        *self == 0
    }
}
impl Zero for i64 {
    fn is_zero(&self) -> bool {
        *self == 0
    }
}
impl Zero for String {
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}
impl Zero for GoDuration {
    fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

/// Sets a field that is absent or zero.
fn nonzero<T: Zero>(field: &mut Option<T>, default: impl Into<T>) {
    if field.as_ref().is_none_or(Zero::is_zero) {
        *field = Some(default.into());
    }
}

/// Sets a field that is absent; zero is a value like any other.
fn absent<T>(field: &mut Option<T>, default: impl Into<T>) {
    if field.is_none() {
        *field = Some(default.into());
    }
}

fn secs(secs: i64) -> GoDuration {
    GoDuration::from_secs(secs)
}

/// Fills in every default, except hard eviction thresholds.
pub fn apply(c: &mut KubeletConfiguration) {
    let gates = FeatureGates::new(&c.feature_gates.clone().unwrap_or_default());
    pods(c, &gates);
    server(c);
    node(c);
    images(c, &gates);
    resources(c);
    eviction(c);
    host(c);
    logs(c);
}

fn pods(c: &mut KubeletConfiguration, gates: &FeatureGates) {
    nonzero(&mut c.pod_logs_dir, "/var/log/pods");
    nonzero(&mut c.sync_frequency, secs(60));
    nonzero(&mut c.file_check_frequency, secs(20));
    nonzero(&mut c.http_check_frequency, secs(20));
    nonzero(&mut c.max_pods, 110);
    absent(&mut c.pods_per_core, 0);
    // Every negative limit means "the node's own limit".
    if c.pod_pids_limit.is_none_or(|limit| limit < 0) {
        c.pod_pids_limit = Some(-1);
    }
    absent(&mut c.resolv_conf, "/etc/resolv.conf");
    absent(&mut c.run_once, false);
    absent(&mut c.seccomp_default, false);
    nonzero(&mut c.config_map_and_secret_change_detection_strategy, "Watch");
    nonzero(&mut c.volume_plugin_dir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/");
    nonzero(&mut c.volume_stats_agg_period, secs(60));
    absent(&mut c.enable_controller_attach_detach, true);
    absent(&mut c.local_storage_capacity_isolation, true);
    if gates.enabled("KubeletCrashLoopBackOffMax") {
        let back_off = c.crash_loop_back_off.get_or_insert_default();
        absent(&mut back_off.max_container_restart_period, secs(300));
    }
}

fn server(c: &mut KubeletConfiguration) {
    absent(&mut c.enable_server, true);
    nonzero(&mut c.address, "0.0.0.0");
    nonzero(&mut c.port, 10250);
    absent(&mut c.read_only_port, 0);
    absent(&mut c.rotate_certificates, false);
    absent(&mut c.server_tls_bootstrap, false);
    let authentication = c.authentication.get_or_insert_default();
    absent(&mut authentication.anonymous.get_or_insert_default().enabled, false);
    let webhook = authentication.webhook.get_or_insert_default();
    absent(&mut webhook.enabled, true);
    nonzero(&mut webhook.cache_ttl, secs(120));
    let authorization = c.authorization.get_or_insert_default();
    nonzero(&mut authorization.mode, "Webhook");
    let webhook = authorization.webhook.get_or_insert_default();
    nonzero(&mut webhook.cache_authorized_ttl, secs(300));
    nonzero(&mut webhook.cache_unauthorized_ttl, secs(30));
    absent(&mut c.enable_debugging_handlers, true);
    absent(&mut c.enable_contention_profiling, false);
    absent(&mut c.enable_profiling_handler, true);
    absent(&mut c.enable_debug_flags_handler, true);
    absent(&mut c.enable_system_log_handler, true);
    absent(&mut c.enable_system_log_query, false);
    absent(&mut c.healthz_port, 10248);
    nonzero(&mut c.healthz_bind_address, "127.0.0.1");
    nonzero(&mut c.streaming_connection_idle_timeout, secs(4 * 3600));
}

fn node(c: &mut KubeletConfiguration) {
    // A file that sets only the update period means it for reports as well.
    let report = c
        .node_status_update_frequency
        .filter(|period| *period != GoDuration::ZERO)
        .unwrap_or(secs(300));
    nonzero(&mut c.node_status_report_frequency, report);
    nonzero(&mut c.node_status_update_frequency, secs(10));
    nonzero(&mut c.node_lease_duration_seconds, 40);
    absent(&mut c.node_status_max_images, 50);
    absent(&mut c.register_node, true);
    absent(&mut c.event_record_qps, 50);
    nonzero(&mut c.event_burst, 100);
    nonzero(&mut c.content_type, "application/vnd.kubernetes.protobuf");
    absent(&mut c.kube_api_qps, 50);
    nonzero(&mut c.kube_api_burst, 100);
    absent(&mut c.shutdown_grace_period, GoDuration::ZERO);
    absent(&mut c.shutdown_grace_period_critical_pods, GoDuration::ZERO);
}

fn images(c: &mut KubeletConfiguration, gates: &FeatureGates) {
    nonzero(&mut c.container_runtime_endpoint, "unix:///run/containerd/containerd.sock");
    nonzero(&mut c.runtime_request_timeout, secs(120));
    absent(&mut c.registry_pull_qps, 5);
    nonzero(&mut c.registry_burst, 10);
    if gates.enabled("KubeletEnsureSecretPulledImages") {
        nonzero(&mut c.image_pull_credentials_verification_policy, "NeverVerifyPreloadedImages");
    }
    let parallel = c.max_parallel_image_pulls.is_some_and(|pulls| pulls >= 2);
    absent(&mut c.serialize_image_pulls, !parallel);
    nonzero(&mut c.image_minimum_gc_age, secs(120));
    absent(&mut c.image_maximum_gc_age, GoDuration::ZERO);
    absent(&mut c.image_gc_high_threshold_percent, 85);
    absent(&mut c.image_gc_low_threshold_percent, 80);
}

fn resources(c: &mut KubeletConfiguration) {
    absent(&mut c.cgroups_per_qos, true);
    nonzero(&mut c.cgroup_driver, "cgroupfs");
    nonzero(&mut c.cpu_manager_policy, "none");
    nonzero(&mut c.cpu_manager_reconcile_period, secs(10));
    nonzero(&mut c.memory_manager_policy, "None");
    nonzero(&mut c.topology_manager_policy, "none");
    nonzero(&mut c.topology_manager_scope, "container");
    absent(&mut c.cpu_cfs_quota, true);
    absent(&mut c.cpu_cfs_quota_period, GoDuration::from_millis(100));
    absent(&mut c.enforce_node_allocatable, vec!["pods".to_owned()]);
    absent(&mut c.memory_throttling_factor, 0.9);
    nonzero(&mut c.memory_reservation_policy, "None");
    absent(&mut c.fail_swap_on, true);
    absent(&mut c.fail_cgroup_v1, true);
}

fn eviction(c: &mut KubeletConfiguration) {
    nonzero(&mut c.eviction_pressure_transition_period, secs(300));
    absent(&mut c.eviction_max_pod_grace_period, 0);
    absent(&mut c.merge_default_eviction_settings, false);
    absent(&mut c.kernel_memcg_notification, false);
}

fn host(c: &mut KubeletConfiguration) {
    absent(&mut c.oom_score_adj, -999);
    nonzero(&mut c.max_open_files, 1_000_000_i64);
    nonzero(&mut c.hairpin_mode, "promiscuous-bridge");
    absent(&mut c.protect_kernel_defaults, false);
    absent(&mut c.make_iptables_util_chains, true);
    absent(&mut c.iptables_masquerade_bit, 14);
    absent(&mut c.iptables_drop_bit, 15);
}

fn logs(c: &mut KubeletConfiguration) {
    nonzero(&mut c.container_log_max_size, "10Mi");
    absent(&mut c.container_log_max_files, 5);
    absent(&mut c.container_log_max_workers, 1);
    absent(&mut c.container_log_monitor_interval, secs(10));
    let logging = c.logging.get_or_insert_default();
    nonzero(&mut logging.format, "text");
    if logging.flush_frequency.is_none_or(|period| period.0 == GoDuration::ZERO) {
        logging.flush_frequency = Some(DurationOrNanos(secs(5)));
    }
    absent(&mut logging.verbosity, 0_u32);
    let options = logging.options.get_or_insert_default();
    for routing in [&mut options.text, &mut options.json] {
        let routing: &mut OutputRouting = routing.get_or_insert_default();
        absent(&mut routing.split_stream, false);
        if routing.info_buffer_size.is_none() {
            routing.info_buffer_size = "0".parse().ok();
        }
    }
}

/// Fills in hard eviction thresholds. Only a `--config` file gets them: when it
/// names none, or asks for the missing ones to be added.
pub fn apply_eviction_hard(c: &mut KubeletConfiguration) {
    let merge = c.merge_default_eviction_settings == Some(true);
    let defaults = EVICTION_HARD.map(|(signal, value)| (signal.to_owned(), value.to_owned()));
    match &mut c.eviction_hard {
        None => c.eviction_hard = Some(BTreeMap::from(defaults)),
        Some(thresholds) if merge => {
            for (signal, value) in defaults {
                thresholds.entry(signal).or_insert(value);
            }
        }
        Some(_) => {}
    }
}

/// Permissive settings of old that hold only while no `--config` file is read.
pub fn apply_legacy(c: &mut KubeletConfiguration) {
    let authentication = c.authentication.get_or_insert_default();
    authentication.anonymous.get_or_insert_default().enabled = Some(true);
    authentication.webhook.get_or_insert_default().enabled = Some(false);
    c.authorization.get_or_insert_default().mode = Some("AlwaysAllow".to_owned());
    c.read_only_port = Some(10255);
}

#[cfg(test)]
mod tests;
