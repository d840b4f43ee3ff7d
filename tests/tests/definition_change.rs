//! A manifest that keeps its uid and changes: what restarts a container, and what does not.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Node, PodManifest, image};

const UID: &str = "3d1f9a52-6a54-4a0b-9d5e-0c3c6a0f7b11";
const STAYS: &str = "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done";
const OTHER: &str = "docker.io/library/busybox:other";

/// Under any policy a new definition starts: this one restarts nothing else.
fn pod(image: &str, greeting: &str) -> PodManifest {
    PodManifest::new("web")
        .uid(UID)
        .container("side", STAYS)
        .container("main", STAYS)
        .with("image", json!(image))
        .with("env", json!([{"name": "GREETING", "value": greeting}]))
        .restart("Never")
}

/// The environment of `main` in the pod klet works for.
fn taken(node: &Node) -> Result<Value> {
    let list: Value = serde_json::from_str(&node.klet_says(&["pods", "-o", "json"])?)?;
    Ok(list["items"][0]["spec"]["containers"][1]["env"][0]["value"].clone())
}

#[test]
fn a_new_image_restarts_its_container_and_nothing_else_does() -> Result<()> {
    let node = Node::start()?;
    node.containerd.ctr(&["images", "tag", image::BUSYBOX, OTHER])?;
    node.eventually("the second name of the image", || {
        let images = node.cri().block_on(async |runtime| runtime.list_images().await)?;
        let known = images.iter().any(|image| image.repo_tags.iter().any(|tag| tag == OTHER));
        ensure!(known, "the runtime has {images:?}");
        Ok(())
    })?;
    node.manifests.put_pod(&pod(image::BUSYBOX, "hello"))?;
    let before = node.wait_running("web")?;
    assert_eq!(before.uid, UID);

    // Upstream looks at name and image alone.
    node.manifests.put_pod(&pod(image::BUSYBOX, "goodbye"))?;
    node.eventually("the edit to be taken", || {
        ensure!(taken(&node)? == "goodbye", "it has {}", taken(&node)?);
        Ok(())
    })?;
    assert_eq!(node.wait_running("web")?, before);

    node.manifests.put_pod(&pod(OTHER, "goodbye"))?;
    let after = node.eventually("main to be started again", || {
        let pod = node.wait_running("web")?;
        ensure!(pod.container("main")?.id != before.container("main")?.id, "it is {pod:?}");
        Ok(pod)
    })?;
    assert_eq!(after.uid, before.uid);
    assert_eq!(after.container("side")?, before.container("side")?, "its neighbour runs on");
    let main = after.container("main")?;
    // Once: the edit before it was no reason.
    assert_eq!((main.restarts, main.exit_code), (1, Some(0)));
    assert_eq!(node.run_in("web", "main", "echo $GREETING")?, "goodbye\n");
    node.wait_says(
        &["events", "web"],
        &["Killing default/web-n1 [main] Container main definition changed, will be restarted"],
    )?;
    Ok(())
}
