//! Seccomp and AppArmor profiles, from the API's words to the runtime's.
//!
//! Pure. Upstream: pkg/kubelet/kuberuntime/helpers.go, pkg/security/apparmor.

use std::collections::BTreeMap;
use std::path::Path;

use cri::v1;
use cri::v1::security_profile::ProfileType;
use k8s_openapi::api::core::v1::{AppArmorProfile, SeccompProfile};

/// Annotation of old, with the container's name behind it.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The seccomp profile of a container; without one, by default, the runtime's or none.
pub(super) fn seccomp(
    profile: Option<&SeccompProfile>,
    root_dir: &Path,
    default: bool,
) -> Result<v1::SecurityProfile, String> {
    let Some(profile) = profile else {
        let kind = if default { ProfileType::RuntimeDefault } else { ProfileType::Unconfined };
        return Ok(of_type(kind, String::new()));
    };
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok(of_type(ProfileType::RuntimeDefault, String::new())),
        "Localhost" => {
            let file = profile.localhost_profile.as_deref().filter(|file| !file.is_empty());
            let file =
                file.ok_or("localhostProfile must be set if seccompProfile type is Localhost.")?;
            let path = root_dir.join("seccomp").join(file);
            Ok(of_type(ProfileType::Localhost, path.to_string_lossy().into_owned()))
        }
        _ => Ok(of_type(ProfileType::Unconfined, String::new())),
    }
}

/// The AppArmor profile, and its text for runtimes that know only that.
pub(super) fn apparmor(
    profile: Option<&AppArmorProfile>,
) -> Result<(Option<v1::SecurityProfile>, String), String> {
    let Some(profile) = profile else { return Ok((None, String::new())) };
    let (kind, name, text) = match profile.type_.as_str() {
        "RuntimeDefault" => (ProfileType::RuntimeDefault, "", "runtime/default".to_owned()),
        "Unconfined" => (ProfileType::Unconfined, "", "unconfined".to_owned()),
        "Localhost" => {
            let name = profile.localhost_profile.as_deref();
            let name = name.ok_or("missing localhost apparmor profile name")?;
            (ProfileType::Localhost, name, format!("localhost/{name}"))
        }
        other => return Err(format!("unknown apparmor profile type: {other:?}")),
    };
    Ok((Some(of_type(kind, name.to_owned())), text))
}

/// The profile that the annotation of old names for a container.
pub(super) fn annotated(
    annotations: &BTreeMap<String, String>,
    container: &str,
) -> Option<AppArmorProfile> {
    let value = annotations.get(&format!("{APPARMOR_ANNOTATION}{container}"))?;
    let profile = |type_: &str, name: Option<&str>| {
        Some(AppArmorProfile {
            type_: type_.to_owned(),
            localhost_profile: name.map(str::to_owned),
        })
    };
    match value.as_str() {
        "runtime/default" => profile("RuntimeDefault", None),
        "unconfined" => profile("Unconfined", None),
        other => profile("Localhost", Some(other.strip_prefix("localhost/")?)),
    }
}

fn of_type(kind: ProfileType, localhost_ref: String) -> v1::SecurityProfile {
    v1::SecurityProfile { profile_type: kind.into(), localhost_ref }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(profile: &v1::SecurityProfile) -> String {
        format!("{:?} {}", profile.profile_type(), profile.localhost_ref)
    }

    #[test]
    fn seccomp_profiles() {
        let check = |json: &str, default, expected: &str| {
            let profile: Option<SeccompProfile> = serde_json::from_str(json).expect("a profile");
            let got = seccomp(profile.as_ref(), Path::new("/root"), default);
            assert_eq!(got.as_ref().map(show).as_deref(), Ok(expected), "{json}");
        };
        check("null", false, "Unconfined ");
        check("null", true, "RuntimeDefault ");
        check(r#"{"type":"Unconfined"}"#, true, "Unconfined ");
        check(r#"{"type":"RuntimeDefault"}"#, false, "RuntimeDefault ");
        let local = r#"{"type":"Localhost","localhostProfile":"a/b.json"}"#;
        check(local, false, "Localhost /root/seccomp/a/b.json");
        let nameless = SeccompProfile { type_: "Localhost".to_owned(), localhost_profile: None };
        assert!(seccomp(Some(&nameless), Path::new("/"), false).is_err());
    }

    #[test]
    fn apparmor_profiles() {
        for (annotation, shown, text) in [
            ("runtime/default", "RuntimeDefault ", "runtime/default"),
            ("unconfined", "Unconfined ", "unconfined"),
            ("localhost/mine", "Localhost mine", "localhost/mine"),
        ] {
            let key = format!("{APPARMOR_ANNOTATION}app");
            let annotations = BTreeMap::from([(key, annotation.to_owned())]);
            assert_eq!(annotated(&annotations, "other"), None);
            let profile = annotated(&annotations, "app");
            let (new, old) = apparmor(profile.as_ref()).expect("a good profile");
            assert_eq!((new.as_ref().map(show).as_deref(), old.as_str()), (Some(shown), text));
        }
        let odd = BTreeMap::from([(format!("{APPARMOR_ANNOTATION}app"), "odd".to_owned())]);
        assert_eq!(annotated(&odd, "app"), None);
        let unknown = AppArmorProfile { type_: "Odd".to_owned(), localhost_profile: None };
        assert!(apparmor(Some(&unknown)).is_err());
    }
}
