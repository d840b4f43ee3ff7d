//! What the image manager counts, under upstream's names.
//!
//! Owns the metrics; the rest of the folder increments them. Upstream keeps
//! records of pulls in memory as well and tells how full that is; there is no
//! such memory here. Upstream: pkg/kubelet/images, its pullmanager,
//! pkg/credentialprovider/plugin and pkg/kubelet/metrics.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds of pull durations.
const PULL_SECONDS: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0,
    1200.0, 1800.0, 2700.0, 3600.0,
];
/// Upper bounds of how long credential providers take.
const PLUGIN_SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;
/// Sizes above the bound have the label, the last one that fits.
const SIZES: [(u64, &str); 12] = [
    (0, "0-10MB"),
    (10 * MB, "10MB-100MB"),
    (100 * MB, "100MB-500MB"),
    (500 * MB, "500MB-1GB"),
    (GB, "1GB-5GB"),
    (5 * GB, "5GB-10GB"),
    (10 * GB, "10GB-20GB"),
    (20 * GB, "20GB-30GB"),
    (30 * GB, "30GB-40GB"),
    (40 * GB, "40GB-60GB"),
    (60 * GB, "60GB-100GB"),
    (100 * GB, "GT100GB"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Size {
    image_size_in_bytes: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    pull_policy: String,
    present_locally: &'static str,
    pull_required: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Check {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Plugin {
    plugin_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Config {
    hash: String,
}

/// What came of asking whether a pod may use an image that is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MustPull {
    /// No policy asks for a check.
    PolicyAllowed,
    /// A record lets the pod use it.
    RecordFound,
    /// It has to be pulled again.
    MustAuthenticate,
    /// The records cannot be read.
    Error,
}

/// Every metric of images. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ImageMetrics {
    pull_seconds: Family<Size, Histogram>,
    requests: Family<Request, Counter>,
    checks: Family<Check, Counter>,
    /// Intents of pulls on disk.
    pub intents: Gauge,
    /// Records of pulls on disk.
    pub records: Gauge,
    /// Image volumes that containers asked for.
    pub volumes_requested: Counter,
    /// Mounts of image volumes that were made.
    pub volumes_mounted: Counter,
    /// Mounts of image volumes that could not be made.
    pub volumes_failed: Counter,
    plugin_seconds: Family<Plugin, Histogram>,
    plugin_errors: Family<Plugin, Counter>,
    provider_config: Family<Config, Gauge>,
}

impl Default for ImageMetrics {
    fn default() -> Self {
        Self {
            pull_seconds: Family::new_with_constructor(|| Histogram::new(PULL_SECONDS)),
            requests: Family::default(),
            checks: Family::default(),
            intents: Gauge::default(),
            records: Gauge::default(),
            volumes_requested: Counter::default(),
            volumes_mounted: Counter::default(),
            volumes_failed: Counter::default(),
            plugin_seconds: Family::new_with_constructor(|| Histogram::new(PLUGIN_SECONDS)),
            plugin_errors: Family::default(),
            provider_config: Family::default(),
        }
    }
}

impl ImageMetrics {
    /// Has them told with all others.
    pub fn register(&self, r: &mut Registry) {
        r.register_with_unit(
            "kubelet_image_pull_duration",
            "Duration of image pulls, waiting included",
            Unit::Seconds,
            self.pull_seconds.clone(),
        );
        r.register(
            "kubelet_image_manager_ensure_image_requests",
            "Wishes for an image",
            self.requests.clone(),
        );
        r.register(
            "kubelet_imagemanager_image_mustpull_checks",
            "Checks whether a pod may use an image that is here",
            self.checks.clone(),
        );
        r.register(
            "kubelet_imagemanager_ondisk_pullintents",
            "Intents of pulls on disk",
            self.intents.clone(),
        );
        r.register(
            "kubelet_imagemanager_ondisk_pulledrecords",
            "Records of pulls on disk",
            self.records.clone(),
        );
        r.register(
            "kubelet_image_volume_requested",
            "Image volumes that containers asked for",
            self.volumes_requested.clone(),
        );
        r.register(
            "kubelet_image_volume_mounted_succeed",
            "Mounts of image volumes that were made",
            self.volumes_mounted.clone(),
        );
        r.register(
            "kubelet_image_volume_mounted_errors",
            "Mounts of image volumes that could not be made",
            self.volumes_failed.clone(),
        );
        r.register(
            "kubelet_credential_provider_plugin_duration",
            "Duration of credential provider runs in seconds",
            self.plugin_seconds.clone(),
        );
        r.register(
            "kubelet_credential_provider_plugin_errors",
            "Credential provider runs that failed",
            self.plugin_errors.clone(),
        );
        r.register(
            "kubelet_credential_provider_config_info",
            "The configuration of credential providers, by its hash",
            self.provider_config.clone(),
        );
    }

    /// A pull succeeded.
    pub fn pulled(&self, bytes: u64, took: Duration) {
        let label = Size { image_size_in_bytes: size_label(bytes) };
        self.pull_seconds.get_or_create(&label).observe(took.as_secs_f64());
    }

    /// A wish for an image was dealt with; what is not known is `None`.
    pub fn requested(&self, policy: &str, present: Option<bool>, pull_required: Option<bool>) {
        let word = |known: Option<bool>| match known {
            Some(true) => "true",
            Some(false) => "false",
            None => "unknown",
        };
        let label = Request {
            pull_policy: policy.to_lowercase(),
            present_locally: word(present),
            pull_required: word(pull_required),
        };
        self.requests.get_or_create(&label).inc();
    }

    /// A pod's right to an image was looked up.
    pub fn checked(&self, result: MustPull) {
        let result = match result {
            MustPull::PolicyAllowed => "credentialPolicyAllowed",
            MustPull::RecordFound => "credentialRecordFound",
            MustPull::MustAuthenticate => "mustAuthenticate",
            MustPull::Error => "error",
        };
        self.checks.get_or_create(&Check { result }).inc();
    }

    /// A credential provider was run.
    pub fn ran_plugin(&self, name: &str, took: Duration, well: bool) {
        let label = Plugin { plugin_name: name.to_owned() };
        self.plugin_seconds.get_or_create(&label).observe(took.as_secs_f64());
        if !well {
            self.plugin_errors.get_or_create(&label).inc();
        }
    }

    /// Credential providers are configured by files of this hash.
    pub fn configured(&self, hash: &str) {
        self.provider_config.get_or_create(&Config { hash: hash.to_owned() }).set(1);
    }
}

fn size_label(bytes: u64) -> &'static str {
    let fits = SIZES.iter().rev().find(|(above, _)| bytes > *above);
    fits.map_or("N/A", |(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_upstreams_labels() {
        for (bytes, label) in [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 * MB, "0-10MB"),
            (10 * MB + 1, "10MB-100MB"),
            (5 * GB, "1GB-5GB"),
            (u64::MAX, "GT100GB"),
        ] {
            assert_eq!(size_label(bytes), label, "{bytes}");
        }
    }
}
