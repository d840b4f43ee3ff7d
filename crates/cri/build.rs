//! Generates the gRPC types from `proto/`. Needs no system protoc.

use std::error::Error;

const INCLUDE: &str = "proto";
const PROTOS: [&str; 6] = [
    "runtime/v1/api.proto",
    "runtime/v1/image.proto",
    "containerd/content.proto",
    "containerd/events.proto",
    "containerd/payloads.proto",
    "grpc/health/v1/health.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={INCLUDE}");
    let files = protox::compile(PROTOS, [INCLUDE])?;
    tonic_prost_build::configure()
        // Ordered maps: plans, hashes and logs must not depend on hash seeds.
        .btree_map(".")
        // Secrets: `auth.rs` writes a Debug that hides them.
        .skip_debug(["runtime.v1.AuthConfig"])
        .generate_default_stubs(true)
        .emit_rerun_if_changed(false)
        .compile_fds(files)?;
    Ok(())
}
