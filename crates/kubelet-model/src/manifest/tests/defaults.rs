//! Defaults, as upstream fills them in.

use expect_test::expect;

use super::super::{decode, default_pod};
use super::{GOOD, with_container, with_spec};

fn check(text: &str, expected: expect_test::Expect) {
    let mut pod = decode(text.as_bytes()).unwrap().pods.remove(0);
    default_pod(&mut pod);
    let once = serde_json::to_string_pretty(&pod.spec).unwrap();
    default_pod(&mut pod);
    assert_eq!(once, serde_json::to_string_pretty(&pod.spec).unwrap(), "defaulting is idempotent");
    expected.assert_eq(&once);
}

#[test]
fn fills_in_a_small_pod() {
    check(
        GOOD,
        expect![[r#"
        {
          "containers": [
            {
              "image": "registry.k8s.io/pause:3.10",
              "imagePullPolicy": "IfNotPresent",
              "name": "app",
              "terminationMessagePath": "/dev/termination-log",
              "terminationMessagePolicy": "File"
            }
          ],
          "dnsPolicy": "ClusterFirst",
          "enableServiceLinks": true,
          "restartPolicy": "Always",
          "schedulerName": "default-scheduler",
          "securityContext": {},
          "terminationGracePeriodSeconds": 30
        }"#]],
    );
}

#[test]
fn pulls_moving_tags_always() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("localhost:5000/nginx", "Always"),
        ("localhost:5000/nginx:1.2", "IfNotPresent"),
        ("nginx@sha256:00", "IfNotPresent"),
        ("nginx:latest@sha256:00", "Always"),
    ] {
        let text = GOOD.replace("registry.k8s.io/pause:3.10", image);
        let mut pod = decode(text.as_bytes()).unwrap().pods.remove(0);
        default_pod(&mut pod);
        let found = pod.spec.unwrap().containers.remove(0).image_pull_policy;
        assert_eq!(found.as_deref(), Some(policy), "{image}");
    }
}

#[test]
fn fills_in_ports_probes_hooks_and_resources() {
    let text = with_container(
        "ports: [{containerPort: 80}]
livenessProbe: {httpGet: {port: 80}}
readinessProbe: {grpc: {port: 81}}
lifecycle: {preStop: {httpGet: {port: web}}}
resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 100m}}
env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
    );
    check(
        &format!("{text}  hostNetwork: true\n  resources: {{limits: {{memory: 2Gi, cpu: 3}}}}\n"),
        expect![[r#"
        {
          "containers": [
            {
              "env": [
                {
                  "name": "A",
                  "valueFrom": {
                    "fieldRef": {
                      "apiVersion": "v1",
                      "fieldPath": "metadata.name"
                    }
                  }
                }
              ],
              "image": "registry.k8s.io/pause:3.10",
              "imagePullPolicy": "IfNotPresent",
              "lifecycle": {
                "preStop": {
                  "httpGet": {
                    "path": "/",
                    "port": "web",
                    "scheme": "HTTP"
                  }
                }
              },
              "livenessProbe": {
                "failureThreshold": 3,
                "httpGet": {
                  "path": "/",
                  "port": 80,
                  "scheme": "HTTP"
                },
                "periodSeconds": 10,
                "successThreshold": 1,
                "timeoutSeconds": 1
              },
              "name": "app",
              "ports": [
                {
                  "containerPort": 80,
                  "hostPort": 80,
                  "protocol": "TCP"
                }
              ],
              "readinessProbe": {
                "failureThreshold": 3,
                "grpc": {
                  "port": 81,
                  "service": ""
                },
                "periodSeconds": 10,
                "successThreshold": 1,
                "timeoutSeconds": 1
              },
              "resources": {
                "limits": {
                  "cpu": "1",
                  "memory": "1Gi"
                },
                "requests": {
                  "cpu": "100m",
                  "memory": "1Gi"
                }
              },
              "terminationMessagePath": "/dev/termination-log",
              "terminationMessagePolicy": "File"
            }
          ],
          "dnsPolicy": "ClusterFirst",
          "enableServiceLinks": true,
          "hostNetwork": true,
          "resources": {
            "limits": {
              "cpu": "3",
              "memory": "2Gi"
            },
            "requests": {
              "cpu": "100m",
              "memory": "1073741824"
            }
          },
          "restartPolicy": "Always",
          "schedulerName": "default-scheduler",
          "securityContext": {},
          "terminationGracePeriodSeconds": 30
        }"#]],
    );
}

#[test]
fn fills_in_volumes() {
    check(
        &with_spec(
            "volumes:
- name: a
- {name: b, hostPath: {path: /x}}
- {name: c, configMap: {name: c}}
- {name: d, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}}
- {name: e, image: {reference: i}}
- {name: f, iscsi: {iqn: i, lun: 0, targetPortal: p}}",
        ),
        expect![[r#"
            {
              "containers": [
                {
                  "image": "registry.k8s.io/pause:3.10",
                  "imagePullPolicy": "IfNotPresent",
                  "name": "app",
                  "terminationMessagePath": "/dev/termination-log",
                  "terminationMessagePolicy": "File"
                }
              ],
              "dnsPolicy": "ClusterFirst",
              "enableServiceLinks": true,
              "restartPolicy": "Always",
              "schedulerName": "default-scheduler",
              "securityContext": {},
              "terminationGracePeriodSeconds": 30,
              "volumes": [
                {
                  "emptyDir": {},
                  "name": "a"
                },
                {
                  "hostPath": {
                    "path": "/x",
                    "type": ""
                  },
                  "name": "b"
                },
                {
                  "configMap": {
                    "defaultMode": 420,
                    "name": "c"
                  },
                  "name": "c"
                },
                {
                  "name": "d",
                  "projected": {
                    "defaultMode": 420,
                    "sources": [
                      {
                        "serviceAccountToken": {
                          "expirationSeconds": 3600,
                          "path": "t"
                        }
                      },
                      {
                        "downwardAPI": {
                          "items": [
                            {
                              "fieldRef": {
                                "apiVersion": "v1",
                                "fieldPath": "metadata.name"
                              },
                              "path": "p"
                            }
                          ]
                        }
                      }
                    ]
                  }
                },
                {
                  "image": {
                    "pullPolicy": "Always",
                    "reference": "i"
                  },
                  "name": "e"
                },
                {
                  "iscsi": {
                    "iqn": "i",
                    "iscsiInterface": "default",
                    "lun": 0,
                    "targetPortal": "p"
                  },
                  "name": "f"
                }
              ]
            }"#]],
    );
}
