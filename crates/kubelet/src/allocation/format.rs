//! The text of a checkpoint, to the letter what upstream writes, so that either
//! kubelet reads what the other left. Pure.
//!
//! Upstream: pkg/kubelet/allocation/state/checkpoint.go.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_model::hash::{escape_as_go, text_checksum};
use kubelet_model::{PodResources, PodUid};
use serde::{Deserialize, Serialize};

/// What pods are given, by uid.
pub(super) type Pods = BTreeMap<PodUid, PodResources>;

/// Why a checkpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    /// Not the JSON it should be.
    #[error("it is not a checkpoint: {0}")]
    Json(String),
    /// Torn or edited.
    #[error("its checksum is {found}, but its data has {computed}")]
    Checksum {
        /// In the file.
        found: u64,
        /// Of the data.
        computed: u64,
    },
}

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    data: String,
    checksum: u64,
}

#[derive(Default, Serialize, Deserialize)]
struct Data {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "ContainerResources", default)]
    containers: Option<BTreeMap<String, Requirements>>,
    #[serde(rename = "PodLevelResources", default)]
    whole: Option<Requirements>,
}

/// In the order of upstream's fields, which is not that of the generated type.
#[derive(Default, Serialize, Deserialize)]
struct Requirements {
    #[serde(default, skip_serializing_if = "is_empty")]
    limits: Option<BTreeMap<String, Quantity>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    requests: Option<BTreeMap<String, Quantity>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claims: Option<Vec<ResourceClaim>>,
}

fn is_empty(list: &Option<BTreeMap<String, Quantity>>) -> bool {
    list.as_ref().is_none_or(BTreeMap::is_empty)
}

/// Requirements as JSON, as upstream writes them.
pub(super) fn requirements_json(resources: &ResourceRequirements) -> serde_json::Value {
    serde_json::to_value(Requirements::from(resources)).unwrap_or_default()
}

/// The text that keeps these.
pub(super) fn encode(pods: &Pods) -> String {
    let entry = |resources: &PodResources| {
        let containers = resources.containers.iter();
        Entry {
            containers: Some(containers.map(|(name, own)| (name.clone(), own.into())).collect()),
            whole: resources.whole.as_ref().map(Requirements::from),
        }
    };
    let entries = pods.iter().map(|(uid, own)| (uid.as_str().to_owned(), entry(own))).collect();
    // Maps of texts to texts always have a form in JSON.
    let data = serde_json::to_string(&Data { entries }).unwrap_or_default();
    let data = escape_as_go(&data);
    let checksum = u64::from(text_checksum(&data));
    let text = serde_json::to_string(&Checkpoint { data, checksum }).unwrap_or_default();
    escape_as_go(&text)
}

/// What a text keeps.
pub(super) fn decode(bytes: &[u8]) -> Result<Pods, FormatError> {
    let wrong = |error: serde_json::Error| FormatError::Json(error.to_string());
    let checkpoint: Checkpoint = serde_json::from_slice(bytes).map_err(wrong)?;
    let computed = u64::from(text_checksum(&checkpoint.data));
    if computed != checkpoint.checksum {
        return Err(FormatError::Checksum { found: checkpoint.checksum, computed });
    }
    let data: Data = serde_json::from_str(&checkpoint.data).map_err(wrong)?;
    let resources = |entry: Entry| {
        let containers = entry.containers.unwrap_or_default().into_iter();
        PodResources {
            containers: containers.map(|(name, own)| (name, own.into())).collect(),
            whole: entry.whole.map(ResourceRequirements::from),
        }
    };
    let entries = data.entries.into_iter();
    Ok(entries.map(|(uid, entry)| (PodUid::new(uid), resources(entry))).collect())
}

impl From<&ResourceRequirements> for Requirements {
    fn from(own: &ResourceRequirements) -> Self {
        let ResourceRequirements { limits, requests, claims } = kubelet_model::resources::tidy(own);
        Self { limits, requests, claims }
    }
}

impl From<Requirements> for ResourceRequirements {
    fn from(own: Requirements) -> Self {
        let Requirements { limits, requests, claims } = own;
        Self { limits, requests, claims }
    }
}
