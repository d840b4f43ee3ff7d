//! The rules notice what they forbid: a rogue agent breaks each on purpose.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // tests own time

mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cri::{Runtime, v1};
use kubelet_sim::{
    ContainerTemplate, Faults, Life, NAMESPACE, Place, PodTemplate, ProbeRole, Program,
    REVISION_LABEL, Restart, SimRuntime, Size, Way, World,
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
        self.sandbox_attempt(uid, revision, 0).await
    }

    async fn sandbox_attempt(&self, uid: &str, revision: u64, attempt: u32) -> String {
        let config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "web-node".into(),
                uid: uid.into(),
                namespace: NAMESPACE.into(),
                attempt,
            }),
            labels: self.labels(uid, revision),
            ..Default::default()
        };
        let made = self.runtime.run_pod_sandbox(config, "").await;
        made.expect("sandbox")
    }

    async fn start(&self, sandbox: &str, uid: &str, program: Program, attempt: u32) -> String {
        self.start_named(sandbox, uid, "app", program, attempt).await
    }

    async fn start_named(
        &self,
        sandbox: &str,
        uid: &str,
        name: &str,
        program: Program,
        attempt: u32,
    ) -> String {
        self.start_mounting(sandbox, uid, (name, attempt), program, &[]).await
    }

    /// Starts a container that mounts these paths of the host.
    async fn start_mounting(
        &self,
        sandbox: &str,
        uid: &str,
        (name, attempt): (&str, u32),
        program: Program,
        paths: &[&str],
    ) -> String {
        let mount = |path: &&str| v1::Mount { host_path: (*path).into(), ..Default::default() };
        let image = v1::ImageSpec { image: program.image(), ..Default::default() };
        let pulled = self.runtime.pull_image(image.clone(), None, None).await;
        pulled.expect("pull");
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.into(), attempt }),
            image: Some(image),
            labels: {
                let mut labels = self.labels(uid, 0);
                labels.insert("io.kubernetes.container.name".into(), name.into());
                labels
            },
            mounts: paths.iter().map(mount).collect(),
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

fn with_init() -> PodTemplate {
    let init = Program::Exit { code: 0, after_ms: 500 };
    PodTemplate::steady("web")
        .with_init(ContainerTemplate::new("i0", init))
        .with_init(ContainerTemplate::new("s1", STEADY).as_sidecar())
        .with_init(ContainerTemplate::new("i2", init))
}

const SHORT: Program = Program::Exit { code: 0, after_ms: 500 };

#[tokio::test(start_paused = true)]
async fn init_containers_out_of_order() {
    let names = ["i0", "s1", "i2", "app"];
    for skipped in 0..=3 {
        let rogue = Rogue::new();
        let pod = rogue.publish(&with_init());
        let sandbox = rogue.sandbox("u1", pod.revision).await;
        for name in names.into_iter().filter(|name| *name != names[skipped]) {
            let program = if name.starts_with('i') { SHORT } else { STEADY };
            rogue.start_named(&sandbox, "u1", name, program, 0).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        match skipped {
            3 => rogue.expect_kept(),
            _ => rogue.expect_broken(&format!("before {} got through", names[skipped])),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn init_containers_side_by_side() {
    let rogue = Rogue::new();
    let mut template = PodTemplate::steady("web");
    template.init = ["i0", "i1"].map(|name| ContainerTemplate::new(name, SHORT)).into();
    let pod = rogue.publish(&template);
    let sandbox = rogue.sandbox("u1", pod.revision).await;
    rogue.start_named(&sandbox, "u1", "i1", STEADY, 0).await;
    rogue.start_named(&sandbox, "u1", "i0", STEADY, 0).await;
    rogue.expect_broken("before i0 got through");
    let rogue = Rogue::new();
    let pod = rogue.publish(&template);
    let sandbox = rogue.sandbox("u1", pod.revision).await;
    rogue.start_named(&sandbox, "u1", "i0", SHORT, 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    rogue.start_named(&sandbox, "u1", "i1", SHORT, 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    rogue.start_named(&sandbox, "u1", "app", STEADY, 0).await;
    rogue.expect_kept();
    rogue.start_named(&sandbox, "u1", "i0", SHORT, 1).await;
    rogue.expect_broken("i0 runs again");
}

#[tokio::test(start_paused = true)]
async fn init_in_a_new_sandbox_while_the_old_pod_runs() {
    let rogue = Rogue::new();
    let mut template = PodTemplate::steady("web");
    template.init = vec![ContainerTemplate::new("i0", SHORT)];
    let pod = rogue.publish(&template);
    let sandbox = rogue.sandbox("u1", pod.revision).await;
    rogue.start_named(&sandbox, "u1", "i0", SHORT, 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    rogue.start_named(&sandbox, "u1", "app", STEADY, 0).await;
    let next = rogue.sandbox_attempt("u1", pod.revision, 1).await;
    rogue.expect_kept();
    rogue.start_named(&next, "u1", "i0", SHORT, 1).await;
    rogue.expect_broken("i0 starts while app runs");
}

/// A pod with a sidecar and its app, both running, and no longer wanted.
async fn unwanted_pair(rogue: &Rogue) -> (String, String) {
    let mut template = PodTemplate::steady("web");
    template.grace_secs = 10;
    template.init = vec![ContainerTemplate::new("s0", STEADY).as_sidecar()];
    let pod = rogue.publish(&template);
    let sandbox = rogue.sandbox("u1", pod.revision).await;
    let sidecar = rogue.start_named(&sandbox, "u1", "s0", STEADY, 0).await;
    let app = rogue.start_named(&sandbox, "u1", "app", Program::Deaf, 0).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    rogue.world.withdraw(&Place::File("web.json".into()));
    (sidecar, app)
}

#[tokio::test(start_paused = true)]
async fn stopping_a_sidecar_first() {
    let second = Duration::from_secs(1);
    let rogue = Rogue::new();
    let (sidecar, app) = unwanted_pair(&rogue).await;
    rogue.runtime.stop_container(&app, second).await.expect("stop");
    rogue.runtime.stop_container(&sidecar, second).await.expect("stop");
    rogue.expect_kept();
    let rogue = Rogue::new();
    let (sidecar, _) = unwanted_pair(&rogue).await;
    rogue.runtime.stop_container(&sidecar, second).await.expect("stop");
    rogue.expect_broken("is stopped before app");
    let rogue = Rogue::new();
    let (sidecar, _) = unwanted_pair(&rogue).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    rogue.runtime.stop_container(&sidecar, second).await.expect("stop");
    rogue.expect_kept();
}

#[tokio::test(start_paused = true)]
async fn more_grace_than_the_pod_has() {
    let rogue = Rogue::new();
    let (_, app) = unwanted_pair(&rogue).await;
    rogue.runtime.stop_container(&app, Duration::from_secs(11)).await.expect("stop");
    rogue.expect_broken("of grace");
}

#[tokio::test(start_paused = true)]
async fn two_hooks_for_one_stop() {
    let rogue = Rogue::new();
    let pod = rogue.publish(&PodTemplate::steady("web"));
    let sandbox = rogue.sandbox("u1", pod.revision).await;
    let id = rogue.start(&sandbox, "u1", STEADY, 0).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let command = ["pre-stop", "0", "0"].map(str::to_owned);
    for _ in 0..2 {
        rogue.expect_kept();
        let answer = rogue.runtime.exec_sync(&id, command.to_vec(), None).await;
        assert_eq!(answer.expect("it runs").exit_code, 0);
    }
    rogue.expect_broken("runs twice for one stop");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_outlives_its_grace() {
    let rogue = Rogue::new();
    let (_, app) = unwanted_pair(&rogue).await;
    let command = ["pre-stop", "0", "30000"].map(str::to_owned);
    rogue.runtime.exec_sync(&app, command.to_vec(), None).await.expect("it runs");
    rogue.expect_kept();
    rogue.runtime.stop_container(&app, Duration::from_secs(2)).await.expect("stop");
    rogue.expect_broken("outlived its grace");
}

/// A stop for a probe needs failures in a row, of this very instance.
#[tokio::test(start_paused = true)]
async fn stopping_a_well_container_for_a_probe() {
    for (failures, broken) in [(0, true), (1, true), (2, false)] {
        let rogue = Rogue::new();
        let probed = |app: &mut ContainerTemplate| {
            *app = app.clone().probe(ProbeRole::Liveness, Way::Exec, 1, 2);
        };
        let pod = rogue.publish(&PodTemplate::steady("web").with_app(probed));
        let sandbox = rogue.sandbox("u1", pod.revision).await;
        let unwell = Program::Serve { from_ms: 600_000, until_ms: 0, term_ms: 10 };
        let id = rogue.start(&sandbox, "u1", unwell, 0).await;
        for _ in 0..failures {
            let command = ["probe", "liveness"].map(str::to_owned).to_vec();
            let answer = rogue.runtime.exec_sync(&id, command, Some(Duration::from_secs(1))).await;
            assert_eq!(answer.expect("it runs").exit_code, 1);
        }
        rogue.runtime.stop_container(&id, Duration::from_secs(1)).await.expect("stop");
        if broken { rogue.expect_broken("for no reason") } else { rogue.expect_kept() }
    }
}

/// A probe's own grace counts alone where only the probe calls for the stop.
#[tokio::test(start_paused = true)]
async fn more_grace_than_the_probe_has() {
    for (grace, broken) in [(4, false), (5, true)] {
        let rogue = Rogue::new();
        let probed = |app: &mut ContainerTemplate| {
            *app = app.clone().probe(ProbeRole::Liveness, Way::Exec, 1, 1);
            app.probes[0].1.grace_secs = Some(4);
        };
        let pod = rogue.publish(&PodTemplate::steady("web").with_app(probed));
        let sandbox = rogue.sandbox("u1", pod.revision).await;
        let unwell = Program::Serve { from_ms: 600_000, until_ms: 0, term_ms: 10 };
        let id = rogue.start(&sandbox, "u1", unwell, 0).await;
        let command = ["probe", "liveness"].map(str::to_owned).to_vec();
        let limit = Some(Duration::from_secs(1));
        rogue.runtime.exec_sync(&id, command, limit).await.expect("it runs");
        rogue.runtime.stop_container(&id, Duration::from_secs(grace)).await.expect("stop");
        if broken { rogue.expect_broken("of grace") } else { rogue.expect_kept() }
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_before_the_time_is_up() {
    for (after, broken) in [(50, true), (70, false)] {
        let rogue = Rogue::new();
        let pod = rogue.publish(&PodTemplate::steady("web").with_deadline(60));
        let sandbox = rogue.sandbox("u1", pod.revision).await;
        let id = rogue.start(&sandbox, "u1", STEADY, 0).await;
        tokio::time::sleep(Duration::from_secs(after)).await;
        rogue.runtime.stop_container(&id, Duration::from_secs(1)).await.expect("stop");
        if broken { rogue.expect_broken("for no reason") } else { rogue.expect_kept() }
    }
}

/// Restarting a sidecar for its size is fine; for another reason it must wait.
#[tokio::test(start_paused = true)]
async fn stopping_a_sidecar_for_its_size() {
    for (cpu_restarts, broken) in [(true, false), (false, true)] {
        let rogue = Rogue::new();
        let sized = |cpu_milli: i64| {
            let mut template = PodTemplate::steady("web").with_uid("u1");
            let mut sidecar = ContainerTemplate::new("s0", STEADY).as_sidecar();
            sidecar.size = Some(Size { cpu_restarts, ..Size::new(cpu_milli, 16) });
            template.grace_secs = 30;
            template.init = vec![sidecar];
            template
        };
        let pod = rogue.publish(&sized(100));
        let sandbox = rogue.sandbox("u1", pod.revision).await;
        let sidecar = rogue.start_named(&sandbox, "u1", "s0", STEADY, 0).await;
        rogue.start_named(&sandbox, "u1", "app", STEADY, 0).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        rogue.publish(&sized(200));
        rogue.runtime.stop_container(&sidecar, Duration::from_secs(1)).await.expect("stop");
        if broken { rogue.expect_broken("is stopped before app") } else { rogue.expect_kept() }
    }
}
