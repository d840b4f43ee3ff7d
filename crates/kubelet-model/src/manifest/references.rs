//! What a static pod must not have: references to objects that only an API server
//! holds, because it has to run without one, and ephemeral containers, which are
//! only added to a pod that exists already. ConfigMaps, Secrets and claims may lie
//! beside the pod, and CSI drivers run beside the agent, so it may name them.
//! Upstream: HasAPIObjectReference in pkg/api/pod/util.go, ValidatePodCreate in
//! pkg/apis/core/validation.

use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};

use super::problem::{Field, Problem, Report};

/// Every reference to an API object, and ephemeral containers.
pub fn static_references(pod: &Pod) -> Vec<Problem> {
    let mut report = Report::default();
    if let Some(spec) = &pod.spec {
        check(spec, &Field::root().key("spec"), &mut report);
    }
    report.finish()
}

fn check(spec: &PodSpec, field: &Field, report: &mut Report) {
    if spec.service_account_name.as_deref().is_some_and(|name| !name.is_empty()) {
        refuse("serviceaccounts", &field.key("serviceAccountName"), report);
    }
    if spec.resource_claims.iter().flatten().next().is_some() {
        refuse("resourceclaims", &field.key("resourceClaims"), report);
    }
    if spec.ephemeral_containers.iter().flatten().next().is_some() {
        report.add(
            &field.key("ephemeralContainers"),
            "cannot be set on create: they are added to a pod that runs, through an API server",
        );
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        check_volume(volume, &field.key("volumes").index(index), report);
    }
}

fn check_volume(volume: &Volume, field: &Field, report: &mut Report) {
    let refused = [
        ("glusterfs", volume.glusterfs.is_some(), "endpoints (via glusterFS volumes)"),
        ("ephemeral", volume.ephemeral.is_some(), "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", volume.azure_file.is_some(), "secrets (via azureFile volumes)"),
    ];
    for (key, _, resource) in refused.into_iter().filter(|(_, set, _)| *set) {
        refuse(resource, &field.key(key), report);
    }
    check_secret_refs(volume, field, report);
    let Some(projected) = &volume.projected else {
        return;
    };
    for (index, source) in projected.sources.iter().flatten().enumerate() {
        let field = field.key("projected").key("sources").index(index);
        let refused = [
            (source.service_account_token.is_some(), "serviceaccounts (via projected volumes)"),
            (source.cluster_trust_bundle.is_some(), "clustertrustbundles"),
            (source.pod_certificate.is_some(), "podcertificates"),
        ];
        let known =
            source.config_map.is_some() || source.secret.is_some() || source.downward_api.is_some();
        if !known && refused.iter().all(|(set, _)| !set) {
            report.add(&field, "the source is unknown");
        }
        for (_, resource) in refused.into_iter().filter(|(set, _)| *set) {
            refuse(resource, &field, report);
        }
    }
}

/// Drivers that read their credentials from a Secret.
fn check_secret_refs(volume: &Volume, field: &Field, report: &mut Report) {
    let references = [
        ("cephfs", volume.cephfs.as_ref().is_some_and(|v| v.secret_ref.is_some())),
        ("cinder", volume.cinder.as_ref().is_some_and(|v| v.secret_ref.is_some())),
        ("flexVolume", volume.flex_volume.as_ref().is_some_and(|v| v.secret_ref.is_some())),
        ("rbd", volume.rbd.as_ref().is_some_and(|v| v.secret_ref.is_some())),
        ("scaleIO", volume.scale_io.is_some()),
        ("storageos", volume.storageos.as_ref().is_some_and(|v| v.secret_ref.is_some())),
    ];
    for (key, _) in references.into_iter().filter(|(_, set)| *set) {
        refuse("secrets", &field.key(key).key("secretRef"), report);
    }
}

fn refuse(resource: &str, field: &Field, report: &mut Report) {
    let message = format!("static pods may not reference {resource}: they need an API server");
    report.add(field, message);
}
