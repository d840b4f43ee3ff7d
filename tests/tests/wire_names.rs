//! Labels, annotations, hashes and paths: upstream's, to the letter, because
//! other programs read them and a node may move between kubelets.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{Node, PodManifest, image};

/// FNV-1a over the text Go prints for the bytes of the container's name and image.
fn container_hash(name: &str, image: &str) -> String {
    let json = format!(r#"{{"image":"{image}","name":"{name}"}}"#);
    let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    let text = format!("([]uint8)[{}]", bytes.join(" "));
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    format!("{:x}", text.bytes().fold(2_166_136_261, step))
}

fn map<'a>(pairs: &[(&'a str, &'a str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_hash_is_upstreams() {
    assert_eq!(container_hash("test_container", "foo/image:v1"), "8e45cbd0");
}

#[test]
fn names_are_upstreams() -> Result<()> {
    let node = Node::start()?;
    let script = "echo out $GREETING $0 $1; echo err >&2; hostname; exec sleep 1000";
    let pod = PodManifest::script("web", script)
        .with("args", json!(["zero", "one"]))
        .with("env", json!([{"name": "GREETING", "value": "hello"}]))
        .with("ports", json!([{"name": "http", "containerPort": 8080, "protocol": "TCP"}]))
        .label("app", "web")
        .annotation("example.com/note", "kept");
    node.manifests.put_pod(&pod)?;
    let view = node.wait_running("web")?;
    let id = view.container("main")?.id.clone();
    let (sandboxes, containers) = node.in_runtime("web")?;
    assert_eq!((sandboxes.len(), containers.len()), (1, 1));

    let sandbox = &sandboxes[0];
    let metadata = sandbox.metadata.clone().context("a sandbox has metadata")?;
    assert_eq!((metadata.name.as_str(), metadata.namespace.as_str()), ("web-n1", "default"));
    assert_eq!((metadata.uid.as_str(), metadata.attempt), (view.uid.as_str(), 0));
    let pod_labels = [
        ("io.kubernetes.pod.name", "web-n1"),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", &view.uid),
    ];
    let mut expected = map(&pod_labels);
    expected.insert("app".to_owned(), "web".to_owned());
    assert_eq!(sandbox.labels, expected);
    let mut annotations = sandbox.annotations.clone();
    assert!(annotations.remove("kubernetes.io/config.seen").is_some_and(|seen| seen.contains('T')));
    let expected = map(&[
        ("example.com/note", "kept"),
        ("kubernetes.io/config.hash", &view.uid),
        ("kubernetes.io/config.source", "file"),
    ]);
    assert_eq!(annotations, expected);

    let container = &containers[0];
    let mut expected = map(&pod_labels);
    expected.insert("io.kubernetes.container.name".to_owned(), "main".to_owned());
    assert_eq!(container.labels, expected);
    let mut annotations = container.annotations.clone();
    let ports = annotations.remove("io.kubernetes.container.ports").context("no ports")?;
    let ports: serde_json::Value = serde_json::from_str(&ports)?;
    assert_eq!(ports, json!([{"name": "http", "containerPort": 8080, "protocol": "TCP"}]));
    let expected = map(&[
        ("io.kubernetes.container.hash", &container_hash("main", image::BUSYBOX)),
        ("io.kubernetes.container.restartCount", "0"),
        ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
        ("io.kubernetes.container.terminationMessagePolicy", "File"),
        ("io.kubernetes.pod.terminationGracePeriod", "1"),
    ]);
    assert_eq!(annotations, expected);

    check_logs(&node, &view.uid, &id)
}

fn check_logs(node: &Node, uid: &str, id: &str) -> Result<()> {
    let log = node.klet.pod_logs_dir().join(format!("default_web-n1_{uid}/main/0.log"));
    assert_eq!(Path::new(&node.cri().container_status(id)?.log_path), log);
    let link = PathBuf::from(format!("/var/log/containers/web-n1_default_main-{id}.log"));
    node.eventually("the link to the log", || {
        ensure!(fs::read_link(&link)? == log, "{} leads elsewhere", link.display());
        Ok(())
    })?;
    let text = node.eventually("the container's three lines", || {
        let text = fs::read_to_string(&log)?;
        ensure!(text.lines().count() == 3, "the log is {text:?}");
        Ok(text)
    })?;
    for wanted in [" stdout F out hello zero one", " stderr F err", " stdout F web-n1"] {
        assert!(text.lines().any(|line| line.ends_with(wanted)), "{wanted:?} is not in {text:?}");
    }
    Ok(())
}
