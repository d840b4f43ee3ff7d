//! What end-to-end tests, `make run` and `make bench` stand on.
//!
//! Owns a private containerd per [`Containerd`] (root, state, socket, bridge
//! and address range of its own), the images made for it, and the klet
//! processes started beside it. Everything lives below one numbered directory
//! guarded by a file lock, so that parallel tests never meet and whatever a
//! killed test left behind can be found and removed. Never touches a
//! containerd, bridge or process it did not start.

// Tests measure real time against real processes; simulation never runs this.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod api_server;
pub mod binaries;
pub mod canary;
pub mod cleanup;
pub mod client_hello;
pub mod cluster;
pub mod container_log;
pub mod containerd;
pub mod control_group;
pub mod control_plane;
pub mod controllers;
pub mod cri_client;
pub mod cri_recorder;
pub mod csi;
pub mod disk;
pub mod faulty_front;
pub mod guest;
pub mod host;
pub mod hostile;
pub mod http;
pub mod https;
pub mod https_client;
pub mod huge_pages;
pub mod image;
pub mod iscsi_target;
pub mod klet;
pub mod knocks;
pub mod login;
pub mod manifest;
pub mod network_disks;
pub mod nfs_server;
pub mod node;
pub mod plain_door;
pub mod pods;
pub mod process;
pub mod registry;
pub mod remote_volumes;
pub mod slot;
pub mod slow_proxy;
pub mod upstream;
pub mod volume_traces;
pub mod wait;

pub use api_server::{ApiOptions, TestApi};
pub use canary::Canary;
pub use cluster::Cluster;
pub use container_log::ContainerLog;
pub use containerd::{Containerd, ContainerdOptions};
pub use faulty_front::{Fault, Front};
pub use image::Image;
pub use klet::{Klet, KletOptions};
pub use manifest::{ManifestDir, PodManifest};
pub use node::{Instance, Node, NodeOptions};
pub use pods::{ContainerView, PodView};
pub use registry::Registry;
pub use wait::eventually;
