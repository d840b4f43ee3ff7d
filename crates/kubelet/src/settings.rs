//! What the agent was told to do, in the agent's own terms.
//!
//! Built from the checked configuration by the binary, and directly by
//! simulation. Plain data; every field has a consumer in this crate.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::admission::Rules as AdmissionRules;
use crate::container_logs::RotationPolicy;
use crate::container_manager::Rules;
use crate::container_manager::allocatable::Allocatable;
use crate::image_manager::ImageSettings;
use crate::node_shutdown::ShutdownPlan;

/// Settings of one agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This node's name.
    pub node_name: String,
    /// Manifest file or directory.
    pub static_pod_path: Option<PathBuf>,
    /// How often the manifest path is rescanned besides watching it.
    pub file_check_frequency: Duration,
    /// URL that serves a Pod or PodList.
    pub static_pod_url: Option<String>,
    /// Headers sent to that URL.
    pub static_pod_url_headers: Vec<(String, String)>,
    /// How often the URL is fetched.
    pub http_check_frequency: Duration,
    /// How often a settled pod is looked at again.
    pub sync_frequency: Duration,
    /// State directory.
    pub root_dir: PathBuf,
    /// Root of the pods' log directories.
    pub pod_logs_dir: PathBuf,
    /// Directory of flat symbolic links to container logs.
    pub container_log_links_dir: PathBuf,
    /// How the containers' logs are rotated.
    pub log_rotation: RotationPolicy,
    /// Longest crash-loop back-off.
    pub max_restart_period: Duration,
    /// Pods that the runtime works on at once; more only make it slower.
    pub lanes: usize,
    /// Follow the runtime's events where it streams them; otherwise list it every second.
    pub follow_events: bool,
    /// Memory of the machine in bytes: scales the out-of-memory scores.
    pub memory_bytes: u64,
    /// How requests and limits reach the kernel.
    pub resources: Rules,
    /// What one container may use at the most, and all pods may request together when
    /// one is resized; nothing known of it bounds no resize.
    pub allocatable: Allocatable,
    /// Which pods may run here.
    pub admission: AdmissionRules,
    /// Addresses of the node, primary first.
    pub node_ips: Vec<String>,
    /// Labels of the node, for as long as no API server knows others.
    pub node_labels: BTreeMap<String, String>,
    /// A controller of the cluster attaches volumes (`enableControllerAttachDetach`).
    pub controller_attaches: bool,
    /// Dead instances kept per container name.
    pub max_dead_per_container: u32,
    /// Of the image manager.
    pub images: ImageSettings,
    /// DNS servers of the cluster; empty if there is none.
    pub cluster_dns: Vec<String>,
    /// Domain of the cluster; empty if there is none.
    pub cluster_domain: String,
    /// The file that pods' resolver settings derive from; without one, pods
    /// look names up nowhere.
    pub resolv_conf: Option<PathBuf>,
    /// Containers that name no seccomp profile get the runtime's.
    pub seccomp_default: bool,
    /// Containers may name the signal that stops them, and their statuses tell it.
    pub stop_signals: bool,
    /// Sysctls, or prefixes ending in `*`, that pods may set besides the safe ones.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Variables may come from files that containers wrote (gate EnvFiles).
    pub env_files: bool,
    /// User ids that pods with a user namespace of their own are given.
    pub user_ids: UserIds,
    /// Volumes of any access mode are mounted with their SELinux label (gate SELinuxMount).
    pub selinux_mount_all: bool,
    /// What the machine is.
    pub machine: Machine,
    /// Pods of the API server are kept on disk, to start again without it.
    pub offline_autonomy: bool,
    /// Pods that put more on the node's disks than they may are ended.
    pub storage_limits: bool,
    /// How pods end before the machine does; `None` lets them end with it.
    pub shutdown: Option<ShutdownPlan>,
}

/// The host's user ids that pods may be given, in blocks of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserIds {
    /// The first id.
    pub first: u32,
    /// How many there are.
    pub count: u32,
    /// How many each pod gets; divides both of the others.
    pub per_pod: u32,
}

impl UserIds {
    /// Upstream's range: everything above the first block, which is the host's own.
    pub fn above_the_host(per_pod: u32) -> Self {
        let per_pod = per_pod.max(1);
        let blocks = (1_u64 << 32) / u64::from(per_pod) - 1;
        let count = u32::try_from(blocks * u64::from(per_pod)).unwrap_or(0);
        Self { first: per_pod, count, per_pod }
    }
}

/// Facts about the machine that containers' settings depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// Kernel version, major and minor; zeros if unknown.
    pub kernel: (u32, u32),
    /// AppArmor is on.
    pub apparmor: bool,
    /// SELinux is on, so that mounts are relabelled.
    pub selinux: bool,
    /// With SELinux, the label of containers' files, as far as its policy says one.
    pub selinux_files: Option<String>,
    /// Files below /sys that tell of other processors' heat, hidden from containers.
    pub thermal_throttle: Vec<String>,
}

impl Settings {
    /// Upstream's defaults for a node of this name.
    pub fn for_node(node_name: impl Into<String>) -> Self {
        let node_name = node_name.into();
        Self {
            admission: AdmissionRules::boundless(&node_name),
            node_name,
            static_pod_path: None,
            file_check_frequency: Duration::from_secs(20),
            static_pod_url: None,
            static_pod_url_headers: Vec::new(),
            http_check_frequency: Duration::from_secs(20),
            sync_frequency: Duration::from_secs(60),
            root_dir: "/var/lib/kubelet".into(),
            pod_logs_dir: "/var/log/pods".into(),
            container_log_links_dir: "/var/log/containers".into(),
            log_rotation: RotationPolicy::default(),
            max_restart_period: Duration::from_secs(300),
            lanes: 16,
            follow_events: true,
            memory_bytes: 0,
            resources: Rules::default(),
            allocatable: Allocatable::default(),
            node_ips: Vec::new(),
            node_labels: BTreeMap::new(),
            controller_attaches: true,
            max_dead_per_container: 1,
            images: ImageSettings::default(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: Some("/etc/resolv.conf".into()),
            seccomp_default: false,
            stop_signals: false,
            allowed_unsafe_sysctls: Vec::new(),
            env_files: true,
            user_ids: UserIds::above_the_host(65_536),
            selinux_mount_all: false,
            machine: Machine::default(),
            offline_autonomy: false,
            storage_limits: true,
            shutdown: None,
        }
    }
}
