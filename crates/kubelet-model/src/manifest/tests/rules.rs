//! Validation: every rule with a pod that breaks it.

use expect_test::expect;

use super::super::{decode, default_pod, make_static, validate};
use super::{GOOD, file, with_container, with_spec};

/// Problems of `validate` alone, one per line.
fn check(text: &str, expected: expect_test::Expect) {
    let pod = decode(text.as_bytes()).unwrap().pods.remove(0);
    let mut pod = make_static(pod, "node", &file("/m/a.yaml"));
    default_pod(&mut pod);
    let lines: Vec<String> = validate(&pod).iter().map(ToString::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn good_pod_has_no_problem() {
    check(GOOD, expect![[""]]);
}

#[test]
fn metadata() {
    check(
        &GOOD.replace("name: web", "name: Web_1\n  namespace: a.b\n  uid: ../../etc"),
        expect![[r#"
        metadata.name: must be at most 253 lower-case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit
        metadata.namespace: must be at most 63 lower-case letters, digits and '-', and start and end with a letter or digit
        metadata.uid: must be at most 63 letters, digits and '-', and start and end with a letter or digit; leave it out to have one made"#]],
    );
    check(
        &GOOD.replace(
            "name: web",
            "name: web\n  generation: -1\n  labels: {\"a b\": c, ok: \"-\", x/y/z: v, UPPER.io/x: v}\n  annotations: {\"bad key\": v, Upper/Key: ok}",
        ),
        expect![[r#"
            metadata.labels[UPPER.io/x]: the prefix before '/' must be a DNS name
            metadata.labels[a b]: must be at most 63 letters, digits, '-', '_' and '.', start and end with a letter or digit, and may follow a DNS prefix and '/'
            metadata.labels.ok: must be at most 63 letters, digits, '-', '_' and '.', and start and end with a letter or digit
            metadata.labels[x/y/z]: must be at most 63 letters, digits, '-', '_' and '.', start and end with a letter or digit, and may follow a DNS prefix and '/'
            metadata.annotations[bad key]: must be at most 63 letters, digits, '-', '_' and '.', start and end with a letter or digit, and may follow a DNS prefix and '/'
            metadata.generation: must not be negative"#]],
    );
    check(
        &GOOD.replace("name: web", &format!("name: {}", "a".repeat(240))),
        expect![
            "metadata.name: namespace, name with the node's name, and uid have 286 characters together; the pod's log directory allows 255; use a shorter name"
        ],
    );
    check(
        &GOOD.replace(
            "name: web",
            &format!("name: web\n  annotations: {{a: {}}}", "x".repeat(300_000)),
        ),
        expect!["metadata.annotations: 300058 bytes in total; at most 262144 are allowed"],
    );
}

#[test]
fn containers() {
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n",
        expect!["spec.containers: a pod needs at least one container"],
    );
    check(
        &GOOD.replace("name: app", "name: App"),
        expect![
            "spec.containers[0].name: must be at most 63 lower-case letters, digits and '-', and start and end with a letter or digit"
        ],
    );
    check(
        &GOOD.replace(
            "image: registry.k8s.io/pause:3.10",
            "image: \" x\"\n    imagePullPolicy: Sometimes\n    terminationMessagePolicy: Guess",
        ),
        expect![[r#"
        spec.containers[0].image: " x" has white space at an end
        spec.containers[0].imagePullPolicy: "Sometimes" is not one of Always, IfNotPresent, Never
        spec.containers[0].terminationMessagePolicy: "Guess" is not one of File, FallbackToLogsOnError"#]],
    );
    check(
        &GOOD.replace("    image: registry.k8s.io/pause:3.10\n", ""),
        expect!["spec.containers[0].image: missing"],
    );
    check(
        &with_spec(
            "initContainers: [{name: app, image: i, livenessProbe: {exec: {command: [x]}}}]\nephemeralContainers: [{name: app, image: i, targetContainerName: none, ports: [{containerPort: 1}]}]",
        ),
        expect![[r#"
            spec.initContainers[0].name: "app" is used more than once
            spec.initContainers[0].livenessProbe: an init container has one only with restartPolicy Always
            spec.ephemeralContainers[0].name: "app" is used more than once
            spec.ephemeralContainers[0].targetContainerName: no container is named "none"
            spec.ephemeralContainers[0].ports: an ephemeral container cannot have one"#]],
    );
    check(
        &with_container(
            "restartPolicy: Maybe\nrestartPolicyRules: [{action: Restart, exitCodes: {operator: Near, values: [1]}}]\nresizePolicy: [{resourceName: disk, restartPolicy: X}]",
        ),
        expect![[r#"
        spec.containers[0].restartPolicy: "Maybe" is not one of Always, OnFailure, Never
        spec.containers[0].restartPolicyRules[0].exitCodes.operator: "Near" is not one of In, NotIn
        spec.containers[0].resizePolicy[0].resourceName: "disk" is not one of cpu, memory
        spec.containers[0].resizePolicy[0].restartPolicy: "X" is not one of NotRequired, RestartContainer"#]],
    );
}

#[test]
fn ports() {
    check(
        &with_container(
            "ports:\n- {containerPort: 0}\n- {containerPort: 70000, hostPort: -1, protocol: ICMP, name: UPPER, hostIP: x}\n- {containerPort: 1, name: a}\n- {containerPort: 2, name: a}\n- {containerPort: 3, hostPort: 9}\n- {containerPort: 4, hostPort: 9}\n- {containerPort: 4, hostPort: 9, protocol: UDP}",
        ),
        expect![[r#"
            spec.containers[0].ports[0].containerPort: must be between 1 and 65535
            spec.containers[0].ports[1].name: must be at most 15 lower-case letters, digits and '-', with at least one letter, no '--', and no '-' at either end
            spec.containers[0].ports[1].containerPort: must be between 1 and 65535
            spec.containers[0].ports[1].hostPort: must be between 1 and 65535
            spec.containers[0].ports[1].protocol: "ICMP" is not one of TCP, UDP, SCTP
            spec.containers[0].ports[1].hostIP: "x" is not an IP address
            spec.containers[0].ports[3].name: "a" is used more than once
            spec.containers[0].ports[5].hostPort: TCP port 9 is claimed more than once"#]],
    );
    check(
        &format!(
            "{}  hostNetwork: true\n",
            with_container("ports: [{containerPort: 80, hostPort: 81}]")
        ),
        expect![
            "spec.containers[0].ports[0].containerPort: must equal hostPort when hostNetwork is true"
        ],
    );
}

#[test]
fn environment() {
    check(
        &with_container(
            "env:\n- {name: \"\", value: x}\n- {name: a=b}\n- {name: A, value: v, valueFrom: {fieldRef: {fieldPath: spec.secret}}}\n- {name: B, valueFrom: {}}\n- {name: odd name-1, value: x}\nenvFrom: [{}, {configMapRef: {name: A_B}}]",
        ),
        expect![[r#"
            spec.containers[0].env[0].name: missing
            spec.containers[0].env[1].name: must be printable ASCII without '='
            spec.containers[0].env[2].valueFrom: cannot be set together with value
            spec.containers[0].env[2].valueFrom.fieldRef.fieldPath: "spec.secret" cannot be an environment variable
            spec.containers[0].env[3].valueFrom: must have exactly one source
            spec.containers[0].envFrom[0]: must have exactly one of configMapRef and secretRef
            spec.containers[0].envFrom[1].configMapRef.name: must be at most 253 lower-case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit"#]],
    );
}

#[test]
fn variables_from_files() {
    let text = with_container(
        "env:\n- {name: A, valueFrom: {fileKeyRef: {volumeName: dir, path: /a/b.env, key: odd key, optional: true}}}\n- {name: B, valueFrom: {fileKeyRef: {volumeName: none, path: a/../../b, key: a=b}}}\n- {name: C, valueFrom: {fileKeyRef: {volumeName: host, path: a, key: K}}}\n- {name: D, valueFrom: {fileKeyRef: {volumeName: \"\", path: \"\", key: \"\"}}}\n- {name: E, valueFrom: {fileKeyRef: {volumeName: dir, path: a, key: K}, fieldRef: {fieldPath: metadata.name}}}",
    );
    let volumes =
        "  volumes:\n  - {name: dir, emptyDir: {}}\n  - {name: host, hostPath: {path: /x}}\n";
    check(
        &format!("{text}{volumes}"),
        expect![[r#"
        spec.containers[0].env[1].valueFrom.fileKeyRef.key: must be printable ASCII without '='
        spec.containers[0].env[1].valueFrom.fileKeyRef.path: must not contain '..'
        spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName: no volume is named "none"
        spec.containers[0].env[2].valueFrom.fileKeyRef.volumeName: volume "host" is not an emptyDir
        spec.containers[0].env[3].valueFrom.fileKeyRef.key: missing
        spec.containers[0].env[3].valueFrom.fileKeyRef.path: missing
        spec.containers[0].env[3].valueFrom.fileKeyRef.volumeName: missing
        spec.containers[0].env[4].valueFrom: must have exactly one source"#]],
    );
}

#[test]
fn mounts_and_volumes() {
    let text = with_container(
        "volumeMounts:\n- {name: none, mountPath: /a}\n- {name: v, mountPath: /a, subPath: ../x}\n- {name: v, mountPath: \"\", mountPropagation: Bidirectional, recursiveReadOnly: Enabled}\n- {name: v, mountPath: /b, subPath: a, subPathExpr: /abs}\nvolumeDevices: [{name: v, devicePath: /a}]",
    );
    check(
        &format!(
            "{text}  volumes: [{{name: v, emptyDir: {{sizeLimit: -1}}, hostPath: {{path: /a/../b, type: Odd}}}}, {{name: v}}, {{name: B, nfs: {{}}}}, {{name: m, configMap: {{defaultMode: 01777}}}}]\n"
        ),
        expect![[r#"
            spec.volumes[0]: must have exactly one source, but has "emptyDir, hostPath"
            spec.volumes[0].hostPath.path: must not contain '..'
            spec.volumes[0].hostPath.type: "Odd" is not one of DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, BlockDevice
            spec.volumes[0].emptyDir.sizeLimit: must not be negative
            spec.volumes[1].name: "v" is used more than once
            spec.volumes[2].name: must be at most 63 lower-case letters, digits and '-', and start and end with a letter or digit
            spec.volumes[2].nfs.server: missing
            spec.volumes[2].nfs.path: missing
            spec.volumes[3].configMap.defaultMode: must be between 0 and 0777
            spec.volumes[3].configMap.name: missing
            spec.containers[0].volumeMounts[0].name: no volume is named "none"
            spec.containers[0].volumeMounts[1].name: the volume is already used in volumeDevices
            spec.containers[0].volumeMounts[1].mountPath: "/a" is used more than once
            spec.containers[0].volumeMounts[1].subPath: must not contain '..'
            spec.containers[0].volumeMounts[2].name: the volume is already used in volumeDevices
            spec.containers[0].volumeMounts[2].mountPath: missing
            spec.containers[0].volumeMounts[2].mountPropagation: Bidirectional needs a privileged container
            spec.containers[0].volumeMounts[2].recursiveReadOnly: needs readOnly: true
            spec.containers[0].volumeMounts[3].name: the volume is already used in volumeDevices
            spec.containers[0].volumeMounts[3].subPathExpr: must be a relative path
            spec.containers[0].volumeMounts[3].subPathExpr: cannot be set together with subPath
            spec.containers[0].volumeDevices[0].name: "v" is not a persistent volume claim
            spec.containers[0].volumeDevices[0].devicePath: "/a" is used more than once"#]],
    );
    let text = with_container(
        "volumeMounts:\n- {name: data, mountPath: /a, subPath: /abs}\n- {name: data, mountPath: /a}\n- {name: dates, mountPath: /b, subPath: a/../b}",
    );
    check(
        &format!(
            "{text}  volumes: [{{name: data, image: {{pullPolicy: Often}}}}, {{name: data, image: {{reference: i}}}}, {{name: two, image: {{reference: i}}, emptyDir: {{}}}}]\n"
        ),
        expect![[r#"
            spec.volumes[0].image.pullPolicy: "Often" is not one of Always, IfNotPresent, Never
            spec.volumes[0].image.reference: missing
            spec.volumes[1].name: "data" is used more than once
            spec.volumes[2]: must have exactly one source, but has "emptyDir, image"
            spec.containers[0].volumeMounts[0].subPath: must be a relative path
            spec.containers[0].volumeMounts[1].mountPath: "/a" is used more than once
            spec.containers[0].volumeMounts[2].name: no volume is named "dates"
            spec.containers[0].volumeMounts[2].subPath: must not contain '..'"#]],
    );
}

#[test]
fn resources() {
    check(
        &with_container(
            "resources:\n  limits: {cpu: 1, memory: lots, gpu: 1, example.com/gpu: 2}\n  requests: {cpu: 1001m, memory: 1Gi, example.com/gpu: 1, hugepages-2Mi: 4Mi}\n  claims: [{name: c}]",
        ),
        expect![[r#"
            spec.containers[0].resources.limits.gpu: not a resource of containers; others are written as domain/name
            spec.containers[0].resources.limits.memory: "lots" is not a quantity such as 100m, 2 or 1.5Gi
            spec.containers[0].resources.requests.cpu: is more than the limit of "1"
            spec.containers[0].resources.requests[example.com/gpu]: must equal the limit of "2"
            spec.containers[0].resources.requests.gpu: not a resource of containers; others are written as domain/name
            spec.containers[0].resources.requests[hugepages-2Mi]: needs an equal limit
            spec.containers[0].resources.claims[0].name: no resource claim is named "c""#]],
    );
}

#[test]
fn probes_and_hooks() {
    check(
        &with_container(
            "livenessProbe: {successThreshold: 2, periodSeconds: -1, terminationGracePeriodSeconds: 0}\nreadinessProbe: {exec: {}, tcpSocket: {port: 0}, terminationGracePeriodSeconds: 3}\nstartupProbe: {httpGet: {port: Bad_Name, scheme: FTP, httpHeaders: [{name: \"a b\", value: x}]}}\nlifecycle: {postStart: {}, preStop: {sleep: {seconds: 31}}}",
        ),
        expect![[r#"
            spec.containers[0].livenessProbe: must have exactly one of exec, grpc, httpGet or tcpSocket
            spec.containers[0].livenessProbe.periodSeconds: must not be negative
            spec.containers[0].livenessProbe.successThreshold: must be 1
            spec.containers[0].livenessProbe.terminationGracePeriodSeconds: must be more than 0
            spec.containers[0].readinessProbe: must have exactly one of exec, grpc, httpGet or tcpSocket
            spec.containers[0].readinessProbe.exec.command: missing
            spec.containers[0].readinessProbe.tcpSocket.port: must be between 1 and 65535
            spec.containers[0].startupProbe.httpGet.port: must be at most 15 lower-case letters, digits and '-', with at least one letter, no '--', and no '-' at either end
            spec.containers[0].startupProbe.httpGet.scheme: "FTP" is not one of HTTP, HTTPS
            spec.containers[0].startupProbe.httpGet.httpHeaders[0].name: must be letters, digits and '-'
            spec.containers[0].readinessProbe.terminationGracePeriodSeconds: a readiness probe cannot have one
            spec.containers[0].lifecycle.postStart: must have exactly one of exec, httpGet, sleep or tcpSocket
            spec.containers[0].lifecycle.preStop.sleep.seconds: must be between 0 and terminationGracePeriodSeconds"#]],
    );
}

#[test]
fn pod_wide_fields() {
    check(
        &with_spec(
            "restartPolicy: Sometimes\ndnsPolicy: Best\nterminationGracePeriodSeconds: -1\nactiveDeadlineSeconds: 0\nhostname: a.b\nsubdomain: B\npreemptionPolicy: X\npriorityClassName: A_B\noverhead: {cpu: x}\nhostAliases: [{ip: x, hostnames: [A]}]",
        ),
        expect![[r#"
            spec.restartPolicy: "Sometimes" is not one of Always, OnFailure, Never
            spec.preemptionPolicy: "X" is not one of PreemptLowerPriority, Never
            spec.terminationGracePeriodSeconds: must not be negative
            spec.activeDeadlineSeconds: must be between 1 and 2147483647
            spec.overhead.cpu: "x" is not a quantity such as 100m, 2 or 1.5Gi
            spec.dnsPolicy: "Best" is not one of ClusterFirst, ClusterFirstWithHostNet, Default, None
            spec.hostAliases[0].ip: "x" is not an IP address
            spec.hostAliases[0].hostnames[0]: must be at most 253 lower-case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit
            spec.hostname: must be at most 63 lower-case letters, digits and '-', and start and end with a letter or digit
            spec.subdomain: must be at most 63 lower-case letters, digits and '-', and start and end with a letter or digit
            spec.priorityClassName: must be at most 253 lower-case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit"#]],
    );
    check(
        &with_spec("dnsPolicy: None"),
        expect!["spec.dnsConfig.nameservers: needs at least one when dnsPolicy is None"],
    );
    check(
        &with_spec(&format!(
            "dnsConfig: {{nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, x], searches: [{}], options: [{{}}]}}",
            vec!["_a.b."; 33].join(", ")
        )),
        expect![[r#"
            spec.dnsConfig.nameservers: at most 3 are allowed
            spec.dnsConfig.nameservers[3]: "x" is not an IP address
            spec.dnsConfig.searches: at most 32 are allowed
            spec.dnsConfig.options[0].name: missing"#]],
    );
    check(
        &with_spec(
            "tolerations:\n- {operator: Equal, value: v}\n- {key: k, operator: Exists, value: v}\n- {key: a b, operator: Near, effect: Never}\n- {key: k, tolerationSeconds: 3}\nnodeSelector: {\"a b\": \"-\"}\ntopologySpreadConstraints: [{maxSkew: 0, topologyKey: \"\", whenUnsatisfiable: X}]",
        ),
        expect![[r#"
            spec.tolerations[0].operator: must be Exists when there is no key
            spec.tolerations[1].value: must be empty when operator is Exists
            spec.tolerations[2].key: must be at most 63 letters, digits, '-', '_' and '.', start and end with a letter or digit, and may follow a DNS prefix and '/'
            spec.tolerations[2].operator: "Near" is not one of Equal, Exists
            spec.tolerations[2].effect: "Never" is not one of NoSchedule, PreferNoSchedule, NoExecute
            spec.tolerations[3].effect: must be NoExecute when tolerationSeconds is set
            spec.nodeSelector[a b]: must be at most 63 letters, digits, '-', '_' and '.', start and end with a letter or digit, and may follow a DNS prefix and '/'
            spec.nodeSelector[a b]: must be at most 63 letters, digits, '-', '_' and '.', and start and end with a letter or digit
            spec.topologySpreadConstraints[0].maxSkew: must be more than 0
            spec.topologySpreadConstraints[0].topologyKey: must be at most 63 letters, digits, '-', '_' and '.', start and end with a letter or digit, and may follow a DNS prefix and '/'
            spec.topologySpreadConstraints[0].whenUnsatisfiable: "X" is not one of DoNotSchedule, ScheduleAnyway"#]],
    );
}

#[test]
fn security() {
    let text = with_container(
        "securityContext: {privileged: true, allowPrivilegeEscalation: false, runAsUser: -1, procMount: Unmasked, capabilities: {add: [CAP_SYS_ADMIN]}, seccompProfile: {type: Localhost}}",
    );
    check(
        &format!(
            "{text}  hostPID: true\n  shareProcessNamespace: true\n  hostUsers: false\n  securityContext: {{fsGroup: -1, sysctls: [{{name: a.b, value: x}}, {{name: a.b, value: w}}, {{name: A B, value: z}}], seccompProfile: {{type: Odd}}, supplementalGroups: [-1]}}\n"
        ),
        expect![[r#"
            spec.containers[0].securityContext.runAsUser: must be between 0 and 2147483647
            spec.containers[0].securityContext.seccompProfile.localhostProfile: missing
            spec.containers[0].securityContext.allowPrivilegeEscalation: cannot be false when privileged is true
            spec.containers[0].securityContext.allowPrivilegeEscalation: cannot be false when CAP_SYS_ADMIN is added
            spec.shareProcessNamespace: cannot be true together with hostPID
            spec.hostPID: cannot be true when hostUsers is false
            spec.securityContext.fsGroup: must be between 0 and 2147483647
            spec.securityContext.supplementalGroups[0]: must be between 0 and 2147483647
            spec.securityContext.seccompProfile.type: "Odd" is not one of Localhost, RuntimeDefault, Unconfined
            spec.securityContext.sysctls[1].name: "a.b" is used more than once
            spec.securityContext.sysctls[2].name: must be lower-case names joined by '.' or '/'"#]],
    );
}

#[test]
fn restart_rules_signals_and_profiles() {
    check(
        &with_container(
            "restartPolicyRules: [{action: Restart}, {action: Jump, exitCodes: {operator: In, values: [1]}}]\nlifecycle: {stopSignal: SIGNOT}\nresizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]\nsecurityContext: {appArmorProfile: {type: Localhost}}",
        )
        .replace("spec:", "spec:\n  restartPolicy: Never"),
        expect![[r#"
            spec.containers[0].securityContext.appArmorProfile.localhostProfile: missing
            spec.containers[0].restartPolicyRules: needs restartPolicy on the same container
            spec.containers[0].restartPolicyRules[0].exitCodes: missing
            spec.containers[0].restartPolicyRules[1].action: "Jump" is not one of Restart, RestartAllContainers
            spec.containers[0].resizePolicy[0].restartPolicy: must be NotRequired when the pod's restartPolicy is Never
            spec.containers[0].lifecycle.stopSignal: needs spec.os.name
            spec.containers[0].lifecycle.stopSignal: "SIGNOT" is no signal such as SIGTERM or SIGRTMIN+3"#]],
    );
    check(
        &with_spec(
            "os: {name: linux}\nsecurityContext: {appArmorProfile: {type: Unconfined, localhostProfile: x}}\ninitContainers: [{name: i, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]\nephemeralContainers: [{name: e, image: e, restartPolicyRules: [{action: Restart, exitCodes: {operator: In}}]}]",
        ),
        expect![[r#"
            spec.initContainers[0].resizePolicy[0].restartPolicy: RestartContainer needs restartPolicy Always on an init container
            spec.ephemeralContainers[0].restartPolicyRules: needs restartPolicy on the same container
            spec.ephemeralContainers[0].restartPolicyRules: an ephemeral container cannot have one
            spec.securityContext.appArmorProfile.localhostProfile: is only for type Localhost"#]],
    );
    let key = "container.apparmor.security.beta.kubernetes.io";
    check(
        &GOOD.replace(
            "name: web",
            &format!("name: web\n  annotations: {{{key}/app: odd, {key}/none: unconfined}}"),
        ),
        expect![[r#"
            metadata.annotations[container.apparmor.security.beta.kubernetes.io/app]: "odd" is not runtime/default, unconfined or localhost/NAME
            metadata.annotations[container.apparmor.security.beta.kubernetes.io/none]: no container is named "none""#]],
    );
}

#[test]
fn resources_of_the_pod_and_variables_from_them() {
    let text = with_container(
        "resources: {limits: {cpu: 3, hugepages-2Mi: 4Mi}}\nenv:\n- {name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 2m}}}\n- {name: B, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}\n- {name: C, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a b']\"}}}\n- {name: D, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}",
    );
    check(
        &format!(
            "{text}  resources: {{limits: {{cpu: 2, hugepages-2Mi: 2Mi, ephemeral-storage: 1}}, requests: {{cpu: 1}}, claims: []}}\n"
        ),
        expect![[r#"
            spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: "2m" is not one of 1m, 1
            spec.containers[0].env[1].valueFrom.resourceFieldRef.resource: "limits.gpu" cannot be an environment variable
            spec.containers[0].env[2].valueFrom.fieldRef.fieldPath: must be at most 63 letters, digits, '-', '_' and '.', start and end with a letter or digit, and may follow a DNS prefix and '/'
            spec.resources.claims: a pod's own resources cannot have claims
            spec.resources.limits[ephemeral-storage]: only cpu, memory and hugepages can be given to the whole pod
            spec.resources.requests.cpu: must be at least what the containers request together
            spec.resources.requests[hugepages-2Mi]: must be at least what the containers request together
            spec.containers[0].resources.limits.cpu: is more than the pod's limit of "2"
            spec.resources.limits[hugepages-2Mi]: must be at least the containers' limits together
            spec.containers[0].resources.limits[hugepages-2Mi]: is more than the pod's limit of "2Mi""#]],
    );
}
