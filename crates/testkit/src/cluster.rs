//! A node in a cluster of its own: klet, containerd and a small API server.
//!
//! Owns all three. The node has the rights that nodes have; the test asks the server
//! as somebody who may do anything.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use api_client::{Call, path};
use kubelet_model::typed::{DoubledKeys, from_yaml};
use serde_json::{Value, json};

use crate::api_server::{ApiOptions, TestApi};
use crate::binaries;
use crate::host;
use crate::http::Response;
use crate::https_client;
use crate::klet::reserve_port;
use crate::manifest::PodManifest;
use crate::node::{Node, NodeOptions};
use crate::process;
use crate::upstream;

/// The node and its API server.
pub struct Cluster {
    // In this order: klet ends before its server does.
    /// The node.
    pub node: Node,
    /// The server.
    pub api: TestApi,
    /// Port of the node's own API.
    pub port: u16,
}

impl Cluster {
    /// A node that has joined.
    pub fn start() -> Result<Self> {
        Self::start_with(ApiOptions::default(), Value::Null)
    }

    /// A node that has joined, of an API server that differs from the usual one, with
    /// further fields in its configuration.
    pub fn start_with(options: ApiOptions, config: Value) -> Result<Self> {
        Self::start_switched(options, config, &[])
    }

    /// The same, with flags that are either there or not.
    pub fn start_switched(options: ApiOptions, config: Value, switches: &[&str]) -> Result<Self> {
        Self::start_as(options, config, |node, api| {
            for switch in switches {
                node.klet.add_switch(switch);
            }
            own_credentials(node, api)
        })
    }

    /// A node with credentials that the test gives it; it may not have joined yet.
    pub fn start_as(
        options: ApiOptions,
        config: Value,
        credentials: impl FnOnce(&mut Node, &TestApi) -> Result<()>,
    ) -> Result<Self> {
        let mut cluster = Self::prepare_as(options, config, false, credentials)?;
        cluster.node.klet.launch()?;
        cluster.node.klet.wait_healthy()?;
        Ok(cluster)
    }

    /// All but the start of klet, which the test launches, perhaps with the host's own
    /// name.
    pub fn prepare(options: ApiOptions, config: Value, host_name: bool) -> Result<Self> {
        Self::prepare_as(options, config, host_name, own_credentials)
    }

    fn prepare_as(
        options: ApiOptions,
        config: Value,
        host_name: bool,
        credentials: impl FnOnce(&mut Node, &TestApi) -> Result<()>,
    ) -> Result<Self> {
        let mut node = Node::start_with(NodeOptions { klet_absent: true, ..Default::default() })?;
        if host_name {
            node.klet.keep_host_name();
        }
        let api = TestApi::start(node.containerd.dir(), options)?;
        bind(&api, "system:node", "system:nodes")?;
        credentials(&mut node, &api)?;
        let authority = node.containerd.dir().join("client-ca.crt");
        std::fs::write(&authority, api.ca_pem())?;
        let (_, port) = reserve_port(0)?;
        let mut all = json!({
            "port": port,
            "authentication": {"x509": {"clientCAFile": authority}, "webhook": {"enabled": true}},
            "authorization": {"mode": "Webhook"},
        });
        upstream::extend(&mut all, &config);
        node.klet.add_flag("cert-dir", &node.containerd.dir().join("pki"));
        node.klet.configure(all)?;
        Ok(Self { node, api, port })
    }

    /// GETs a path of the node's own API as a user whose certificate the cluster signed.
    pub fn node_get(&self, user: &str, group: Option<&str>, path: &str) -> Result<Response> {
        let now = jiff::Timestamp::now();
        let issued = self.api.authority().client(user, group, now)?;
        https_client::ask(self.port, "GET", path, Some((&issued.certificate, &issued.key)), None)
    }

    /// Ends klet, and leaves what a reboot would: files, but no sandbox, no container and
    /// no mount of volumes. The test launches klet again.
    pub fn power_off(&mut self) -> Result<()> {
        self.node.klet.kill9()?;
        let cri = self.node.cri();
        for sandbox in cri.sandboxes()? {
            let id = sandbox.id;
            cri.block_on(async |cri| cri.stop_pod_sandbox(&id).await)?;
            cri.block_on(async |cri| cri.remove_pod_sandbox(&id).await)?;
        }
        ensure!(self.node.instances()?.is_empty(), "containers are left");
        for mount in host::mounts_below(&self.node.klet.root_dir())? {
            process::run(Command::new("umount").arg(mount))?;
        }
        Ok(())
    }

    /// Creates a pod that is bound to the node; returns its uid.
    pub fn create_pod(&self, pod: &PodManifest) -> Result<String> {
        let mut object: Value = serde_json::from_str(&pod.to_json())?;
        object["spec"]["nodeName"] = self.node.klet.node_name().into();
        let made = self.api.ask(Call::post(&path("api/v1", "default", &["pods"]), object))?;
        Ok(made["metadata"]["uid"].as_str().context("a pod has a uid")?.to_owned())
    }

    /// Creates an object in the default namespace.
    pub fn create(&self, resource: &str, object: Value) -> Result<Value> {
        self.api.ask(Call::post(&path("api/v1", "default", &[resource]), object))
    }

    /// Creates what an example of volumes holds, its pods bound to the node; returns the
    /// uid of the pod that has its name.
    pub fn apply_example(&self, name: &str) -> Result<String> {
        let file = binaries::workspace().join(format!("examples/volumes/{name}.yaml"));
        let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let object = from_yaml(&text, DoubledKeys::Refused).map_err(anyhow::Error::msg)?;
        let items = object["items"].as_array().cloned().unwrap_or_else(|| vec![object.clone()]);
        let mut uid = None;
        for mut item in items {
            let (version, namespace, resource) = place_of(&item)?;
            if item["kind"] == "Pod" {
                item["spec"]["nodeName"] = self.node.klet.node_name().into();
            }
            let made = self.api.ask(Call::post(&path(version, namespace, &[resource]), item))?;
            if made["kind"] == "Pod" && made["metadata"]["name"] == name {
                uid = made["metadata"]["uid"].as_str().map(str::to_owned);
            }
        }
        uid.with_context(|| format!("{} has no pod {name}", file.display()))
    }

    /// Asks for a pod to be deleted, as `kubectl delete` does.
    pub fn delete_pod(&self, name: &str, grace: Option<u32>) -> Result<()> {
        let options = match grace {
            Some(seconds) => json!({"gracePeriodSeconds": seconds}),
            None => json!({}),
        };
        let place = path("api/v1", "default", &["pods", name]);
        self.api.ask(Call::delete(&place, options)).map(drop)
    }

    /// A pod as the server has it.
    pub fn pod(&self, name: &str) -> Option<Value> {
        self.api.object("pods", "default", name)
    }

    /// Waits for what the server has of a pod.
    pub fn wait_pod(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        self.node.eventually(&format!("pod {name} {what}"), || {
            let pod = self.pod(name).context("the server has no such pod")?;
            let said = format!("{:#}", pod["status"]);
            is(&pod).then_some(pod).with_context(|| format!("its status is {said}"))
        })
    }

    /// Waits until the server knows that a pod is ready.
    pub fn wait_ready(&self, name: &str) -> Result<Value> {
        self.wait_pod(name, "to be ready", |pod| condition(pod, "Ready") == Some("True"))
    }

    /// Waits until the server has no pod of that name.
    pub fn wait_gone(&self, name: &str) -> Result<()> {
        self.node.eventually(&format!("pod {name} to be gone"), || match self.pod(name) {
            None => Ok(()),
            Some(pod) => anyhow::bail!("it is there: {:#}", pod["status"]),
        })
    }

    /// Waits until neither the server nor the node has anything of a pod.
    pub fn wait_no_trace(&self, name: &str, uid: &str) -> Result<()> {
        self.wait_gone(name)?;
        self.node.wait_no_trace(name, uid)
    }
}

/// Gives a group the rights of a cluster role.
pub fn bind(api: &TestApi, role: &str, group: &str) -> Result<()> {
    let of = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": format!("{role}-{group}")},
        "roleRef": {"apiGroup": of, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": of, "kind": "Group", "name": group}],
    });
    api.ask(Call::post(&path(&format!("apis/{of}/v1"), "", &["clusterrolebindings"]), binding))
        .map(drop)
}

/// Version, namespace and resource of an object of the examples.
fn place_of(object: &Value) -> Result<(&'static str, &'static str, &'static str)> {
    Ok(match object["kind"].as_str().unwrap_or_default() {
        "Pod" => ("api/v1", "default", "pods"),
        "ClusterTrustBundle" => ("apis/certificates.k8s.io/v1beta1", "", "clustertrustbundles"),
        kind => anyhow::bail!("where objects of kind {kind:?} are is not written down here"),
    })
}

/// A certificate that makes it the node that it is.
fn own_credentials(node: &mut Node, api: &TestApi) -> Result<()> {
    let kubeconfig = api.node_kubeconfig(node.klet.node_name())?;
    node.klet.add_flag("kubeconfig", &kubeconfig);
    Ok(())
}

/// The status of an object's condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == kind)?["status"].as_str()
}
