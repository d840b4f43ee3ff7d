//! Flags that are not part of the configuration file.
//!
//! Parsed once, then trusted. Upstream: KubeletFlags in cmd/kubelet/app/options.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::go_duration::GoDuration;
use crate::profile::SECURE;

/// What the command line says beyond the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flags {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--config-dir`.
    pub config_dir: Option<PathBuf>,
    /// `--profile`, as given.
    pub profile: Option<String>,
    /// `--streams-need-create`, if it was given.
    pub streams_need_create: Option<bool>,
    /// `--kubeconfig`; none means standalone.
    pub kubeconfig: Option<PathBuf>,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `--hostname-override`, as given.
    pub hostname_override: Option<String>,
    /// `--node-ip`, as given.
    pub node_ip: Option<String>,
    /// `--node-labels`.
    pub node_labels: BTreeMap<String, String>,
    /// `--cloud-provider`.
    pub cloud_provider: Option<String>,
    /// `--cert-dir`.
    pub cert_dir: PathBuf,
    /// `--root-dir`.
    pub root_dir: PathBuf,
    /// `--seccomp-default`; holds as well as the configuration's field.
    pub seccomp_default: bool,
    /// `--lock-file`.
    pub lock_file: Option<PathBuf>,
    /// `--exit-on-lock-contention`.
    pub exit_on_lock_contention: bool,
    /// `--runtime-cgroups`.
    pub runtime_cgroups: Option<String>,
    /// `--image-credential-provider-config`.
    pub image_credential_provider_config: Option<PathBuf>,
    /// `--image-credential-provider-bin-dir`.
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// `--minimum-container-ttl-duration`.
    pub minimum_container_ttl: GoDuration,
    /// `--maximum-dead-containers-per-container`.
    pub maximum_dead_containers_per_container: i32,
    /// `--maximum-dead-containers`; negative is no limit.
    pub maximum_dead_containers: i32,
    /// `--experimental-mounter-path`.
    pub experimental_mounter_path: Option<PathBuf>,
    /// `--experimental-allocatable-ignore-eviction`.
    pub experimental_allocatable_ignore_eviction: bool,
    /// `--housekeeping-interval`.
    pub housekeeping_interval: GoDuration,
    /// `--offline-autonomy`.
    pub offline_autonomy: bool,
    /// All flags that were given, with their values, secrets masked.
    pub given: BTreeMap<&'static str, String>,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            config: None,
            config_dir: None,
            profile: None,
            streams_need_create: None,
            kubeconfig: None,
            bootstrap_kubeconfig: None,
            hostname_override: None,
            node_ip: None,
            node_labels: BTreeMap::new(),
            cloud_provider: None,
            cert_dir: PathBuf::from("/var/lib/kubelet/pki"),
            root_dir: PathBuf::from("/var/lib/kubelet"),
            seccomp_default: false,
            lock_file: None,
            exit_on_lock_contention: false,
            runtime_cgroups: None,
            image_credential_provider_config: None,
            image_credential_provider_bin_dir: None,
            minimum_container_ttl: GoDuration::ZERO,
            maximum_dead_containers_per_container: 1,
            maximum_dead_containers: -1,
            experimental_mounter_path: None,
            experimental_allocatable_ignore_eviction: false,
            housekeeping_interval: GoDuration::from_secs(10),
            offline_autonomy: false,
            given: BTreeMap::new(),
        }
    }
}

impl Flags {
    /// Whether everything has to be as the secure profile wants it.
    pub fn is_secure(&self) -> bool {
        self.profile.as_deref() == Some(SECURE)
    }

    /// Whether a command in a container needs the right to create, however it is asked for.
    pub fn streams_need_create(&self) -> bool {
        self.streams_need_create.unwrap_or(self.is_secure())
    }

    /// The default of a flag, for help.
    pub(super) fn default_text(name: &str) -> Option<String> {
        let flags = Self::default();
        Some(match name {
            "cert-dir" => flags.cert_dir.display().to_string(),
            "root-dir" => flags.root_dir.display().to_string(),
            "maximum-dead-containers-per-container" => {
                flags.maximum_dead_containers_per_container.to_string()
            }
            "maximum-dead-containers" => flags.maximum_dead_containers.to_string(),
            "housekeeping-interval" => flags.housekeeping_interval.to_string(),
            "streams-need-create" => flags.streams_need_create().to_string(),
            _ => return None,
        })
    }

    /// Stores a flag's value. False when there is no such field.
    pub(super) fn set(&mut self, name: &str, value: &Value) -> bool {
        let text = || value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let path = || text().map(PathBuf::from);
        let yes = || value.as_bool().unwrap_or_default();
        let int = || value.as_i64().and_then(|int| i32::try_from(int).ok()).unwrap_or_default();
        let duration = || value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        match name {
            "config" => self.config = path(),
            "config-dir" => self.config_dir = path(),
            "profile" => self.profile = text(),
            "streams-need-create" => self.streams_need_create = Some(yes()),
            "kubeconfig" => self.kubeconfig = path(),
            "bootstrap-kubeconfig" => self.bootstrap_kubeconfig = path(),
            "hostname-override" => self.hostname_override = text(),
            "node-ip" => self.node_ip = text(),
            "node-labels" => {
                let pairs = value.as_object().into_iter().flatten();
                self.node_labels = pairs
                    .map(|(key, value)| {
                        (key.clone(), value.as_str().unwrap_or_default().to_owned())
                    })
                    .collect();
            }
            "cloud-provider" => self.cloud_provider = text(),
            "cert-dir" => self.cert_dir = path().unwrap_or_default(),
            "root-dir" => self.root_dir = path().unwrap_or_default(),
            "seccomp-default" => self.seccomp_default = yes(),
            "lock-file" => self.lock_file = path(),
            "exit-on-lock-contention" => self.exit_on_lock_contention = yes(),
            "runtime-cgroups" => self.runtime_cgroups = text(),
            "image-credential-provider-config" => self.image_credential_provider_config = path(),
            "image-credential-provider-bin-dir" => self.image_credential_provider_bin_dir = path(),
            "minimum-container-ttl-duration" => self.minimum_container_ttl = duration(),
            "maximum-dead-containers-per-container" => {
                self.maximum_dead_containers_per_container = int()
            }
            "maximum-dead-containers" => self.maximum_dead_containers = int(),
            "experimental-mounter-path" => self.experimental_mounter_path = path(),
            "experimental-allocatable-ignore-eviction" => {
                self.experimental_allocatable_ignore_eviction = yes()
            }
            "housekeeping-interval" => self.housekeeping_interval = duration(),
            "offline-autonomy" => self.offline_autonomy = yes(),
            _ => return false,
        }
        true
    }
}
