//! Copies and mirrors: tables of what is to be done.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, FullName, Source};
use serde_json::json;

use super::mirror_plan::{Step, mirror_of, plan};
use super::{ApiCopies, ApiCopy};

fn pod(name: &str, hash: &str) -> DesiredPod {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("static-{hash}"),
            "annotations": {"kubernetes.io/config.hash": hash}},
        "spec": {"containers": [{"name": "app"}]},
    }))
    .unwrap();
    DesiredPod::new(Source::File, Arc::new(pod)).unwrap()
}

fn copy(name: &str, uid: &str, hash: Option<&str>, revision: &str) -> ApiCopy {
    ApiCopy {
        uid: uid.into(),
        name: name.to_owned(),
        namespace: "ns".to_owned(),
        status: Arc::default(),
        deleted: false,
        mirror: hash.map(str::to_owned),
        revision: revision.to_owned(),
    }
}

fn planned(statics: &[&DesiredPod], mirrors: &[ApiCopy], ending: &[&str]) -> String {
    let mut named = BTreeMap::new();
    for pod in statics {
        named.insert(pod.full_name().clone(), *pod);
    }
    let is_ending = |name: &FullName| ending.iter().any(|other| *name == FullName::of(other, "ns"));
    let step = |step: &Step| match step {
        Step::Create(name) => format!("create {name}"),
        Step::Delete { uid, .. } => format!("delete {uid}"),
    };
    let steps = plan(&named, mirrors, &is_ending);
    steps.iter().map(step).collect::<Vec<_>>().join(", ")
}

#[test]
fn every_static_pod_has_one_mirror_of_its_version() {
    let web = pod("web", "h1");
    let fits = copy("web", "m", Some("h1"), "1");
    let stale = copy("web", "m", Some("h0"), "1");
    let going = ApiCopy { deleted: true, ..fits.clone() };
    assert_eq!(planned(&[&web], &[], &[]), "create web_ns");
    assert_eq!(planned(&[&web], std::slice::from_ref(&fits), &[]), "");
    assert_eq!(planned(&[&web], &[stale], &[]), "delete m");
    assert_eq!(planned(&[&web], &[going], &[]), "delete m");
    assert_eq!(planned(&[], std::slice::from_ref(&fits), &[]), "delete m");
    // While its containers end, users see it end.
    assert_eq!(planned(&[], std::slice::from_ref(&fits), &["web"]), "");
}

#[test]
fn a_mirror_belongs_to_its_node() {
    let mirror = mirror_of(&pod("web", "h1"), "n1", "node-uid");
    let meta = mirror.metadata;
    assert_eq!(meta.annotations.unwrap()["kubernetes.io/config.mirror"], "h1");
    let owners = serde_json::to_value(meta.owner_references).unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid",
        "controller": true}]);
    assert_eq!((meta.uid, owners), (None, owner));
}

#[test]
fn later_versions_count_in_whatever_order_they_come() {
    let copies = ApiCopies::default();
    assert!(!copies.is_known());
    copies.replace([copy("a", "u", None, "5")]);
    copies.put(copy("a", "u", None, "4"));
    copies.update(copy("a", "u", None, "3"));
    assert_eq!(copies.get(&"u".into()).unwrap().revision, "5");
    copies.update(copy("a", "u", None, "10"));
    assert_eq!(copies.get(&"u".into()).unwrap().revision, "10");
    copies.remove(&"u".into());
    // An answer that comes late does not bring it back.
    copies.update(copy("a", "u", None, "11"));
    assert_eq!(copies.get(&"u".into()), None);
}
