//! Pod manifests that churn writes.
//!
//! A template is the world's own record of what a manifest asks for; its
//! revision travels as a label, so every sandbox tells which text it came from.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use serde_json::{Value, json};

use crate::runtime::Program;

/// Label that carries a manifest's revision.
pub const REVISION_LABEL: &str = "sim-revision";
/// Namespace of every simulated pod.
pub const NAMESPACE: &str = "sim";

/// A pod's restart policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Restart after every exit.
    Always,
    /// Restart after a failure.
    OnFailure,
    /// Never restart.
    Never,
}

impl Restart {
    /// As written in a manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
    }
    /// Is a container that exited with `code` started again?
    pub fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// One pod manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTemplate {
    /// Name in the manifest, without the node's suffix.
    pub name: String,
    /// A uid fixed by the manifest; an edit then updates the pod in place.
    pub fixed_uid: Option<String>,
    /// Restart policy.
    pub restart: Restart,
    /// Termination grace period.
    pub grace_secs: u32,
    /// Containers: name and program.
    pub containers: Vec<(String, Program)>,
    /// Use the node's network.
    pub host_network: bool,
    /// Which text this is; set when it is published.
    pub revision: u64,
}

impl PodTemplate {
    /// A pod of one container `app` that runs until it is stopped.
    pub fn steady(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            fixed_uid: None,
            restart: Restart::Always,
            grace_secs: 5,
            containers: vec![("app".to_owned(), Program::Run { term_ms: 200 })],
            host_network: false,
            revision: 0,
        }
    }

    /// The same pod with another program in its first container.
    pub fn program(mut self, program: Program) -> Self {
        if let Some(first) = self.containers.first_mut() {
            first.1 = program;
        }
        self
    }

    /// The same pod with another restart policy.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// The same pod with a uid fixed by its manifest.
    pub fn with_uid(mut self, uid: &str) -> Self {
        self.fixed_uid = Some(uid.to_owned());
        self
    }

    /// A random pod.
    pub fn random(rng: &mut StdRng, name: &str, fixed_uid: Option<String>) -> Self {
        let restart = match rng.random_range(0..10) {
            0..6 => Restart::Always,
            6..8 => Restart::OnFailure,
            _ => Restart::Never,
        };
        let containers =
            (0..rng.random_range(1..=2)).map(|i| (format!("c{i}"), random_program(rng))).collect();
        Self {
            name: name.to_owned(),
            fixed_uid,
            restart,
            grace_secs: rng.random_range(1..=20),
            containers,
            host_network: rng.random_bool(0.1),
            revision: 0,
        }
    }

    /// An edit of this pod, as an operator would make it.
    pub fn edited(&self, rng: &mut StdRng) -> Self {
        let mut next = self.clone();
        match rng.random_range(0..3) {
            0 => next.grace_secs = rng.random_range(1..=20),
            1 => {
                let at = rng.random_range(0..next.containers.len());
                next.containers[at].1 = random_program(rng);
            }
            // The label carries the new revision: a change of metadata alone.
            _ => {}
        }
        next
    }

    /// The manifest as a JSON object.
    pub fn to_json(&self) -> Value {
        let containers = |list: &[(String, Program)]| -> Vec<Value> {
            list.iter()
                .map(|(name, program)| {
                    json!({"name": name, "image": program.image(),
                           "imagePullPolicy": "IfNotPresent"})
                })
                .collect()
        };
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": NAMESPACE,
                "labels": {REVISION_LABEL: self.revision.to_string()},
            },
            "spec": {
                "restartPolicy": self.restart.as_str(),
                "terminationGracePeriodSeconds": self.grace_secs,
                "containers": containers(&self.containers),
            },
        });
        if let Some(uid) = &self.fixed_uid {
            pod["metadata"]["uid"] = json!(uid);
        }
        if self.host_network {
            pod["spec"]["hostNetwork"] = json!(true);
        }
        pod
    }

    /// The manifest's text.
    pub fn to_text(&self) -> String {
        format!("{:#}", self.to_json())
    }

    /// The pod's name on a node: static pods carry the node's name.
    pub fn pod_name(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }
}

fn random_program(rng: &mut impl Rng) -> Program {
    match rng.random_range(0..10) {
        0..5 => Program::Run { term_ms: rng.random_range(10..2_000) },
        5 => Program::Run { term_ms: rng.random_range(5_000..30_000) },
        6 => Program::Deaf,
        7 => Program::Exit { code: 0, after_ms: rng.random_range(200..60_000) },
        _ => {
            Program::Exit { code: rng.random_range(1..=4), after_ms: rng.random_range(200..60_000) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn manifests_are_pods() {
        let mut rng = StdRng::seed_from_u64(1);
        for i in 0..50 {
            let fixed = (i % 3 == 0).then(|| format!("uid-{i}"));
            let template = PodTemplate::random(&mut rng, "web", fixed.clone());
            let pod: k8s_openapi::api::core::v1::Pod =
                serde_json::from_str(&template.to_text()).expect("a manifest is a pod");
            assert_eq!(pod.metadata.uid, fixed);
            let spec = pod.spec.expect("a manifest has a spec");
            assert_eq!(spec.containers.len(), template.containers.len());
        }
    }
}
