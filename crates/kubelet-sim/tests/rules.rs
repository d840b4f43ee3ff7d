//! The rules notice what they forbid: a rogue agent breaks each on purpose.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // tests own time

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cri::{Runtime, v1};
use kubelet_sim::{
    Faults, Life, NAMESPACE, Place, PodTemplate, Program, REVISION_LABEL, Restart, SimRuntime,
    World,
};

struct Rogue {
    world: Arc<World>,
    runtime: SimRuntime,
}

impl Rogue {
    fn new() -> Self {
        let world = World::new(5, Faults::none(), false);
        let runtime = SimRuntime::new(Arc::clone(&world), Life::new(1));
        Self { world, runtime }
    }

    fn publish(&self, template: &PodTemplate) -> PodTemplate {
        self.world.publish(Place::File(format!("{}.json", template.name)), template)
    }

    fn labels(&self, uid: &str, revision: u64) -> BTreeMap<String, String> {
        [
            ("io.kubernetes.pod.uid", uid.to_owned()),
            ("io.kubernetes.pod.name", "web-node".to_owned()),
            ("io.kubernetes.container.name", "app".to_owned()),
            (REVISION_LABEL, revision.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    async fn sandbox(&self, uid: &str, revision: u64) -> String {
        let config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "web-node".into(),
                uid: uid.into(),
                namespace: NAMESPACE.into(),
                attempt: 0,
            }),
            labels: self.labels(uid, revision),
            ..Default::default()
        };
        let made = self.runtime.run_pod_sandbox(config, "").await;
        made.expect("sandbox")
    }

    async fn start(&self, sandbox: &str, uid: &str, program: Program, attempt: u32) -> String {
        let image = v1::ImageSpec { image: program.image(), ..Default::default() };
        let pulled = self.runtime.pull_image(image.clone(), None, None).await;
        pulled.expect("pull");
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt }),
            image: Some(image),
            labels: self.labels(uid, 0),
            ..Default::default()
        };
        let made = self.runtime.create_container(sandbox, config, v1::PodSandboxConfig::default());
        let id = made.await.expect("create");
        self.runtime.start_container(&id).await.expect("start");
        id
    }

    fn expect_broken(&self, rule: &str) {
        let violation = self.world.violation().expect("a broken rule");
        assert!(violation.text.contains(rule), "{violation:?}");
    }

    fn expect_kept(&self) {
        let violation = self.world.violation();
        assert!(violation.is_none(), "{violation:?}");
    }
}

const STEADY: Program = Program::Run { term_ms: 10 };

#[tokio::test(start_paused = true)]
async fn two_live_containers_of_one_name() {
    let rogue = Rogue::new();
    let pod = rogue.publish(&PodTemplate::steady("web"));
    let sandbox = rogue.sandbox("u1", pod.revision).await;
    rogue.start(&sandbox, "u1", STEADY, 0).await;
    rogue.expect_kept();
    rogue.start(&sandbox, "u1", STEADY, 1).await;
    rogue.expect_broken("two live containers");
}

#[tokio::test(start_paused = true)]
async fn two_live_pods_of_one_name() {
    let rogue = Rogue::new();
    let pod = rogue.publish(&PodTemplate::steady("web"));
    for uid in ["u1", "u2"] {
        rogue.expect_kept();
        let sandbox = rogue.sandbox(uid, pod.revision).await;
        rogue.start(&sandbox, uid, STEADY, 0).await;
    }
    rogue.expect_broken("two static pods");
}

#[tokio::test(start_paused = true)]
async fn stopping_what_is_wanted() {
    let second = Duration::from_secs(1);
    for call in 0..4 {
        let rogue = Rogue::new();
        let pod = rogue.publish(&PodTemplate::steady("web"));
        let sandbox = rogue.sandbox("u1", pod.revision).await;
        let id = rogue.start(&sandbox, "u1", STEADY, 0).await;
        rogue.expect_kept();
        match call {
            0 => rogue.runtime.stop_container(&id, second).await,
            1 => rogue.runtime.remove_container(&id).await,
            2 => rogue.runtime.stop_pod_sandbox(&sandbox).await,
            _ => rogue.runtime.remove_pod_sandbox(&sandbox).await,
        }
        .expect("the runtime obeys");
        rogue.expect_broken("for no reason");
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_what_is_no_longer_wanted_is_fine() {
    let rogue = Rogue::new();
    let pod = rogue.publish(&PodTemplate::steady("web"));
    let sandbox = rogue.sandbox("u1", pod.revision).await;
    rogue.start(&sandbox, "u1", STEADY, 0).await;
    rogue.world.withdraw(&Place::File("web.json".into()));
    rogue.runtime.stop_pod_sandbox(&sandbox).await.expect("stop");
    rogue.expect_kept();
}

#[tokio::test(start_paused = true)]
async fn running_finished_work_again() {
    for (restart, code) in [(Restart::Never, 1), (Restart::OnFailure, 0)] {
        let rogue = Rogue::new();
        let pod = rogue.publish(&PodTemplate::steady("web").restart(restart));
        let sandbox = rogue.sandbox("u1", pod.revision).await;
        let program = Program::Exit { code, after_ms: 10 };
        rogue.start(&sandbox, "u1", program, 0).await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        rogue.expect_kept();
        rogue.start(&sandbox, "u1", program, 1).await;
        rogue.expect_broken("runs again");
    }
}

#[tokio::test(start_paused = true)]
async fn starting_what_is_long_gone() {
    let rogue = Rogue::new();
    let pod = rogue.publish(&PodTemplate::steady("web"));
    rogue.world.withdraw(&Place::File("web.json".into()));
    tokio::time::sleep(Duration::from_secs(600)).await;
    rogue.sandbox("u1", pod.revision).await;
    rogue.expect_broken("which is gone");
}

#[tokio::test(start_paused = true)]
async fn restarting_without_back_off() {
    let rogue = Rogue::new();
    let pod = rogue.publish(&PodTemplate::steady("web"));
    let sandbox = rogue.sandbox("u1", pod.revision).await;
    let program = Program::Exit { code: 1, after_ms: 1 };
    for attempt in 0..40 {
        rogue.start(&sandbox, "u1", program, attempt).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rogue.expect_broken("within a minute");
}
