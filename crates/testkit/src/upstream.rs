//! The upstream kubelet, for tests that compare with it or hand pods over.
//!
//! Its binary is named by `UPSTREAM_KUBELET`; without it such tests say that
//! they were skipped.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use crate::klet::reserve_port;

/// Names the upstream kubelet's binary.
pub const VARIABLE: &str = "UPSTREAM_KUBELET";

/// The upstream kubelet, if there is one; says so if there is none.
pub fn binary(test: &str) -> Option<PathBuf> {
    let binary = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    if binary.is_none() {
        eprintln!("SKIPPED {test}: set {VARIABLE} to the path of an upstream kubelet");
    }
    binary
}

/// What upstream needs besides klet's configuration to run alone on any host:
/// off goes whatever klet does not do either.
pub fn settings() -> Result<Value> {
    Ok(json!({
        "port": reserve_port(0)?.1,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "makeIPTablesUtilChains": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": no_eviction(),
    }))
}

/// Thresholds that are never met: tests do not depend on how full a machine is.
pub fn no_eviction() -> Value {
    json!({
        "memory.available": "0%",
        "nodefs.available": "0%",
        "nodefs.inodesFree": "0%",
        "imagefs.available": "0%",
        "imagefs.inodesFree": "0%",
    })
}

/// Adds the fields of `more` to a configuration.
pub fn extend(config: &mut Value, more: &Value) {
    if let (Some(config), Some(more)) = (config.as_object_mut(), more.as_object()) {
        config.extend(more.clone());
    }
}
