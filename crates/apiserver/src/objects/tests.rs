//! Tables of what objects become.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::json;
use crate::resources::{Resource, Subresource, find, find_kind};

fn context(user: &User) -> Context<'_> {
    Context {
        now: Timestamp::from_second(1000).unwrap(),
        user,
        uid: "u-1".into(),
        suffix: "x7k2p".into(),
    }
}

fn pods() -> &'static Resource {
    find("", "v1", "pods").unwrap()
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "app", "image": "x:1"}]}});
    json_patch::merge(&mut pod["spec"], &spec);
    pod
}

fn made(spec: Value) -> Value {
    let user = User::new("ann", []);
    create(pods(), "default", pod(spec), &context(&user)).unwrap()
}

fn try_create(resource: &Resource, object: Value) -> Result<Value, crate::ApiError> {
    let user = User::new("ann", ["dev"]);
    let namespace = if resource.namespaced { "default" } else { "" };
    create(resource, namespace, object, &context(&user))
}

#[test]
fn a_new_pod_has_metadata_defaults_and_a_first_status() {
    let made = made(json!({"status": {"phase": "Running"}}));
    let metadata = json!({"name": "web", "namespace": "default", "uid": "u-1", "generation": 1,
        "creationTimestamp": "1970-01-01T00:16:40Z"});
    assert_eq!(made["metadata"], metadata);
    assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(made["spec"]["restartPolicy"], "Always");
    assert_eq!(made["spec"]["serviceAccountName"], "default");
}

#[test]
fn quality_of_service() {
    let resources =
        |value: Value| json!({"containers": [{"name": "a", "image": "x", "resources": value}]});
    for (spec, expected) in [
        (resources(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), "Guaranteed"),
        (resources(json!({"limits": {"cpu": "1"}})), "Burstable"),
        (resources(json!({"requests": {"memory": "1"}})), "Burstable"),
        (
            resources(
                json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}),
            ),
            "Burstable",
        ),
        (
            resources(
                json!({"limits": {"cpu": "1000m", "memory": "1Gi"}, "requests": {"cpu": "1"}}),
            ),
            "Guaranteed",
        ),
        (resources(json!({"limits": {"example.com/gpu": "1"}})), "BestEffort"),
    ] {
        assert_eq!(made(spec.clone())["status"]["qosClass"], expected, "{spec}");
    }
}

#[test]
fn names_are_made_and_checked() {
    let config = find("", "v1", "configmaps").unwrap();
    let map =
        |metadata: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let made = try_create(config, map(json!({"generateName": "a-"}))).unwrap();
    assert_eq!(made["metadata"]["name"], "a-x7k2p");
    for (metadata, code) in [
        (json!({}), 422),
        (json!({"name": "Upper"}), 422),
        (json!({"name": "a", "labels": {"a b": "c"}}), 422),
        (json!({"name": "a", "labels": {"a": "-"}}), 422),
        (json!({"name": "a", "namespace": "other"}), 400),
        (json!({"name": "a", "resourceVersion": "3"}), 400),
    ] {
        let error = try_create(config, map(metadata.clone())).unwrap_err();
        assert_eq!(error.code, code, "{metadata}: {error}");
    }
    let wrong = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    assert_eq!(try_create(config, wrong).unwrap_err().code, 400);
}

#[test]
fn a_signing_request_names_its_sender() {
    let requests = find_kind("certificates.k8s.io", "CertificateSigningRequest").unwrap();
    let sent = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "a"},
        "spec": {"request": "x", "signerName": "s", "usages": ["client auth"], "username": "root"},
        "status": {"certificate": "forged"}});
    let made = try_create(requests, sent).unwrap();
    assert_eq!(made["spec"]["username"], "ann");
    assert_eq!(made["spec"]["groups"], json!(["dev"]));
    assert_eq!(made["status"], json!({}));
}

#[test]
fn a_verdict_is_given_once_and_at_its_own_address() {
    let requests = find_kind("certificates.k8s.io", "CertificateSigningRequest").unwrap();
    let request = |conditions: &[&str]| {
        let conditions: Vec<Value> = conditions.iter().map(|word| json!({"type": word})).collect();
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": "a"}, "status": {"conditions": conditions},
            "spec": {"request": "x", "signerName": "s", "usages": ["client auth"]}})
    };
    let words = |object: &Value| -> Vec<String> {
        let conditions = json::items(object, "status.conditions").iter();
        conditions.map(|condition| json::text(condition, "type").to_owned()).collect()
    };
    let (status, approval) = (Some(Subresource::Status), Some(Subresource::Approval));
    for (part, old, new, expected) in [
        (status, &[][..], &["Approved"][..], Some(&[][..])),
        (status, &["Approved"], &["Failed"], Some(&["Approved", "Failed"][..])),
        (approval, &[], &["Approved", "Failed"], Some(&["Approved"])),
        (approval, &["Failed"], &["Denied"], Some(&["Failed", "Denied"])),
        (approval, &["Approved"], &["Approved", "Denied"], None),
        (approval, &["Approved"], &[], None),
    ] {
        let result = update(requests, part, &request(old), request(new)).ok();
        let expected = expected.map(|words| words.iter().map(ToString::to_string).collect());
        assert_eq!(result.as_ref().map(words), expected, "{part:?} {old:?} {new:?}");
    }
}

#[test]
fn each_address_writes_its_part() {
    let old = made(json!({"nodeName": "n1"}));
    let mut new = old.clone();
    new["spec"]["containers"][0]["image"] = "x:2".into();
    new["status"]["phase"] = "Running".into();
    new["metadata"]["uid"] = "other".into();
    let main = update(pods(), None, &old, new.clone()).unwrap();
    assert_eq!(main["spec"]["containers"][0]["image"], "x:2");
    assert_eq!(main["status"]["phase"], "Pending");
    assert_eq!(main["metadata"]["uid"], "u-1");
    assert_eq!(main["metadata"]["generation"], 2);
    let status = update(pods(), Some(Subresource::Status), &old, new).unwrap();
    assert_eq!(status["spec"]["containers"][0]["image"], "x:1");
    assert_eq!(status["status"]["phase"], "Running");
    assert_eq!(status["metadata"]["generation"], 1);
}

#[test]
fn a_pod_keeps_most_of_its_spec() {
    let old = made(json!({"tolerations": [{"key": "a"}]}));
    for (change, fine) in [
        (json!({"tolerations": [{"key": "a"}, {"key": "b"}]}), true),
        (json!({"tolerations": []}), false),
        (json!({"activeDeadlineSeconds": 5}), true),
        (json!({"nodeName": "n2"}), false),
        (json!({"hostNetwork": true}), false),
        (json!({"containers": []}), false),
    ] {
        let mut new = old.clone();
        json_patch::merge(&mut new["spec"], &change);
        assert_eq!(update(pods(), None, &old, new).is_ok(), fine, "{change}");
    }
}

#[test]
fn what_an_update_leaves_out_is_filled_in_again() {
    let old = made(json!({}));
    let mut new = pod(json!({"serviceAccountName": "default", "serviceAccount": "default"}));
    new["metadata"]["labels"] = json!({"a": "b"});
    let updated = update(pods(), None, &old, new).unwrap();
    assert_eq!((&updated["spec"], &updated["metadata"]["generation"]), (&old["spec"], &json!(1)));
    let secrets = find("", "v1", "secrets").unwrap();
    let secret = |data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
        "stringData": data})
    };
    let old = try_create(secrets, secret(json!({"k": "v"}))).unwrap();
    assert_eq!((&old["data"]["k"], &old["type"]), (&json!("dg=="), &json!("Opaque")));
    let new = update(secrets, None, &old, secret(json!({"k": "w"}))).unwrap();
    assert_eq!(new["data"], json!({"k": "dw=="}));
}

#[test]
fn a_resize_changes_resources_alone() {
    let with = |cpu: &str| {
        json!({"containers": [{"name": "app", "image": "x:1",
        "resources": {"requests": {"cpu": cpu}}}]})
    };
    let old = made(with("1"));
    let mut new = old.clone();
    new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2".into();
    let resized = update(pods(), Some(Subresource::Resize), &old, new.clone()).unwrap();
    assert_eq!(resized["spec"], new["spec"]);
    assert_eq!(resized["metadata"]["generation"], 2);
    assert!(update(pods(), None, &old, new.clone()).is_err());
    new["spec"]["containers"][0]["image"] = "x:2".into();
    assert!(update(pods(), Some(Subresource::Resize), &old, new).is_err());
    let mut worse = old.clone();
    json::remove(&mut worse["spec"]["containers"][0], "resources");
    assert!(update(pods(), Some(Subresource::Resize), &old, worse).is_err());
}

#[test]
fn a_pod_is_bound_once() {
    let user = User::new("ann", []);
    let binding = json!({"target": {"kind": "Node", "name": "n1"}});
    let bound = bind(pods(), &made(json!({})), &binding, &context(&user)).unwrap();
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(bind(pods(), &bound, &binding, &context(&user)).unwrap_err().code, 409);
    assert_eq!(bind(pods(), &made(json!({})), &json!({}), &context(&user)).unwrap_err().code, 422);
}

fn plan(object: &Value, grace: Option<i64>) -> String {
    let kind = json::text(object, "kind");
    let resource = find_kind("", kind).unwrap();
    let options = DeleteOptions { grace, ..DeleteOptions::default() };
    match plan_delete(resource, object, &options, Timestamp::from_second(2000).unwrap()) {
        DeletePlan::Remove => "remove".to_owned(),
        DeletePlan::Wait => "wait".to_owned(),
        DeletePlan::Mark(marked) => {
            let (at, grace) = ("metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds");
            format!("mark {} {}", json::text(&marked, at), json::at(&marked, grace))
        }
    }
}

#[test]
fn deletion() {
    let on_node = || made(json!({"nodeName": "n1"}));
    let with = |mut object: Value, path: &str, value: Value| {
        json::set(&mut object, path, value);
        object
    };
    let marked = || {
        let at = with(on_node(), "metadata.deletionTimestamp", "1970-01-01T00:33:40Z".into());
        with(at, "metadata.deletionGracePeriodSeconds", 30.into())
    };
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "a"}});
    for (object, grace, expected) in [
        (made(json!({})), None, "remove"),
        (on_node(), None, "mark 1970-01-01T00:33:50Z 30"),
        (on_node(), Some(5), "mark 1970-01-01T00:33:25Z 5"),
        (on_node(), Some(-3), "mark 1970-01-01T00:33:21Z 1"),
        (on_node(), Some(0), "remove"),
        (with(on_node(), "status.phase", "Succeeded".into()), None, "remove"),
        (marked(), None, "wait"),
        (marked(), Some(60), "wait"),
        (marked(), Some(10), "mark 1970-01-01T00:33:20Z 10"),
        (marked(), Some(2), "mark 1970-01-01T00:33:20Z 1"),
        (marked(), Some(0), "remove"),
        (
            with(marked(), "metadata.finalizers", json!(["f"])),
            Some(0),
            "mark 1970-01-01T00:33:20Z 0",
        ),
        (map.clone(), Some(30), "remove"),
        (
            with(map.clone(), "metadata.finalizers", json!(["f"])),
            None,
            "mark 1970-01-01T00:33:20Z 0",
        ),
    ] {
        assert_eq!(plan(&object, grace), expected, "{grace:?} {object}");
    }
}

#[test]
fn an_object_goes_with_its_last_finalizer() {
    let maps = find("", "v1", "configmaps").unwrap();
    let ending = json!({"metadata": {"deletionTimestamp": "x", "deletionGracePeriodSeconds": 0}});
    assert!(must_go(maps, &ending));
    let mut held = ending.clone();
    held["metadata"]["finalizers"] = json!(["f"]);
    assert!(!must_go(maps, &held));
    assert!(!must_go(maps, &json!({"metadata": {}})));
}

#[test]
fn fields_that_do_not_exist_are_named_and_left_out() {
    let sent = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "x": 1},
        "spec": {"containers": [{"name": "a", "imag": "b", "resources": {"limits": {"cpu": 2}}}]}});
    let decoded = decode("", "Pod", sent).unwrap();
    assert_eq!(decoded.unknown, ["metadata.x", "spec.containers[0].imag"]);
    assert_eq!(decoded.object["spec"]["containers"][0]["resources"]["limits"]["cpu"], "2");
    assert!(decode("", "Pod", json!({"metadata": {"name": 3}})).is_err());
}

#[test]
fn events_have_two_forms() {
    let resource = find("events.k8s.io", "v1", "events").unwrap();
    let shown = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n",
        "regarding": {"kind": "Pod"}, "deprecatedCount": 2});
    let stored = to_storage(resource, shown.clone());
    let core = json!({"apiVersion": "v1", "kind": "Event", "message": "n",
        "involvedObject": {"kind": "Pod"}, "count": 2});
    assert_eq!(stored, core);
    assert_eq!(from_storage(resource, stored), shown);
}
