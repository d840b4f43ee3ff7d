//! Generates the gRPC types from `proto/`. Needs no system protoc.

use std::error::Error;

const INCLUDE: &str = "proto";
const PROTOS: [&str; 3] =
    ["csi/v1/identity.proto", "csi/v1/node.proto", "pluginregistration/v1/api.proto"];

/// Messages that carry secrets: `redact.rs` writes a Debug that hides them.
const SECRET: [&str; 4] = [
    "csi.v1.NodeStageVolumeRequest",
    "csi.v1.NodePublishVolumeRequest",
    "csi.v1.NodeExpandVolumeRequest",
    "csi.v1.VolumeCapability.MountVolume",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={INCLUDE}");
    let files = protox::compile(PROTOS, [INCLUDE])?;
    tonic_prost_build::configure()
        // Ordered maps: plans, files and logs must not depend on hash seeds.
        .btree_map(".")
        .skip_debug(SECRET)
        .generate_default_stubs(true)
        .emit_rerun_if_changed(false)
        .compile_fds(files)?;
    Ok(())
}
