//! Pods of hostile containers: what they race for, and what came of it.
//!
//! Makes manifests and reads what containers wrote. Never decides whether a race was
//! lost: a [`Canary`] does, and the test.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::canary::Canary;
use crate::manifest::PodManifest;
use crate::node::Node;

/// Containers that each look at a part of a volume, end, and are started again.
const VICTIMS: usize = 12;

/// A volume, one container that swaps what is in it, and others that mount a part of it.
#[derive(Debug)]
pub struct PartRace<'a> {
    /// The volume's source.
    pub source: Value,
    /// What the racer runs, with the volume at /v.
    pub racer: &'a str,
    /// What the others run, with the part at /part and a place for notes at /seen. They
    /// write one line to /seen/looks each time, and to /seen/stolen what they should
    /// not have.
    pub look: &'a str,
    /// Which part: `subPath` or `subPathExpr`.
    pub part: Value,
    /// Variables of all of them.
    pub env: Value,
}

impl PartRace<'_> {
    /// The pod, `evil`.
    pub fn pod(&self) -> PodManifest {
        let mut volume = self.source.clone();
        volume["name"] = json!("v");
        let mut part = self.part.clone();
        (part["name"], part["mountPath"]) = (json!("v"), json!("/part"));
        let seen = json!({"name": "seen", "mountPath": "/seen"});
        let mut pod = PodManifest::new("evil")
            .spec("volumes", json!([volume, {"name": "seen", "emptyDir": {}}]))
            .grace(0)
            .container("racer", self.racer)
            .with("env", self.env.clone())
            .mounts(&[("v", "/v")]);
        for at in 0..VICTIMS {
            pod = pod
                .container(&format!("victim{at}"), &format!("{}; exit 1", self.look))
                .with("env", self.env.clone())
                .with("volumeMounts", json!([part, seen]));
        }
        pod
    }
}

/// A script that swaps a directory of /v for a link, for ever. `name` is a word of the
/// shell. What klet makes where nothing is at the moment is replaced in the next round.
pub fn swaps_for_a_link(name: &str, to: &Path) -> String {
    format!(
        "cd /v; mkdir real; ln -s {} link; while true; do mv -fT real {name}; \
         mv -fT {name} real; mv -fT link {name}; mv -fT {name} link; done 2>/dev/null",
        to.display()
    )
}

/// What the victims of a [`PartRace`] saw, once there were as many looks, and as many
/// containers were refused their part. Fails if any saw what is outside of the volume.
pub fn wait_part_race(node: &Node, looks: usize, refusals: usize) -> Result<(String, String)> {
    let (uid, seen) = node.eventually("the race to be won and lost", || {
        let uid = node.pod("evil")?.uid;
        let notes = node.volume_dir(&uid, "empty-dir", "seen");
        let seen = fs::read_to_string(notes.join("looks"))?;
        let log = fs::read_to_string(node.klet.log_path())?;
        let (looked, refused) = (seen.lines().count(), log.matches("sub path not bound").count());
        let stolen = fs::read_to_string(notes.join("stolen"))?;
        let raced = looked >= looks && refused >= refusals;
        ensure!(raced || !stolen.is_empty(), "{looked} looked, {refused} were refused");
        Ok((uid, seen))
    })?;
    let stolen = node.volume_dir(&uid, "empty-dir", "seen").join("stolen");
    let stolen = fs::read_to_string(stolen)?;
    ensure!(stolen.is_empty(), "what lies outside of the volume was read: {stolen}");
    Ok((uid, seen))
}

/// A pod that may mount: whatever it does so below /v is on the host, too. The canary is
/// at /canary.
pub fn mounter(name: &str, script: &str, canary: &Canary) -> PodManifest {
    PodManifest::script(name, script)
        .grace(0)
        .with("securityContext", json!({"privileged": true}))
        .with(
            "volumeMounts",
            json!([
                {"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"},
                {"name": "canary", "mountPath": "/canary"},
            ]),
        )
        .spec(
            "volumes",
            json!([
                {"name": "v", "emptyDir": {}},
                {"name": "canary", "hostPath": {"path": canary.root}},
            ]),
        )
}
