//! The manifests in `examples/pods` do what they and the guide say, and those in
//! `examples/volumes` are each run by the test of what they show.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use testkit::{Node, binaries, http};

/// Puts every example into the node's directory and tells their names.
fn put_all(node: &Node) -> Result<Vec<String>> {
    let dir = binaries::workspace().join("examples/pods");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        node.manifests.put(&file, fs::read_to_string(&path)?)?;
        names.push(file.trim_end_matches(".yaml").to_owned());
    }
    names.sort();
    Ok(names)
}

#[test]
fn they_run_as_documented() -> Result<()> {
    let node = Node::start()?;
    assert_eq!(put_all(&node)?, ["counter", "crash", "job", "secure", "web"]);

    node.wait_word("counter", "counter", "tick 2")?;
    node.wait_pod("crash", "to be started again", |pod| {
        pod.container("crash").is_ok_and(|main| main.restarts >= 1 && main.exit_code == Some(1))
    })?;

    let web = node.wait_pod("web", "to be ready", |pod| pod.is("Ready"))?;
    let ip = web.ip.context("a pod that is ready has an address")?;
    let answer = http::get_from(SocketAddr::new(ip.parse()?, 8080), "/")?;
    assert_eq!((answer.status, answer.body), (200, format!("hello from {ip}\n")));
    node.run_in("web", "web", "rm /tmp/www/healthz")?;
    node.wait_pod("web", "to be started again and ready", |pod| {
        pod.is("Ready") && pod.container("web").is_ok_and(|web| web.restarts == 1)
    })?;

    let job = node.wait_pod("job", "to succeed", |pod| pod.phase == "Succeeded")?;
    assert_eq!(job.container("work")?.message, "all well\n");
    node.wait_word("job", "work", "the answer is 42")?;
    node.wait_word("job", "proxy", "the work is done")?;

    let log = node.wait_word("secure", "show", "port 80: open")?;
    let said: Vec<String> = log.lines()?.into_iter().map(|line| line.text).collect();
    for line in [
        "user and groups: 1001 1001 2000 4000",
        "root file system: read-only",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        ensure!(said.iter().any(|said| said == line), "{line:?} is not in {said:#?}");
    }
    Ok(())
}

/// The test that runs an example of volumes, by the example's name.
const VOLUMES: [(&str, &str); 26] = [
    ("block-device", "network_disks"),
    ("config-map", "payload_volumes"),
    ("csi-block", "block"),
    ("csi-claim", "csi"),
    ("csi-inline", "csi"),
    ("downward-api", "payload_volumes"),
    ("env-file", "env_files"),
    ("ephemeral-claim", "cluster_volumes"),
    ("fc", "network_disks"),
    ("host-directory", "volumes"),
    ("host-path-claim", "claims"),
    ("host-paths", "host_paths"),
    ("huge-pages", "huge_pages"),
    ("image", "images"),
    ("iscsi", "network_disks"),
    ("iscsi-block", "network_disks"),
    ("limited-scratch", "volumes"),
    ("local-claim", "claims"),
    ("local-disk", "network_disks"),
    ("nfs", "network_disks"),
    ("pod-certificate", "cluster_bundles"),
    ("projected", "payload_volumes"),
    ("secret", "payload_volumes"),
    ("service-account-token", "token_volumes"),
    ("shared-scratch", "volumes"),
    ("trust-bundle", "cluster_bundles"),
];

#[test]
fn every_example_of_volumes_is_run_by_a_test() -> Result<()> {
    let root = binaries::workspace();
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(root.join("examples/volumes"))? {
        files.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    let known = VOLUMES.map(|(name, _)| format!("{name}.yaml"));
    assert_eq!(files, BTreeSet::from(known), "an example that no test here is known to run");
    for (name, test) in VOLUMES {
        let source = fs::read_to_string(root.join(format!("tests/tests/{test}.rs")))?;
        ensure!(source.contains(&format!("\"{name}\"")), "{test}.rs does not name {name}");
    }
    Ok(())
}
