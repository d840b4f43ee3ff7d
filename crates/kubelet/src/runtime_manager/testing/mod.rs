//! Pods for the tables of this folder, and a runtime made of paper.

mod bench;
pub(crate) mod fake;

pub(super) use bench::Bench;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, Source};

/// `web-node` in `ns` with one container, `app`, and more fields in its spec.
pub(super) fn pod(spec: &str) -> DesiredPod {
    pod_with("", "", spec)
}

/// As [`pod`], with more fields in its metadata and its container, each with a
/// comma in front.
pub(crate) fn pod_with(metadata: &str, container: &str, spec: &str) -> DesiredPod {
    let comma = if spec.is_empty() { "" } else { "," };
    let json = format!(
        r#"{{"metadata":{{"name":"web-node","namespace":"ns","uid":"u1"{metadata}}},
            "spec":{{"containers":[{{"name":"app","image":"i"{container}}}]{comma}{spec}}}}}"#
    );
    let mut pod: Pod = serde_json::from_str(&json).expect("test pod");
    kubelet_model::manifest::default_pod(&mut pod);
    DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
}
