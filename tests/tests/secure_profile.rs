//! `--profile=secure`: every item of CIS Kubernetes Benchmark 4.2, one by one, on a node
//! that runs. A real containerd, a real API server, real TLS.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::client_hello::{self, Answer};
use testkit::{ApiOptions, Cluster, PodManifest, http, https_client};

/// The names that the benchmark calls strong and this server offers.
const STRONG: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];
const MASTERS: Option<&str> = Some("system:masters");

struct Secured {
    cluster: Cluster,
    certificate: PathBuf,
}

/// A node that says only what the profile cannot know: whom to trust, what to show.
fn secured() -> Result<Secured> {
    let mut cluster = Cluster::prepare(ApiOptions::default(), Value::Null, true)?;
    let dir = cluster.node.containerd.dir().to_owned();
    let name = cluster.node.klet.node_name().to_owned();
    let names = [name.clone(), "127.0.0.1".to_owned()];
    let own = cluster.api.authority().server(&name, &names, jiff::Timestamp::now())?;
    let (certificate, key) = (dir.join("serving.crt"), dir.join("serving.key"));
    std::fs::write(&certificate, &own.certificate)?;
    std::fs::write(&key, &own.key)?;
    cluster.node.klet.add_flag("profile", Path::new("secure"));
    cluster.node.klet.configure(json!({
        "port": cluster.port,
        "authentication": {"x509": {"clientCAFile": dir.join("client-ca.crt")}},
        "authorization": null,
        "readOnlyPort": null,
        "tlsCertFile": certificate,
        "tlsPrivateKeyFile": key,
    }))?;
    Ok(Secured { cluster, certificate })
}

/// The benchmark's item holds for what `/configz` says.
fn holds(item: &str, config: &Value, is: bool) -> Result<()> {
    ensure!(is, "CIS {item} does not hold for {config:#}");
    Ok(())
}

#[test]
fn every_item_passes_on_a_running_node() -> Result<()> {
    let Secured { mut cluster, certificate } = secured()?;
    cluster.node.klet.launch()?;
    cluster.node.klet.wait_healthy()?;
    // The container tells which filter the kernel applies to it.
    let script =
        "trap 'exit 0' TERM; grep Seccomp: /proc/self/status; while true; do sleep 0.1; done";
    cluster.create_pod(&PodManifest::script("web", script))?;
    cluster.wait_ready("web")?;
    let get = |path: &str| cluster.node_get("admin", MASTERS, path);
    let config: Value = serde_json::from_str(&get("/configz")?.body)?;
    let config = &config["kubeletconfig"];

    // 4.2.1: whoever shows nothing is nobody.
    holds("4.2.1", config, config["authentication"]["anonymous"]["enabled"] == false)?;
    for path in ["/healthz", "/pods", "/metrics", "/configz"] {
        assert_eq!(https_client::ask(cluster.port, "GET", path, None, None)?.status, 401, "{path}");
    }
    // 4.2.2: who is known may do what the API server lets them, and no more.
    holds("4.2.2", config, config["authorization"]["mode"] == "Webhook")?;
    assert_eq!(cluster.node_get("somebody", None, "/pods")?.status, 403);
    // 4.2.3: certificates are checked against the authority that was named.
    let authority = &config["authentication"]["x509"]["clientCAFile"];
    holds("4.2.3", config, authority.as_str().is_some_and(|path| path.ends_with("client-ca.crt")))?;
    let now = jiff::Timestamp::now();
    let other = testkit::TestApi::start(
        &cluster.node.containerd.dir().join("other-api"),
        ApiOptions::default(),
    )?;
    let stranger = other.authority().client("admin", MASTERS, now)?;
    let identity = Some((stranger.certificate.as_str(), stranger.key.as_str()));
    assert_eq!(https_client::ask(cluster.port, "GET", "/pods", identity, None)?.status, 401);
    // 4.2.4: nothing is shown without TLS.
    holds("4.2.4", config, config["readOnlyPort"] == 0)?;
    assert!(http::get(cluster.node.klet.read_only_port(), "/pods").is_err());
    // 4.2.5 and 4.2.6.
    let idle = &config["streamingConnectionIdleTimeout"];
    holds("4.2.5", config, idle.is_string() && idle != "0s")?;
    holds("4.2.6", config, config["makeIPTablesUtilChains"] == true)?;
    // 4.2.7: the node has the host's name, and no flag says otherwise.
    let flags = get("/flagz")?.body;
    holds("4.2.7", config, flags.contains("\nhostname-override=\n"))?;
    assert!(flags.contains("\nprofile=secure\n"), "{flags}");
    let name = cluster.node.klet.node_name();
    cluster.api.object("nodes", "", name).context("the node is not registered by its own name")?;
    // 4.2.8
    let rate = config["eventRecordQPS"].as_i64();
    holds("4.2.8", config, rate.is_some_and(|rate| rate == 0 || rate >= 5))?;
    // 4.2.9: the certificate that was given is shown, and none was made.
    holds("4.2.9", config, config["tlsCertFile"] == certificate.display().to_string())?;
    assert!(!cluster.node.containerd.dir().join("pki/kubelet.crt").exists());
    // 4.2.10 and 4.2.11
    holds("4.2.10", config, config["rotateCertificates"] == true)?;
    let gate = &config["featureGates"]["RotateKubeletServerCertificate"];
    holds("4.2.11", config, *gate != false)?;
    // 4.2.12
    let suites: Vec<&str> = config["tlsCipherSuites"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    holds("4.2.12", config, !suites.is_empty() && suites.iter().all(|name| STRONG.contains(name)))?;
    holds("4.2.12", config, config["tlsMinVersion"] == "VersionTLS12")?;
    // 4.2.13: the kernel's own limit of the pod says so too.
    let limit = config["podPidsLimit"].as_i64().context("a limit")?;
    holds("4.2.13", config, limit > 0)?;
    let metrics = get("/metrics/cadvisor")?.body;
    let of_pod = |line: &&str| {
        line.starts_with("container_threads_max{container=\"\"") && line.contains("pod=\"web\"")
    };
    let line = metrics.lines().find(of_pod).with_context(|| metrics.clone())?;
    let value = line.split("} ").nth(1).and_then(|rest| rest.split(' ').next());
    assert_eq!(value, Some(limit.to_string().as_str()), "{line}");
    // 4.2.14: 2 stands for a filter.
    holds("4.2.14", config, config["seccompDefault"] == true)?;
    let log = get("/containerLogs/default/web/main")?.body;
    assert_eq!(log.split_whitespace().collect::<Vec<_>>(), ["Seccomp:", "2"]);
    Ok(())
}

/// CIS 4.2.12, by a handshake of a client that knows nothing better.
#[test]
fn weak_suites_and_old_versions_are_refused() -> Result<()> {
    let Secured { mut cluster, .. } = secured()?;
    cluster.node.klet.launch()?;
    cluster.node.klet.wait_healthy()?;
    let say = |version: u16, suites: &[u16]| client_hello::say(cluster.port, version, suites);
    // RSA without forward secrecy, CBC, 3DES, RC4.
    let weak = [0x002f, 0x0035, 0x009c, 0x003c, 0x000a, 0x0005, 0xc009, 0xc013, 0xc023, 0xc011];
    assert_eq!(say(0x0303, &weak)?, Answer::Refused(40));
    // TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 and TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
    let strong = [0xc02b, 0xc02f];
    let all = [&weak[..], &strong].concat();
    let answer = say(0x0303, &all)?;
    assert!(strong.iter().any(|suite| answer == Answer::Chosen(*suite)), "{answer:?}");
    assert_eq!(say(0x0302, &all)?, Answer::Refused(70), "TLS 1.1");
    assert_eq!(say(0x0301, &all)?, Answer::Refused(70), "TLS 1.0");
    Ok(())
}

#[test]
fn a_command_in_a_container_needs_the_right_to_create() -> Result<()> {
    let Secured { mut cluster, .. } = secured()?;
    cluster.node.klet.launch()?;
    cluster.node.klet.wait_healthy()?;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]});
    for object in [role, binding] {
        cluster.api.add("", object)?;
    }
    // Reading is allowed, which with upstream is enough for a command over a WebSocket.
    assert_eq!(cluster.node_get("reader", None, "/configz")?.status, 200);
    for path in [
        "/exec/default/web/main?output=1",
        "/attach/default/web/main?output=1",
        "/portForward/default/web",
    ] {
        let answer = cluster.node_get("reader", None, path)?;
        let why = "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n";
        assert_eq!((answer.status, answer.body.as_str()), (403, why), "{path}");
    }
    Ok(())
}

#[test]
fn the_check_shows_what_the_profile_sets_and_what_contradicts_it() -> Result<()> {
    let Secured { cluster, .. } = secured()?;
    let check = |more: &[&str]| -> Result<(Value, bool)> {
        let output = Command::new(testkit::binaries::klet_binary()?)
            .args(["check", "-o", "json"])
            .args(cluster.node.klet.flags())
            .args(more)
            .output()?;
        let shown = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        Ok((shown, output.status.success()))
    };
    let (shown, good) = check(&[])?;
    assert!(good, "{shown:#}");
    let rows = shown["configuration"].as_array().context("rows")?;
    for field in [
        "authorization.mode",
        "podPidsLimit",
        "seccompDefault",
        "tlsCipherSuites",
        "rotateCertificates",
        "readOnlyPort",
        "--streams-need-create",
    ] {
        let row = rows.iter().find(|row| row["field"] == field);
        let row = row.with_context(|| format!("{field} is not shown in {shown:#}"))?;
        assert_eq!(row["origin"], "profile secure", "{row:#}");
    }
    let (shown, good) = check(&["--anonymous-auth", "--hostname-override=other"])?;
    let problems = shown["problems"].to_string();
    assert!(
        !good && problems.contains("CIS 4.2.1)") && problems.contains("CIS 4.2.7)"),
        "{problems}"
    );
    Ok(())
}
