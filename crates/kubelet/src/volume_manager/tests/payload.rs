//! Volumes whose files the agent writes: contents as tables, and refreshes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kubelet_model::{ConfigObject, ObjectKey, ObjectKind, PodSet, Source};

use super::super::VolumeState;
use super::super::desired::Wanted;
use super::super::payload::{Content, PayloadKind, PayloadSpec, nested};
use super::super::plan::{Contents, Goal, Ingredients, Lack, Observed, Op, Outcome, plan};
use super::bed::Bed;
use super::{at, made, name, pod, until, volumes_of, wanted};
use crate::object_cache::{self, Objects};
use crate::pod_sources::PodSetReader;

fn object(kind: ObjectKind, name: &str, data: &[(&str, &str)]) -> Arc<ConfigObject> {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    let binary = match kind {
        ObjectKind::ConfigMap => BTreeMap::from([("logo".to_owned(), vec![0xff])]),
        _ => BTreeMap::new(),
    };
    let key = ObjectKey::new(kind, "ns", name);
    Arc::new(ConfigObject {
        key,
        uid: String::new(),
        secret_type: String::new(),
        data: data.collect(),
        binary,
    })
}

fn objects() -> Objects {
    let (writer, objects) = object_cache::new();
    let map = object(ObjectKind::ConfigMap, "c", &[("a", "1"), ("b", "2")]);
    let secret = object(ObjectKind::Secret, "s", &[("a", "hidden")]);
    writer.replace(Source::File, &[map, secret]);
    objects
}

fn spec(source: &str) -> Arc<PayloadSpec> {
    match wanted("", source) {
        Wanted::Payload(spec) => spec,
        other => panic!("{source} is {other:?}"),
    }
}

/// `path mode content` of every file, or the error.
fn shown(source: &str) -> Result<String, String> {
    let objects = objects();
    let Content { payload, .. } = spec(source).content(|key| objects.find(key))?;
    let files = payload.files().iter().map(|(path, file)| {
        format!("{path} {:o} {}", file.mode, String::from_utf8_lossy(&file.data).escape_debug())
    });
    Ok(files.collect::<Vec<_>>().join("; "))
}

#[test]
fn files_are_values_of_objects_and_facts_about_the_pod() {
    let field =
        |path: &str, of: &str| format!(r#"{{"path":"{path}","fieldRef":{{"fieldPath":"{of}"}}}}"#);
    let limit = r#"{"path":"cpu","mode":256,"resourceFieldRef":{"containerName":"app","resource":"limits.cpu","divisor":"1m"}}"#;
    for (source, expected) in [
        (
            r#""configMap":{"name":"c"}"#.to_owned(),
            Ok("a 644 1; b 644 2; logo 644 \u{fffd}"),
        ),
        (
            r#""configMap":{"name":"c","defaultMode":256,"items":[{"key":"b","path":"x/y"},{"key":"a","path":"z","mode":420}]}"#.to_owned(),
            Ok("x/y 400 2; z 644 1"),
        ),
        (
            r#""configMap":{"name":"c","items":[{"key":"none","path":"x"}]}"#.to_owned(),
            Err("configmap references non-existent config key: none"),
        ),
        (
            r#""configMap":{"name":"c","optional":true,"items":[{"key":"none","path":"x"}]}"#
                .to_owned(),
            Ok(""),
        ),
        (r#""configMap":{"name":"none"}"#.to_owned(), Err("configmap \"none\" not found")),
        (r#""configMap":{"name":"none","optional":true}"#.to_owned(), Ok("")),
        (r#""secret":{"secretName":"s","defaultMode":256}"#.to_owned(), Ok("a 400 hidden")),
        (r#""secret":{"secretName":"c"}"#.to_owned(), Err("secret \"c\" not found")),
        (
            r#""secret":{"secretName":"s","items":[{"key":"b","path":"x"}]}"#.to_owned(),
            Err("references non-existent secret key: b"),
        ),
        (
            r#""secret":{"secretName":"s","items":[{"key":"a","path":"../up"}]}"#.to_owned(),
            Err("invalid path: must not contain '..': ../up"),
        ),
        (
            format!(r#""downwardAPI":{{"items":[{},{},{limit}]}}"#, field("n", "metadata.name"), field("d/u", "metadata.uid")),
            Ok("cpu 400 1000; d/u 644 u1; n 644 web"),
        ),
        (
            format!(r#""downwardAPI":{{"items":[{}]}}"#, field("n", "spec.nodeName")),
            Err("unsupported fieldPath: spec.nodeName"),
        ),
        (
            format!(
                r#""projected":{{"defaultMode":256,"sources":[{{"configMap":{{"name":"c"}}}},{{"secret":{{"name":"s"}}}},{{"downwardAPI":{{"items":[{}]}}}}]}}"#,
                field("b", "metadata.namespace")
            ),
            // Later sources replace files of earlier ones.
            Ok("a 400 hidden; b 400 ns; logo 400 \u{fffd}"),
        ),
        (
            r#""projected":{"sources":[{"configMap":{"name":"x"}},{"secret":{"name":"y"}}]}"#.to_owned(),
            Err("[configmap \"x\" not found, secret \"y\" not found]"),
        ),
        (
            r#""projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}"#.to_owned(),
            Err("a projected serviceAccountToken needs an API server; remove the source"),
        ),
    ] {
        assert_eq!(shown(&source).as_deref().map_err(String::as_str), expected, "{source}");
    }
}

#[test]
fn what_is_secret_is_kept_in_memory_and_never_printed() {
    let spec = spec(r#""secret":{"secretName":"s"}"#);
    assert!(spec.kind.in_memory() && !PayloadKind::ConfigMap.in_memory());
    let objects = objects();
    let content = spec.content(|key| objects.find(key)).expect("files");
    assert!(!format!("{content:?}").contains("hidden"), "{content:?}");
    assert!(!format!("{content:?}").contains("104, 105"), "{content:?}");
}

#[test]
fn other_mounts_have_places_in_a_volume() {
    for (mounts, expected) in [
        (vec![("v", "/a"), ("w", "/a/b"), ("x", "/a/b/c"), ("y", "/a/b-c")], vec!["b", "b-c"]),
        (vec![("v", "/a/"), ("w", "/a//./d/e")], vec!["d/e"]),
        (vec![("v", "/a"), ("w", "/ab")], vec![]),
        (vec![("w", "/a"), ("v", "/a/b")], vec![]),
    ] {
        let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(nested("v", &mounts), expected, "{mounts:?}");
    }
}

fn content(text: &str) -> Result<Content, String> {
    let (writer, objects) = object_cache::new();
    writer.replace(Source::File, &[object(ObjectKind::ConfigMap, "c", &[("a", text)])]);
    spec(r#""configMap":{"name":"c"}"#).content(|key| objects.find(key))
}

#[test]
fn files_are_written_again_when_they_change_and_stay_when_they_cannot() {
    let one = pod("", "", r#"{"name":"v","configMap":{"name":"c"}}"#);
    let volumes = volumes_of(&one).expect("volumes");
    let wanted = volumes.volumes[&name("v")].clone();
    let goal = Goal::Mount(Arc::new(volumes));
    let mut observed = Observed::default();
    let with = |content: Result<Content, String>| {
        Contents::from([(name("v"), content.map(Ingredients::Files).map_err(Lack::to_mount))])
    };
    let missing = with(Err("configmap \"c\" not found".to_owned()));
    let waits = plan(&goal, &observed, &missing, at(0));
    assert_eq!((waits.ops, waits.wake_at), (vec![], None), "nothing but the object helps");
    let problem = "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found";
    assert_eq!(waits.problems[0].message, problem);
    assert!(matches!(waits.state, VolumeState::Waiting { .. }));

    let (first, second) = (content("1"), content("2"));
    let set_up = Op::SetUp(name("v"));
    assert_eq!(
        plan(&goal, &observed, &with(first.clone()), at(0)).ops,
        std::slice::from_ref(&set_up)
    );
    let digest =
        |content: &Result<Content, String>| content.as_ref().ok().map(|c| c.digest.clone());
    let done = |of| Outcome::Made(wanted.clone(), made("/v"), digest(of));
    observed.note(set_up.clone(), done(&first), at(0));
    let settled = plan(&goal, &observed, &with(first.clone()), at(0));
    assert_eq!((settled.ops, settled.problems), (vec![], vec![]));
    let changed = plan(&goal, &observed, &with(second.clone()), at(0));
    assert_eq!(changed.ops, std::slice::from_ref(&set_up));
    assert!(matches!(changed.state, VolumeState::Ready(_)), "the old files are there");
    observed.note(set_up.clone(), Outcome::Failed("disk full".to_owned()), at(0));
    let failed = plan(&goal, &observed, &with(second.clone()), at(0));
    assert_eq!((failed.ops, failed.wake_at), (vec![], Some(at(500))));
    assert!(failed.problems[0].message.ends_with("disk full"));
    assert!(matches!(failed.state, VolumeState::Ready(_)));
    observed.note(set_up, done(&second), at(500));
    let gone = plan(&goal, &observed, &missing, at(500));
    assert_eq!((gone.ops, gone.problems[0].message.as_str()), (vec![], problem));
    assert!(matches!(gone.state, VolumeState::Ready(_)), "what was published stays");
}

#[tokio::test]
async fn files_follow_their_object() {
    let bed = Bed::new();
    let (writer, recorder) = (&bed.writer, &bed.recorder);
    let pod = pod("", "", r#"{"name":"v","configMap":{"name":"c"}}"#);
    let volumes = bed.life(&[&pod]);
    volumes.want(&pod);
    let is_stuck = |state: &VolumeState| matches!(state, VolumeState::Waiting { problems, .. } if !problems.is_empty());
    until(&volumes, pod.uid(), is_stuck).await;
    let put = |value| {
        writer.replace(Source::File, &[object(ObjectKind::ConfigMap, "c", &[("a", value)])]);
    };
    put("1");
    let ready = until(&volumes, pod.uid(), |state| matches!(state, VolumeState::Ready(_))).await;
    let VolumeState::Ready(all) = ready else { panic!("ready") };
    assert!(all["v"].read_only && all["v"].managed);
    let file = all["v"].host_path.join("a");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "1");
    put("2");
    let wait = async {
        while std::fs::read_to_string(&file).is_ok_and(|text| text != "2") {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.expect("a refresh");
    // The object goes, its files stay.
    writer.replace(Source::File, &[]);
    let told = async {
        while recorder.all().iter().map(|event| event.count).sum::<u32>() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), told).await.expect("an event");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "2");
    assert!(matches!(volumes.state(pod.uid()), Some(VolumeState::Ready(_))));
    volumes.release(pod.uid());
    until(&volumes, pod.uid(), |state| *state == VolumeState::Gone).await;
    let left = bed.root().join("pods/u1");
    assert!(!left.join("volumes/kubernetes.io~configmap/v").exists());
    assert!(!left.join("plugins/kubernetes.io~empty-dir/wrapped_v").exists());
}

#[test]
fn a_pod_that_ends_keeps_what_it_has() {
    let two = pod("", "", r#"{"name":"v","configMap":{"name":"c"}},{"name":"w","emptyDir":{}}"#);
    let volumes = Arc::new(volumes_of(&two).expect("volumes"));
    let wanted = volumes.volumes[&name("v")].clone();
    let mut observed = Observed::default();
    observed.note(
        Op::SetUp(name("v")),
        Outcome::Made(wanted, made("/v"), Some("old".to_owned())),
        at(0),
    );
    observed.note(Op::SetUp(name("w")), Outcome::Failed("disk full".to_owned()), at(0));
    let missing = Err("configmap \"c\" not found".to_owned());
    for content in [content("new"), missing] {
        let contents =
            Contents::from([(name("v"), content.map(Ingredients::Files).map_err(Lack::to_mount))]);
        let live = plan(&Goal::Mount(Arc::clone(&volumes)), &observed, &contents, at(900));
        assert!(!live.ops.is_empty() && !live.problems.is_empty());
        let ends = plan(&Goal::Keep(Arc::clone(&volumes)), &observed, &contents, at(900));
        assert_eq!((ends.ops, ends.problems, ends.wake_at), (vec![], vec![], None));
        let VolumeState::Ready(all) = ends.state else { panic!("it waits for nothing") };
        assert_eq!(all.keys().collect::<Vec<_>>(), ["v"]);
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_go_with_their_pod_are_not_missed() {
    for worker_knows in [false, true] {
        let bed = Bed::new();
        let (writer, recorder) = (&bed.writer, &bed.recorder);
        let pod = pod("", "", r#"{"name":"v","configMap":{"name":"c","optional":true}}"#);
        let (pods, desired) = PodSetReader::for_test(&[&pod]);
        let volumes = bed.life_of(&desired);
        writer.replace(Source::File, &[object(ObjectKind::ConfigMap, "c", &[("a", "1")])]);
        volumes.want(&pod);
        let is_ready = |state: &VolumeState| matches!(state, VolumeState::Ready(_));
        let ready = until(&volumes, pod.uid(), is_ready).await;
        let VolumeState::Ready(all) = ready else { panic!("ready") };
        let file = all["v"].host_path.join("a");
        let was = pods.borrow().clone();
        if worker_knows {
            volumes.keep(pod.uid());
        } else {
            pods.send_replace(Arc::new(PodSet { sources_ready: true, ..PodSet::default() }));
        }
        writer.replace(Source::File, &[]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(std::fs::read_to_string(&file).expect("its file stays"), "1");
        assert_eq!(recorder.all().len(), 0);
        if !worker_knows {
            // Its manifest comes back before anybody has ended it.
            writer.add(Source::File, &[object(ObjectKind::ConfigMap, "c", &[("a", "2")])]);
            pods.send_replace(was);
            let refreshed = async {
                while std::fs::read_to_string(&file).is_ok_and(|text| text != "2") {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), refreshed).await.expect("a refresh");
        }
        volumes.release(pod.uid());
        until(&volumes, pod.uid(), |state| *state == VolumeState::Gone).await;
    }
}
