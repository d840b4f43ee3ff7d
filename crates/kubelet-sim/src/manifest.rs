//! Pod manifests that churn writes.
//!
//! A template is the world's own record of what a manifest asks for; its
//! revision travels as a label, so every sandbox tells which text it came from.

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::container_template::{ContainerTemplate, Features, OwnRestart};
use crate::hooks::HookRules;
use crate::runtime::Program;
use crate::volume_template::VolumeSet;

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
    /// Init containers and sidecars, in order.
    pub init: Vec<ContainerTemplate>,
    /// Regular containers.
    pub containers: Vec<ContainerTemplate>,
    /// Use the node's network.
    pub host_network: bool,
    /// How long it may be active.
    pub deadline_secs: Option<u32>,
    /// Image of a volume that every container mounts.
    pub image_volume: Option<String>,
    /// Volumes.
    pub volumes: VolumeSet,
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
            init: Vec::new(),
            containers: vec![ContainerTemplate::new("app", Program::Run { term_ms: 200 })],
            host_network: false,
            deadline_secs: None,
            image_volume: None,
            volumes: VolumeSet::default(),
            revision: 0,
        }
    }

    /// The same pod with another program in its first container.
    pub fn program(mut self, program: Program) -> Self {
        if let Some(first) = self.containers.first_mut() {
            first.program = program;
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

    /// The same pod with one more init container or sidecar.
    pub fn with_init(mut self, container: ContainerTemplate) -> Self {
        self.init.push(container);
        self
    }

    /// The same pod with an image volume in every container.
    pub fn with_image_volume(mut self, image: &str) -> Self {
        self.image_volume = Some(image.to_owned());
        self
    }

    /// The same pod with volumes.
    pub fn with_volumes(mut self, volumes: VolumeSet) -> Self {
        self.volumes = volumes;
        self
    }

    /// The same pod with a time after which it must end.
    pub fn with_deadline(mut self, seconds: u32) -> Self {
        self.deadline_secs = Some(seconds);
        self
    }

    /// The same pod with its first container changed.
    pub fn with_app(mut self, change: impl FnOnce(&mut ContainerTemplate)) -> Self {
        if let Some(first) = self.containers.first_mut() {
            change(first);
        }
        self
    }

    /// One of the pod's containers, and whether it is among the init containers.
    pub fn container(&self, name: &str) -> Option<(bool, &ContainerTemplate)> {
        let init = self.init.iter().map(|c| (true, c));
        let mut all = init.chain(self.containers.iter().map(|c| (false, c)));
        all.find(|(_, c)| c.name == name)
    }

    /// Is this container started again after an exit with `code`? One that the
    /// pod no longer has is not.
    pub fn restarts(&self, name: &str, code: i32) -> bool {
        self.container(name).is_some_and(|(_, c)| c.restarts(self.restart, code))
    }

    /// May it end by a container that leaves no trace: one of its own policy Never that
    /// goes with its sandbox?
    pub(crate) fn may_end_unseen(&self) -> bool {
        let mut all = self.init.iter().chain(&self.containers);
        all.any(|c| c.own_restart.is_some() && c.never_restarts(self.restart))
    }

    /// A random pod.
    pub fn random(
        rng: &mut StdRng,
        name: &str,
        fixed_uid: Option<String>,
        features: Features,
    ) -> Self {
        let restart = match rng.random_range(0..10) {
            0..6 => Restart::Always,
            6..8 => Restart::OnFailure,
            _ => Restart::Never,
        };
        let containers = (0..rng.random_range(1..=2))
            .map(|i| {
                let program = random_program(rng, features);
                ContainerTemplate::random(rng, &format!("c{i}"), features, program)
            })
            .collect();
        let mut pod = Self {
            name: name.to_owned(),
            fixed_uid,
            restart,
            grace_secs: rng.random_range(1..=20),
            init: random_init(rng, features),
            containers,
            host_network: rng.random_bool(0.1),
            deadline_secs: None,
            image_volume: None,
            volumes: VolumeSet::default(),
            revision: 0,
        };
        if features.deadlines && rng.random_bool(0.5) {
            pod.deadline_secs = Some(rng.random_range(10..=300));
        }
        if features.volumes {
            pod.volumes = VolumeSet::random(rng);
            let image = rng.random_bool(0.2).then(|| Program::Deaf.image());
            pod.image_volume = image;
        }
        if features.sizes {
            pod.size_at_random(rng);
        }
        pod.volumes.config = features.objects && rng.random_bool(0.5);
        pod.volumes.own = features.csi && rng.random_bool(0.5);
        pod.volumes.shared = features.csi && rng.random_bool(0.5);
        pod.volumes.block = features.csi && rng.random_bool(0.5);
        if features.volumes {
            pod.volumes.nfs = rng.random_bool(0.3);
            pod.volumes.iscsi = [rng.random_bool(0.3), rng.random_bool(0.3)];
        }
        if features.disks {
            pod.volumes.add_disks(rng);
            pod.volumes.secret = features.objects && rng.random_bool(0.5);
        }
        pod
    }

    /// A random pod of a uid that its manifest fixes: a spec cannot change but
    /// for its images and sizes, so the uid decides everything else.
    pub fn random_fixed(rng: &mut StdRng, name: &str, uid: &str, features: Features) -> Self {
        let seed = uid.bytes().fold(7, |hash: u64, byte| hash.wrapping_mul(31) + u64::from(byte));
        let mut shape = StdRng::seed_from_u64(seed);
        let mut pod = Self::random(&mut shape, name, Some(uid.to_owned()), features);
        for container in &mut pod.containers {
            container.program = random_program(rng, features);
        }
        pod.grace_secs = rng.random_range(1..=20);
        if features.sizes {
            pod.size_at_random(rng);
        }
        pod
    }

    /// An edit of this pod, as an operator would make it.
    pub fn edited(&self, rng: &mut StdRng, features: Features) -> Self {
        let mut next = self.clone();
        if features.sizes && rng.random_bool(0.5) {
            next.size_at_random(rng);
            return next;
        }
        match rng.random_range(0..3) {
            0 => next.grace_secs = rng.random_range(1..=20),
            1 => {
                let at = rng.random_range(0..next.containers.len());
                next.containers[at].program = random_program(rng, features);
            }
            // The label carries the new revision: a change of metadata alone.
            _ => {}
        }
        next
    }

    /// The manifest as a JSON object.
    pub fn to_json(&self) -> Value {
        let rules = HookRules { host_network: self.host_network, grace_secs: self.grace_secs };
        let containers = |list: &[ContainerTemplate]| -> Vec<Value> {
            let mut list: Vec<Value> =
                list.iter().map(|container| container.to_json(rules)).collect();
            let mut mounts = self.volumes.mounts();
            if self.image_volume.is_some() {
                mounts.push(json!({"name": "data", "mountPath": "/data", "subPath": "a"}));
            }
            if !mounts.is_empty() {
                list.iter_mut().for_each(|one| one["volumeMounts"] = json!(mounts));
            }
            let devices = self.volumes.devices();
            if !devices.is_empty() {
                list.iter_mut().for_each(|one| one["volumeDevices"] = json!(devices));
            }
            list
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
        if !self.init.is_empty() {
            pod["spec"]["initContainers"] = json!(containers(&self.init));
        }
        let volumes = self.volumes.sources().into_iter().map(|(name, mut source)| {
            source["name"] = json!(name);
            source
        });
        let image = self.image_volume.as_ref();
        let image = image.map(|image| json!({"name": "data", "image": {"reference": image}}));
        let volumes: Vec<Value> = volumes.chain(image).collect();
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = json!(volumes);
        }
        if let Some(uid) = &self.fixed_uid {
            pod["metadata"]["uid"] = json!(uid);
        }
        if self.host_network {
            pod["spec"]["hostNetwork"] = json!(true);
        }
        if let Some(seconds) = self.deadline_secs {
            pod["spec"]["activeDeadlineSeconds"] = json!(seconds);
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

fn random_program(rng: &mut impl Rng, features: Features) -> Program {
    let program = match rng.random_range(0..10) {
        0..5 => Program::Run { term_ms: rng.random_range(10..2_000) },
        5 => Program::Run { term_ms: rng.random_range(5_000..30_000) },
        6 => Program::Deaf,
        7 => Program::Exit { code: 0, after_ms: rng.random_range(200..60_000) },
        _ => {
            Program::Exit { code: rng.random_range(1..=4), after_ms: rng.random_range(200..60_000) }
        }
    };
    match program {
        Program::Run { term_ms } if features.probes && rng.random_bool(0.7) => {
            random_server(rng, term_ms)
        }
        other => other,
    }
}

fn random_server(rng: &mut impl Rng, term_ms: u32) -> Program {
    let from_ms = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..8_000) };
    let ends = rng.random_bool(0.4);
    let until_ms = if ends { rng.random_range(20_000..120_000) } else { 0 };
    Program::Serve { from_ms, until_ms, term_ms }
}

fn random_init(rng: &mut StdRng, features: Features) -> Vec<ContainerTemplate> {
    let mut all = Vec::new();
    for index in 0..rng.random_range(0..=3) {
        match rng.random_bool(0.5) {
            true if features.init => {
                all.push(random_init_container(rng, &format!("i{index}"), features));
            }
            false if features.sidecars => {
                all.push(random_sidecar(rng, &format!("s{index}"), features));
            }
            _ => {}
        }
    }
    all
}

fn random_init_container(rng: &mut StdRng, name: &str, features: Features) -> ContainerTemplate {
    let after_ms = rng.random_range(10..10_000);
    let program = match rng.random_range(0..8) {
        0..5 => Program::Exit { code: 0, after_ms },
        5..7 => Program::Flaky { fails: rng.random_range(1..=3), after_ms },
        _ => Program::Exit { code: 1, after_ms },
    };
    let mut template = ContainerTemplate::new(name, program);
    if features.rules && rng.random_bool(0.3) {
        let mut own = OwnRestart::random(rng);
        // One of policy Always is a sidecar.
        own.policy = if own.policy == Restart::Always { Restart::OnFailure } else { own.policy };
        // Starting over knows no back-off: what fails for ever must not do so at once.
        own.all &= after_ms > 1_000;
        template.own_restart = Some(own);
    }
    template
}

fn random_sidecar(rng: &mut StdRng, name: &str, features: Features) -> ContainerTemplate {
    let term_ms = rng.random_range(10..3_000);
    let program = match rng.random_range(0..8) {
        0..6 => Program::Run { term_ms },
        6 => random_server(rng, term_ms),
        _ => Program::Exit { code: 0, after_ms: rng.random_range(5_000..60_000) },
    };
    ContainerTemplate::random(rng, name, Features { rules: false, ..features }, program)
        .as_sidecar()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_pods() {
        let mut rng = StdRng::seed_from_u64(1);
        let all = Features {
            init: true,
            sidecars: true,
            probes: true,
            hooks: true,
            rules: true,
            sizes: true,
            volumes: true,
            deadlines: true,
            objects: true,
            csi: true,
            disks: true,
        };
        for i in 0..50 {
            let fixed = (i % 3 == 0).then(|| format!("uid-{i}"));
            let template = PodTemplate::random(&mut rng, "web", fixed.clone(), all);
            let pod: k8s_openapi::api::core::v1::Pod =
                serde_json::from_str(&template.to_text()).expect("a manifest is a pod");
            assert_eq!(pod.metadata.uid, fixed);
            let spec = pod.spec.expect("a manifest has a spec");
            assert_eq!(spec.containers.len(), template.containers.len());
            let init = spec.init_containers.unwrap_or_default();
            assert_eq!(init.len(), template.init.len());
        }
    }
}
