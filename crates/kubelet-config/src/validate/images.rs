//! Checks of the runtime, of images and of container logs.

use super::Check;
use crate::go_duration::GoDuration;
use crate::quantity::Quantity;

const POLICIES: [&str; 4] =
    ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"];

/// Longest path of a unix socket: the kernel's field less its closing zero.
const SOCKET_PATH_MAX: usize = 107;

impl Check<'_> {
    pub(super) fn images(&mut self) {
        let c = self.c;
        let runtime = c.container_runtime_endpoint.as_deref().unwrap_or_default();
        if runtime.is_empty() {
            self.bad("containerRuntimeEndpoint", "\"\"", "must name the runtime's socket");
        } else {
            self.endpoint("containerRuntimeEndpoint", runtime);
        }
        // Empty means the runtime's own.
        if let Some(image) = c.image_service_endpoint.as_deref().filter(|text| !text.is_empty()) {
            self.endpoint("imageServiceEndpoint", image);
        }
        if let Some(timeout) =
            c.runtime_request_timeout.filter(|timeout| *timeout <= GoDuration::ZERO)
        {
            self.bad("runtimeRequestTimeout", timeout, "must be longer than zero");
        }
        self.at_least("registryBurst", c.registry_burst, 0);
        self.at_least("registryPullQPS", c.registry_pull_qps, 0);
        self.pulls();
        self.collection();
        self.credentials();
        self.container_logs();
    }

    /// A socket as the CRI client takes it: `unix:///path`, `unix:/path` or `/path`.
    fn endpoint(&mut self, field: &str, endpoint: &str) {
        let path = endpoint
            .strip_prefix("unix://")
            .or_else(|| endpoint.strip_prefix("unix:"))
            .unwrap_or(endpoint);
        let shown = format!("{endpoint:?}");
        if !path.starts_with('/') || path.contains('\0') {
            self.bad(field, shown, "is not a unix socket; write unix:///path or /path");
        } else if path.len() > SOCKET_PATH_MAX {
            let wrong = format!("the socket's path is longer than {SOCKET_PATH_MAX} bytes");
            self.bad(field, shown, format!("{wrong}, which the kernel refuses; use a shorter one"));
        }
    }

    fn pulls(&mut self) {
        let Some(parallel) = self.c.max_parallel_image_pulls else {
            return;
        };
        self.at_least("maxParallelImagePulls", Some(parallel), 1);
        if parallel > 1 && self.c.serialize_image_pulls == Some(true) {
            self.bad(
                "maxParallelImagePulls",
                parallel,
                "more than 1 needs serializeImagePulls: false",
            );
        }
    }

    fn collection(&mut self) {
        let c = self.c;
        let (high, low) = (c.image_gc_high_threshold_percent, c.image_gc_low_threshold_percent);
        self.range("imageGCHighThresholdPercent", high, 0, 100);
        self.range("imageGCLowThresholdPercent", low, 0, 100);
        if let (Some(high), Some(low)) = (high, low)
            && low >= high
        {
            let wrong = format!("must be less than imageGCHighThresholdPercent, which is {high}");
            self.bad("imageGCLowThresholdPercent", low, wrong);
        }
        let zero = GoDuration::ZERO;
        let (min, max) =
            (c.image_minimum_gc_age.unwrap_or(zero), c.image_maximum_gc_age.unwrap_or(zero));
        self.at_least("imageMinimumGCAge", Some(min), zero);
        self.at_least("imageMaximumGCAge", Some(max), zero);
        if max > zero && max <= min {
            self.bad(
                "imageMaximumGCAge",
                max,
                format!("must be longer than imageMinimumGCAge, which is {min}"),
            );
        }
    }

    fn credentials(&mut self) {
        let c = self.c;
        let policy = c.image_pull_credentials_verification_policy.as_deref().unwrap_or_default();
        let list = c.preloaded_images_verification_allowlist.as_deref().unwrap_or_default();
        let path = "preloadedImagesVerificationAllowlist";
        let shown = || format!("{list:?}");
        if !self.gates.enabled("KubeletEnsureSecretPulledImages") {
            let wrong = "needs the feature gate KubeletEnsureSecretPulledImages";
            if !policy.is_empty() {
                self.bad("imagePullCredentialsVerificationPolicy", format!("{policy:?}"), wrong);
            }
            if !list.is_empty() {
                self.bad(path, shown(), wrong);
            }
            return;
        }
        self.one_of(
            "imagePullCredentialsVerificationPolicy",
            c.image_pull_credentials_verification_policy.as_ref(),
            &POLICIES,
        );
        if !list.is_empty() && policy != "NeverVerifyAllowlistedImages" {
            let wrong =
                "needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages";
            self.bad(path, shown(), wrong);
        }
        for pattern in list {
            if let Some(wrong) = pattern_problem(pattern) {
                self.bad(path, format!("{pattern:?}"), wrong);
            }
        }
    }

    fn container_logs(&mut self) {
        let c = self.c;
        let size = c.container_log_max_size.as_deref().unwrap_or_default();
        if let Err(error) = size.parse::<Quantity>() {
            self.bad("containerLogMaxSize", format!("{size:?}"), error.to_string());
        }
        self.at_least("containerLogMaxFiles", c.container_log_max_files, 2);
        self.at_least("containerLogMaxWorkers", c.container_log_max_workers, 1);
        self.at_least(
            "containerLogMonitorInterval",
            c.container_log_monitor_interval,
            GoDuration::from_secs(3),
        );
        let directory = c.pod_logs_dir.as_deref().unwrap_or_default();
        let shown = || format!("{directory:?}");
        if !directory.starts_with('/') {
            self.bad("podLogsDir", shown(), "must be an absolute path");
        }
        let path = std::path::Path::new(directory);
        if crate::layers::clean(path).to_string_lossy() != directory {
            self.bad(
                "podLogsDir",
                shown(),
                "must be written without ., .. and doubled or trailing slashes",
            );
        }
        if !directory.is_ascii() {
            self.bad(
                "podLogsDir",
                shown(),
                "must contain ASCII characters only, because metrics carry it",
            );
        }
    }
}

/// What is wrong with an image pattern: a name without tag, or a prefix ending in `/*`.
fn pattern_problem(pattern: &str) -> Option<&'static str> {
    let (name, wildcard) = match pattern.strip_suffix('*') {
        Some(name) if name.ends_with('/') => (name, true),
        _ => (pattern, false),
    };
    if pattern != pattern.trim() {
        return Some("must not begin or end with a space");
    }
    if name.is_empty() || name == "/" {
        return Some("must name at least a registry host");
    }
    if name.contains('*') {
        return Some("only patterns that end in /* may contain *");
    }
    let last = name.rsplit('/').next().unwrap_or_default();
    if !wildcard && (last.contains(':') || name.contains('@')) {
        return Some("must name an image without tag and digest");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::pattern_problem;

    #[test]
    fn patterns() {
        for good in ["docker.io/*", "registry.k8s.io/pause", "localhost:5000/x", "a/b/*"] {
            assert_eq!(pattern_problem(good), None, "{good}");
        }
        for bad in ["", "*", "/*", " a", "a*", "a/*/b", "nginx:1", "nginx@sha256:00"] {
            assert!(pattern_problem(bad).is_some(), "{bad}");
        }
    }
}
