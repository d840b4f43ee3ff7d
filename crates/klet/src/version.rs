//! Which klet this is, and which Kubernetes it stands for.

use kubelet_config::VersionRequest;

/// The Kubernetes release whose kubelet this agent stands in for.
pub const KUBERNETES: &str = kubelet_config::KUBERNETES_VERSION;

/// The answer of `klet version`.
pub fn klet() -> String {
    format!(
        "klet {}\nkubelet API level: Kubernetes {KUBERNETES}, {}\n",
        env!("CARGO_PKG_VERSION"),
        kubelet_config::wire::API_VERSION
    )
}

/// The answer of `kubelet --version`, which tools parse.
pub fn kubelet(request: &VersionRequest) -> String {
    match request {
        VersionRequest::Short => format!("Kubernetes {KUBERNETES}\n"),
        VersionRequest::Raw => {
            let mut parts = KUBERNETES.trim_start_matches('v').split('.');
            let (major, minor) =
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let platform = format!("{}/{}", std::env::consts::OS, go_arch());
            format!(
                "version.Info{{Major:{major:?}, Minor:{minor:?}, GitVersion:{KUBERNETES:?}, Compiler:\"rustc\", \
                 Platform:{platform:?}}}\n"
            )
        }
    }
}

/// The architecture under the name Go gives it.
fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
