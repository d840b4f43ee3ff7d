//! What is written is read again, and nothing else; plans; files; falling back.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::manifest::from_api;
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind, PodUid, Source};
use proptest::prelude::*;
use serde_json::json;

use super::format::{FormatError, KeptPod, decode, encode};
use super::plan::{Limits, Now, Plan, Refusal, plan};
use super::store::{Store, dir_below};
use super::*;
use crate::object_cache;
use crate::ports::{RealFs, SystemClock};
use crate::volume_manager::attach::Attachments;

fn pod(uid: &str) -> Pod {
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let root = json!({"configMap": {"name": "m"}});
    from_api(json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": uid, "resourceVersion": "7",
            "annotations": {"kubernetes.io/config.seen": "x", "a": "b"}},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "app", "image": "i",
                "env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "volumeMounts": [{"name": "api", "mountPath": "/api"}]}],
            "volumes": [{"name": "api", "projected": {"sources": [token, root]}}],
        },
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podIP": "10.0.0.1"},
    }))
    .unwrap()
}

fn object(kind: ObjectKind, name: &str, value: &[u8]) -> Arc<ConfigObject> {
    Arc::new(ConfigObject {
        key: ObjectKey::new(kind, "ns", name),
        uid: "o".to_owned(),
        secret_type: "Opaque".to_owned(),
        data: BTreeMap::from([("k".to_owned(), value.to_vec())]),
        binary: BTreeMap::new(),
    })
}

fn kept(uid: &str) -> KeptPod {
    let secret = object(ObjectKind::Secret, "s", b"hunter2");
    let absent = ObjectKey::new(ObjectKind::ConfigMap, "ns", "m");
    let objects = BTreeMap::from([(secret.key.clone(), Some(secret)), (absent, None)]);
    let pod = Arc::new(needs::stripped(&pod(uid), None));
    let variables = vec![("A_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned())];
    let texts = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let (labels, attached) = (Some(texts("zone", "a")), texts("kubernetes.io/csi/d^h", "/dev/x"));
    let node = KeptNode { labels, attached };
    KeptPod { pod, objects, variables, handler: Some("runc".to_owned()), node }
}

#[test]
fn a_kept_pod_is_the_same_pod() {
    let one = kept("u-1");
    let encoded = encode(&one);
    let (read, digest) = decode(&encoded.bytes).unwrap();
    assert_eq!((&read, &digest), (&one, &encoded.digest));
    assert_eq!(encode(&read).digest, digest, "the same is written again");
    assert_eq!(read.pod.spec, pod("u-1").spec, "its containers are not restarted");
    let annotations: Vec<_> = read.pod.metadata.annotations.iter().flatten().collect();
    assert_eq!(annotations, [(&"a".to_owned(), &"b".to_owned())]);
    let status = read.pod.status.as_ref().unwrap();
    assert_eq!((status.phase.as_deref(), &status.pod_ip), (Some("Pending"), &None));
    assert!(status.start_time.is_some());
    let ended = PodStatus { phase: Some("Succeeded".to_owned()), ..PodStatus::default() };
    let of_ended = needs::stripped(&pod("u-1"), Some(&ended));
    assert_eq!(of_ended.status, Some(ended), "it does not run again");
}

proptest! {
    #[test]
    fn any_values_survive(value in proptest::collection::vec(any::<u8>(), 0..300), name in "\\PC{0,20}") {
        let mut one = kept("u");
        let odd = object(ObjectKind::Secret, &name, &value);
        one.objects.insert(odd.key.clone(), Some(odd));
        prop_assert_eq!(decode(&encode(&one).bytes).unwrap().0, one);
    }

    #[test]
    fn what_is_damaged_is_refused(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let good = encode(&kept("u")).bytes;
        let mut bad = good.clone();
        let at = at.index(bad.len());
        bad[at] = to;
        if bad != good {
            prop_assert!(decode(&bad).is_err(), "byte {at} is {to}");
        }
        prop_assert!(decode(&good[..at]).is_err(), "cut at {at}");
    }

    #[test]
    fn anything_may_come(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode(&bytes).is_err());
    }
}

#[test]
fn what_is_kept_can_be_read() {
    for kind in format::KINDS {
        assert!(needs::is_kept(&ObjectKey::new(kind, "ns", "a")), "{kind:?}");
    }
}

#[test]
fn refusals_say_why_and_tell_no_values() {
    let good = String::from_utf8(encode(&kept("u")).bytes).unwrap();
    let (head, body) = good.split_once('\n').unwrap();
    let newer = good.replacen("\"version\":1", "\"version\":2", 1);
    assert_eq!(decode(newer.as_bytes()).unwrap_err(), FormatError::Version(2));
    let cut = &good[..good.len() - 5];
    assert!(matches!(decode(cut.as_bytes()).unwrap_err(), FormatError::Torn { .. }));
    let other = format!("{head}\n{}", body.replacen("web", "wab", 1));
    assert_eq!(decode(other.as_bytes()).unwrap_err(), FormatError::Checksum);
    for text in ["", "\n", "{}\n{}\n", "[1]\n", "klet"] {
        assert_eq!(decode(text.as_bytes()).unwrap_err(), FormatError::Foreign, "{text:?}");
    }
    let shown = format!("{:?}", kept("u"));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn plans() {
    use Now::{New, Same, Unsure};
    let limits = Limits { file_bytes: 10, all_bytes: 20, files: 3 };
    let uids = |all: &[&str]| all.iter().map(|uid| PodUid::new(*uid)).collect::<Vec<_>>();
    // Kept, wanted, whether the server has spoken; written, removed, refused.
    type Case<'a> = (
        &'a [(&'a str, usize)],
        &'a [(&'a str, Now)],
        bool,
        &'a [&'a str],
        &'a [&'a str],
        &'a [(&'a str, Refusal)],
    );
    let cases: [Case<'_>; 9] = [
        (&[], &[], true, &[], &[], &[]),
        (&[("a", 5)], &[("a", Same), ("b", Unsure)], true, &[], &[], &[]),
        (&[("a", 5)], &[], false, &[], &[], &[]),
        (&[("a", 5)], &[], true, &[], &["a"], &[]),
        (&[("a", 5)], &[("a", New(6)), ("b", New(7))], true, &["a", "b"], &[], &[]),
        (&[("a", 5)], &[("a", New(11))], true, &[], &["a"], &[("a", Refusal::TooLarge(11))]),
        (
            &[("c", 10)],
            &[("a", New(6)), ("b", New(5)), ("c", Same)],
            true,
            &["a"],
            &[],
            &[("b", Refusal::Full)],
        ),
        (&[("c", 10)], &[("a", New(10)), ("b", New(10))], true, &["a", "b"], &["c"], &[]),
        (
            &[("a", 1), ("b", 1), ("c", 1)],
            &[("a", Same), ("b", Unsure), ("c", New(2)), ("d", New(1))],
            true,
            &["c"],
            &[],
            &[("d", Refusal::Full)],
        ),
    ];
    for (at, (kept, now, spoken, write, remove, refused)) in cases.into_iter().enumerate() {
        let kept = kept.iter().map(|(uid, bytes)| (PodUid::new(*uid), *bytes)).collect();
        let now = now.iter().map(|(uid, now)| (PodUid::new(*uid), *now)).collect();
        let refused = refused.iter().map(|(uid, why)| (PodUid::new(*uid), *why)).collect();
        let wanted = Plan { remove: uids(remove), write: uids(write), refused };
        assert_eq!(plan(&kept, &now, spoken, limits), wanted, "case {at}");
    }
}

fn open(root: &Path) -> (Store, store::Found) {
    Store::open(Arc::new(RealFs), root, "n1").unwrap()
}

#[tokio::test]
async fn only_ones_own_files_are_read() {
    let root = tempfile::tempdir().unwrap();
    let dir = dir_below(root.path());
    let (mut store, found) = open(root.path());
    assert!(found.pods.is_empty());
    for uid in ["good", "mode", "owner", "torn", "other"] {
        store.write(&PodUid::new(uid), encode(&kept(uid))).await.unwrap();
    }
    let file = |uid: &str| dir.join(format!("{uid}.json"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&dir), mode(&file("good"))), (0o700, 0o600));
    std::fs::set_permissions(file("mode"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let is_root = chown(file("owner"), Some(12345), None).is_ok();
    let torn = std::fs::read(file("torn")).unwrap();
    std::fs::write(file("torn"), &torn[..torn.len() / 2]).unwrap();
    std::fs::rename(file("other"), file("misnamed")).unwrap();
    symlink(file("good"), file("link")).unwrap();
    std::fs::create_dir(file("dir")).unwrap();
    std::fs::write(dir.join("notes.txt"), "x").unwrap();
    let (mut store, found) = open(root.path());
    let usable: Vec<_> = found.pods.iter().map(|one| one.pod.metadata.uid.clone()).collect();
    assert_eq!(usable[0].as_deref(), Some("good"));
    assert_eq!(usable.len(), if is_root { 1 } else { 2 });
    let said = found.problems.join("\n");
    for (uid, why) in [
        ("mode", "lets others open it"),
        ("torn", "it is torn"),
        ("misnamed", "another pod than its name says"),
        ("link", "no plain file"),
        ("dir", "no plain file"),
    ] {
        let line = found.problems.iter().find(|line| line.contains(&format!("/{uid}.json")));
        assert!(line.is_some_and(|line| line.contains(why)), "{uid}: {said}");
    }
    assert!(!said.contains("hunter2"));
    // What is refused is replaced, and never what it leads to.
    store.write(&PodUid::new("link"), encode(&kept("link"))).await.unwrap();
    assert!(std::fs::symlink_metadata(file("link")).unwrap().is_file());
    store.remove(&PodUid::new("torn")).unwrap();
    assert!(!file("torn").exists());
    let elsewhere = Store::open(Arc::new(RealFs), root.path(), "n2").unwrap().1;
    let good = elsewhere.problems.iter().find(|line| line.contains("/good.json"));
    assert!(elsewhere.pods.is_empty() && good.is_some_and(|line| line.contains("not to this one")));
}

#[test]
fn a_directory_that_is_a_link_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let target = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("klet")).unwrap();
    symlink(target.path(), dir_below(root.path())).unwrap();
    assert!(Store::open(Arc::new(RealFs), root.path(), "n1").is_err());
}

#[tokio::test]
async fn falling_back_and_the_servers_word() {
    let root = tempfile::tempdir().unwrap();
    open(root.path()).0.write(&PodUid::new("u"), encode(&kept("u"))).await.unwrap();
    let settings = Settings { root_dir: root.path().to_owned(), ..Settings::for_node("n1") };
    let (events, recorder) = NodeEvents::for_test();
    let clock = Arc::new(SystemClock::new());
    let (offline, opened) =
        super::open(Arc::new(RealFs), clock, &settings, events, Default::default());
    let (fall_back, _) = opened.unwrap();
    let (_writer, objects) = object_cache::new();
    let answers = objects.join_cluster();
    let desired = DesiredPod::new(Source::Api, Arc::new(pod("u"))).unwrap();
    let keys = needs::keys(&desired, &settings, &|_| None, &NodeView::default());
    let (tokens, others): (Vec<_>, Vec<_>) = keys.into_iter().partition(needs::is_token);
    let [token] = &tokens[..] else { panic!("{tokens:?}") };
    let [map, secret] = &others[..] else { panic!("{others:?}") };
    assert!(objects.is_awaited(secret) && objects.find(secret).is_err());

    let pods = fall_back.begin(&objects).unwrap();
    assert_eq!(pods.len(), 1);
    assert!(fall_back.begin(&objects).is_none(), "once");
    assert!(objects.find(secret).unwrap().is_some() && !objects.is_awaited(secret));
    assert_eq!(objects.find(map), Ok(None), "it was not there");
    answers.fail(token, "no server");
    assert!(objects.find(token).unwrap().is_some_and(|token| token.data.is_empty()));
    assert_eq!(objects.told(secret), None, "the server has not said so");
    assert_eq!(offline.running().unwrap().without_token.len(), 1);
    assert!(recorder.node_lines()[0].contains("RunningKeptPods"));

    let _follows = objects.follow([secret.clone(), token.clone()].into());
    fall_back.end(&objects);
    assert_eq!(offline.running(), None);
    assert!(objects.find(token).is_err(), "tokens come from the server again");
    assert!(objects.find(secret).unwrap().is_some(), "until it answers");
    assert!(objects.find(map).is_err(), "nobody follows it");
    answers.know(secret, None);
    assert_eq!((objects.find(secret), objects.told(secret)), (Ok(None), Some(None)));
    discard(&RealFs, root.path()).unwrap();
    assert!(!dir_below(root.path()).exists());
}

/// A keeper of these pods, with what it reads.
struct Bench {
    root: tempfile::TempDir,
    keeper: Keeper,
    memory: keeper::Memory,
    pods: tokio::sync::watch::Sender<Arc<kubelet_model::PodSet>>,
    answers: object_cache::Answers,
    _writer: object_cache::ObjectsWriter,
}

impl Bench {
    fn new(pod: &DesiredPod) -> Self {
        let root = tempfile::tempdir().unwrap();
        let settings = Settings { root_dir: root.path().to_owned(), ..Settings::for_node("n1") };
        let (events, recorder) = NodeEvents::for_test();
        let clock = Arc::new(SystemClock::new());
        let files = super::open(Arc::new(RealFs), clock, &settings, events, Default::default())
            .1
            .unwrap()
            .1;
        let (writer, objects) = object_cache::new();
        let (pods, desired) = crate::pod_sources::PodSetReader::for_test(&[pod]);
        let answers = objects.join_cluster();
        let (statuses, copies, lists) = Default::default();
        let attachments = Attachments::in_cluster(true);
        let keeper =
            Keeper { files, desired, objects, lists, statuses, copies, recorder, attachments };
        let memory = keeper::Memory::default();
        Self { root, keeper, memory, pods, answers, _writer: writer }
    }

    async fn look(&mut self) {
        assert!(self.keeper.look(&mut self.memory).await);
    }

    /// Which file there is, and what it holds.
    fn file(&self) -> Option<(u64, String)> {
        use std::os::unix::fs::MetadataExt;
        let path = dir_below(self.root.path()).join("u.json");
        let inode = std::fs::metadata(&path).ok()?.ino();
        Some((inode, std::fs::read_to_string(path).unwrap()))
    }
}

#[tokio::test]
async fn what_changes_is_written_and_nothing_else() {
    let desired = DesiredPod::new(Source::Api, Arc::new(pod("u"))).unwrap();
    let mut bench = Bench::new(&desired);
    let secret = object(ObjectKind::Secret, "s", b"hunter2");
    let map = ObjectKey::new(ObjectKind::ConfigMap, "ns", "m");
    bench.answers.know(&secret.key, Some(Arc::clone(&secret)));
    bench.look().await;
    assert_eq!(bench.file(), None, "not before the server has answered for everything");
    bench.answers.know(&map, None);
    bench.look().await;
    let first = bench.file().unwrap();
    assert!(first.1.contains("aHVudGVyMg==") && !first.1.contains("ServiceAccountToken"));
    let running = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
    bench.keeper.statuses.set(&desired, running);
    bench.answers.know(&secret.key, Some(object(ObjectKind::Secret, "s", b"hunter2")));
    bench.look().await;
    assert_eq!(bench.file().unwrap(), first, "the same is not written again");
    bench.answers.know(&map, Some(object(ObjectKind::ConfigMap, "m", b"one")));
    bench.look().await;
    let second = bench.file().unwrap();
    assert!(second.0 != first.0 && second.1.contains("b25l"), "{second:?}");

    // One that has grown too large is not kept as it was, and that is told once.
    bench.answers.know(&map, Some(object(ObjectKind::ConfigMap, "m", &vec![0; 4 << 20])));
    for _ in 0..2 {
        bench.look().await;
        assert_eq!(bench.file(), None);
    }
    let events = bench.keeper.recorder.all();
    let told: Vec<_> = events.iter().filter(|event| event.reason == "NotKept").collect();
    assert!(matches!(&told[..], [one] if one.count == 1), "{told:?}");

    // Who has ended needs no objects, and does not run again.
    let ended = PodStatus { phase: Some("Failed".to_owned()), ..PodStatus::default() };
    bench.keeper.statuses.set(&desired, ended);
    bench.look().await;
    let third = bench.file().unwrap();
    assert!(third.1.contains("Failed") && !third.1.contains("aHVudGVyMg=="), "{third:?}");

    bench.pods.send_replace(Arc::default());
    bench.look().await;
    assert_eq!(bench.file().unwrap(), third, "the server has not said so yet");
    bench.memory.listed = true;
    bench.look().await;
    assert_eq!(bench.file(), None);
}

/// What volumes ask of the node is kept with the pod, once it is known.
#[tokio::test]
async fn what_volumes_know_of_the_node_is_kept() {
    let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
    let mut plain = serde_json::to_value(pod("u")).unwrap();
    plain["spec"]["containers"][0]["env"] = json!([]);
    plain["spec"]["volumes"] = json!([{"name": "api"}]);
    for (key, value) in claim.as_object().unwrap() {
        plain["spec"]["volumes"][0][key] = value.clone();
    }
    let desired = DesiredPod::new(Source::Api, Arc::new(from_api(plain).unwrap())).unwrap();
    let mut bench = Bench::new(&desired);
    let here = json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
        [{"key": "zone", "operator": "In", "values": ["a"]}]}]}});
    let of_cluster = |kind, namespace: &str, name: &str, uid: &str, object: serde_json::Value| {
        let parts = object.as_object().unwrap().iter();
        let data = parts.map(|(part, value)| (part.clone(), value.to_string().into_bytes()));
        Arc::new(ConfigObject {
            key: ObjectKey::new(kind, namespace, name),
            uid: uid.to_owned(),
            secret_type: String::new(),
            data: data.collect(),
            binary: BTreeMap::new(),
        })
    };
    let all = [
        of_cluster(
            ObjectKind::PersistentVolumeClaim,
            "ns",
            "c",
            "claim",
            json!({"metadata": {}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}),
        ),
        of_cluster(
            ObjectKind::PersistentVolume,
            "",
            "pv",
            "",
            json!({"metadata": {}, "spec": {"accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"}, "nodeAffinity": here,
                "claimRef": {"namespace": "ns", "name": "c", "uid": "claim"},
                "csi": {"driver": "d", "volumeHandle": "h"}}}),
        ),
        of_cluster(ObjectKind::CsiDriver, "", "d", "", json!({"metadata": {}, "spec": {}})),
    ];
    for object in all {
        bench.answers.know(&object.key, Some(Arc::clone(&object)));
    }
    bench.look().await;
    assert_eq!(bench.file(), None, "the node's labels are not known");
    let name = "kubernetes.io/csi/d^h";
    bench.keeper.attachments.node_says(&[("zone", "a")], &[(name, "/dev/x")]);
    bench.look().await;
    let (_, text) = bench.file().unwrap();
    assert!(text.contains(r#""labels":{"zone":"a"}"#), "{text}");
    assert!(!text.contains(name), "what is not in use may be detached: {text}");
    bench.keeper.attachments.reported(&[name.to_owned()]);
    bench.look().await;
    assert!(bench.file().unwrap().1.contains(r#""labels":{"zone":"a"}"#), "{text}");
    assert!(!bench.file().unwrap().1.contains(name), "its attachment is not known");
    let get = |key: &ObjectKey| bench.keeper.objects.get(key);
    let view = bench.keeper.attachments.view();
    let keys = needs::keys(&desired, &bench.keeper.files.settings, &get, &view);
    let key = keys.into_iter().find(|key| key.kind == ObjectKind::VolumeAttachment);
    let id = key.unwrap().name;
    let attachment = of_cluster(
        ObjectKind::VolumeAttachment,
        "",
        &id,
        "",
        json!({"metadata": {}, "status": {"attached": true}}),
    );
    bench.answers.know(&attachment.key, Some(Arc::clone(&attachment)));
    bench.look().await;
    let (_, text) = bench.file().unwrap();
    assert!(text.contains(&format!(r#""attached":{{"{name}":"/dev/x"}}"#)), "{text}");
    assert!(text.contains(&id), "{text}");
}
