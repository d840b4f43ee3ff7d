//! What containers are told and allowed, as they see it themselves.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Node, NodeOptions, image};

/// A pod with one container, `main`, that runs a script in busybox.
fn put(node: &Node, name: &str, script: &str, container: &Value, spec: &Value) -> Result<()> {
    let mut main = json!({
        "name": "main",
        "image": image::BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
    });
    let mut pod_spec = json!({"terminationGracePeriodSeconds": 1});
    for (target, more) in [(&mut main, container), (&mut pod_spec, spec)] {
        for (key, value) in more.as_object().into_iter().flatten() {
            target[key] = value.clone();
        }
    }
    pod_spec["containers"] = json!([main]);
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "told"}},
        "spec": pod_spec,
    });
    node.manifests.put(&format!("{name}.json"), format!("{pod:#}\n"))
}

/// What the pod's container has written, once it has written `end`.
fn output(node: &Node, name: &str) -> Result<Vec<String>> {
    let view = node.wait_running(name)?;
    let log = format!("default_{}_{}/main/0.log", view.name, view.uid);
    let log = node.klet.pod_logs_dir().join(log);
    node.eventually(&format!("the words of {name}"), || {
        let text = fs::read_to_string(&log)?;
        // Time, stream and tag come first.
        let lines = text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default());
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        ensure!(lines.last().is_some_and(|line| line == "end"), "it said {lines:?}");
        Ok(lines)
    })
}

fn waiting(node: &Node, name: &str) -> Result<(String, String)> {
    let view = node.pod(name)?;
    let main = view.container("main")?;
    ensure!(main.state == "waiting" && main.reason != "ContainerCreating", "it is {main:?}");
    Ok((main.reason.clone(), main.message.clone()))
}

fn has(lines: &[String], wanted: &str) {
    assert!(lines.iter().any(|line| line == wanted), "{wanted:?} is not in {lines:#?}");
}

#[test]
fn names_environment_and_files() -> Result<()> {
    let node = Node::start()?;
    let script = "echo env $GREETING $APP $MEMORY; echo ip $POD_IP; echo node $NODE; \
                  echo name $(hostname); cat /etc/hosts /etc/resolv.conf; \
                  printf 'last words' >/dev/last; echo end; exec sleep 1000";
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let container = json!({
        "env": [
            {"name": "WHO", "value": "you"},
            {"name": "GREETING", "value": "hello-$(WHO)-$(NOBODY)"},
            {"name": "APP", "valueFrom": field("metadata.labels['app']")},
            {"name": "POD_IP", "valueFrom": field("status.podIP")},
            {"name": "NODE", "valueFrom": field("spec.nodeName")},
            {"name": "MEMORY", "valueFrom":
                {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        ],
        "resources": {"limits": {"memory": "64Mi"}},
        "terminationMessagePath": "/dev/last",
    });
    let spec = json!({
        "hostname": "box",
        "subdomain": "sub",
        "hostAliases": [{"ip": "192.0.2.9", "hostnames": ["nine", "neun"]}],
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["192.0.2.53"],
            "searches": ["example.test"],
            "options": [{"name": "ndots", "value": "2"}],
        },
    });
    put(&node, "told", script, &container, &spec)?;
    let host = json!({"hostNetwork": true});
    put(&node, "host", "cat /etc/hosts; echo end; exec sleep 1000", &json!({}), &host)?;

    let lines = output(&node, "told")?;
    let view = node.pod("told")?;
    let ip = view.ip.clone().context("a pod has an address")?;
    has(&lines, "env hello-you-$(NOBODY) told 64");
    has(&lines, &format!("ip {ip}"));
    has(&lines, "node n1");
    has(&lines, "name box");
    has(&lines, "# Kubernetes-managed hosts file.");
    has(&lines, &format!("{ip}\tbox.sub.default.svc.\tbox"));
    has(&lines, "192.0.2.9\tnine\tneun");
    has(&lines, "search example.test");
    has(&lines, "nameserver 192.0.2.53");
    has(&lines, "options ndots:2");

    let dir = node.klet.root_dir().join("pods").join(&view.uid).join("containers/main");
    let files: Vec<_> = fs::read_dir(&dir)?.flatten().map(|entry| entry.path()).collect();
    assert_eq!(files.len(), 1, "one file of last words per instance: {files:?}");
    assert_eq!(fs::read_to_string(&files[0])?, "last words");
    let name = files[0].file_name().and_then(|name| name.to_str()).unwrap_or_default();
    assert!(name.len() == 8 && name.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");

    let lines = output(&node, "host")?;
    has(&lines, "# Kubernetes-managed hosts file (host network).");
    Ok(())
}

#[test]
fn users_and_limits() -> Result<()> {
    let node = Node::start()?;
    let script = "echo user $(id -u) $(id -g) $(id -G); touch /x 2>/dev/null || echo read-only; \
                  grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; \
                  echo port $(cat /proc/sys/net/ipv4/ip_unprivileged_port_start); \
                  echo end; exec sleep 1000";
    let container = json!({"securityContext": {
        "runAsGroup": 2345,
        "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }});
    let spec = json!({"securityContext": {
        "runAsUser": 1234,
        "fsGroup": 3456,
        "supplementalGroups": [4567],
        "sysctls": [{"name": "net/ipv4/ip_unprivileged_port_start", "value": "42"}],
    }});
    put(&node, "strict", script, &container, &spec)?;
    let non_root = json!({"securityContext": {"runAsNonRoot": true}});
    put(&node, "root", "exec sleep 1000", &json!({}), &non_root)?;
    let sysctl = json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}});
    put(&node, "sysctl", "exec sleep 1000", &json!({}), &sysctl)?;

    let lines = output(&node, "strict")?;
    has(&lines, "user 1234 2345 2345 3456 4567");
    has(&lines, "read-only");
    has(&lines, "CapEff:\t0000000000000000");
    has(&lines, "NoNewPrivs:\t1");
    has(&lines, "Seccomp:\t2");
    has(&lines, "port 42");

    let (reason, message) = node.eventually("root to be refused", || waiting(&node, "root"))?;
    let uid = node.pod("root")?.uid;
    assert_eq!(reason, "CreateContainerConfigError");
    let expected = format!(
        "container has runAsNonRoot and image will run as root (pod: \"root-n1_default({uid})\", \
         container: main)"
    );
    assert_eq!(message, expected);

    let refused = node.wait_pod("sysctl", "to be refused", |pod| pod.phase == "Failed")?;
    assert_eq!(refused.reason, "SysctlForbidden");
    assert!(refused.message.starts_with("Pod was rejected: forbidden sysctl"), "{refused:?}");
    assert!(node.in_runtime("sysctl")?.0.is_empty(), "a refused pod has no sandbox");
    Ok(())
}

/// A node whose pods look names up in a cluster that is not there.
fn node_in_cluster() -> Result<Node> {
    let mut node = Node::start_with(NodeOptions { klet_absent: true, ..NodeOptions::default() })?;
    let file = node.containerd.dir().join("resolv.conf");
    fs::write(&file, "nameserver 192.0.2.1\nsearch host.test\noptions rotate ndots:3\n")?;
    node.klet.configure(json!({
        "clusterDNS": ["192.0.2.10"], "clusterDomain": "cluster.test", "resolvConf": file,
    }))?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    Ok(node)
}

#[test]
fn name_lookup() -> Result<()> {
    let node = node_in_cluster()?;
    let cluster = [
        "search default.svc.cluster.test svc.cluster.test cluster.test host.test",
        "nameserver 192.0.2.10",
        "options ndots:5",
    ];
    let host = ["search host.test", "nameserver 192.0.2.1", "options rotate ndots:3"];
    let own = json!({
        "nameservers": ["192.0.2.2", "192.0.2.3", "192.0.2.4"],
        "searches": ["host.test", "own.test"],
        "options": [{"name": "ndots", "value": "1"}, {"name": "edns0"}],
    });
    let added = [
        "search host.test own.test",
        "nameserver 192.0.2.1",
        "nameserver 192.0.2.2",
        "nameserver 192.0.2.3",
        "options rotate ndots:1 edns0",
    ];
    let cases: [(&str, Value, &[&str]); 6] = [
        ("unset", json!({}), &cluster),
        ("first", json!({"dnsPolicy": "ClusterFirst"}), &cluster),
        ("first-host", json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}), &host),
        (
            "with-host",
            json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}),
            &cluster,
        ),
        ("default", json!({"dnsPolicy": "Default"}), &host),
        ("added", json!({"dnsPolicy": "Default", "dnsConfig": own}), &added),
    ];
    let script = "cat /etc/resolv.conf; echo end; exec sleep 1000";
    for (name, spec, _) in &cases {
        put(&node, name, script, &json!({}), spec)?;
    }
    for (name, _, expected) in cases {
        let mut lines = output(&node, name)?;
        lines.retain(|line| !line.is_empty() && line != "end");
        assert_eq!(lines, expected, "{name}");
    }
    node.wait_says(&["events", "added"], &["DNSConfigForming", "Nameserver limits were exceeded"])?;
    Ok(())
}

#[test]
fn full_names() -> Result<()> {
    let node = node_in_cluster()?;
    let script = "echo name $(hostname); cat /etc/hosts; echo end; exec sleep 1000";
    let spec = |hostname: &str| json!({"hostname": hostname, "subdomain": "sub", "setHostnameAsFQDN": true});
    put(&node, "full", script, &json!({}), &spec("box"))?;
    put(&node, "alone", script, &json!({}), &json!({"setHostnameAsFQDN": true}))?;
    let long = "x".repeat(40);
    put(&node, "long", script, &json!({}), &spec(&long))?;
    // It takes the place of all other names.
    let mut chosen = spec("box");
    chosen["hostnameOverride"] = json!("some.other.name");
    chosen["setHostnameAsFQDN"] = json!(false);
    put(&node, "chosen", script, &json!({}), &chosen)?;
    has(&output(&node, "full")?, "name box.sub.default.svc.cluster.test");
    let ip = node.pod("full")?.ip.context("a pod has an address")?;
    has(&output(&node, "full")?, &format!("{ip}\tbox.sub.default.svc.cluster.test\tbox"));
    // Without a domain there is nothing to add.
    has(&output(&node, "alone")?, "name alone-n1");
    has(&output(&node, "chosen")?, "name some.other.name");
    let ip = node.pod("chosen")?.ip.context("a pod has an address")?;
    has(&output(&node, "chosen")?, &format!("{ip}\tsome.other.name"));
    // The kernel holds 64 characters.
    let refused = node.wait_pod("long", "to say why not", |pod| {
        pod.condition("PodReadyToStartContainers").is_ok_and(|c| c.message.contains("is too long"))
    })?;
    assert_eq!(refused.phase, "Pending");
    assert!(node.klet_says(&["why", "long"])?.contains("is too long"));
    Ok(())
}

#[test]
fn masked_paths() -> Result<()> {
    let node = Node::start()?;
    // What is masked is mounted over.
    let script = "cut -d' ' -f2,4 /proc/mounts | grep '^/proc/'; echo end; exec sleep 1000";
    let proc_mount = |kind: &str| json!({"securityContext": {"procMount": kind}});
    put(&node, "masked", script, &proc_mount("Default"), &json!({}))?;
    put(&node, "bold", script, &proc_mount("Unmasked"), &json!({}))?;
    put(&node, "apart", script, &proc_mount("Unmasked"), &json!({"hostUsers": false}))?;
    let lines = output(&node, "masked")?;
    assert!(lines.iter().any(|line| line.starts_with("/proc/sys ro,")), "{lines:?}");
    let masked = ["/proc/kcore", "/proc/keys", "/proc/interrupts", "/proc/timer_list"];
    // A machine need not have them all.
    let here: Vec<_> = masked.iter().filter(|path| Path::new(path).exists()).collect();
    for path in here {
        let found = lines.iter().any(|line| line.starts_with(&format!("{path} ")));
        assert!(found, "{path} is not in {lines:?}");
    }
    let sent = node.sent_config("masked", "main")?["linux"]["security_context"].take();
    for path in masked {
        let list = sent["masked_paths"].as_array().into_iter().flatten();
        assert!(list.into_iter().any(|one| one == path), "{path} is not in {sent}");
    }
    // Root of the host must not see it all.
    node.eventually("the manifest to be refused", || {
        let log = fs::read_to_string(node.klet.log_path())?;
        let words = "securityContext.procMount: Unmasked needs hostUsers: false";
        let told = log.lines().any(|line| line.contains("bold.json") && line.contains(words));
        ensure!(told, "the log does not say {words:?}");
        Ok(())
    })?;
    // Newer runtimes can do this.
    let apart = node.wait_pod("apart", "to run or to say why not", |pod| {
        let waits = pod.condition("PodReadyToStartContainers");
        pod.phase == "Running" || waits.is_ok_and(|waits| waits.message.contains("user namespace"))
    })?;
    if apart.phase == "Running" {
        let lines = output(&node, "apart")?;
        assert_eq!(lines, ["end"], "nothing lies over what is below /proc");
    } else {
        eprintln!("SKIPPED an unmasked /proc: this runtime has no user namespaces");
    }
    Ok(())
}
