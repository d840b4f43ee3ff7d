//! Security contexts and the host's namespaces.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSpec, SeccompProfile, SecurityContext};

use super::super::problem::{Field, Report};
use super::{given, names, one_of, unique};

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
