//! Pods come up from manifests, follow their edits, and go with them.

use std::fs;

use anyhow::{Context, Result, ensure};
use testkit::{Node, NodeOptions, PodManifest, klet};

const YAML: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: yaml
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: docker.io/library/busybox:latest
    imagePullPolicy: IfNotPresent
    command: ["/bin/sh", "-c", "echo $GREETING; exec sleep 1000"]
    env: [{name: GREETING, value: hello}]
"#;

#[test]
fn a_directory_is_followed() -> Result<()> {
    let node = Node::start()?;
    assert_eq!(node.klet.pods()?, [], "an empty directory means no pods");

    // YAML and JSON side by side; what is hidden or not a file is left alone.
    node.manifests.put("yaml.yaml", YAML)?;
    node.manifests.put(".hidden.yaml", YAML.replace("name: yaml", "name: hidden"))?;
    fs::create_dir(node.manifests.path().join("folder"))?;
    node.manifests.put_pod(&PodManifest::script("json", "exec sleep 1000"))?;
    let first = node.wait_running("yaml")?;
    let json = node.wait_running("json")?;
    assert_eq!((first.namespace.as_str(), first.phase.as_str()), ("default", "Running"));
    assert!(first.ip.is_some() && first.ip != json.ip, "each pod has its own address");
    assert_eq!(node.klet.pods()?.len(), 2, "nothing else was taken for a pod");

    // An edit replaces the pod: same name, new uid, new container.
    node.manifests.put("yaml.yaml", YAML.replace("value: hello", "value: goodbye"))?;
    let second = node.eventually("the edited pod to replace the old one", || {
        let pod = node.wait_running("yaml")?;
        ensure!(pod.uid != first.uid, "it is still {pod:?}");
        let (sandboxes, containers) = node.in_runtime("yaml")?;
        ensure!(sandboxes.len() == 1 && containers.len() == 1, "{sandboxes:?} {containers:?}");
        Ok(pod)
    })?;
    assert_ne!(second.containers[0].id, first.containers[0].id);
    assert_eq!(node.wait_running("json")?, json, "its neighbour did not notice");

    // A broken edit keeps the last good pod, and holds up no other.
    node.manifests.put("yaml.yaml", "kind: Pod\nmetadata: [not, a, pod")?;
    node.manifests.put_pod(&PodManifest::script("late", "exec sleep 1000"))?;
    node.wait_running("late")?;
    assert_eq!(node.wait_running("yaml")?.containers[0].id, second.containers[0].id);

    // With its file goes everything of the pod, and nothing of the others.
    let links = || klet::log_links_into(&node.klet.pod_logs_dir());
    let link_of = |name: &str| links().iter().any(|link| link.display().to_string().contains(name));
    node.eventually("a link to each log", || {
        ensure!(links().len() == 3, "there are {:?}", links());
        Ok(())
    })?;
    node.manifests.remove_pod("json")?;
    node.wait_gone("json")?;
    node.eventually("the link to the log to go", || {
        ensure!(!link_of("json-n1_default"), "there are {:?}", links());
        Ok(())
    })?;
    assert!(link_of("late-n1_default"));
    node.wait_running("late")?;
    node.manifests.remove("yaml.yaml")?;
    node.manifests.remove_pod("late")?;
    node.wait_gone("yaml")?;
    node.wait_gone("late")?;
    assert_eq!(node.klet.pods()?, []);
    Ok(())
}

#[test]
fn a_single_file_is_followed() -> Result<()> {
    let options = NodeOptions { single_file: Some("only.yaml".to_owned()), ..Default::default() };
    let node = Node::start_with(options)?;
    node.manifests.put("only.yaml", YAML)?;
    node.manifests.put_pod(&PodManifest::script("other", "exec sleep 1000"))?;
    let pod = node.wait_running("yaml")?;
    assert_eq!(pod.containers.len(), 1);
    assert_eq!(node.klet.pods()?.len(), 1, "other files of the directory do not count");

    node.manifests.put("only.yaml", PodManifest::script("renamed", "exec sleep 1000").to_json())?;
    node.wait_running("renamed")?;
    node.wait_gone("yaml")?;
    node.manifests.remove("only.yaml")?;
    node.wait_gone("renamed")
}

#[test]
fn a_pod_recreated_at_once_ends_up_running_once() -> Result<()> {
    let node = Node::start()?;
    let pod = |word: &str| PodManifest::script("quick", &format!(": {word}; exec sleep 1000"));
    node.manifests.put_pod(&pod("first"))?;
    let first = node.wait_running("quick")?;
    for word in ["first", "second", "third"] {
        node.manifests.remove_pod("quick")?;
        node.manifests.put_pod(&pod(word))?;
    }
    node.eventually("exactly the third to run", || {
        let found = node.wait_running("quick")?;
        ensure!(found.uid != first.uid, "it is still the first");
        let (sandboxes, containers) = node.in_runtime("quick")?;
        ensure!(sandboxes.len() == 1, "the runtime has {sandboxes:?}");
        ensure!(containers.len() == 1, "the runtime has {containers:?}");
        let status = node.cri().container_status(&containers[0].id)?;
        let id = &found.container("main")?.id;
        ensure!(*id == status.id, "/pods names {id}, the runtime {}", status.id);
        let info = node.containerd.ctr(&["containers", "info", id])?;
        let info: serde_json::Value = serde_json::from_str(&info).context("ctr speaks JSON")?;
        let arguments = info["Spec"]["process"]["args"].to_string();
        ensure!(arguments.contains("third"), "it runs {arguments}");
        Ok(())
    })
}
