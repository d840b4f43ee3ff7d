//! What a container may do: users, groups, capabilities, profiles, masks.
//!
//! Pure. A container's fields win over its pod's. Upstream:
//! pkg/securitycontext, pkg/kubelet/kuberuntime/security_context.go.

use std::collections::BTreeSet;

use cri::v1;
use cri::v1::security_profile::ProfileType;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, PodSecurityContext, SELinuxOptions, SeccompProfile, SecurityContext,
};
use kubelet_model::DesiredPod;

use super::profile;
use crate::settings::Settings;
use crate::volume_manager::Mountables;

/// Hidden from containers unless they ask for all of /proc.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Not to be written to by containers.
const READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Largest user id that the API takes.
const USER_ID_MAX: i64 = i32::MAX as i64;

/// The user an image runs as, as far as the runtime can tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ImageUser {
    /// Its number.
    pub(super) uid: Option<i64>,
    /// Its name, if the image gives only that.
    pub(super) name: String,
}

/// The user asked for: by the container, else by its pod.
pub(super) fn run_as_user(pod: &DesiredPod, container: &Container) -> Option<i64> {
    let own = container.security_context.as_ref().and_then(|context| context.run_as_user);
    own.or_else(|| of_pod(pod).and_then(|context| context.run_as_user))
}

fn of_pod(pod: &DesiredPod) -> Option<&PodSecurityContext> {
    pod.spec().security_context.as_ref()
}

/// The container's security context. `namespaces` are the sandbox's.
// Runtimes of old read AppArmor's profile only from the deprecated field.
#[allow(deprecated)]
pub(super) fn of_container(
    pod: &DesiredPod,
    container: &Container,
    image_user: &ImageUser,
    namespaces: v1::NamespaceOption,
    settings: &Settings,
) -> Result<v1::LinuxContainerSecurityContext, String> {
    check_non_root(pod, container, image_user)?;
    let none = SecurityContext::default();
    let own = container.security_context.as_ref().unwrap_or(&none);
    let pods = of_pod(pod);
    let user = run_as_user(pod, container);
    let group = own.run_as_group.or_else(|| pods?.run_as_group);
    let (apparmor, apparmor_profile) = profile::apparmor(app_armor(pod, container, own).as_ref())?;
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    Ok(v1::LinuxContainerSecurityContext {
        capabilities: own.capabilities.as_ref().map(|capabilities| v1::Capability {
            add_capabilities: capabilities.add.clone().unwrap_or_default(),
            drop_capabilities: capabilities.drop.clone().unwrap_or_default(),
            ..Default::default()
        }),
        privileged: own.privileged.unwrap_or(false),
        namespace_options: Some(namespaces),
        selinux_options: selinux(
            own.se_linux_options.as_ref().or_else(|| pods?.se_linux_options.as_ref()),
        ),
        run_as_user: user.or(image_user.uid).map(number),
        run_as_group: group.map(number),
        run_as_username: if user.is_none() { image_user.name.clone() } else { String::new() },
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        supplemental_groups: groups(pods),
        supplemental_groups_policy: groups_policy(pods).into(),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if unmasked { Vec::new() } else { masked_paths(settings) },
        readonly_paths: if unmasked {
            Vec::new()
        } else {
            READONLY_PATHS.map(str::to_owned).into()
        },
        seccomp: Some(profile::seccomp(
            seccomp_profile(own, pods),
            &settings.root_dir,
            settings.seccomp_default,
        )?),
        apparmor,
        apparmor_profile,
        ..Default::default()
    })
}

/// The security context of the pod's sandbox.
pub(super) fn of_sandbox(
    pod: &DesiredPod,
    namespaces: v1::NamespaceOption,
) -> v1::LinuxSandboxSecurityContext {
    let pods = of_pod(pod);
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces),
        selinux_options: selinux(pods.and_then(|context| context.se_linux_options.as_ref())),
        run_as_user: pods.and_then(|context| context.run_as_user).map(number),
        run_as_group: pods.and_then(|context| context.run_as_group).map(number),
        supplemental_groups: groups(pods),
        supplemental_groups_policy: groups_policy(pods).into(),
        privileged: has_privileged(pod),
        // The sandbox itself does nothing that needs more, whatever the pod asks for.
        seccomp: Some(v1::SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn has_privileged(pod: &DesiredPod) -> bool {
    let spec = pod.spec();
    let is = |context: &Option<SecurityContext>| {
        context.as_ref().and_then(|context| context.privileged).unwrap_or(false)
    };
    let plain = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    plain.map(|c| &c.security_context).any(is)
        || spec.ephemeral_containers.iter().flatten().map(|c| &c.security_context).any(is)
}

/// A container that must not run as root does not; upstream's words if it would.
fn check_non_root(
    pod: &DesiredPod,
    container: &Container,
    image_user: &ImageUser,
) -> Result<(), String> {
    let own = container.security_context.as_ref().and_then(|context| context.run_as_non_root);
    let non_root = own.or_else(|| of_pod(pod)?.run_as_non_root);
    if non_root != Some(true) {
        return Ok(());
    }
    let whose = format!(
        "(pod: \"{}_{}({})\", container: {})",
        pod.name(),
        pod.namespace(),
        pod.uid(),
        container.name
    );
    match (run_as_user(pod, container), image_user.uid) {
        (Some(0), _) => Err(format!("container's runAsUser breaks non-root policy {whose}")),
        (Some(_), _) => Ok(()),
        (None, Some(0)) => {
            Err(format!("container has runAsNonRoot and image will run as root {whose}"))
        }
        (None, Some(uid)) if !(0..=USER_ID_MAX).contains(&uid) => Err(format!(
            "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be \
             1-({USER_ID_MAX})): must be between 0 and {USER_ID_MAX}, inclusive {whose}"
        )),
        (None, None) if !image_user.name.is_empty() => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user \
             is non-root {whose}",
            image_user.name
        )),
        (None, _) => Ok(()),
    }
}

fn seccomp_profile<'a>(
    own: &'a SecurityContext,
    pods: Option<&'a PodSecurityContext>,
) -> Option<&'a SeccompProfile> {
    own.seccomp_profile.as_ref().or_else(|| pods?.seccomp_profile.as_ref())
}

/// The container's field, the annotation of old, then the pod's field.
fn app_armor(
    pod: &DesiredPod,
    container: &Container,
    own: &SecurityContext,
) -> Option<AppArmorProfile> {
    let annotated =
        || profile::annotated(pod.pod().metadata.annotations.as_ref()?, &container.name);
    own.app_armor_profile
        .clone()
        .or_else(annotated)
        .or_else(|| of_pod(pod)?.app_armor_profile.clone())
}

fn selinux(options: Option<&SELinuxOptions>) -> Option<v1::SeLinuxOption> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    options.map(|options| v1::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    })
}

fn groups(pods: Option<&PodSecurityContext>) -> Vec<i64> {
    let fs_group = pods.and_then(|context| context.fs_group);
    let more = pods.and_then(|context| context.supplemental_groups.as_ref());
    fs_group.into_iter().chain(more.into_iter().flatten().copied()).collect()
}

/// Groups of volumes that the pod does not name itself.
pub(super) fn volume_groups(pod: &DesiredPod, volumes: &Mountables) -> Vec<i64> {
    let named = of_pod(pod).and_then(|context| context.supplemental_groups.as_ref());
    let named = |gid: &i64| named.is_some_and(|named| named.contains(gid));
    let all: BTreeSet<i64> = volumes.values().filter_map(|volume| volume.gid).collect();
    all.into_iter().filter(|gid| !named(gid)).collect()
}

fn groups_policy(pods: Option<&PodSecurityContext>) -> v1::SupplementalGroupsPolicy {
    match pods.and_then(|context| context.supplemental_groups_policy.as_deref()) {
        Some("Strict") => v1::SupplementalGroupsPolicy::Strict,
        _ => v1::SupplementalGroupsPolicy::Merge,
    }
}

fn masked_paths(settings: &Settings) -> Vec<String> {
    let heat = settings.machine.thermal_throttle.iter().cloned();
    MASKED_PATHS.iter().map(|path| (*path).to_owned()).chain(heat).collect()
}

fn number(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}

#[cfg(test)]
#[path = "security/tests.rs"]
mod tests;
