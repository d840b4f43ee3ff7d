//! The manager on a runtime made of paper, under paused time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cri::{CallErrorKind, Download, v1};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind, Source, WaitReason};
use tokio::time::{Instant, sleep};

use super::*;
use crate::object_cache;
use crate::ports::SystemClock;
use crate::progress::{Calls, ProgressBoard, Pull};
use crate::runtime_manager::testing::fake::FakeRuntime;
use crate::runtime_manager::testing::pod_with;

const IMAGE: &str = "r.io/x:1";

struct Bench {
    runtime: Arc<FakeRuntime>,
    recorder: Recorder,
    images: Images,
    board: ProgressBoard,
    root: tempfile::TempDir,
    /// How often a pull was announced.
    announced: Mutex<u32>,
}

fn bench(change: impl FnOnce(&mut ImageSettings, &Path)) -> Bench {
    let root = tempfile::tempdir().unwrap();
    let mut settings = Settings::for_node("n");
    settings.root_dir = root.path().to_owned();
    change(&mut settings.images, root.path());
    let runtime = Arc::new(FakeRuntime::with_images());
    let (images, recorder) = start(&settings, &runtime);
    let board = ProgressBoard::default();
    Bench { runtime, recorder, images, board, root, announced: Mutex::default() }
}

fn start(settings: &Settings, runtime: &Arc<FakeRuntime>) -> (Images, Recorder) {
    let ports = Ports::around(runtime.clone());
    let recorder = Recorder::new(Arc::clone(&ports.clock));
    (Images::start(settings, &ports, &recorder, &ImageMetrics::default()), recorder)
}

fn pod(uid: &str, image: &str, policy: &str) -> DesiredPod {
    let container = Container {
        name: "main".to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some(policy.to_owned()),
        ..Default::default()
    };
    let mut pod = Pod {
        spec: Some(PodSpec { containers: vec![container], ..Default::default() }),
        ..Pod::default()
    };
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.name = Some("web".to_owned());
    pod.metadata.namespace = Some("ns".to_owned());
    DesiredPod::new(Source::File, Arc::new(pod)).unwrap()
}

impl Bench {
    async fn ensure(&self, pod: &DesiredPod) -> Result<String, ImageProblem> {
        self.ensure_with(pod, &PodSecrets::default()).await
    }

    async fn ensure_with(
        &self,
        pod: &DesiredPod,
        secrets: &PodSecrets,
    ) -> Result<String, ImageProblem> {
        let container = &pod.spec().containers[0];
        let wish = Wish {
            pod,
            container: Some(&container.name),
            image: container.image.as_deref().unwrap(),
            policy: container.image_pull_policy.as_deref().unwrap(),
            calls: &Calls::new(self.board.clone(), Arc::new(SystemClock::new()), pod.uid().clone()),
            secrets,
        };
        let before_pull = || *self.announced.lock().unwrap() += 1;
        let sandbox = v1::PodSandboxConfig::default();
        self.images.ensure(wish, &sandbox, &before_pull).await.map(|image| image.id)
    }

    async fn problem(&self, pod: &DesiredPod) -> (WaitReason, String, Option<u64>) {
        let problem = self.ensure(pod).await.unwrap_err();
        let seconds = problem.retry_after.map(|wait| wait.as_secs());
        (problem.waiting.reason, problem.waiting.message, seconds)
    }

    /// The calls under way for a pod.
    fn calls(&self, pod: &DesiredPod) -> String {
        let progress = self.board.get(pod.uid()).unwrap_or_default();
        progress.under_way().map(|call| call.what.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// `Reason: message` of every event.
    fn told(&self) -> Vec<String> {
        self.recorder.all().iter().map(|e| format!("{}: {}", e.reason, e.message)).collect()
    }

    fn pulls(&self) -> Vec<String> {
        self.runtime.images().pulls.clone()
    }
}

fn refused(message: &str) -> CallErrorKind {
    CallErrorKind::Nonsense(message.to_owned())
}

#[tokio::test(start_paused = true)]
async fn present_images_are_used_unless_the_policy_says_pull() {
    let bench = bench(|_, _| {});
    bench.runtime.images().images.insert("r.io/x:latest".to_owned());
    for policy in ["IfNotPresent", "Never"] {
        assert_eq!(bench.ensure(&pod("u", "r.io/x", policy)).await.unwrap(), "id-r.io/x:latest");
    }
    assert_eq!((bench.pulls(), *bench.announced.lock().unwrap()), (vec![], 0));
    let present = "Pulled: Container image \"r.io/x\" already present on machine and can be accessed by the pod";
    assert_eq!(bench.told(), [present]);
    assert_eq!(bench.ensure(&pod("u", "r.io/x", "Always")).await.unwrap(), "id-r.io/x:latest");
    assert_eq!(bench.pulls(), ["r.io/x:latest -"]);
    let pulled = "Pulled: Successfully pulled image \"r.io/x\" in 5s (5s including waiting). \
                  Image size: 123 bytes.";
    assert_eq!(bench.told()[1..], ["Pulling: Pulling image \"r.io/x\"", pulled]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_work_is_told() {
    let bench = bench(|_, _| {});
    let message = "Container image \"r.io/x:1\" is not present with pull policy of Never";
    let want = (WaitReason::ErrImageNeverPull, message.to_owned(), None);
    assert_eq!(bench.problem(&pod("u", IMAGE, "Never")).await, want);
    let message = "Failed to apply default image tag \"r.io//x\": couldn't parse image name \
                   \"r.io//x\": invalid reference format";
    let want = (WaitReason::InvalidImageName, message.to_owned(), None);
    assert_eq!(bench.problem(&pod("u", "r.io//x", "Always")).await, want);
    bench.runtime.images().inspect_error = Some(refused("broken"));
    let (reason, message, _) = bench.problem(&pod("u", IMAGE, "IfNotPresent")).await;
    assert_eq!(reason, WaitReason::ImageInspectError);
    assert_eq!(message, "Failed to inspect image \"r.io/x:1\": unusable answer: broken");
    let reasons: Vec<_> = bench.recorder.all().iter().map(|e| e.reason).collect();
    assert_eq!(reasons, ["ErrImageNeverPull", "InspectFailed", "InspectFailed"]);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_secret_fails_the_pull_and_nothing_else() {
    let bench = bench(|_, _| {});
    let (writer, objects) = object_cache::new();
    let broken = ConfigObject {
        key: ObjectKey::new(ObjectKind::Secret, "ns", "broken"),
        uid: "s".to_owned(),
        secret_type: "kubernetes.io/dockercfg".to_owned(),
        data: BTreeMap::from([(".dockercfg".to_owned(), b"hunter2".to_vec())]),
        binary: BTreeMap::new(),
    };
    writer.replace(Source::File, &[Arc::new(broken)]);
    let named = pod_with("", "", r#""imagePullSecrets":[{"name":"broken"}]"#);
    let (secrets, missing) = PodSecrets::of(&named, &objects);
    assert_eq!(missing, [""; 0]);
    let why = "cannot use the image pull secret ns/broken: .dockercfg: not a docker \
               configuration: line 1, column 1";
    for policy in ["Always", "IfNotPresent"] {
        let problem = bench.ensure_with(&pod("u", IMAGE, policy), &secrets).await.unwrap_err();
        let ImageProblem { waiting, retry_after } = problem;
        assert_eq!((waiting.reason, waiting.message.as_str()), (WaitReason::ErrImagePull, why));
        assert_eq!(retry_after, None, "no back-off outlives the mended secret");
    }
    let problem = bench.ensure_with(&pod("u", IMAGE, "Never"), &secrets).await.unwrap_err();
    assert_eq!(problem.waiting.reason, WaitReason::ErrImageNeverPull);
    let failed = format!("Failed: Failed to pull image {IMAGE:?}: {why}");
    assert_eq!(bench.told()[0], failed);
    assert_eq!((bench.pulls(), *bench.announced.lock().unwrap()), (vec![], 0));
    // It was there before klet: every pod may use it, and no login is asked for.
    bench.runtime.images().images.insert(IMAGE.to_owned());
    for policy in ["IfNotPresent", "Never"] {
        assert!(bench.ensure_with(&pod("u", IMAGE, policy), &secrets).await.is_ok(), "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_pull_rests_longer_and_longer() {
    let bench = bench(|_, _| {});
    let no = CallErrorKind::Unreachable("no".to_owned());
    bench.runtime.images().pull_errors.push_back(no);
    // The runtime away is no failure of the image.
    let away = "cannot reach the runtime: no";
    let want = (WaitReason::ErrImagePull, away.to_owned(), None);
    assert_eq!(bench.problem(&pod("u", IMAGE, "Always")).await, want);

    let refuse = || bench.runtime.images().pull_errors.push_back(refused("gone"));
    let gone = "unusable answer: gone";
    refuse();
    let want = (WaitReason::ErrImagePull, gone.to_owned(), Some(5));
    assert_eq!(bench.problem(&pod("u", IMAGE, "Always")).await, want);
    let backed_off = || bench.told().iter().any(|told| told.starts_with("BackOff"));
    assert!(!backed_off(), "nobody tried yet");
    sleep(Duration::from_secs(4)).await;
    let held = format!("Back-off pulling image \"r.io/x:1\": ErrImagePull: {gone}");
    let want = (WaitReason::ImagePullBackOff, held, Some(6));
    assert_eq!(bench.problem(&pod("u", IMAGE, "Always")).await, want);
    assert!(backed_off());
    assert_eq!((bench.pulls().len(), *bench.announced.lock().unwrap()), (2, 2));
    // Another pod, and later the same one, may try.
    bench.ensure(&pod("v", IMAGE, "Always")).await.unwrap();
    sleep(Duration::from_secs(6)).await;
    refuse();
    assert_eq!(bench.problem(&pod("u", IMAGE, "Always")).await.2, Some(10));
    // What the other pod has brought is found although the pull rests.
    bench.ensure(&pod("u", IMAGE, "IfNotPresent")).await.unwrap();
    let told = bench.told();
    assert!(told.contains(&format!("Failed: Failed to pull image \"r.io/x:1\": {gone}")));
    assert!(told.contains(&"BackOff: Back-off pulling image \"r.io/x:1\"".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn equal_pulls_are_one() {
    let bench = bench(|_, _| {});
    let (a, b, c) =
        (pod("a", IMAGE, "Always"), pod("b", IMAGE, "Always"), pod("c", "r.io/y:1", "Always"));
    let began = Instant::now();
    let all = tokio::join!(bench.ensure(&a), bench.ensure(&b), bench.ensure(&c));
    assert_eq!((all.0.unwrap(), all.1.unwrap()), ("id-r.io/x:1".into(), "id-r.io/x:1".into()));
    assert!(all.2.is_ok());
    assert_eq!(bench.pulls(), ["r.io/x:1 -", "r.io/y:1 -"]);
    assert_eq!((bench.runtime.images().most, began.elapsed().as_secs()), (1, 10), "one at a time");
}

#[tokio::test(start_paused = true)]
async fn pulls_at_once_and_a_second_are_limited() {
    let bench = bench(|images, _| {
        (images.serialize_pulls, images.max_parallel_pulls) = (false, Some(2));
        (images.pull_qps, images.pull_burst) = (1, 3);
    });
    let pods: Vec<_> = (0..4).map(|n| pod("u", &format!("r.io/x:{n}"), "Always")).collect();
    let results = futures_util::future::join_all(pods.iter().map(|p| bench.ensure(p))).await;
    // The fourth has its turn five seconds later, when there are tokens again.
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(bench.runtime.images().most, 2);

    let narrow = self::bench(|images, _| (images.pull_qps, images.pull_burst) = (1, 0));
    let (reason, message, _) = narrow.problem(&pod("u", IMAGE, "Always")).await;
    assert_eq!((reason, message.as_str()), (WaitReason::ErrImagePull, "pull QPS exceeded"));
}

#[tokio::test(start_paused = true)]
async fn logins_are_tried_in_order() {
    let bench = bench(|images, root| {
        let config = r#"{"auths":{"r.io":{"username":"ann"},"r.io/x":{"username":"joe"}}}"#;
        std::fs::write(root.join("config.json"), config).unwrap();
        images.docker_config_dirs.json = vec![root.to_owned()];
    });
    bench.runtime.images().pull_errors.push_back(refused("denied"));
    bench.ensure(&pod("u", IMAGE, "Always")).await.unwrap();
    assert_eq!(bench.pulls(), ["r.io/x:1 joe", "r.io/x:1 ann"]);
    let errors = [refused("denied"), refused("forbidden")];
    bench.runtime.images().pull_errors.extend(errors);
    let (_, message, _) = bench.problem(&pod("u", IMAGE, "Always")).await;
    assert_eq!(message, "[unusable answer: denied, unusable answer: forbidden]");
}

#[tokio::test(start_paused = true)]
async fn an_image_of_unknown_origin_is_pulled_again() {
    let bench = bench(|_, _| {});
    bench.ensure(&pod("u", IMAGE, "IfNotPresent")).await.unwrap();
    bench.ensure(&pod("u", IMAGE, "IfNotPresent")).await.unwrap();
    assert_eq!(bench.pulls().len(), 1, "a pull without login lets every pod use it");
    // An agent is killed in mid-pull; the next one cannot know with what it was pulled.
    for dir in ["pulling", "pulled"] {
        let dir = bench.root.path().join("image_manager").join(dir);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    let records = bench.images.0.records.as_ref().unwrap();
    std::mem::forget(records.begin(IMAGE).unwrap());
    let mut settings = Settings::for_node("n");
    settings.root_dir = bench.root.path().to_owned();
    let (images, recorder) = start(&settings, &bench.runtime);
    let (runtime, root) = (Arc::clone(&bench.runtime), bench.root);
    let board = ProgressBoard::default();
    let next = Bench { images, recorder, runtime, board, root, announced: Mutex::default() };
    sleep(Duration::from_secs(1)).await;
    let (reason, ..) = next.problem(&pod("u", IMAGE, "Never")).await;
    assert_eq!(reason, WaitReason::ErrImageNeverPull, "its presence is not revealed");
    next.ensure(&pod("u", IMAGE, "IfNotPresent")).await.unwrap();
    assert_eq!(next.pulls().len(), 2);
    next.ensure(&pod("u", IMAGE, "Never")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_verification_nothing_is_kept() {
    let bench = bench(|images, _| images.verification = None);
    bench.ensure(&pod("u", IMAGE, "Always")).await.unwrap();
    assert!(!bench.root.path().join("image_manager").exists());
    bench.ensure(&pod("u", IMAGE, "IfNotPresent")).await.unwrap();
    assert_eq!(bench.told()[2], "Pulled: Container image \"r.io/x:1\" already present on machine");
}

#[tokio::test(start_paused = true)]
async fn progress_is_told_while_a_pull_runs() {
    let bench = bench(|_, _| {});
    let layer = Download { name: "layer".to_owned(), done: 3, total: 9 };
    bench.runtime.images().downloads.push(layer);
    let pod = pod("u", IMAGE, "Always");
    let watch = async {
        sleep(Duration::from_millis(1_500)).await;
        bench.board.get(pod.uid()).and_then(|progress| progress.pull().cloned())
    };
    let (pulled, seen) = tokio::join!(bench.ensure(&pod), watch);
    assert!(pulled.is_ok());
    let state = PullState::Running(Some(PullProgress { done: 3, total: 9 }));
    assert_eq!(seen, Some(Pull { image: IMAGE.to_owned(), state }));
    assert_eq!(bench.board.get(pod.uid()).unwrap_or_default().pull(), None);
}

#[tokio::test(start_paused = true)]
async fn each_call_for_an_image_is_told_while_it_lasts() {
    let bench = bench(|_, _| {});
    let pods: Vec<_> =
        (0..3).map(|n| pod(&format!("u{n}"), &format!("r.io/x:{n}"), "IfNotPresent")).collect();
    let watch = async {
        let mut seen = Vec::new();
        // A pull takes five seconds, and one runs at a time.
        for millis in [500, 5_500, 5_500] {
            sleep(Duration::from_millis(millis)).await;
            seen.push(pods.iter().map(|pod| bench.calls(pod)).collect::<Vec<_>>());
        }
        seen
    };
    let all = futures_util::future::join_all(pods.iter().map(|pod| bench.ensure(pod)));
    let (all, seen) = tokio::join!(all, watch);
    assert!(all.iter().all(Result::is_ok));
    let queued = |n, behind: &str| format!("PullImage r.io/x:{n}: waits behind {behind}");
    let runs = |n| format!("PullImage r.io/x:{n}: under way");
    let none = String::new;
    assert_eq!(seen[0], [runs(0), queued(1, "1 other pull"), queued(2, "2 other pulls")]);
    assert_eq!(seen[1], [none(), runs(1), queued(2, "1 other pull")]);
    assert_eq!(seen[2], [none(), none(), runs(2)]);
    assert!(pods.iter().all(|pod| bench.calls(pod).is_empty()), "all have ended");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_nobody_waits_for_ends() {
    let bench = bench(|_, _| {});
    let pod = pod("u", IMAGE, "Always");
    let given_up = tokio::time::timeout(Duration::from_secs(1), bench.ensure(&pod)).await;
    assert!(given_up.is_err());
    sleep(Duration::from_secs(60)).await;
    assert!(bench.runtime.images().images.is_empty());
    let intents = bench.root.path().join("image_manager/pulling");
    assert_eq!(std::fs::read_dir(intents).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn everything_is_counted() {
    let bench = bench(|images, _| images.provider_config_hash = Some("sha256:ab".to_owned()));
    bench.problem(&pod("u", IMAGE, "Never")).await;
    bench.problem(&pod("u", "r.io//x", "Always")).await;
    bench.runtime.images().images.insert("r.io/preloaded:1".to_owned());
    bench.ensure(&pod("u", "r.io/preloaded:1", "Never")).await.unwrap();
    bench.ensure(&pod("u", IMAGE, "IfNotPresent")).await.unwrap();
    bench.ensure(&pod("u", IMAGE, "IfNotPresent")).await.unwrap();
    bench.ensure(&pod("u", IMAGE, "Always")).await.unwrap();
    let mut registry = prometheus_client::registry::Registry::default();
    bench.images.metrics().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let request = |policy: &str, present: &str, pull: &str| {
        format!(
            "kubelet_image_manager_ensure_image_requests_total{{pull_policy=\"{policy}\",\
             present_locally=\"{present}\",pull_required=\"{pull}\"}} 1"
        )
    };
    let check = |result: &str| {
        format!("kubelet_imagemanager_image_mustpull_checks_total{{result=\"{result}\"}} 1")
    };
    for line in [
        request("never", "false", "unknown"),
        request("always", "unknown", "unknown"),
        request("never", "true", "false"),
        request("ifnotpresent", "false", "true"),
        request("ifnotpresent", "true", "false"),
        request("always", "unknown", "true"),
        check("credentialPolicyAllowed"),
        check("credentialRecordFound"),
        "kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"0-10MB\"} 2".to_owned(),
        "kubelet_imagemanager_ondisk_pullintents 0".to_owned(),
        "kubelet_imagemanager_ondisk_pulledrecords 1".to_owned(),
        "kubelet_credential_provider_config_info{hash=\"sha256:ab\"} 1".to_owned(),
    ] {
        assert!(text.lines().any(|told| told == line), "no {line} in {text}");
    }
}
