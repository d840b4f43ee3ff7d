//! klet as the only file of an image: the published form is one static binary.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use testkit::{Image, Node, binaries};

const NAME: &str = "example.com/klet:test";

#[test]
fn klets_own_static_binary_runs_in_a_pod() -> Result<()> {
    let image = Image::of_program(NAME, &binaries::static_klet_binary()?)?;
    let node = Node::start()?;
    let archive = node.containerd.dir().join("klet.tar");
    image.write(&archive)?;
    node.containerd.import(&archive)?;
    node.manifests.put(
        "version.yaml",
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: version}}\nspec:\n  \
             restartPolicy: Never\n  containers:\n  - name: klet\n    image: {NAME}\n    \
             imagePullPolicy: Never\n    args: [version]\n"
        ),
    )?;
    node.eventually("klet to print its version in a pod", || {
        let pod = node.pod("version")?;
        ensure!(pod.phase == "Succeeded", "it is {pod:?}");
        let log = log_of(&node.klet.pod_logs_dir())?;
        ensure!(log.contains("klet ") && log.contains("stdout F"), "its log is {log:?}");
        Ok(())
    })
}

fn log_of(logs: &Path) -> Result<String> {
    let pod = std::fs::read_dir(logs)?.next().context("no pod has logs")??;
    let path = pod.path().join("klet/0.log");
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}
