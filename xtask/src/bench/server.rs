//! The API server that a contender joins: the small one, in the measuring process.
//!
//! Owns the server and a count of what it is asked. Both kubelets get the same one, with
//! the rights that nodes have; it sends JSON to both, and upstream's protobuf is read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::cluster::{self, condition};
use testkit::{ApiOptions, Front, PodManifest, TestApi, eventually, klet};

use super::contender::NODE;

/// How long everything may take to be known to the server.
const LIMIT: Duration = Duration::from_secs(120);

/// A server with one node.
pub struct Server {
    api: TestApi,
    front: Front,
    authority: PathBuf,
    kubeconfig: PathBuf,
}

impl Server {
    /// Starts it; its files go into `dir`.
    pub fn start(dir: &Path) -> Result<Self> {
        let front = Front::default();
        let options = ApiOptions { faults: Some(front.faults()), ..Default::default() };
        let api = TestApi::start(dir, options)?;
        cluster::bind(&api, "system:node", "system:nodes")?;
        let authority = dir.join("client-ca.crt");
        fs::write(&authority, api.ca_pem())
            .with_context(|| format!("cannot write {}", authority.display()))?;
        let kubeconfig = api.node_kubeconfig(NODE)?;
        Ok(Self { api, front, authority, kubeconfig })
    }

    /// What a kubelet that joins has in its configuration.
    pub fn settings(&self) -> Result<Value> {
        Ok(json!({
            "port": klet::reserve_port(0)?.1,
            "authentication": {
                "x509": {"clientCAFile": self.authority},
                "webhook": {"enabled": true},
                "anonymous": {"enabled": false},
            },
            "authorization": {"mode": "Webhook"},
        }))
    }

    /// The node's credentials.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Creates a pod that is bound to the node.
    pub fn create(&self, pod: &PodManifest) -> Result<()> {
        let mut object: Value = serde_json::from_str(&pod.to_json())?;
        object["spec"]["nodeName"] = NODE.into();
        self.api.add("default", object)
    }

    /// Waits until the node, and so many pods, are known to be ready: a kubelet that
    /// failed to join would rest well.
    pub fn wait_told(&self, pods: u32) -> Result<()> {
        eventually(LIMIT, "the API server to know of a ready node and its pods", || {
            let node = self.api.object("nodes", "", NODE).context("there is no node")?;
            let ready = |object: &Value| condition(object, "Ready") == Some("True");
            ensure!(ready(&node), "the node is {:#}", node["status"]["conditions"]);
            let name = |pod| format!("bench-{pod}");
            let known =
                |pod| self.api.object("pods", "default", &name(pod)).is_some_and(|pod| ready(&pod));
            let known = (0..pods).filter(|pod| known(*pod)).count();
            ensure!(known == pods as usize, "only {known} pods of {pods} are ready");
            Ok(())
        })
    }

    /// What it was asked since the last time, and how often.
    pub fn take_asked(&self) -> BTreeMap<String, usize> {
        self.front.take_asked()
    }
}
