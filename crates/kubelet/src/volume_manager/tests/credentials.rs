//! What pods trust, and certificates of their own, as files.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::certificate::{CHAIN, CertificateAsk, KEY};
use kubelet_model::trust::{ANCHORS, TrustAsk};
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, Source};
use serde_json::{Value, json};

use super::super::desired::Wanted;
use super::super::payload::PayloadSpec;
use super::{name, volumes_of};

fn spec(source: &Value, security: &Value, of: Source) -> Arc<PayloadSpec> {
    let pod = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u1"}, "spec": {
        "securityContext": security,
        "containers": [{"name": "app", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "projected": {"sources": [source]}}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pod = DesiredPod::new(of, Arc::new(pod)).unwrap();
    match volumes_of(&pod).unwrap().volumes.remove(&name("v")) {
        Some(Wanted::Payload(spec)) => spec,
        other => panic!("it is {other:?}"),
    }
}

/// What is known of a bundle, and of a certificate.
fn known(key: &ObjectKey) -> Result<Option<Arc<ConfigObject>>, String> {
    let values: &[(&str, &str)] = match (TrustAsk::of(key), CertificateAsk::of(key)) {
        (Some(TrustAsk::Name(name)), _) if name == "roots" => &[(ANCHORS, "anchors")],
        (Some(TrustAsk::Signer { name, .. }), _) if name == "s" => &[(ANCHORS, "all of s")],
        (Some(_), _) => return Ok(None),
        (None, Some(ask)) if ask.signer == "late" => return Err("not issued yet".to_owned()),
        _ => &[(KEY, "key;"), (CHAIN, "chain")],
    };
    let data = values.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
    Ok(Some(Arc::new(ConfigObject {
        key: key.clone(),
        uid: String::new(),
        secret_type: String::new(),
        data: data.collect(),
        binary: BTreeMap::new(),
    })))
}

/// `path mode owner content` of every file, or the error.
fn shown(spec: &PayloadSpec) -> Result<String, String> {
    let content = spec.content(known)?;
    let files = content.payload.files().iter().map(|(path, file)| {
        let owner = file.owner.map_or("-".to_owned(), |owner| owner.to_string());
        format!("{path} {:o} {owner} {}", file.mode, String::from_utf8_lossy(&file.data))
    });
    Ok(files.collect::<Vec<_>>().join("; "))
}

#[test]
fn files_hold_what_was_asked_for() {
    let trust = |of: Value| json!({"clusterTrustBundle": of});
    let certificate = |signer: &str, paths: Value| {
        let mut of = paths;
        of["signerName"] = signer.into();
        of["keyType"] = "ED25519".into();
        json!({"podCertificate": of})
    };
    let all_files = json!({"credentialBundlePath": "both", "keyPath": "d/key",
        "certificateChainPath": "chain"});
    let of_user = json!({"runAsUser": 7});
    let of_group = json!({"fsGroup": 5, "runAsUser": 7});
    let of_nobody = json!({"fsGroup": 5});
    for (source, security, expected) in [
        (trust(json!({"name": "roots", "path": "p"})), &Value::Null, Ok("p 644 - anchors")),
        (trust(json!({"name": "roots", "path": "p"})), &of_user, Ok("p 600 7 anchors")),
        (trust(json!({"name": "roots", "path": "p"})), &of_group, Ok("p 600 7 anchors")),
        (trust(json!({"name": "roots", "path": "p"})), &of_nobody, Ok("p 600 - anchors")),
        (certificate("s", json!({"keyPath": "k"})), &of_group, Ok("k 600 7 key;")),
        (
            trust(json!({"signerName": "s", "labelSelector": {}, "path": "p"})),
            &Value::Null,
            Ok("p 644 - all of s"),
        ),
        (
            trust(json!({"name": "none", "path": "p"})),
            &Value::Null,
            Err("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \
                 \"none\" not found"),
        ),
        (
            trust(json!({"name": "none", "path": "p", "optional": true})),
            &Value::Null,
            Ok("p 644 - "),
        ),
        (
            trust(json!({"signerName": "t", "path": "p", "optional": false})),
            &Value::Null,
            Err("combination of signerName and labelSelector matched zero ClusterTrustBundles"),
        ),
        (
            trust(json!({"path": "p", "optional": true})),
            &Value::Null,
            Err("ClusterTrustBundle projection requires either name or signerName to be set"),
        ),
        (
            certificate("s", all_files.clone()),
            &Value::Null,
            Ok("both 644 - key;chain; chain 644 - chain; d/key 644 - key;"),
        ),
        (certificate("s", json!({"keyPath": "k"})), &of_user, Ok("k 600 7 key;")),
        (certificate("late", all_files), &Value::Null, Err("not issued yet")),
    ] {
        let spec = spec(&source, security, Source::Api);
        assert_eq!(
            spec.objects().count(),
            usize::from(!source.to_string().contains(r#":{"optional":true,"path":"p"}"#))
        );
        assert_eq!(shown(&spec).as_deref().map_err(String::as_str), expected, "{source}");
    }
}

/// Files belong to the user that every container runs as, one that was added later, too.
#[test]
fn a_file_is_of_the_one_user_of_all_containers() {
    let owner = |security: Value, containers: [Option<i64>; 3]| {
        let of = |user: Option<i64>| match user {
            Some(user) => json!({"runAsUser": user}),
            None => Value::Null,
        };
        let [app, init, ephemeral] = containers.map(of);
        let pod = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u1"}, "spec": {
            "securityContext": security,
            "containers": [{"name": "app", "securityContext": app,
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "initContainers": [{"name": "init", "securityContext": init}],
            "ephemeralContainers": [{"name": "debug", "securityContext": ephemeral}],
            "volumes": [{"name": "v", "projected": {"sources":
                [{"clusterTrustBundle": {"name": "roots", "path": "p"}}]}}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let pod = DesiredPod::new(Source::Api, Arc::new(pod)).unwrap();
        match volumes_of(&pod).unwrap().volumes.remove(&name("v")) {
            Some(Wanted::Payload(spec)) => shown(&spec).unwrap(),
            other => panic!("it is {other:?}"),
        }
    };
    for (security, containers, expected) in [
        (json!({}), [Some(7), Some(7), Some(7)], "p 600 7 anchors"),
        (json!({}), [Some(7), Some(7), None], "p 644 - anchors"),
        (json!({"runAsUser": 7}), [None, None, None], "p 600 7 anchors"),
        (json!({"runAsUser": 7}), [None, None, Some(8)], "p 644 - anchors"),
        (json!({"runAsUser": 7, "fsGroup": 5}), [None, None, Some(8)], "p 600 - anchors"),
        (json!({"fsGroup": 5}), [Some(7), Some(7), Some(7)], "p 600 7 anchors"),
    ] {
        assert_eq!(owner(security.clone(), containers), expected, "{security} {containers:?}");
    }
}

#[test]
fn a_node_of_its_own_says_what_is_missing() {
    for (kind, source) in [
        ("clusterTrustBundle", json!({"name": "roots", "path": "p"})),
        ("podCertificate", json!({"signerName": "s", "keyType": "ED25519", "keyPath": "k"})),
    ] {
        let spec = spec(&json!({kind: source}), &Value::Null, Source::File);
        let why = format!("a projected {kind} needs an API server; remove the source");
        assert_eq!(shown(&spec), Err(why));
        assert_eq!(spec.objects().count(), 0);
    }
}
