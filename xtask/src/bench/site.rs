//! Where a contender is measured: a private runtime, manifests, and the API server of
//! those that join one.
//!
//! Owns all three; nothing of them is used twice.

use std::ops::Range;

use anyhow::{Context, Result};
use testkit::{Containerd, ContainerdOptions, Image, ManifestDir};

use super::contender::Contender;
use super::load;
use super::server::Server;

/// A fresh place for one contender.
pub struct Site {
    /// Its API server, if it joins one.
    pub server: Option<Server>,
    /// Its manifests.
    pub manifests: ManifestDir,
    /// Its runtime.
    pub containerd: Containerd,
}

impl Site {
    /// One whose runtime has the image that the usual pods need.
    pub fn fresh(contender: &Contender) -> Result<Self> {
        Self::with(
            contender,
            ContainerdOptions { images: vec![Image::pause()], registry_hosts: None },
        )
    }

    /// One whose runtime has other images.
    pub fn with(contender: &Contender, options: ContainerdOptions) -> Result<Self> {
        let containerd = Containerd::start(options)?;
        let manifests = ManifestDir::new(&containerd.dir().join("manifests"))?;
        let server = contender.joins().then(|| Server::start(containerd.dir()));
        let server = server.transpose().context("cannot start an API server")?;
        Ok(Self { server, manifests, containerd })
    }

    /// Gives the contender these pods, the way it is told of pods.
    pub fn put(&self, pods: Range<u32>, volumes: bool) -> Result<()> {
        match &self.server {
            Some(server) => pods.map(load::pod).try_for_each(|pod| server.create(&pod)),
            None => load::put(&self.manifests, pods, volumes),
        }
    }

    /// Leaves nothing behind.
    pub fn remove(self) -> Result<()> {
        drop(self.server);
        self.containerd.remove()
    }
}
