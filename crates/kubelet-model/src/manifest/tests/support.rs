//! Fields this release refuses, and references a static pod may not have.

use expect_test::expect;

use super::{GOOD, check, with_container, with_spec};

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

#[test]
fn refuses_every_other_field() {
    check(
        &with_container(
            "terminationMessagePath: /x\nterminationMessagePolicy: FallbackToLogsOnError\nenvFrom: []\nenv: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]\nlivenessProbe: {exec: {command: [a]}}\nlifecycle: {stopSignal: SIGTERM}\nsecurityContext: {allowPrivilegeEscalation: false, runAsUser: 0}\nresources: {limits: {example.com/gpu: 1, ephemeral-storage: 1Gi, hugepages-2Mi: 2Mi, cpu: 1}}\nrestartPolicy: Always\nresizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]",
        ),
        expect![[r#"
            line 9, column 29: spec.containers[0].terminationMessagePath: not supported by this release
            line 10, column 31: spec.containers[0].terminationMessagePolicy: not supported by this release
            line 12, column 32: spec.containers[0].env[0].valueFrom: not supported by this release
            line 13, column 20: spec.containers[0].livenessProbe: not supported by this release
            line 14, column 16: spec.containers[0].lifecycle: not supported by this release
            line 15, column 22: spec.containers[0].securityContext: not supported by this release
            line 16, column 65: spec.containers[0].resources.limits[ephemeral-storage]: not supported by this release
            line 16, column 43: spec.containers[0].resources.limits[example.com/gpu]: not supported by this release
            line 16, column 85: spec.containers[0].resources.limits[hugepages-2Mi]: not supported by this release
            line 16, column 16: spec.containers[0].resources.requests[ephemeral-storage]: not supported by this release
            line 16, column 16: spec.containers[0].resources.requests[example.com/gpu]: not supported by this release
            line 16, column 16: spec.containers[0].resources.requests[hugepages-2Mi]: not supported by this release
            line 17, column 20: spec.containers[0].restartPolicy: not supported by this release
            line 18, column 19: spec.containers[0].resizePolicy: not supported by this release"#]],
    );
    check(
        &with_spec(
            "initContainers: [{name: i, image: i}]\nephemeralContainers: [{name: e, image: e}]\nvolumes: [{name: v}]\nsecurityContext: {runAsNonRoot: false}\nruntimeClassName: kata\nactiveDeadlineSeconds: 5\nhostAliases: [{ip: 1.1.1.1, hostnames: [a]}]\nhostUsers: false\nreadinessGates: [{conditionType: a/b}]\noverhead: {cpu: 1}\nsetHostnameAsFQDN: true\ndnsConfig: {nameservers: [1.1.1.1]}\nresources: {limits: {cpu: 1}}\nhostnameOverride: x\nschedulingGates: [{name: a}]\nos: {name: windows}\nsubdomain: s",
        ),
        expect![[r#"
            line 9, column 19: spec.initContainers: not supported by this release
            line 10, column 24: spec.ephemeralContainers: not supported by this release
            line 11, column 12: spec.volumes: not supported by this release
            line 12, column 20: spec.securityContext: not supported by this release
            line 13, column 21: spec.runtimeClassName: not supported by this release
            line 14, column 26: spec.activeDeadlineSeconds: not supported by this release
            line 15, column 16: spec.hostAliases: not supported by this release
            line 16, column 14: spec.hostUsers: not supported by this release
            line 17, column 19: spec.readinessGates: not supported by this release
            line 18, column 13: spec.overhead: not supported by this release
            line 19, column 22: spec.setHostnameAsFQDN: not supported by this release
            line 20, column 14: spec.dnsConfig: not supported by this release
            line 21, column 14: spec.resources: not supported by this release
            line 22, column 21: spec.hostnameOverride: cannot be set with hostNetwork or setHostnameAsFQDN
            line 23, column 20: spec.schedulingGates: not supported by this release
            line 24, column 14: spec.os.name: not supported by this release
            line 25, column 14: spec.subdomain: not supported by this release"#]],
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
            line 9, column 47: spec.containers[0].env[0].valueFrom.secretKeyRef: static pods may not reference secrets
            line 10, column 30: spec.containers[0].envFrom[0].configMapRef: static pods may not reference configmaps
            line 11, column 23: spec.serviceAccountName: static pods may not reference serviceaccounts
            line 12, column 22: spec.imagePullSecrets[0]: static pods may not reference secrets
            line 13, column 19: spec.resourceClaims: static pods may not reference resourceclaims
            line 15, column 26: spec.volumes[0].configMap: static pods may not reference configmaps (via configmap volumes)
            line 16, column 23: spec.volumes[1].secret: static pods may not reference secrets (via secret volumes)
            line 17, column 20: spec.volumes[2].csi: static pods may not reference csidrivers (via CSI volumes)
            line 18, column 38: spec.volumes[3].persistentVolumeClaim: static pods may not reference persistentvolumeclaims
            line 19, column 37: spec.volumes[4].projected.sources[0]: static pods may not reference serviceaccounts (via projected volumes)
            line 19, column 71: spec.volumes[4].projected.sources[1]: the source is unknown
            line 20, column 26: spec.volumes[5].azureFile: static pods may not reference secrets (via azureFile volumes)"#]],
    );
}
