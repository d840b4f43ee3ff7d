//! Security contexts and the host's namespaces.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{AppArmorProfile, PodSpec, SeccompProfile, SecurityContext};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::problem::{Field, Report, quote};
use super::{given, names, one_of, unique};

/// Longest profile name: a path of the kernel, without its terminator.
const PROFILE_NAME_MAX: usize = 4_095;
/// Annotation of old, with the container's name behind it.
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn check_pod(spec: &PodSpec, field: &Field, report: &mut Report) {
    if spec.host_pid == Some(true) && spec.share_process_namespace == Some(true) {
        let message = "cannot be true together with hostPID";
        report.add(&field.key("shareProcessNamespace"), message);
    }
    if spec.host_users == Some(false) {
        let host = [
            ("hostPID", spec.host_pid),
            ("hostIPC", spec.host_ipc),
            ("hostNetwork", spec.host_network),
        ];
        for (key, _) in host.into_iter().filter(|(_, value)| *value == Some(true)) {
            report.add(&field.key(key), "cannot be true when hostUsers is false");
        }
    }
    let Some(context) = &spec.security_context else {
        return;
    };
    let field = field.key("securityContext");
    let ids = [
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
        ("fsGroup", context.fs_group),
    ];
    for (key, id) in ids {
        if let Some(id) = id {
            report.check(&field.key(key), names::unix_id(id));
        }
    }
    for (index, group) in context.supplemental_groups.iter().flatten().enumerate() {
        report.check(&field.key("supplementalGroups").index(index), names::unix_id(*group));
    }
    let enums: [(&str, &Option<String>, &[&str]); 3] = [
        ("fsGroupChangePolicy", &context.fs_group_change_policy, &["OnRootMismatch", "Always"]),
        ("supplementalGroupsPolicy", &context.supplemental_groups_policy, &["Merge", "Strict"]),
        ("seLinuxChangePolicy", &context.se_linux_change_policy, &["Recursive", "MountOption"]),
    ];
    for (key, value, allowed) in enums {
        one_of(value, allowed, &field.key(key), report);
    }
    check_seccomp(&context.seccomp_profile, &field.key("seccompProfile"), report);
    check_app_armor(&context.app_armor_profile, &field.key("appArmorProfile"), report);
    let mut seen = BTreeSet::new();
    for (index, sysctl) in context.sysctls.iter().flatten().enumerate() {
        let field = field.key("sysctls").index(index).key("name");
        report.check(&field, names::sysctl_name(&sysctl.name));
        unique(&mut seen, &sysctl.name, &field, report);
    }
}

pub(super) fn check_container(
    context: &Option<SecurityContext>,
    spec: &PodSpec,
    field: &Field,
    report: &mut Report,
) {
    let Some(context) = context else { return };
    for (key, id) in [("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)] {
        if let Some(id) = id {
            report.check(&field.key(key), names::unix_id(id));
        }
    }
    one_of(&context.proc_mount, &["Default", "Unmasked"], &field.key("procMount"), report);
    if context.proc_mount.as_deref() == Some("Unmasked") && spec.host_users != Some(false) {
        report.add(&field.key("procMount"), "Unmasked needs hostUsers: false");
    }
    check_seccomp(&context.seccomp_profile, &field.key("seccompProfile"), report);
    check_app_armor(&context.app_armor_profile, &field.key("appArmorProfile"), report);
    if context.allow_privilege_escalation == Some(false) {
        let field = field.key("allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            report.add(&field, "cannot be false when privileged is true");
        }
        let added =
            context.capabilities.as_ref().and_then(|capabilities| capabilities.add.as_ref());
        if added.is_some_and(|added| added.iter().any(|name| name == "CAP_SYS_ADMIN")) {
            report.add(&field, "cannot be false when CAP_SYS_ADMIN is added");
        }
    }
}

fn check_seccomp(profile: &Option<SeccompProfile>, field: &Field, report: &mut Report) {
    let Some(profile) = profile else { return };
    let allowed = ["Localhost", "RuntimeDefault", "Unconfined"];
    one_of(&Some(profile.type_.clone()), &allowed, &field.key("type"), report);
    let path = given(&profile.localhost_profile);
    let field = field.key("localhostProfile");
    match (profile.type_.as_str(), path) {
        ("Localhost", None) => report.add(&field, "missing"),
        ("Localhost", Some(path)) => report.check(&field, names::descending_path(path)),
        (_, Some(_)) => report.add(&field, "is only for type Localhost"),
        _ => {}
    }
}

fn check_app_armor(profile: &Option<AppArmorProfile>, field: &Field, report: &mut Report) {
    let Some(profile) = profile else { return };
    let allowed = ["Localhost", "RuntimeDefault", "Unconfined"];
    if profile.type_.is_empty() {
        report.add(&field.key("type"), "missing");
    }
    one_of(&Some(profile.type_.clone()), &allowed, &field.key("type"), report);
    let field = field.key("localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", None) => report.add(&field, "missing"),
        ("Localhost", Some(name)) if name.trim().is_empty() => report.add(&field, "missing"),
        ("Localhost", Some(name)) if name.trim() != name => {
            report.add(&field, "has white space at an end");
        }
        ("Localhost", Some(name)) if name.len() > PROFILE_NAME_MAX => {
            report.add(&field, format!("must be at most {PROFILE_NAME_MAX} characters"));
        }
        ("Localhost", Some(_)) | (_, None) => {}
        (_, Some(_)) => report.add(&field, "is only for type Localhost"),
    }
}

/// AppArmor profiles given by the annotation of old.
pub(super) fn check_annotations(meta: &ObjectMeta, spec: &PodSpec, report: &mut Report) {
    let plain = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let names = plain.map(|container| container.name.as_str());
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|c| c.name.as_str());
    let names: BTreeSet<&str> = names.chain(ephemeral).collect();
    for (key, value) in meta.annotations.iter().flatten() {
        let Some(container) = key.strip_prefix(APP_ARMOR_ANNOTATION) else { continue };
        let field = Field::root().key("metadata").key("annotations").key(key);
        if !names.contains(container) {
            report.add(&field, format!("no container is named {}", quote(container)));
        }
        let known = matches!(value.as_str(), "" | "runtime/default" | "unconfined");
        if !known && !value.starts_with("localhost/") {
            let message =
                format!("{} is not runtime/default, unconfined or localhost/NAME", quote(value));
            report.add(&field, message);
        }
    }
}
