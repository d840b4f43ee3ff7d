//! Security contexts, as tables.

// Runtimes of old read AppArmor's profile only from the deprecated field.
#![allow(deprecated)]

use super::*;
use crate::runtime_manager::testing::pod_with;

fn namespaces() -> v1::NamespaceOption {
    v1::NamespaceOption::default()
}

fn context(
    container: &str,
    spec: &str,
    user: &ImageUser,
) -> Result<v1::LinuxContainerSecurityContext, String> {
    let pod = pod_with("", container, spec);
    let settings = Settings {
        machine: crate::settings::Machine {
            thermal_throttle: vec!["/sys/heat".to_owned()],
            ..Default::default()
        },
        ..Settings::for_node("n")
    };
    of_container(&pod, &pod.spec().containers[0], user, namespaces(), &settings)
}

fn good(container: &str, spec: &str) -> v1::LinuxContainerSecurityContext {
    context(container, spec, &ImageUser::default()).expect("a good context")
}

#[test]
fn a_plain_container_asks_for_nothing() {
    let plain = good("", "");
    let mut masked: Vec<String> = MASKED_PATHS.map(str::to_owned).into();
    masked.push("/sys/heat".to_owned());
    let expected = v1::LinuxContainerSecurityContext {
        namespace_options: Some(namespaces()),
        seccomp: Some(v1::SecurityProfile {
            profile_type: ProfileType::Unconfined.into(),
            ..Default::default()
        }),
        masked_paths: masked,
        readonly_paths: READONLY_PATHS.map(str::to_owned).into(),
        ..Default::default()
    };
    assert_eq!(plain, expected);
}

#[test]
fn everything_a_container_may_ask_for() {
    let full = good(
        r#","securityContext":{"capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]},"privileged":true,
            "seLinuxOptions":{"level":"s0:c1"},"runAsUser":7,"runAsGroup":8,"readOnlyRootFilesystem":true,
            "procMount":"Unmasked","seccompProfile":{"type":"RuntimeDefault"},
            "appArmorProfile":{"type":"Localhost","localhostProfile":"mine"}}"#,
        "",
    );
    let capabilities = full.capabilities.expect("capabilities");
    assert_eq!(capabilities.add_capabilities, ["NET_ADMIN"]);
    assert_eq!(capabilities.drop_capabilities, ["ALL"]);
    assert!(full.privileged && full.readonly_rootfs && !full.no_new_privs);
    assert_eq!(full.selinux_options.map(|options| options.level).as_deref(), Some("s0:c1"));
    assert_eq!((full.run_as_user, full.run_as_group), (Some(number(7)), Some(number(8))));
    assert_eq!((full.masked_paths.len(), full.readonly_paths.len()), (0, 0));
    assert_eq!(full.apparmor_profile, "localhost/mine");
    assert!(full.apparmor.is_some_and(|profile| profile.localhost_ref == "mine"));
    let strict = good(r#","securityContext":{"allowPrivilegeEscalation":false}"#, "");
    assert!(strict.no_new_privs);
}

#[test]
fn the_pods_fields_hold_where_the_container_is_silent() {
    let pods = r#""securityContext":{"runAsUser":1,"runAsGroup":2,"fsGroup":3,"supplementalGroups":[4,5],
        "supplementalGroupsPolicy":"Strict","seLinuxOptions":{"type":"t"},
        "seccompProfile":{"type":"RuntimeDefault"},"appArmorProfile":{"type":"Unconfined"}}"#;
    let silent = good("", pods);
    assert_eq!((silent.run_as_user, silent.run_as_group), (Some(number(1)), Some(number(2))));
    assert_eq!(silent.supplemental_groups, [3, 4, 5]);
    assert_eq!(silent.supplemental_groups_policy(), v1::SupplementalGroupsPolicy::Strict);
    assert_eq!(silent.selinux_options.map(|options| options.r#type).as_deref(), Some("t"));
    assert_eq!(silent.apparmor_profile, "unconfined");
    assert_eq!(silent.seccomp.map(|p| p.profile_type()), Some(ProfileType::RuntimeDefault));
    let own = r#","securityContext":{"runAsUser":9,"seccompProfile":{"type":"Unconfined"}}"#;
    let loud = good(own, pods);
    assert_eq!((loud.run_as_user, loud.run_as_group), (Some(number(9)), Some(number(2))));
    assert_eq!(loud.seccomp.map(|p| p.profile_type()), Some(ProfileType::Unconfined));
}

#[test]
fn without_a_user_the_images_is_taken() {
    let named = ImageUser { uid: None, name: "www".to_owned() };
    let numbered = ImageUser { uid: Some(5), name: String::new() };
    let got = context("", "", &named).expect("a good context");
    assert_eq!((got.run_as_user, got.run_as_username.as_str()), (None, "www"));
    let got = context("", "", &numbered).expect("a good context");
    assert_eq!((got.run_as_user, got.run_as_username.as_str()), (Some(number(5)), ""));
    let own = r#","securityContext":{"runAsUser":0}"#;
    let got = context(own, "", &named).expect("a good context");
    assert_eq!((got.run_as_user, got.run_as_username.as_str()), (Some(number(0)), ""));
}

#[test]
fn who_must_not_be_root() {
    let image = |uid, name: &str| ImageUser { uid, name: name.to_owned() };
    let by_pod = r#""securityContext":{"runAsNonRoot":true}"#;
    for (container, spec, user, expected) in [
        ("", by_pod, image(None, ""), None),
        ("", by_pod, image(Some(5), ""), None),
        (r#""runAsUser":5"#, by_pod, image(Some(0), ""), None),
        (r#""runAsNonRoot":false"#, by_pod, image(Some(0), ""), None),
        (
            r#""runAsUser":0"#,
            by_pod,
            image(None, ""),
            Some("container's runAsUser breaks non-root policy"),
        ),
        (
            "",
            by_pod,
            image(Some(0), ""),
            Some("container has runAsNonRoot and image will run as root"),
        ),
        (
            "",
            by_pod,
            image(None, "www"),
            Some(
                "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root",
            ),
        ),
        (
            r#""runAsNonRoot":true"#,
            "",
            image(Some(0), ""),
            Some("container has runAsNonRoot and image will run as root"),
        ),
        (
            "",
            by_pod,
            image(Some(-1), ""),
            Some(
                "container has runAsNonRoot and image has an invalid user id (-1). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive",
            ),
        ),
    ] {
        let text = format!(r#","securityContext":{{{container}}}"#);
        let expected =
            expected.map(|text| format!("{text} (pod: \"web-node_ns(u1)\", container: app)"));
        assert_eq!(context(&text, spec, &user).err(), expected, "{container} {spec}");
    }
}

#[test]
fn sandboxes() {
    let pod = pod_with(
        "",
        r#","securityContext":{"privileged":true}"#,
        r#""securityContext":{"runAsUser":1,"runAsGroup":2,"fsGroup":3,"seccompProfile":{"type":"Unconfined"}}"#,
    );
    let sandbox = of_sandbox(&pod, namespaces());
    assert!(sandbox.privileged);
    assert_eq!((sandbox.run_as_user, sandbox.run_as_group), (Some(number(1)), Some(number(2))));
    assert_eq!(sandbox.supplemental_groups, [3]);
    assert_eq!(sandbox.seccomp.map(|p| p.profile_type()), Some(ProfileType::RuntimeDefault));
    assert!(!of_sandbox(&pod_with("", "", ""), namespaces()).privileged);
}

#[test]
fn volumes_add_groups_that_the_pod_does_not_name() {
    let volume = |gid| crate::volume_manager::VolumeMountable {
        host_path: "/v".into(),
        read_only: false,
        managed: true,
        persistent: None,
        device: None,
        gid,
    };
    let volumes = [("a", Some(7)), ("b", Some(5)), ("c", None), ("d", Some(5)), ("e", Some(9))];
    let volumes = volumes.map(|(name, gid)| (name.to_owned(), volume(gid)));
    let volumes = Mountables::new(volumes.into());
    let named = pod_with("", "", r#""securityContext":{"supplementalGroups":[9],"fsGroup":7}"#);
    assert_eq!(volume_groups(&named, &volumes), [5, 7]);
}
