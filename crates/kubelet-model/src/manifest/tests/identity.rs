//! Static-pod identity: stable, unique, and different after any edit.

use expect_test::expect;
use proptest::prelude::*;

use super::super::{Origin, Problem, prepare};
use super::{GOOD, file, prepare_text};

fn uid(text: &str, node: &str, origin: &Origin) -> String {
    let prepared = prepare(text.as_bytes(), node, origin).unwrap();
    prepared.pods[0].metadata.uid.clone().unwrap()
}

#[test]
fn a_static_pod_belongs_to_its_node() {
    let pod = prepare_text(GOOD).unwrap().pods.remove(0);
    let spec = pod.spec.as_ref().unwrap();
    expect![[r#"
        {"annotations":{"kubernetes.io/config.hash":"0cd9f5e6441ff927778c9d0ff8982a62"},"name":"web-node-1","namespace":"default","uid":"0cd9f5e6441ff927778c9d0ff8982a62"}
        Some("node-1")
        "[{\"effect\":\"NoExecute\",\"operator\":\"Exists\"}]"
        "{\"phase\":\"Pending\"}""#]].assert_eq(&format!(
        "{}\n{:?}\n{:?}\n{:?}",
        serde_json::to_string(&pod.metadata).unwrap(),
        spec.node_name,
        serde_json::to_string(&spec.tolerations).unwrap(),
        serde_json::to_string(&pod.status).unwrap(),
    ));
}

#[test]
fn a_pod_from_a_url_gets_no_toleration() {
    let origin = Origin::Url("http://x/pods".into());
    let pod = prepare(GOOD.as_bytes(), "n", &origin).unwrap().pods.remove(0);
    assert_eq!(pod.spec.unwrap().tolerations, None);
}

#[test]
fn uid_depends_on_pod_node_and_path() {
    let here = uid(GOOD, "n1", &file("/m/a"));
    // Comments, order and form are not the pod.
    let json =
        serde_json::to_string(&super::super::decode(GOOD.as_bytes()).unwrap().pods[0]).unwrap();
    assert_eq!(here, uid(&json, "n1", &file("/m/a")));
    assert_eq!(here, uid(&format!("# hi\n{GOOD}"), "n1", &file("/m/a")));
    assert_ne!(here, uid(GOOD, "n2", &file("/m/a")));
    assert_ne!(here, uid(GOOD, "n1", &file("/m/b")));
    assert_ne!(here, uid(&GOOD.replace("3.10", "3.9"), "n1", &file("/m/a")));
    assert_ne!(here, uid(GOOD, "n1", &Origin::Url("http://x".into())));
}

#[test]
fn a_given_uid_is_kept_and_checked() {
    let with = |uid: &str| GOOD.replace("name: web", &format!("name: web\n  uid: {uid}"));
    let text = with("0a1b-2c");
    assert_eq!(uid(&text, "n", &file("/a")), "0a1b-2c");
    let problems = prepare_text(&with("../x")).unwrap_err();
    expect!["line 5, column 8: metadata.uid: must be at most 63 letters, digits and '-', and start and end with a letter or digit; leave it out to have one made"].assert_eq(&problems.iter().map(Problem::to_string).collect::<String>());
}

#[test]
fn a_pod_needs_a_name() {
    let problems = prepare_text(&GOOD.replace("name: web", "namespace: a")).unwrap_err();
    expect!["line 4, column 3: metadata.name: missing"]
        .assert_eq(&problems.iter().map(Problem::to_string).collect::<String>());
}

proptest! {
    #[test]
    fn uids_are_stable_and_tell_pods_apart(a in "[a-z]{1,8}", b in "[a-z]{1,8}", node in "[a-z]{1,8}") {
        let text = |value: &str| GOOD.replace("name: app", &format!("name: app\n    args: [v{value}]"));
        let (first, again) = (uid(&text(&a), &node, &file("/m")), uid(&text(&a), &node, &file("/m")));
        prop_assert_eq!(&first, &again);
        prop_assert_eq!(first.len(), 32);
        prop_assert_eq!(a == b, first == uid(&text(&b), &node, &file("/m")));
    }
}
