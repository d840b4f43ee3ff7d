//! A node's certificates: the first one, the next ones, and one that nobody renewed.
//!
//! The API server approves nothing here that the test does not approve as `kubectl
//! certificate approve` would, unless it is told to as a controller manager is.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use api_client::{Call, path};
use apiserver::{StaticToken, User};
use jiff::{SignedDuration, Timestamp};
use kubelet_model::base64;
use serde_json::{Value, json};
use testkit::cluster::{bind, condition};
use testkit::{ApiOptions, Cluster, PodManifest, TestApi, binaries, https_client};

const TOKEN: &str = "abcdef.0123456789abcdef";
const API: &str = "apis/certificates.k8s.io/v1";
const REQUESTS: &str = "certificatesigningrequests";

/// A node that has nothing but a token to become one with.
fn start(options: ApiOptions, config: Value) -> Result<Cluster> {
    let user = User::new("system:bootstrap:abcdef", ["system:bootstrappers"]);
    let tokens = vec![StaticToken { token: TOKEN.to_owned(), user }];
    Cluster::start_as(ApiOptions { tokens, ..options }, config, |node, api| {
        let requests = "system:certificates.k8s.io:certificatesigningrequests";
        bind(api, "system:node-bootstrapper", "system:bootstrappers")?;
        bind(api, &format!("{requests}:nodeclient"), "system:bootstrappers")?;
        bind(api, &format!("{requests}:selfnodeclient"), "system:nodes")?;
        let bootstrap = api.token_kubeconfig("bootstrap", TOKEN)?;
        node.klet.add_flag("bootstrap-kubeconfig", &bootstrap);
        let kubeconfig = node.containerd.dir().join("kubelet.conf");
        node.klet.add_flag("kubeconfig", &kubeconfig);
        Ok(())
    })
}

fn pki(cluster: &Cluster) -> PathBuf {
    cluster.node.containerd.dir().join("pki")
}

/// Names of signing requests for a signer.
fn requests(api: &TestApi, signer: &str) -> Result<Vec<Value>> {
    let list = api.ask(Call::get(&path(API, "", &[REQUESTS])))?;
    let all = list["items"].as_array().context("no list")?.iter();
    Ok(all.filter(|one| one["spec"]["signerName"] == signer).cloned().collect())
}

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// As `kubectl certificate approve` does.
fn approve(api: &TestApi, name: &str) -> Result<()> {
    let mut request = api.ask(Call::get(&path(API, "", &[REQUESTS, name])))?;
    request["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "m"}]);
    api.ask(Call::put(&path(API, "", &[REQUESTS, name, "approval"]), request)).map(drop)
}

/// Approves what waits for a signer.
fn approve_all(api: &TestApi, signer: &str) -> Result<()> {
    for request in requests(api, signer)? {
        if request["status"]["conditions"].is_null() {
            approve(api, request["metadata"]["name"].as_str().context("no name")?)?;
        }
    }
    Ok(())
}

fn name(request: &Value) -> String {
    request["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn wait_ready(cluster: &Cluster) -> Result<Value> {
    let node = cluster.node.klet.node_name().to_owned();
    cluster.node.eventually("the node to be ready", || {
        let node = cluster.api.object("nodes", "", &node).context("no node")?;
        ensure!(condition(&node, "Ready") == Some("True"), "{:#}", node["status"]["conditions"]);
        Ok(node)
    })
}

/// What `klet why node` says, in one line.
fn why(cluster: &Cluster) -> Result<String> {
    let socket = cluster.node.klet.root_dir().join("klet.sock");
    let mut command = Command::new(binaries::klet_binary()?);
    let output = command.args(["why", "node"]).env("KLET_SOCKET", socket).stdin(Stdio::null());
    let output = String::from_utf8(output.output()?.stdout)?;
    Ok(output.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o777)
}

#[test]
fn a_token_becomes_a_certificate_that_is_renewed() -> Result<()> {
    let cluster = start(ApiOptions::default(), json!({"rotateCertificates": true}))?;
    // Pods of the node's own do not wait for it.
    cluster.node.manifests.put_pod(&PodManifest::pause("own"))?;
    cluster.node.wait_running("own")?;
    let request = cluster.node.eventually("a request", || {
        requests(&cluster.api, CLIENT)?.pop().context("there is none")
    })?;
    let csr = name(&request);
    ensure!(csr.starts_with("csr-"), "{request:#}");
    assert_eq!(request["spec"]["username"], "system:bootstrap:abcdef");
    cluster.node.eventually("klet to say what it waits for", || {
        let said = why(&cluster)?;
        ensure!(said.contains(&format!("kubectl certificate approve {csr}")), "{said}");
        Ok(())
    })?;
    // The kubeconfig points at what is to come, as upstream writes it.
    let current = pki(&cluster).join("kubelet-client-current.pem");
    let kubeconfig = cluster.node.containerd.dir().join("kubelet.conf");
    let text = fs::read_to_string(&kubeconfig)?;
    ensure!(text.contains(&format!("client-key: {}", current.display())), "{text}");
    ensure!(text.contains("name: default-cluster") && !text.contains(TOKEN), "{text}");
    ensure!(mode(&kubeconfig)? == 0o600 && !current.exists());

    approve(&cluster.api, &csr)?;
    wait_ready(&cluster)?;
    assert_eq!(mode(&current)?, 0o600);
    ensure!(fs::read_link(&current)?.starts_with(pki(&cluster)));
    // With it, a restart needs nobody's approval.
    let mut cluster = cluster;
    cluster.node.klet.restart()?;
    cluster.create_pod(&PodManifest::pause("later"))?;
    cluster.wait_ready("later")?;
    assert_eq!(requests(&cluster.api, CLIENT)?.len(), 1);
    let said = why(&cluster)?;
    ensure!(said.contains("The client certificate is good until"), "{said}");
    Ok(())
}

#[test]
fn a_request_is_found_again_by_a_node_that_does_not_renew() -> Result<()> {
    let mut cluster = start(ApiOptions::default(), json!({}))?;
    let key = pki(&cluster).join("kubelet-client.key.tmp");
    let request = cluster.node.eventually("a request", || {
        requests(&cluster.api, CLIENT)?.pop().context("there is none")
    })?;
    let csr = name(&request);
    ensure!(csr.starts_with("node-csr-") && mode(&key)? == 0o600, "{csr}");
    let kept = fs::read(&key)?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.node.eventually("klet to say what it waits for", || {
        let said = why(&cluster)?;
        ensure!(said.contains(&csr), "{said}");
        Ok(())
    })?;
    assert_eq!((requests(&cluster.api, CLIENT)?.len(), fs::read(&key)?), (1, kept));
    let kubeconfig = cluster.node.containerd.dir().join("kubelet.conf");
    ensure!(!kubeconfig.exists(), "it is written once there is a certificate");
    approve(&cluster.api, &csr)?;
    wait_ready(&cluster)?;
    ensure!(!key.exists() && mode(&kubeconfig)? == 0o600);
    cluster.node.klet.restart()?;
    cluster.create_pod(&PodManifest::pause("later"))?;
    cluster.wait_ready("later")?;
    assert_eq!(requests(&cluster.api, CLIENT)?.len(), 1);
    Ok(())
}

#[test]
fn certificates_are_renewed_while_a_log_is_followed() -> Result<()> {
    let lifetime = SignedDuration::from_secs(40);
    let options = ApiOptions {
        approves_nodes: true,
        certificate_lifetime: lifetime,
        ..ApiOptions::default()
    };
    let cluster = start(options, json!({"rotateCertificates": true, "serverTLSBootstrap": true}))?;
    wait_ready(&cluster)?;
    // Nobody approves serving certificates by himself: until then no connection comes about.
    cluster.node.eventually("a request for a serving certificate", || {
        let request = requests(&cluster.api, SERVING)?.pop().context("there is none")?;
        let usages = json!(["digital signature", "server auth"]);
        ensure!(request["spec"]["usages"] == usages, "{request:#}");
        Ok(())
    })?;
    ensure!(cluster.node_get("admin", Some("system:masters"), "/healthz").is_err());
    cluster.node.eventually("the log to tell why", || {
        let log = fs::read_to_string(cluster.node.klet.log_path())?;
        ensure!(log.contains("no serving certificate available for the kubelet"), "{log}");
        Ok(())
    })?;
    let script = "trap 'exit 0' TERM; n=0; while true; do n=$((n+1)); echo line $n; sleep 1; done";
    cluster.create_pod(&PodManifest::script("web", script))?;
    cluster.wait_ready("web")?;

    let admin =
        cluster.api.authority().client("admin", Some("system:masters"), Timestamp::now())?;
    let identity = Some((admin.certificate.as_str(), admin.key.as_str()));
    let open = |path: &str| https_client::open(cluster.port, "GET", path, identity, None);
    let stream = cluster.node.eventually("the log to be followed", || {
        approve_all(&cluster.api, SERVING)?;
        open("/containerLogs/default/web/main?follow=true")
    })?;
    let mut lines = BufReader::new(stream).lines();
    let mut number = || -> Result<u64> {
        for line in &mut lines {
            if let Some(number) = line?.strip_prefix("line ") {
                return Ok(number.trim().parse()?);
            }
        }
        anyhow::bail!("the stream has ended")
    };
    let begun = number()?;
    let shown = || -> Result<Vec<u8>> {
        let stream = open("/healthz")?;
        let chain = stream.conn.peer_certificates().context("no certificate")?;
        Ok(chain.first().context("none")?.to_vec())
    };
    let signed = |signer: &str| -> Result<usize> {
        let all = requests(&cluster.api, signer)?;
        Ok(all.iter().filter(|one| one["status"]["certificate"].is_string()).count())
    };
    let (first, current) = (shown()?, pki(&cluster).join("kubelet-client-current.pem"));
    let client = fs::read_link(&current)?;
    cluster.node.eventually("both to be renewed", || {
        approve_all(&cluster.api, SERVING)?;
        ensure!(fs::read_link(&current)? != client, "the client certificate is the same");
        ensure!(shown()? != first, "the serving certificate is the same");
        Ok(())
    })?;
    // By itself: with the certificate there was.
    let all = requests(&cluster.api, CLIENT)?;
    let own = all.iter().filter(|one| one["spec"]["username"] == "system:node:n1").count();
    ensure!(own >= 1 && signed(CLIENT)? >= 2 && signed(SERVING)? >= 2, "{all:#?}");
    // What is shown is what was signed.
    let all = requests(&cluster.api, SERVING)?;
    let newest = shown()?;
    let known = all.iter().filter_map(|one| one["status"]["certificate"].as_str());
    let mut known = known.filter_map(|text| String::from_utf8(base64::decode(text)?).ok());
    let body = base64::encode(&newest);
    ensure!(
        known.any(|pem| pem.replace(['\r', '\n'], "").contains(&body)),
        "the certificate that is shown was not signed by the cluster"
    );
    // The stream has not noticed.
    let before = number()?;
    ensure!(before > begun && number()? > before);
    // The node is heard after the first certificate has expired.
    let node = cluster.node.klet.node_name();
    let renewed = || {
        let lease = cluster.api.object("leases.coordination.k8s.io", "kube-node-lease", node);
        lease.map(|lease| lease["spec"]["renewTime"].clone()).context("no lease")
    };
    let seen = renewed()?;
    cluster.node.eventually("the lease to be renewed", || {
        ensure!(renewed()? != seen, "it is not");
        Ok(())
    })?;
    let metrics = testkit::http::get_ok(cluster.node.klet.read_only_port(), "/metrics")?;
    for line in [
        "kubelet_certificate_manager_client_ttl_seconds ",
        "kubelet_certificate_manager_server_ttl_seconds ",
        "kubelet_certificate_manager_client_expiration_renew_errors 0",
        "kubelet_certificate_manager_server_rotation_seconds_count ",
    ] {
        ensure!(metrics.contains(line), "{line} is not in {metrics}");
    }
    Ok(())
}

#[test]
fn one_that_expired_while_the_node_was_down_is_replaced_and_told_of() -> Result<()> {
    let options = ApiOptions { approves_nodes: true, ..ApiOptions::default() };
    let mut cluster = start(options, json!({"rotateCertificates": true}))?;
    wait_ready(&cluster)?;
    cluster.create_pod(&PodManifest::pause("web"))?;
    cluster.wait_ready("web")?;
    let before = cluster.node.instances()?;
    cluster.node.klet.kill9()?;
    let long_ago = Timestamp::now().checked_sub(SignedDuration::from_hours(24 * 400))?;
    let node = format!("system:node:{}", cluster.node.klet.node_name());
    let old = cluster.api.authority().client(&node, Some("system:nodes"), long_ago)?;
    let current = pki(&cluster).join("kubelet-client-current.pem");
    fs::write(&current, format!("{}{}", old.certificate, old.key))?;
    cluster.node.klet.restart()?;
    let says = ". WARNING: the client certificate expired at ";
    let name = cluster.node.klet.node_name().to_owned();
    cluster.node.eventually("the node to tell of it", || {
        let node = cluster.api.object("nodes", "", &name).context("no node")?;
        let conditions = node["status"]["conditions"].as_array().context("no conditions")?;
        let ready = conditions.iter().find(|one| one["type"] == "Ready").context("none")?;
        let message = ready["message"].as_str().unwrap_or_default();
        ensure!(ready["status"] == "True" && message.contains(says), "{ready:#}");
        ensure!(message.ends_with("with --bootstrap-kubeconfig"), "{message}");
        Ok(())
    })?;
    let said = why(&cluster)?;
    ensure!(said.contains("The client certificate expired at"), "{said}");
    ensure!(said.contains("with --bootstrap-kubeconfig"), "{said}");
    let all = requests(&cluster.api, CLIENT)?;
    let by = all.iter().filter(|one| one["spec"]["username"] == "system:bootstrap:abcdef");
    assert_eq!((by.count(), all.len()), (2, 2));
    assert_eq!(cluster.node.instances()?, before, "pods were left alone");
    cluster.delete_pod("web", Some(0))?;
    cluster.wait_gone("web")
}
