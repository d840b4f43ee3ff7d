//! vol_data.json: what lies beside a published volume, so that whoever comes
//! later can undo it. Upstream's file: either agent undoes what the other made.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes of the file that are read: a handful of names.
pub(in crate::volume_manager) const VOL_DATA_BYTES_MAX: usize = 64 << 10;

/// What is noted about a volume of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::volume_manager) struct VolData {
    /// Its name in the pod, or that of its PersistentVolume.
    #[serde(rename = "specVolID", default, skip_serializing_if = "String::is_empty")]
    pub spec_vol_id: String,
    /// The volume, as the driver knows it.
    pub volume_handle: String,
    /// Which driver.
    pub driver_name: String,
    /// This node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// `Ephemeral` or `Persistent`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub volume_lifecycle_mode: String,
    /// What a cluster calls its attachment to the node.
    #[serde(rename = "attachmentID", default, skip_serializing_if = "String::is_empty")]
    pub attachment_id: String,
    /// The SELinux label it is mounted with.
    #[serde(rename = "seLinuxMountContext", default, skip_serializing_if = "String::is_empty")]
    pub selinux_label: String,
}

/// The file says nothing that helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::volume_manager) enum BadVolData {
    /// It is no JSON with the fields that matter.
    #[error("vol_data.json cannot be read: {0}")]
    Json(String),
    /// A field that matters is empty.
    #[error("vol_data.json names no driver or no volume")]
    Empty,
}

impl VolData {
    /// Reads the file's content.
    pub(in crate::volume_manager) fn parse(content: &[u8]) -> Result<Self, BadVolData> {
        let data: Self =
            serde_json::from_slice(content).map_err(|error| BadVolData::Json(error.to_string()))?;
        match data.driver_name.is_empty() || data.volume_handle.is_empty() {
            true => Err(BadVolData::Empty),
            false => Ok(data),
        }
    }

    /// Is it about this volume?
    pub(in crate::volume_manager) fn is_of(&self, driver: &str, handle: &str) -> bool {
        self.driver_name == driver && self.volume_handle == handle
    }

    /// The file's content.
    pub(in crate::volume_manager) fn to_json(&self) -> Vec<u8> {
        // A struct of strings always has a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The handle of a volume that lives in a pod's spec.
pub(in crate::volume_manager) fn inline_handle(uid: &str, volume: &str) -> String {
    format!("csi-{}", hex_of(&[uid, volume]))
}

/// What a cluster would call the volume's attachment to a node.
pub(in crate::volume_manager) fn attachment_id(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", hex_of(&[handle, driver, node]))
}

/// The hash of these parts, one behind the other, as text.
pub(in crate::volume_manager) fn hex_of(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part.as_bytes()));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_upstreams() {
        let text = r#"{"attachmentID":"csi-x","driverName":"d.example","nodeName":"n","specVolID":"data","volumeHandle":"csi-y","volumeLifecycleMode":"Ephemeral"}"#;
        let data = VolData::parse(text.as_bytes()).unwrap();
        assert_eq!(
            (data.driver_name.as_str(), data.volume_handle.as_str()),
            ("d.example", "csi-y")
        );
        assert_eq!(data.selinux_label, "");
        let again: serde_json::Value = serde_json::from_slice(&data.to_json()).unwrap();
        assert_eq!(again, serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn a_label_is_kept() {
        let text = r#"{"driverName":"d.example","seLinuxMountContext":"u:r:t:s0:c1,c2","volumeHandle":"h"}"#;
        let data = VolData::parse(text.as_bytes()).unwrap();
        assert_eq!(data.selinux_label, "u:r:t:s0:c1,c2");
        let again: serde_json::Value = serde_json::from_slice(&data.to_json()).unwrap();
        assert_eq!(again, serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn a_file_that_names_nothing_is_told_apart() {
        for text in ["", "{", "[]", "{}", r#"{"specVolID":"d","driverName":"d"}"#] {
            assert!(matches!(VolData::parse(text.as_bytes()), Err(BadVolData::Json(_))), "{text}");
        }
        let empty = r#"{"specVolID":"d","driverName":"","volumeHandle":"h"}"#;
        assert_eq!(VolData::parse(empty.as_bytes()), Err(BadVolData::Empty));
    }

    #[test]
    fn handles_are_upstreams() {
        // As `printf abc | sha256sum` prints it.
        let abc = "csi-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(inline_handle("ab", "c"), abc);
        assert_eq!(attachment_id("a", "b", "c"), abc);
    }
}
