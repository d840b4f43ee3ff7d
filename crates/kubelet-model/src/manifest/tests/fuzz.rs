//! Hostile text: an answer every time, never a panic, never a flood.

use proptest::prelude::*;

use super::super::{claims, default_pod, unsupported, validate};
use super::{GOOD, file, prepare};
use crate::quantity::Quantity;

/// A manifest that uses many kinds of fields.
const RICH: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {a/b: c}, annotations: {x: 'y'}}
spec:
  hostNetwork: true
  tolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 3}]
  containers:
  - name: app
    image: &i \"nginx:1.2\"
    env: [{name: A, value: \"1\"}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    ports: [{containerPort: 80, name: web}]
    resources: {limits: {cpu: 100m, memory: 1.5Gi}}
    livenessProbe: {httpGet: {port: web, path: /x}, periodSeconds: 3}
    volumeMounts: [{name: v, mountPath: /v, subPath: a/b}]
  - name: other
    image: *i
    lifecycle: {preStop: {sleep: {seconds: 3}}}
  volumes: [{name: v, hostPath: {path: /x, type: Directory}}, {name: w, flexVolume: {driver: d/e}}]
";

/// Pods and objects together, with every way to write a value.
const LIST: &str = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: team}
  spec:
    imagePullSecrets: [{name: login}]
    containers:
    - name: app
      image: registry.k8s.io/pause:3.10
      env: [{name: A, valueFrom: {secretKeyRef: {name: login, key: token}}}]
      envFrom: [{configMapRef: {name: conf}}]
- apiVersion: v1
  kind: Secret
  metadata: {name: login, namespace: team}
  type: kubernetes.io/dockerconfigjson
  data: {.dockerconfigjson: e30=, token: aHVudGVyMg==}
  stringData:
    token: \"hunter2\"
    more: |-
      two
      lines
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: conf, namespace: team, uid: u}
  data: {app.conf: \"a=1\\n\", empty: null}
  binaryData: {logo: AAEC}
  immutable: true
";

/// Prepares, and looks at whatever came out.
fn survive(bytes: &[u8]) {
    let claims = claims(bytes);
    assert!(claims.len() <= 1_000 && claims.iter().all(|claim| !claim.name.is_empty()));
    match prepare(bytes, "node", &file("/m/a.yaml")) {
        Ok(prepared) => {
            for mut pod in prepared.pods {
                assert!(validate(&pod).is_empty() && unsupported(&pod).is_empty());
                default_pod(&mut pod);
            }
        }
        Err(problems) => {
            assert!(!problems.is_empty() && problems.len() <= 51);
            for problem in problems {
                assert!(problem.to_string().len() < 8_000, "a message is bounded");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        survive(&bytes);
    }

    #[test]
    fn any_text(text in "[-a-z0-9:{}\\[\\],&*!|>'\"#%@?~\\\\. \n\t]{0,200}") {
        survive(text.as_bytes());
    }

    #[test]
    fn damaged_manifests(
        seed in prop::sample::select(vec![GOOD, RICH, LIST]),
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..6),
    ) {
        let mut bytes = seed.as_bytes().to_vec();
        for (at, byte, how) in cuts {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                2 => bytes.insert(at, b" \n:-[]{}\"'&*#!|>,0"[usize::from(byte) % 18]),
                _ => bytes.truncate(at),
            }
        }
        survive(&bytes);
    }

    #[test]
    fn nested_values(value in nested()) {
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": value, "spec": value});
        survive(pod.to_string().as_bytes());
        let list = serde_json::json!({"apiVersion": "v1", "kind": "PodList", "items": [value, pod]});
        survive(list.to_string().as_bytes());
        survive(format!("# yaml\n{list}").as_bytes());
        let object = |kind: &str| serde_json::json!({
            "apiVersion": "v1", "kind": kind, "metadata": value, "type": value,
            "data": value, "stringData": value, "binaryData": value,
        });
        let objects = [object("Secret"), object("ConfigMap")];
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        survive(list.to_string().as_bytes());
    }

    #[test]
    fn any_quantity(text in "[-+0-9.eEmkKMGTPinu]{0,40}") {
        let _ = Quantity::parse(&text).map(|q| (q.units(), q.milli()));
    }
}

/// Values made of a Pod's own field names.
fn nested() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[a-zA-Z0-9/:.-]{0,12}".prop_map(Into::into),
    ];
    let keys = prop::sample::select(vec![
        "name",
        "namespace",
        "uid",
        "labels",
        "containers",
        "image",
        "env",
        "ports",
        "volumes",
        "hostPath",
        "path",
        "resources",
        "limits",
        "cpu",
        "tolerations",
        "securityContext",
        "livenessProbe",
        "httpGet",
        "port",
        "projected",
        "sources",
        "initContainers",
        "unknown",
    ]);
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map(keys.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn the_list_is_good() {
    let prepared = prepare(LIST.as_bytes(), "node", &file("/m/a.yaml")).expect("a good list");
    assert_eq!((prepared.pods.len(), prepared.objects.len()), (1, 2));
    assert_eq!(claims(LIST.as_bytes()).len(), 1);
}

#[test]
fn the_rich_manifest_is_only_unsupported() {
    let problems = prepare(RICH.as_bytes(), "node", &file("/m/a.yaml")).unwrap_err();
    for problem in problems {
        assert!(problem.message.starts_with("not supported by this release"), "{problem}");
    }
}
