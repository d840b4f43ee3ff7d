//! Messages on the wire, byte by byte: a wrong field number is found here and
//! not by a driver that silently misses a secret.

use std::collections::BTreeMap;

use plugin_apis::csi::volume_capability::{AccessType, BlockVolume, MountVolume};
use plugin_apis::csi::{self, AccessMode, NodeCapability, VolumeCapability};
use plugin_apis::pluginregistration::{PluginInfo, RegistrationStatus};
use prost::Message;

fn check(message: &impl Message, expected: &[&[u8]]) {
    let bytes = message.encode_to_vec();
    assert_eq!(bytes.escape_ascii().to_string(), expected.concat().escape_ascii().to_string());
}

fn one(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

fn mount() -> Option<VolumeCapability> {
    let mount = MountVolume {
        fs_type: "e".to_owned(),
        mount_flags: vec!["f".to_owned()],
        volume_mount_group: "7".to_owned(),
    };
    let mode = AccessMode::SingleNodeMultiWriter as i32;
    Some(VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        access_mode: Some(csi::volume_capability::AccessMode { mode }),
    })
}

/// What [`mount`] encodes to.
const MOUNT: &[u8] = b"\x12\x09\x0a\x01e\x12\x01f\x1a\x017\x1a\x02\x08\x07";

#[test]
fn stage() {
    let request = csi::NodeStageVolumeRequest {
        volume_id: "v".to_owned(),
        publish_context: one("a", "b"),
        staging_target_path: "s".to_owned(),
        volume_capability: mount(),
        secrets: one("k", "x"),
        volume_context: one("c", "d"),
    };
    let maps: [&[u8]; 3] = [
        b"\x12\x06\x0a\x01a\x12\x01b",
        b"\x2a\x06\x0a\x01k\x12\x01x",
        b"\x32\x06\x0a\x01c\x12\x01d",
    ];
    check(&request, &[b"\x0a\x01v", maps[0], b"\x1a\x01s", b"\x22\x0f", MOUNT, maps[1], maps[2]]);
    let request = csi::NodeUnstageVolumeRequest {
        volume_id: "v".to_owned(),
        staging_target_path: "s".to_owned(),
    };
    check(&request, &[b"\x0a\x01v", b"\x12\x01s"]);
}

#[test]
fn publish() {
    let request = csi::NodePublishVolumeRequest {
        volume_id: "v".to_owned(),
        publish_context: one("a", "b"),
        staging_target_path: "s".to_owned(),
        target_path: "t".to_owned(),
        volume_capability: mount(),
        readonly: true,
        secrets: one("k", "x"),
        volume_context: one("c", "d"),
    };
    let start: &[u8] = b"\x0a\x01v\x12\x06\x0a\x01a\x12\x01b\x1a\x01s\x22\x01t\x2a\x0f";
    let end: &[u8] = b"\x30\x01\x3a\x06\x0a\x01k\x12\x01x\x42\x06\x0a\x01c\x12\x01d";
    check(&request, &[start, MOUNT, end]);
    let request =
        csi::NodeUnpublishVolumeRequest { volume_id: "v".to_owned(), target_path: "t".to_owned() };
    check(&request, &[b"\x0a\x01v", b"\x12\x01t"]);
}

#[test]
fn stats_and_expansion() {
    let request = csi::NodeGetVolumeStatsRequest {
        volume_id: "v".to_owned(),
        volume_path: "p".to_owned(),
        staging_target_path: "s".to_owned(),
    };
    check(&request, &[b"\x0a\x01v\x12\x01p\x1a\x01s"]);
    let usage = csi::VolumeUsage {
        available: 1,
        total: 2,
        used: 3,
        unit: csi::volume_usage::Unit::Inodes as i32,
    };
    let condition = csi::VolumeCondition { abnormal: true, message: "m".to_owned() };
    let reply =
        csi::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: Some(condition) };
    check(&reply, &[b"\x0a\x08\x08\x01\x10\x02\x18\x03\x20\x02", b"\x12\x05\x08\x01\x12\x01m"]);

    let block = AccessType::Block(BlockVolume {});
    let request = csi::NodeExpandVolumeRequest {
        volume_id: "v".to_owned(),
        volume_path: "p".to_owned(),
        capacity_range: Some(csi::CapacityRange { required_bytes: 1, limit_bytes: 2 }),
        staging_target_path: "s".to_owned(),
        volume_capability: Some(VolumeCapability { access_type: Some(block), access_mode: None }),
        secrets: one("k", "x"),
    };
    let start: &[u8] = b"\x0a\x01v\x12\x01p\x1a\x04\x08\x01\x10\x02\x22\x01s";
    check(&request, &[start, b"\x2a\x02\x0a\x00", b"\x32\x06\x0a\x01k\x12\x01x"]);
    check(&csi::NodeExpandVolumeResponse { capacity_bytes: 5 }, &[b"\x08\x05"]);
}

#[test]
fn node_and_plugin() {
    let reply = csi::NodeGetInfoResponse {
        node_id: "n".to_owned(),
        max_volumes_per_node: 9,
        accessible_topology: Some(csi::Topology { segments: one("z", "1") }),
    };
    check(&reply, &[b"\x0a\x01n", b"\x10\x09", b"\x1a\x08\x0a\x06\x0a\x01z\x12\x011"]);
    let rpc = csi::node_service_capability::Rpc { r#type: NodeCapability::VolumeMountGroup as i32 };
    let kind = Some(csi::node_service_capability::Type::Rpc(rpc));
    check(&csi::NodeServiceCapability { r#type: kind }, &[b"\x0a\x02\x08\x06"]);
    check(&csi::ProbeResponse { ready: Some(true) }, &[b"\x0a\x02\x08\x01"]);
    let reply = csi::GetPluginInfoResponse {
        name: "n".to_owned(),
        vendor_version: "1".to_owned(),
        manifest: one("a", "b"),
    };
    check(&reply, &[b"\x0a\x01n\x12\x011", b"\x1a\x06\x0a\x01a\x12\x01b"]);
}

#[test]
fn registration() {
    let info = PluginInfo {
        r#type: "T".to_owned(),
        name: "n".to_owned(),
        endpoint: "e".to_owned(),
        supported_versions: vec!["1".to_owned(), "2".to_owned()],
    };
    check(&info, &[b"\x0a\x01T\x12\x01n\x1a\x01e\x22\x011\x22\x012"]);
    let status = RegistrationStatus { plugin_registered: true, error: "e".to_owned() };
    check(&status, &[b"\x08\x01\x12\x01e"]);
}
