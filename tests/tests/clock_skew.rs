//! A node and an API server whose clocks differ by minutes: certificates, tokens and the
//! lease keep working. A real containerd, real TLS.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use anyhow::{Context, Result, ensure};
use api_client::Call;
use apiserver::{StaticToken, User};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use testkit::cluster::{bind, condition};
use testkit::{ApiOptions, Cluster, PodManifest};

const TOKEN: &str = "abcdef.0123456789abcdef";
const MASTERS: Option<&str> = Some("system:masters");

/// A node that gets its certificates from a server whose clock is so much ahead.
fn start(ahead: SignedDuration) -> Result<Cluster> {
    let user = User::new("system:bootstrap:abcdef", ["system:bootstrappers"]);
    let options = ApiOptions {
        tokens: vec![StaticToken { token: TOKEN.to_owned(), user }],
        approves_nodes: true,
        mounts_tokens: true,
        ..ApiOptions::default()
    };
    let config = json!({"nodeLeaseDurationSeconds": 4, "rotateCertificates": true});
    Cluster::start_as(options, config, |node, api| {
        api.set_clock_ahead(ahead);
        let requests = "system:certificates.k8s.io:certificatesigningrequests";
        bind(api, "system:node-bootstrapper", "system:bootstrappers")?;
        bind(api, &format!("{requests}:nodeclient"), "system:bootstrappers")?;
        bind(api, &format!("{requests}:selfnodeclient"), "system:nodes")?;
        let bootstrap = api.token_kubeconfig("bootstrap", TOKEN)?;
        node.klet.add_flag("bootstrap-kubeconfig", &bootstrap);
        node.klet.add_flag("kubeconfig", &node.containerd.dir().join("kubelet.conf"));
        Ok(())
    })
}

fn renewed(cluster: &Cluster) -> Result<Value> {
    let name = cluster.node.klet.node_name();
    let lease = cluster.api.object("leases.coordination.k8s.io", "kube-node-lease", name);
    Ok(lease.context("no lease")?["spec"]["renewTime"].clone())
}

fn wait_renewed(cluster: &Cluster) -> Result<()> {
    let first = cluster.node.eventually("a lease", || renewed(cluster))?;
    cluster.node.eventually("the lease to be renewed", || {
        ensure!(renewed(cluster)? != first, "it is not");
        Ok(())
    })
}

/// The pod's token is one that the server believes.
fn check_token(cluster: &Cluster) -> Result<()> {
    let read = "cat /var/run/secrets/kubernetes.io/serviceaccount/token";
    let token = cluster.node.run_in("web", "main", read)?;
    let review = json!({"spec": {"token": token.trim()}});
    let place = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = cluster.api.ask(Call::post(place, review))?;
    ensure!(review["status"]["authenticated"] == true, "{review:#}");
    Ok(())
}

fn lives_with(ahead: SignedDuration) -> Result<()> {
    let mut cluster = start(ahead)?;
    let name = cluster.node.klet.node_name().to_owned();
    let wait_node = |cluster: &Cluster| {
        cluster.node.eventually("the node to be ready", || {
            let node = cluster.api.object("nodes", "", &name).context("no node")?;
            ensure!(condition(&node, "Ready") == Some("True"), "{:#}", node["status"]);
            Ok(())
        })
    };
    wait_node(&cluster)?;
    let script = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    cluster.create_pod(&PodManifest::script("web", script))?;
    cluster.wait_ready("web")?;
    check_token(&cluster)?;
    wait_renewed(&cluster)?;
    // Another life begins with the certificate that is there.
    let pki = cluster.node.containerd.dir().join("pki/kubelet-client-current.pem");
    let kept = std::fs::read(&pki)?;
    let before = cluster.node.instances()?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    wait_renewed(&cluster)?;
    wait_node(&cluster)?;
    ensure!(std::fs::read(&pki)? == kept, "it asked for another certificate");
    cluster.wait_ready("web")?;
    assert_eq!(cluster.node.instances()?, before);
    // Those who ask the node are judged by its own clock, and by the server's answers.
    assert_eq!(cluster.node_get("admin", MASTERS, "/pods")?.status, 200);
    assert_eq!(cluster.node_get("somebody", None, "/pods")?.status, 403);
    cluster.delete_pod("web", Some(1))?;
    cluster.wait_gone("web")
}

#[test]
fn a_server_that_is_ten_minutes_behind() -> Result<()> {
    lives_with(SignedDuration::from_mins(-10))
}

#[test]
fn a_server_whose_clock_is_put_right() -> Result<()> {
    let cluster = start(SignedDuration::from_mins(-10))?;
    cluster.create_pod(&PodManifest::script("web", "while true; do sleep 0.1; done"))?;
    cluster.wait_ready("web")?;
    let before = cluster.node.instances()?;
    cluster.api.set_clock_ahead(SignedDuration::from_mins(10));
    wait_renewed(&cluster)?;
    check_token(&cluster)?;
    let later = Timestamp::now();
    cluster.create_pod(&PodManifest::script("more", "while true; do sleep 0.1; done"))?;
    let more = cluster.wait_ready("more")?;
    let made: Timestamp =
        more["metadata"]["creationTimestamp"].as_str().context("none")?.parse()?;
    assert!(made > later, "the server's clock is ahead: {made} {later}");
    let mut after = cluster.node.instances()?;
    after.retain(|id, _| before.contains_key(id));
    assert_eq!(after, before);
    Ok(())
}
