//! What is written, what fits, who comes first, what outlives the agent.

mod format;
mod manager;
mod policy;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, Mono, PodSet, Source};

use super::{Allocations, Judging, News};
use crate::admission::{Circumstances, Recovered};
use crate::container_manager::allocatable::Allocatable;
use crate::settings::Settings;

/// A review on a node that admits every pod.
fn review(
    allocations: &Allocations,
    set: &Arc<PodSet>,
    node: Option<Allocatable>,
) -> (Arc<PodSet>, Vec<News>) {
    let settings = Settings::for_node("n");
    let at = Circumstances {
        settings: &settings,
        news: None,
        conditions: &[],
        shutting_down: false,
        strict_groups: Some(true),
        now: Mono::default(),
    };
    let judging = Judging { at, recovered: &|_| Recovered::New, ask_node: &|| 0 };
    allocations.review(set, |_| true, Some(&judging), node, Timestamp::UNIX_EPOCH)
}

/// A defaulted pod of one container `app`, with more fields in its spec.
fn pod(uid: &str, resources: &str, more: &str) -> DesiredPod {
    let json = format!(
        r#"{{"metadata":{{"name":"{uid}","namespace":"n","uid":"{uid}"}},"spec":{{
            "containers":[{{"name":"app","image":"i","resources":{resources}}}]{more}}}}}"#
    );
    let mut pod: Pod = serde_json::from_str(&json).expect("test pod");
    kubelet_model::manifest::default_pod(&mut pod);
    DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
}

/// Requests of so many thousandths and mebibytes.
fn sized(uid: &str, cpu: u32, memory: u32) -> DesiredPod {
    let resources = format!(r#"{{"requests":{{"cpu":"{cpu}m","memory":"{memory}Mi"}}}}"#);
    pod(uid, &resources, "")
}
