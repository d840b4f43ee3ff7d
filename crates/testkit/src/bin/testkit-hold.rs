//! Starts a private containerd with a pod in it, says where, and holds it until
//! killed: something for tests to orphan, and for people to poke with `ctr`.

use std::time::Duration;

use anyhow::Result;
use cri::v1;
use testkit::{Containerd, ContainerdOptions, Image};

fn main() -> Result<()> {
    let containerd = Containerd::start(ContainerdOptions {
        images: vec![Image::pause()],
        registry_hosts: None,
    })?;
    let metadata = v1::PodSandboxMetadata {
        name: "held".to_owned(),
        namespace: "default".to_owned(),
        uid: "held".to_owned(),
        attempt: 0,
    };
    let config = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    containerd.cri()?.block_on(async |runtime| runtime.run_pod_sandbox(config, "").await)?;
    println!("{}", containerd.dir().display());
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
