//! Checks of `--profile=secure`: what contradicts an item of CIS 4.2, item by item.
//!
//! What the profile sets by default passes; what is complained about here somebody set,
//! or did not set though only they can know it.

use super::{Check, is_set};
use crate::flags::Flags;
use crate::go_duration::GoDuration;
use crate::problem::Problem;
use crate::profile::{SECURE, STRONG_CIPHERS};

/// Events per second below which the benchmark's events get lost; 0 stands for no limit.
const EVENT_QPS_MIN: i32 = 5;

impl Check<'_> {
    pub(super) fn profile(&mut self) {
        match self.flags.profile.as_deref() {
            None => {}
            Some(SECURE) => self.secure(),
            Some(other) => self.problems.push(Problem::flag(
                "profile",
                format!("{other:?} is not a profile; leave it out or set {SECURE}"),
            )),
        }
    }

    fn secure(&mut self) {
        let flags = self.flags;
        if flags.kubeconfig.is_none() {
            let wrong = "secure needs an API server, which says who may do what; give --kubeconfig";
            self.problems.push(Problem::flag("profile", wrong));
        }
        self.secure_access();
        self.secure_certificates();
        self.secure_pods();
        if let Some(name) = flags.hostname_override.as_deref() {
            let wrong = against("4.2.7", "leave it out and set the host's own name");
            self.problems.push(Problem::flag("hostname-override", format!("{name:?} {wrong}")));
        }
        if flags.streams_need_create == Some(false) {
            let wrong = "false contradicts --profile=secure, under which commands in containers \
                         need the right to create; leave it out";
            self.problems.push(Problem::flag("streams-need-create", wrong));
        }
    }

    /// Who may ask for what: 4.2.1 to 4.2.5.
    fn secure_access(&mut self) {
        let c = self.c;
        let authentication = c.authentication.as_ref();
        let anonymous = authentication.and_then(|a| a.anonymous.as_ref()?.enabled);
        if anonymous != Some(false) {
            let wrong = against("4.2.1", "set it to false");
            self.bad("authentication.anonymous.enabled", true, wrong);
        }
        let mode = c.authorization.as_ref().and_then(|a| a.mode.as_deref());
        if mode == Some("AlwaysAllow") {
            let wrong = against("4.2.2", "set it to Webhook");
            self.bad("authorization.mode", "\"AlwaysAllow\"", wrong);
        }
        let authority = authentication.and_then(|a| a.x509.as_ref()?.client_ca_file.clone());
        if !is_set(&authority) {
            let wrong = against(
                "4.2.3",
                "set it to the authority that signs clients' certificates, e.g. \
                 /etc/kubernetes/pki/ca.crt",
            );
            self.bad("authentication.x509.clientCAFile", "not set", wrong);
        }
        if let Some(port) = c.read_only_port.filter(|port| *port != 0) {
            let wrong = against("4.2.4", "set it to 0; the same pages are on the HTTPS port");
            self.bad("readOnlyPort", port, wrong);
        }
        let idle = c.streaming_connection_idle_timeout;
        if idle.is_none_or(|idle| idle == GoDuration::ZERO) {
            let wrong = against("4.2.5", "set a time after which a silent stream ends, e.g. 4h");
            self.bad("streamingConnectionIdleTimeout", "0s", wrong);
        }
    }

    /// Certificates and what is spoken with them: 4.2.9 to 4.2.12.
    fn secure_certificates(&mut self) {
        let c = self.c;
        if !is_set(&c.tls_cert_file) && c.server_tls_bootstrap != Some(true) {
            let wrong = against(
                "4.2.9",
                "set tlsCertFile and tlsPrivateKeyFile, or serverTLSBootstrap: true to be given \
                 a certificate by the API server",
            );
            self.bad("tlsCertFile", "not set", wrong);
        }
        if c.rotate_certificates != Some(true) {
            let wrong = against("4.2.10", "set it to true");
            self.bad("rotateCertificates", false, wrong);
        }
        if !self.gates.enabled("RotateKubeletServerCertificate") {
            let wrong = against("4.2.11", "remove the setting");
            self.problems
                .push(Problem::other("featureGates[RotateKubeletServerCertificate]", wrong));
        }
        let suites = c.tls_cipher_suites.as_deref().unwrap_or_default();
        let weak = suites.iter().find(|name| !STRONG_CIPHERS.contains(&name.as_str()));
        if let Some(name) = weak {
            let wrong = against("4.2.12", "use ECDHE suites with AES-GCM or ChaCha20 only");
            self.bad("tlsCipherSuites", format!("{name:?}"), wrong);
        } else if suites.is_empty() {
            let wrong = against("4.2.12", "leave it out, or name ECDHE suites");
            self.bad("tlsCipherSuites", "[]", wrong);
        }
        let version = c.tls_min_version.as_deref().unwrap_or_default();
        if !matches!(version, "VersionTLS12" | "VersionTLS13") {
            let wrong = against("4.2.12", "set VersionTLS12 or VersionTLS13");
            self.bad("tlsMinVersion", format!("{version:?}"), wrong);
        }
    }

    /// What pods and the host's rules are: 4.2.6, 4.2.8, 4.2.13, 4.2.14.
    fn secure_pods(&mut self) {
        let c = self.c;
        if c.make_iptables_util_chains != Some(true) {
            let wrong = against("4.2.6", "set it to true");
            self.bad("makeIPTablesUtilChains", false, wrong);
        }
        if let Some(rate) = c.event_record_qps.filter(|qps| (1..EVENT_QPS_MIN).contains(qps)) {
            let what = format!("set 0, for no limit, or {EVENT_QPS_MIN} or more");
            self.bad("eventRecordQPS", rate, against("4.2.8", &what));
        }
        if c.pod_pids_limit.is_none_or(|limit| limit < 1) {
            let wrong = against("4.2.13", "set how many processes a pod may have, e.g. 4096");
            self.bad("podPidsLimit", c.pod_pids_limit.unwrap_or(-1), wrong);
        }
        if !seccomp(self.flags, c.seccomp_default) {
            let wrong = against("4.2.14", "set it to true");
            self.bad("seccompDefault", false, wrong);
        }
    }
}

fn seccomp(flags: &Flags, field: Option<bool>) -> bool {
    flags.seccomp_default || field == Some(true)
}

fn against(item: &str, what_to_do: &str) -> String {
    format!("contradicts --profile=secure (CIS {item}); {what_to_do}")
}
