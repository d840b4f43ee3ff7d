//! Fields this release refuses, and references a static pod may not have.

use expect_test::expect;

use super::{GOOD, check, prepare_text, with_container, with_spec};

#[test]
fn everything_this_release_acts_on_passes() {
    let text = with_container(
        "command: [a]\nargs: [b]\nworkingDir: /\nenv: [{name: A, value: b}, {name: EMPTY}]\nports: [{containerPort: 80, hostPort: 80}]\nimagePullPolicy: Never\nstdin: true\nstdinOnce: true\ntty: true\nterminationMessagePath: /dev/termination-log\nterminationMessagePolicy: File\nresources: {limits: {cpu: 1, memory: 1Gi}}\nsecurityContext: {}\nlifecycle: {}",
    );
    check(
        &format!(
            "{text}  restartPolicy: OnFailure\n  terminationGracePeriodSeconds: 5\n  hostNetwork: true\n  hostPID: true\n  hostIPC: true\n  nodeName: x\n  hostname: h\n  dnsPolicy: Default\n  enableServiceLinks: false\n  schedulerName: s\n  tolerations: [{{operator: Exists}}]\n  priority: 5\n  priorityClassName: system-node-critical\n  automountServiceAccountToken: false\n  nodeSelector: {{a: b}}\n  affinity: {{nodeAffinity: {{}}}}\n  preemptionPolicy: Never\n  securityContext: {{}}\n  volumes: []\n  hostUsers: true\n  os: {{name: linux}}\n"
        ),
        expect!["pod default/web-node-1"],
    );
    check(
        &with_spec(
            "shareProcessNamespace: true\ntopologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
        ),
        expect!["pod default/web-node-1"],
    );
}

/// Everything that any kind of container may have.
const CONTAINER: &str = "\
terminationMessagePath: /x
terminationMessagePolicy: FallbackToLogsOnError
env:
- {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: B, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi, divisor: 1Mi}}}
securityContext:
  allowPrivilegeEscalation: false
  appArmorProfile: {type: RuntimeDefault}
  capabilities: {add: [NET_ADMIN], drop: [ALL]}
  privileged: false
  procMount: Default
  readOnlyRootFilesystem: true
  runAsGroup: 1
  runAsNonRoot: true
  runAsUser: 1
  seLinuxOptions: {level: s0}
  seccompProfile: {type: Unconfined}
";

/// What regular containers and sidecars may have besides.
const LIVELY: &str = "\
livenessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 3}
readinessProbe: {httpGet: {port: 80}, successThreshold: 2}
startupProbe: {grpc: {port: 80}}
lifecycle: {postStart: {tcpSocket: {port: 80}}, preStop: {sleep: {seconds: 3}}, stopSignal: SIGRTMIN+3}
resources: {limits: {hugepages-2Mi: 2Mi, cpu: 1}, requests: {memory: 1}}
restartPolicy: Always
restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [3]}}]
resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]
";

#[test]
fn every_kind_of_container_passes() {
    let item = |name: &str, fields: &str| {
        let fields: String = fields.lines().map(|line| format!("    {line}\n")).collect();
        format!("  - name: {name}\n    image: i\n{fields}")
    };
    let text = with_container(&format!("{CONTAINER}{LIVELY}"));
    let sidecar = item("sidecar", &format!("{CONTAINER}{LIVELY}"));
    let init = item("init", &format!("{CONTAINER}restartPolicy: OnFailure"));
    check(
        &format!("{text}  initContainers:\n{sidecar}{init}  os: {{name: linux}}\n"),
        expect!["pod default/web-node-1"],
    );
    let ephemeral = item("look", &format!("{CONTAINER}targetContainerName: app"));
    check(
        &format!("{GOOD}  ephemeralContainers:\n{ephemeral}"),
        expect![[
            r#"line 10, column 5: spec.ephemeralContainers: cannot be set on create: they are added to a pod that runs, through an API server"#
        ]],
    );
}

#[test]
fn what_a_pod_may_ask_for_passes() {
    check(
        &with_spec(
            "activeDeadlineSeconds: 5\nsubdomain: s\nsetHostnameAsFQDN: true\nhostAliases: [{ip: 1.1.1.1, hostnames: [a]}]\nhostUsers: false\nreadinessGates: [{conditionType: a/b}]\noverhead: {cpu: 1}\ndnsConfig: {nameservers: [1.1.1.1], searches: [a.b], options: [{name: ndots, value: '2'}]}\nresources: {limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 2Mi}}\nruntimeClassName: kata\nsecurityContext: {runAsUser: 1, runAsGroup: 1, runAsNonRoot: true, fsGroup: 1, fsGroupChangePolicy: Always, supplementalGroups: [1], supplementalGroupsPolicy: Strict, seLinuxOptions: {level: s0}, seLinuxChangePolicy: MountOption, seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: Unconfined}, sysctls: [{name: net/ipv4/tcp_syncookies, value: '1'}]}",
        ),
        expect!["pod default/web-node-1"],
    );
    check(&with_spec("hostnameOverride: a.b"), expect!["pod default/web-node-1"]);
}

#[test]
fn of_volumes_images_empty_dirs_and_host_paths_pass() {
    let mounts = "volumeMounts: [{name: data, mountPath: /data, subPath: a/b, readOnly: true, recursiveReadOnly: Enabled}, {name: data, mountPath: all, subPathExpr: $(A), mountPropagation: HostToContainer}, {name: image, mountPath: /i, subPath: a/b}]";
    let volumes = "volumes: [{name: data, emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {name: more, emptyDir: {medium: HugePages-2Mi}}, {name: bare}, {name: host, hostPath: {path: /x, type: Directory}}, {name: image, image: {reference: r.io/data:1, pullPolicy: Always}}]\n";
    check(&format!("{}  {volumes}", with_container(mounts)), expect!["pod default/web-node-1"]);
    let init = format!("initContainers:\n- name: i\n  image: i\n  {mounts}\n{volumes}");
    check(&with_spec(&init), expect!["pod default/web-node-1"]);
    check(
        &with_spec(
            "volumes:\n- {name: a, emptyDir: {sizeLimit: 1Gi}}\n- {name: b, emptyDir: {medium: HugePages, sizeLimit: 1Gi}}\n- {name: c, downwardAPI: {}}\n- {name: d, gitRepo: {repository: r}}",
        ),
        expect![[r#"
            line 13, column 24: spec.volumes[3].gitRepo: not supported by this release; removed from Kubernetes: clone in an init container instead"#]],
    );
}

/// None is run as something else, and each says what became of it.
#[test]
fn volumes_that_kubernetes_gave_up_are_refused_with_the_reason() {
    let migrated = "Kubernetes has it only by migration to CSI";
    let removed = "removed from Kubernetes: use a CSI driver instead";
    for (source, expected) in [
        ("awsElasticBlockStore: {volumeID: v}", migrated),
        ("azureDisk: {diskName: d, diskURI: u}", migrated),
        ("cinder: {volumeID: v}", migrated),
        ("gcePersistentDisk: {pdName: d}", migrated),
        ("portworxVolume: {volumeID: v}", migrated),
        ("vsphereVolume: {volumePath: p}", migrated),
        ("cephfs: {monitors: [m]}", removed),
        ("flocker: {datasetName: d}", removed),
        ("photonPersistentDisk: {pdID: d}", removed),
        ("quobyte: {registry: 'r:1', volume: v}", removed),
        ("rbd: {image: i, monitors: [m]}", removed),
        ("storageos: {volumeName: v}", removed),
        ("gitRepo: {repository: r}", "clone in an init container"),
        ("flexVolume: {driver: d/e}", "deprecated in Kubernetes"),
    ] {
        let text = with_spec(&format!("volumes: [{{name: v, {source}}}]"));
        let problems = prepare_text(&text).expect_err("refused");
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(all.len() == 1 && all[0].contains(expected), "{source}: {all:?}");
    }
}

/// With upstream's rules, in pods and in PersistentVolumes.
#[test]
fn volumes_on_other_machines_pass_if_they_are_whole() {
    let good = "volumes: [{name: a, nfs: {server: '::1', path: /p, readOnly: true}}, {name: b, iscsi: {targetPortal: 10.0.0.1, iqn: 'iqn.2003-01.com.example:x', lun: 255, chapAuthSession: true, secretRef: {name: chap}}}, {name: c, fc: {targetWWNs: ['500a09'], lun: 0}}, {name: d, fc: {wwids: [3600508b4]}}]";
    check(&with_spec(good), expect!["pod default/web-node-1"]);
    let iscsi =
        |more: &str| format!("iscsi: {{targetPortal: p, iqn: 'eui.0123456789abcdef', {more}}}");
    for (source, expected) in [
        ("nfs: {server: '', path: /p}".to_owned(), "nfs.server: missing"),
        ("nfs: {server: '-o', path: /p}".to_owned(), "nfs.server: must be"),
        ("nfs: {server: s, path: p}".to_owned(), "nfs.path: must be an absolute path"),
        ("nfs: {server: s, path: /a/../b}".to_owned(), "nfs.path: must not contain '..'"),
        (iscsi("lun: 256"), "iscsi.lun: must be between 0 and 255"),
        (iscsi("lun: -1"), "iscsi.lun: must be between 0 and 255"),
        (iscsi("lun: 0, chapAuthDiscovery: true"), "iscsi.secretRef: missing"),
        (iscsi("lun: 0, iscsiInterface: ../x"), "iscsi.iscsiInterface: must not contain '/'"),
        (iscsi("lun: 0, portals: [a/b]"), "iscsi.portals[0]: must not contain '/'"),
        (iscsi("lun: 0, initiatorName: me"), "iscsi.initiatorName: must start with"),
        ("iscsi: {targetPortal: '', iqn: x, lun: 0}".to_owned(), "iscsi.targetPortal: missing"),
        ("iscsi: {targetPortal: p, iqn: x, lun: 0}".to_owned(), "iscsi.iqn: must start with"),
        ("fc: {}".to_owned(), "either targetWWNs or wwids"),
        ("fc: {targetWWNs: [a], wwids: [b], lun: 0}".to_owned(), "either targetWWNs or wwids"),
        ("fc: {targetWWNs: [a]}".to_owned(), "fc.lun: missing"),
        ("fc: {targetWWNs: [a], lun: 256}".to_owned(), "fc.lun: must be between 0 and 255"),
        ("fc: {wwids: [a/b]}".to_owned(), "fc.wwids[0]: must not contain '/'"),
    ] {
        let pod = with_spec(&format!("volumes: [{{name: v, {source}}}]"));
        let volume = format!(
            "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: pv}}\nspec: \
             {{accessModes: [ReadWriteOnce], {source}}}\n"
        );
        for text in [pod, volume] {
            let problems = prepare_text(&text).expect_err("refused");
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert!(all.iter().any(|one| one.contains(expected)), "{text}: {all:?}");
        }
    }
}

#[test]
fn refuses_every_other_field() {
    check(
        &with_container(
            "env: [{name: B, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage}}}]\nresources: {limits: {example.com/gpu: 1, ephemeral-storage: 1Gi, cpu: 1}}\nsecurityContext: {windowsOptions: {hostProcess: true}}",
        ),
        expect![[r#"
            line 10, column 43: spec.containers[0].resources.limits[example.com/gpu]: not supported by this release
            line 10, column 16: spec.containers[0].resources.requests[example.com/gpu]: not supported by this release
            line 11, column 39: spec.containers[0].securityContext.windowsOptions: not supported by this release"#]],
    );
    check(
        &with_spec(
            "volumes: [{name: v, flexVolume: {driver: d/e}}]\nschedulingGates: [{name: a}]\nos: {name: windows}",
        ),
        expect![[r#"
            line 9, column 35: spec.volumes[0].flexVolume: not supported by this release; deprecated in Kubernetes: use a CSI driver instead
            line 10, column 20: spec.schedulingGates: not supported by this release
            line 11, column 14: spec.os.name: not supported by this release"#]],
    );
    check(
        &GOOD.replace("name: web", "name: web\n  generateName: x\n  finalizers: [a/b]\n  deletionGracePeriodSeconds: 0\n  ownerReferences: [{apiVersion: v1, kind: Node, name: node, uid: u}]\n  annotations: {kubernetes.io/config.mirror: x}"),
        expect![[r#"
            line 5, column 17: metadata.generateName: not supported by this release
            line 6, column 15: metadata.finalizers: not supported by this release
            line 7, column 31: metadata.deletionGracePeriodSeconds: not supported by this release
            line 8, column 20: metadata.ownerReferences: not supported by this release
            line 9, column 46: metadata.annotations[kubernetes.io/config.mirror]: marks a mirror pod, which only an API server holds; remove it"#]],
    );
}

#[test]
fn refuses_references_to_api_objects() {
    let text = with_container(
        "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]\nenvFrom: [{configMapRef: {name: c}}]",
    );
    check(
        &format!(
            "{text}  serviceAccountName: sa\n  imagePullSecrets: [{{name: s}}]\n  resourceClaims: [{{name: c, resourceClaimName: r}}]\n  volumes:\n  - {{name: a, configMap: {{name: c}}}}\n  - {{name: b, secret: {{secretName: s}}}}\n  - {{name: c, csi: {{driver: d}}}}\n  - {{name: d, persistentVolumeClaim: {{claimName: p}}}}\n  - {{name: e, projected: {{sources: [{{serviceAccountToken: {{path: p}}}}, {{}}]}}}}\n  - {{name: f, azureFile: {{secretName: s, shareName: t}}}}\n  - {{name: g, hostPath: {{path: /x}}}}\n"
        ),
        expect![[r#"
            line 11, column 23: spec.serviceAccountName: static pods may not reference serviceaccounts: they need an API server
            line 13, column 19: spec.resourceClaims: static pods may not reference resourceclaims: they need an API server
            line 19, column 37: spec.volumes[4].projected.sources[0]: static pods may not reference serviceaccounts (via projected volumes): they need an API server
            line 19, column 71: spec.volumes[4].projected.sources[1]: the source is unknown
            line 20, column 26: spec.volumes[5].azureFile: static pods may not reference secrets (via azureFile volumes): they need an API server"#]],
    );
}
