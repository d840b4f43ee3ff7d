//! Merging as tables.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::manifest::{Origin, prepare};
use kubelet_model::pod::{CONFIG_SEEN, CONFIG_SOURCE};
use kubelet_model::{EventObject, PodSet, Source};

use super::super::merge::{Applied, Merger, SourceUpdate};
use super::{manifest, pods_of};

fn pod(text: &str) -> Pod {
    prepare(text.as_bytes(), "n", &Origin::File("/m/a".into())).unwrap().pods.remove(0)
}

/// A pod whose uid does not depend on its content.
fn fixed(name: &str, image: &str, uid: &str) -> Pod {
    let named = format!("name: {name}\n  uid: {uid}\n  annotations: {{image: {image}}}");
    pod(&manifest(name, image).replacen(&format!("name: {name}"), &named, 1))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn apply(merger: &mut Merger, source: Source, pods: &[Pod], second: i64) -> Applied {
    let pods = pods.iter().cloned().map(Arc::new).collect();
    merger.apply(SourceUpdate { source, pods, objects: vec![], complete: true }, at(second))
}

fn annotation(set: &PodSet, key: &str) -> Vec<String> {
    let value = |pod: &Pod| pod.metadata.annotations.as_ref().unwrap()[key].clone();
    set.pods.values().map(|desired| value(desired.pod())).collect()
}

#[test]
fn ready_once_every_configured_source_delivered() {
    assert!(Merger::new([]).snapshot().sources_ready);
    let mut merger = Merger::new([Source::File, Source::Http]);
    assert!(!merger.snapshot().sources_ready);
    assert!(apply(&mut merger, Source::File, &[], 0).changed);
    assert!(!merger.snapshot().sources_ready);
    assert!(apply(&mut merger, Source::Http, &[], 0).changed);
    assert!(merger.snapshot().sources_ready);
    assert!(!apply(&mut merger, Source::Http, &[], 0).changed);
}

#[test]
fn pods_come_go_and_stay_the_same() {
    let mut merger = Merger::new([Source::File]);
    let (a, b) = (pod(&manifest("a", "i")), pod(&manifest("b", "i")));
    assert!(apply(&mut merger, Source::File, &[a.clone(), b.clone()], 1).changed);
    let first = merger.snapshot();
    assert_eq!(pods_of(&first), ["a-n=i", "b-n=i"]);
    assert_eq!(annotation(&first, CONFIG_SOURCE), ["file", "file"]);

    assert!(!apply(&mut merger, Source::File, &[b.clone(), a.clone()], 2).changed);
    for (uid, pod) in &merger.snapshot().pods {
        assert!(Arc::ptr_eq(pod.pod(), first.pods[uid].pod()), "the same object");
    }
    assert!(apply(&mut merger, Source::File, &[b], 3).changed);
    assert_eq!(pods_of(&merger.snapshot()), ["b-n=i"]);
    assert!(apply(&mut merger, Source::File, &[], 4).changed);
    assert!(merger.snapshot().pods.is_empty());
}

#[test]
fn an_edit_is_another_pod_unless_the_uid_is_fixed() {
    let mut merger = Merger::new([Source::File]);
    apply(&mut merger, Source::File, &[pod(&manifest("a", "i"))], 1);
    let before = merger.snapshot();
    apply(&mut merger, Source::File, &[pod(&manifest("a", "j"))], 2);
    assert_ne!(before.pods.keys().next(), merger.snapshot().pods.keys().next());
    assert_eq!(annotation(&merger.snapshot(), CONFIG_SEEN), [at(2).to_string()]);

    apply(&mut merger, Source::File, &[fixed("a", "i", "u1")], 3);
    assert!(apply(&mut merger, Source::File, &[fixed("a", "j", "u1")], 4).changed);
    let set = merger.snapshot();
    assert_eq!(pods_of(&set), ["a-n=j"]);
    assert_eq!(annotation(&set, CONFIG_SEEN), [at(3).to_string()], "first seen stays");
    assert_eq!(annotation(&set, CONFIG_SOURCE), ["file"]);
    assert_eq!(annotation(&set, "image"), ["j"], "annotations follow the manifest");
}

#[test]
fn the_first_of_a_name_or_uid_counts() {
    let mut merger = Merger::new([Source::File, Source::Http]);
    let pods = [fixed("a", "i1", "u1"), fixed("a", "i2", "u2"), fixed("b", "i3", "u1")];
    let applied = apply(&mut merger, Source::File, &pods, 1);
    let left_out: Vec<String> =
        applied.duplicates.iter().map(|one| format!("{} {}", one.full_name, one.uid)).collect();
    assert_eq!(left_out, ["a-n_default u2", "b-n_default u1"]);
    let by_name: Vec<bool> = applied.duplicates.iter().map(|one| one.by_name).collect();
    assert_eq!(by_name, [true, false]);
    assert_eq!(pods_of(&merger.snapshot()), ["a-n=i1"]);
    // Another source may want the name, and workers queue it; a uid is one pod's.
    let applied =
        apply(&mut merger, Source::Http, &[fixed("a", "i4", "u4"), fixed("c", "i5", "u1")], 1);
    assert_eq!(applied.duplicates.len(), 1);
    assert_eq!(pods_of(&merger.snapshot()), ["a-n=i1", "a-n=i4"]);
}

#[test]
fn an_update_tells_what_it_needs_of_the_node() {
    let mut merger = Merger::new([Source::Api]);
    let before = fixed("a", "i", "u");
    let mut after = before.clone();
    let limits = serde_json::json!({"limits": {"cpu": "1"}});
    after.spec.as_mut().unwrap().resources = Some(serde_json::from_value(limits).unwrap());
    assert_eq!(apply(&mut merger, Source::Api, &[before], 1).needs, [], "it is new");
    let needs = apply(&mut merger, Source::Api, &[after.clone()], 2).needs;
    let [(EventObject::Pod { uid, name, .. }, names)] = &needs[..] else { panic!("{needs:?}") };
    assert_eq!((uid.as_str(), name.as_str()), ("u", "a-n"));
    assert_eq!(names[..], ["InPlacePodLevelResourcesVerticalScaling"]);
    assert_eq!(apply(&mut merger, Source::Api, &[after], 3).needs, [], "told once");
}
