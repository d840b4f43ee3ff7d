//! What the agent was told to do, in the agent's own terms.
//!
//! Built from the checked configuration by the binary, and directly by
//! simulation. Plain data; every field has a consumer in this crate.

use std::path::PathBuf;
use std::time::Duration;

use crate::container_manager::Rules;
use crate::image_manager::ImageSettings;
use crate::container_logs::RotationPolicy;

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
    /// Addresses of the node, primary first.
    pub node_ips: Vec<String>,
    /// Dead instances kept per container name.
    pub max_dead_per_container: u32,
    /// Of the image manager.
    pub images: ImageSettings,
}

impl Settings {
    /// Upstream's defaults for a node of this name.
    pub fn for_node(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
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
            node_ips: Vec::new(),
            max_dead_per_container: 1,
            images: ImageSettings::default(),
        }
    }
}
