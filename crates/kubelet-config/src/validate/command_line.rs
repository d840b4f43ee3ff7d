//! Checks of flags that are not part of the configuration file.

use std::net::IpAddr;

use super::{Check, labels};
use crate::layers::clean;
use crate::problem::Problem;

impl Check<'_> {
    pub(super) fn command_line(&mut self) {
        self.bootstrap();
        self.node_labels();
        self.node_ip();
        let flags = self.flags;
        if let Some(provider) = flags.cloud_provider.as_deref().filter(|name| *name != "external") {
            let wrong = format!("{provider:?} is not a provider; leave it empty or set external");
            self.problems.push(Problem::flag("cloud-provider", wrong));
        }
        if flags.exit_on_lock_contention && flags.lock_file.is_none() {
            let wrong = "needs --lock-file to name the file to watch";
            self.problems.push(Problem::flag("exit-on-lock-contention", wrong));
        }
        if flags.offline_autonomy && flags.kubeconfig.is_none() {
            let wrong = "needs --kubeconfig: a node of its own has no API server to do without";
            self.problems.push(Problem::flag("offline-autonomy", wrong));
        }
        let root = &flags.root_dir;
        if !root.is_absolute()
            || clean(root) != *root
            || root.as_os_str().to_string_lossy().ends_with("/.")
        {
            let wrong = format!("{} must be an absolute path without . and ..", root.display());
            self.problems.push(Problem::flag("root-dir", wrong));
        }
        if let Some(name) = flags.hostname_override.as_deref().filter(|name| name.trim().is_empty())
        {
            self.problems
                .push(Problem::flag("hostname-override", format!("{name:?} is not a host name")));
        }
        if flags.image_credential_provider_config.is_some()
            != flags.image_credential_provider_bin_dir.is_some()
        {
            let wrong = "must be given together with --image-credential-provider-bin-dir";
            self.problems.push(Problem::flag("image-credential-provider-config", wrong));
        }
    }

    /// The kubeconfig is what a bootstrap writes.
    fn bootstrap(&mut self) {
        if self.flags.bootstrap_kubeconfig.is_some() && self.flags.kubeconfig.is_none() {
            let wrong = "needs --kubeconfig to name the file that is written once the node has \
                         its certificate";
            self.problems.push(Problem::flag("bootstrap-kubeconfig", wrong));
        }
    }

    fn node_labels(&mut self) {
        for (key, value) in &self.flags.node_labels {
            let mut wrong: Vec<&str> =
                labels::key_problem(key).into_iter().chain(labels::value_problem(value)).collect();
            if labels::is_kubernetes(key) && !labels::is_allowed_on_node(key) {
                wrong.push(
                    "a node may not give itself this label of kubernetes.io or k8s.io; use the prefix \
                     node.kubernetes.io or kubelet.kubernetes.io",
                );
            }
            for wrong in wrong {
                self.problems.push(Problem::flag("node-labels", format!("{key}={value}: {wrong}")));
            }
        }
    }

    fn node_ip(&mut self) {
        let Some(text) = self.flags.node_ip.as_deref() else {
            return;
        };
        let mut addresses = Vec::new();
        for part in text.split(',').map(str::trim) {
            match part.parse::<IpAddr>() {
                Ok(address) => addresses.push(address),
                Err(_) => self
                    .advise("--node-ip", format!("{part:?} is not an IP address; it is ignored")),
            }
        }
        let wrong = match addresses.as_slice() {
            [] | [_] => return,
            [a, b] if a.is_ipv4() == b.is_ipv4() => "two addresses must be one IPv4 and one IPv6",
            [a, b] if a.is_unspecified() || b.is_unspecified() => {
                "0.0.0.0 and :: cannot be part of a pair"
            }
            [_, _] => return,
            _ => "at most one IPv4 and one IPv6 address can be given",
        };
        self.problems.push(Problem::flag("node-ip", format!("{text}: {wrong}")));
    }
}
