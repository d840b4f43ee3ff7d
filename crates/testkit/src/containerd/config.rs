//! What a private containerd and its bridge network are told.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::image;
use crate::slot::Slot;

/// Where Debian puts the CNI plugins.
pub(super) const CNI_PLUGINS: &str = "/usr/lib/cni";

/// The files and the socket of one instance.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    pub config: PathBuf,
    pub socket: PathBuf,
    pub log: PathBuf,
    cni: PathBuf,
}

impl Paths {
    pub fn new(dir: &Path) -> Self {
        Self {
            config: dir.join("containerd.toml"),
            socket: dir.join("containerd.sock"),
            log: dir.join("containerd.log"),
            cni: dir.join("cni"),
        }
    }
}

/// Writes the runtime's and the network's configuration.
pub(super) fn write(slot: &Slot, paths: &Paths, hosts: Option<&Path>) -> Result<()> {
    let put = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    std::fs::create_dir_all(&paths.cni)
        .with_context(|| format!("cannot create {}", paths.cni.display()))?;
    let mut config = containerd_config(slot.dir(), paths);
    if let Some(hosts) = hosts {
        config.push_str(&registry_config(hosts));
    }
    put(&paths.config, config)?;
    put(&paths.cni.join("10-testkit.conflist"), network_config(slot).to_string())
}

fn containerd_config(dir: &Path, paths: &Paths) -> String {
    // restrict_oom_score_adj: without CAP_SYS_RESOURCE (in a container, say) a
    // lower score than our own is refused and no container would start.
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
# From 2.0 on: its socket would be one for all instances.
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{pause}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{cni}"
"#,
        dir = dir.display(),
        socket = paths.socket.display(),
        cni = paths.cni.display(),
        pause = image::PAUSE,
    )
}

fn registry_config(hosts: &Path) -> String {
    format!(
        r#"  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{}"
"#,
        hosts.display()
    )
}

fn network_config(slot: &Slot) -> serde_json::Value {
    let (address, prefix) = slot.subnet();
    json!({
        "cniVersion": "1.0.0",
        "name": slot.network(),
        "plugins": [
            {
                "type": "bridge",
                "bridge": slot.bridge(),
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": slot.dir().join("ipam"),
                    "ranges": [[{"subnet": format!("{address}/{prefix}")}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}
