//! Checks of node identity, status, pods and events.

use super::{Check, labels};
use crate::go_duration::GoDuration;

impl Check<'_> {
    pub(super) fn node(&mut self) {
        let c = self.c;
        self.at_least("nodeLeaseDurationSeconds", c.node_lease_duration_seconds, 1);
        self.at_least("nodeStatusMaxImages", c.node_status_max_images, -1);
        self.at_least("eventBurst", c.event_burst, 0);
        self.at_least("eventRecordQPS", c.event_record_qps, 0);
        self.at_least("kubeAPIBurst", c.kube_api_burst, 0);
        self.at_least("kubeAPIQPS", c.kube_api_qps, 0);
        self.at_least("maxPods", c.max_pods, 0);
        self.at_least("podsPerCore", c.pods_per_core, 0);
        self.at_least("maxOpenFiles", c.max_open_files, 0);
        self.range("oomScoreAdj", c.oom_score_adj, -1000, 1000);
        self.range("iptablesDropBit", c.iptables_drop_bit, 0, 31);
        self.range("iptablesMasqueradeBit", c.iptables_masquerade_bit, 0, 31);
        if let Some(period) = c.sync_frequency.filter(|period| *period <= GoDuration::ZERO) {
            self.bad("syncFrequency", period, "must be longer than zero");
        }
        if c.run_once == Some(true) {
            self.bad("runOnce", true, "the run-once mode was withdrawn from Kubernetes; remove it");
        }
        self.one_of(
            "hairpinMode",
            c.hairpin_mode.as_ref(),
            &["promiscuous-bridge", "hairpin-veth", "none"],
        );
        let strategies = ["Watch", "Cache", "Get"];
        let strategy = c.config_map_and_secret_change_detection_strategy.as_ref();
        self.one_of("configMapAndSecretChangeDetectionStrategy", strategy, &strategies);
        for server in c.cluster_dns.iter().flatten() {
            if server.parse::<std::net::IpAddr>().is_err() {
                self.advise(
                    "clusterDNS",
                    format!("{server:?} is not an IP address; it is skipped"),
                );
            }
        }
        self.taints();
        self.crash_loop_back_off();
        self.hidden_metrics();
        self.tracing();
    }

    fn taints(&mut self) {
        for (index, taint) in self.c.register_with_taints.iter().flatten().enumerate() {
            let path = format!("registerWithTaints[{index}]");
            let shown = format!("{}={}:{}", taint.key, taint.value, taint.effect);
            // Upstream lets a taint without effect pass in the file, though not as a flag.
            let effect = if taint.effect.is_empty() { "NoSchedule" } else { &taint.effect };
            for wrong in labels::taint_problems(&taint.key, &taint.value, effect) {
                self.bad(path.clone(), &shown, wrong);
            }
            if taint.time_added.is_some() {
                self.bad(path, shown, "timeAdded is set by Kubernetes; remove it");
            }
        }
    }

    fn crash_loop_back_off(&mut self) {
        let path = "crashLoopBackOff.maxContainerRestartPeriod";
        let period =
            self.c.crash_loop_back_off.as_ref().and_then(|b| b.max_container_restart_period);
        let enabled = self.gates.enabled("KubeletCrashLoopBackOffMax");
        match period {
            Some(period) if !enabled => {
                self.bad(
                    path,
                    period,
                    "needs the feature gate KubeletCrashLoopBackOffMax; remove one of them",
                );
            }
            // Parts below a millisecond do not count.
            Some(period) if !(1_000..=300_000).contains(&(period.nanos() / 1_000_000)) => {
                self.bad(path, period, "must be from 1s to 300s");
            }
            None if enabled => {
                self.bad(path, "missing", "must be set while KubeletCrashLoopBackOffMax is on")
            }
            _ => {}
        }
    }

    fn hidden_metrics(&mut self) {
        let version = self.c.show_hidden_metrics_for_version.as_deref().unwrap_or_default();
        if !version.is_empty() && version != "1.35" {
            self.bad(
                "showHiddenMetricsForVersion",
                format!("{version:?}"),
                "only the previous minor version, 1.35, can be named",
            );
        }
    }

    fn tracing(&mut self) {
        let Some(tracing) = &self.c.tracing else {
            return;
        };
        self.range(
            "tracing.samplingRatePerMillion",
            tracing.sampling_rate_per_million,
            0,
            1_000_000,
        );
        if let Some(endpoint) = &tracing.endpoint {
            let scheme = endpoint.split_once("//").map(|(scheme, _)| scheme);
            if scheme
                .is_some_and(|scheme| !matches!(scheme, "dns:" | "unix:" | "unix-abstract:" | ""))
            {
                self.bad(
                    "tracing.endpoint",
                    format!("{endpoint:?}"),
                    "the scheme must be none, dns, unix or unix-abstract",
                );
            }
        }
    }
}
