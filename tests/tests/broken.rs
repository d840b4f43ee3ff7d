//! Pods that cannot run as they are, and what their status says of it.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{Node, PodManifest, PodView};

#[test]
fn containers_that_cannot_start_or_go_on() -> Result<()> {
    let node = Node::start()?;
    let absent =
        |name: &str| PodManifest::script(name, "").with("command", json!(["/no/such/program"]));
    node.manifests.put_pod(&absent("typo"))?;
    node.manifests.put_pod(&absent("typo-once").restart("Never"))?;
    let writes = PodManifest::script("writes", "echo x >/file")
        .with("securityContext", json!({"readOnlyRootFilesystem": true}))
        .with("terminationMessagePolicy", json!("FallbackToLogsOnError"));
    node.manifests.put_pod(&writes.restart("Never"))?;
    let greedy = PodManifest::script("greedy", "exec tail /dev/zero")
        .with("resources", json!({"limits": {"memory": "20Mi"}}));
    node.manifests.put_pod(&greedy.restart("Never"))?;

    let once = node.wait_pod("typo-once", "to have failed", |pod| pod.phase == "Failed")?;
    let main = once.container("main")?;
    assert_eq!((main.reason.as_str(), main.exit_code), ("StartError", Some(128)));
    assert!(main.message.contains("/no/such/program"), "{}", main.message);

    let typo = node.wait_pod("typo", "to be tried again", |pod| {
        let reasons = ["RunContainerError", "CrashLoopBackOff"];
        pod.container("main").is_ok_and(|m| reasons.contains(&m.reason.as_str()) && m.restarts > 0)
    })?;
    assert_eq!(typo.container("main")?.state, "waiting");

    let writes = node.wait_pod("writes", "to have failed", |pod| pod.phase == "Failed")?;
    let main = writes.container("main")?;
    assert!(main.message.contains("Read-only file system"), "{main:?}");

    let greedy = node.wait_pod("greedy", "to have failed", |pod| pod.phase == "Failed")?;
    let main = greedy.container("main")?;
    assert_eq!((main.reason.as_str(), main.exit_code), ("OOMKilled", Some(137)));
    Ok(())
}

#[test]
fn what_this_release_refuses_it_names() -> Result<()> {
    let node = Node::start()?;
    let pod = |name: &str| PodManifest::script(name, "exec sleep 1000");
    let volumes = json!([{"name": "scratch", "flexVolume": {"driver": "d/e"}}]);
    node.manifests.put_pod(&pod("disk").spec("volumes", volumes))?;
    // No API server, nobody to add one to a pod that runs.
    let ephemeral = json!([{"name": "look", "image": "docker.io/library/busybox:latest"}]);
    node.manifests.put_pod(&pod("debugged").spec("ephemeralContainers", ephemeral))?;
    node.manifests.put_pod(&pod("good"))?;
    node.wait_running("good")?;
    for (file, words) in [
        ("disk.json", "spec.volumes[0].flexVolume: not supported by this release"),
        ("debugged.json", "spec.ephemeralContainers: cannot be set on create"),
    ] {
        node.eventually(&format!("{file} to be refused"), || {
            let log = fs::read_to_string(node.klet.log_path()).context("klet has a log")?;
            let told = log.lines().any(|line| line.contains(file) && line.contains(words));
            ensure!(told, "the log does not say {words:?}");
            Ok(())
        })?;
    }
    for name in ["disk", "debugged"] {
        assert!(node.in_runtime(name)?.0.is_empty(), "{name} has a sandbox");
    }
    Ok(())
}

#[test]
fn pods_that_get_no_sandbox() -> Result<()> {
    let node = Node::start()?;
    let pod = |name: &str| PodManifest::script(name, "exec sleep 1000");
    node.manifests.put_pod(&pod("class").spec("runtimeClassName", json!("nothing")))?;
    node.manifests.put_pod(&pod("users").spec("hostUsers", json!(false)))?;
    // The handler that a private containerd has.
    node.manifests.put_pod(&pod("classy").spec("runtimeClassName", json!("runc")))?;
    node.wait_running("classy")?;
    let says = |pod: &PodView, words: &str| {
        let waits = pod.condition("PodReadyToStartContainers");
        waits.is_ok_and(|waits| waits.status == "False" && waits.message.contains(words))
    };
    let class = node.wait_pod("class", "to wait", |pod| says(pod, "nothing"))?;
    assert_eq!(class.phase, "Pending");
    // Its containers wait for the same.
    let (main, waits) = (class.container("main")?, class.condition("PodReadyToStartContainers")?);
    assert_eq!((main.state.as_str(), main.reason.as_str()), ("waiting", "ContainerCreating"));
    assert_eq!(main.message, waits.message);
    let words = "Failed to create pod sandbox: ";
    node.wait_says(&["events", "class"], &["Warning FailedCreatePodSandBox", words, "nothing"])?;
    // Newer runtimes can do this.
    let users = node.wait_pod("users", "to run or to say why not", |pod| {
        pod.phase == "Running" || says(pod, "user namespace")
    })?;
    if users.phase == "Running" {
        let map = node.run_in("users", "main", "cat /proc/self/uid_map")?;
        let host = map.split_whitespace().nth(1).map(str::to_owned);
        assert_ne!(host.as_deref(), Some("0"), "root in the pod is root on the host: {map}");
    } else {
        eprintln!("SKIPPED running in a user namespace: this runtime has none");
    }
    Ok(())
}

#[test]
fn a_network_that_is_not_there() -> Result<()> {
    let node = Node::start()?;
    let network = node.containerd.dir().join("cni/10-testkit.conflist");
    let text = fs::read_to_string(&network).context("there is a network")?;
    fs::write(&network, text.replace("\"bridge\"", "\"no-such-plugin\""))?;
    node.manifests.put_pod(&PodManifest::script("lonely", "exec sleep 1000"))?;
    let on_host = PodManifest::script("host", "exec sleep 1000").spec("hostNetwork", json!(true));
    let lonely = node.wait_pod("lonely", "to wait", |pod| {
        let waits = pod.condition("PodReadyToStartContainers");
        waits.is_ok_and(|waits| waits.message.contains("no-such-plugin"))
    })?;
    assert_eq!(lonely.phase, "Pending");
    assert!(!lonely.is("Ready") && lonely.is("PodScheduled"), "{lonely:?}");
    assert!(lonely.container("main")?.message.contains("no-such-plugin"), "{lonely:?}");
    node.wait_says(&["why", "lonely"], &["no-such-plugin"])?;
    // Others do not wait for it.
    node.manifests.put_pod(&on_host)?;
    node.wait_running("host")?;
    fs::write(&network, text)?;
    let lonely = node.wait_running("lonely")?;
    let ready = lonely.condition("PodReadyToStartContainers")?;
    assert_eq!((ready.status.as_str(), ready.message.as_str()), ("True", ""));
    Ok(())
}

#[test]
fn a_gate_that_nobody_opens() -> Result<()> {
    let node = Node::start()?;
    let gates = json!([{"conditionType": "example.com/in-service"}]);
    node.manifests.put_pod(&PodManifest::pause("gated").spec("readinessGates", gates))?;
    let gated = node.wait_pod("gated", "to have ready containers", |pod| {
        pod.is("ContainersReady") && pod.phase == "Running"
    })?;
    let ready = gated.condition("Ready")?;
    assert_eq!(ready.status, "False");
    let words =
        "corresponding condition of pod readiness gate \"example.com/in-service\" does not exist.";
    assert_eq!(ready.message, words);
    let why = node.klet_says(&["why", "gated"])?;
    for told in
        ["All containers are ready, but the pod is not", words, "remove spec.readinessGates"]
    {
        assert!(why.contains(told), "{told:?} is not in: {why}");
    }
    Ok(())
}

#[test]
fn what_host_or_runtime_cannot_do_is_refused() -> Result<()> {
    let node = Node::start()?;
    let put = |name: &str, context: serde_json::Value| {
        let pod = PodManifest::script(name, "exec sleep 1000").spec("securityContext", context);
        node.manifests.put_pod(&pod)
    };
    put("armoured", json!({"appArmorProfile": {"type": "RuntimeDefault"}}))?;
    put("strict", json!({"supplementalGroupsPolicy": "Strict"}))?;
    let armour = fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    let has_armour = armour.is_ok_and(|text| text.starts_with('Y'));
    let decided = |name: &str| {
        node.wait_pod(name, "to run or to be refused", |pod| {
            pod.phase == "Failed" || pod.containers.iter().any(|main| main.state == "running")
        })
    };
    let armoured = decided("armoured")?;
    assert_eq!(armoured.phase == "Failed", !has_armour, "{armoured:?}");
    let status = node.cri().block_on(async |runtime| runtime.status().await)?;
    let can = status.features.is_some_and(|features| features.supplemental_groups_policy);
    let strict = decided("strict")?;
    assert_eq!(strict.phase == "Failed", !can, "{strict:?}");
    for (name, pod, reason, words) in [
        ("armoured", armoured, "AppArmor", "Cannot enforce AppArmor"),
        ("strict", strict, "SupplementalGroupsPolicyNotSupported", "Strict is not supported"),
    ] {
        if pod.phase == "Failed" {
            assert_eq!(pod.reason, reason);
            assert!(pod.message.starts_with("Pod was rejected: "), "{pod:?}");
            assert!(pod.message.contains(words), "{pod:?}");
            assert!(node.in_runtime(name)?.0.is_empty(), "a refused pod has no sandbox");
            node.wait_says(&["why", name], &[words])?;
            node.wait_says(&["events", name], &[&format!("Warning {reason}"), words])?;
        }
    }
    Ok(())
}
