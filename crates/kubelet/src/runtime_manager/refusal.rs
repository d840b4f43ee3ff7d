//! Pods that this node cannot run as they are written.
//!
//! Pure. Upstream refuses them at admission, with these reasons and words:
//! pkg/kubelet/sysctl, pkg/security/apparmor, pkg/kubelet/lifecycle,
//! pkg/kubelet/userns, pkg/kubelet/runtimeclass.

use cri::v1;
use kubelet_model::DesiredPod;
use kubelet_model::manifest::unsupported_from_api;

use super::{profile, sysctl};
use crate::settings::Settings;

/// Reason for pods that want only the groups they name.
pub const STRICT_GROUPS: &str = "SupplementalGroupsPolicyNotSupported";

/// Reason for pods that ask for what this release does not have.
pub const UNSUPPORTED: &str = "Unsupported";
/// Fields that are told of.
const PROBLEMS_MAX: usize = 5;

/// Why a pod is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Upstream's reason.
    pub reason: &'static str,
    /// What is wrong.
    pub message: String,
}

/// Why the node refuses a pod, whatever its runtime can do.
pub fn of_node(pod: &DesiredPod, settings: &Settings) -> Option<Refusal> {
    if let Some(message) = unsupported(pod) {
        return Some(Refusal { reason: UNSUPPORTED, message });
    }
    let machine = &settings.machine;
    let allowed = &settings.allowed_unsafe_sysctls;
    if let Some(message) = sysctl::forbidden(pod.spec(), allowed, machine.kernel) {
        return Some(Refusal { reason: "SysctlForbidden", message });
    }
    let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    (!machine.apparmor && wants_apparmor(pod))
        .then(|| Refusal { reason: "AppArmor", message: message.to_owned() })
}

/// What an API server's pod asks for and this agent cannot give: running it without
/// would be running something else. Manifests were checked when they were read.
fn unsupported(pod: &DesiredPod) -> Option<String> {
    if pod.is_static() {
        return None;
    }
    let problems = unsupported_from_api(pod.asked());
    let texts: Vec<String> = problems.iter().take(PROBLEMS_MAX).map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Some container names a profile that only AppArmor can enforce.
fn wants_apparmor(pod: &DesiredPod) -> bool {
    let spec = pod.spec();
    let of_pod = spec.security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref());
    let names = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let names = names.map(|container| (container.name.as_str(), &container.security_context));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let all = names.chain(ephemeral.map(|c| (c.name.as_str(), &c.security_context)));
    let annotations = pod.pod().metadata.annotations.as_ref();
    let needed = |profile: &str| profile != "Unconfined";
    let mut all = all.map(|(name, context)| {
        let own = context.as_ref().and_then(|context| context.app_armor_profile.clone());
        own.or_else(|| profile::annotated(annotations?, name)).or_else(|| of_pod.cloned())
    });
    all.any(|profile| profile.is_some_and(|profile| needed(&profile.type_)))
}

/// The pod needs to know what the runtime can do.
pub(super) fn asks_runtime(pod: &DesiredPod) -> bool {
    let spec = pod.spec();
    class_of(pod).is_some() || spec.host_users == Some(false) || wants_strict_groups(pod)
}

/// The runtime's handler for a pod, or why the runtime cannot run it.
///
/// `name` is the handler of its class; empty for the runtime's own choice.
pub(super) fn handler(
    pod: &DesiredPod,
    name: &str,
    status: &v1::StatusResponse,
) -> Result<String, Refusal> {
    let found = status.runtime_handlers.iter().find(|handler| handler.name == name);
    let known = status.runtime_handlers.iter().map(|h| h.name.as_str());
    let known: Vec<&str> = known.filter(|name| !name.is_empty()).collect();
    // One that does not name its handlers, as containerd before 1.7, says itself what
    // it has not.
    if !name.is_empty() && found.is_none() && !known.is_empty() {
        return Err(Refusal {
            reason: "FailedCreatePodSandBox",
            message: format!(
                "runtimeClassName {name:?} is no handler of the container runtime (it has {}); \
                 set one that it has, or remove the field",
                known.join(", ")
            ),
        });
    }
    if pod.spec().host_users == Some(false) {
        let features = found.and_then(|handler| handler.features.as_ref());
        if !features.is_some_and(|features| features.user_namespaces) {
            return Err(no_user_namespaces(name));
        }
    }
    let strict = status.features.as_ref().is_some_and(|f| f.supplemental_groups_policy);
    if wants_strict_groups(pod) && !strict {
        return Err(Refusal {
            reason: STRICT_GROUPS,
            message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
        });
    }
    Ok(name.to_owned())
}

fn no_user_namespaces(handler: &str) -> Refusal {
    let message = if handler.is_empty() {
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned()
    } else {
        format!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support \
             user namespaces"
        )
    };
    Refusal { reason: "FailedCreatePodSandBox", message }
}

/// The RuntimeClass that a pod asks for; empty for the runtime's own choice.
pub fn class_name(pod: &DesiredPod) -> &str {
    class_of(pod).unwrap_or_default()
}

fn class_of(pod: &DesiredPod) -> Option<&str> {
    pod.spec().runtime_class_name.as_deref().filter(|name| !name.is_empty())
}

fn wants_strict_groups(pod: &DesiredPod) -> bool {
    let context = pod.spec().security_context.as_ref();
    context.and_then(|c| c.supplemental_groups_policy.as_deref()) == Some("Strict")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_manager::testing::{pod, pod_with};

    #[test]
    fn the_node_refuses_what_it_cannot_enforce() {
        let without = Settings::for_node("n");
        let mut with = without.clone();
        with.machine.apparmor = true;
        let reason = |pod: &DesiredPod, settings| of_node(pod, settings).map(|r| r.reason);
        assert_eq!(reason(&pod(""), &without), None);
        let sysctl = pod(r#""securityContext":{"sysctls":[{"name":"kernel.msgmax","value":"1"}]}"#);
        assert_eq!(reason(&sysctl, &with), Some("SysctlForbidden"));
        let annotation = r#","annotations":{"container.apparmor.security.beta.kubernetes.io/app":"runtime/default"}"#;
        let default = r#""securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}"#;
        let unconfined = r#""securityContext":{"appArmorProfile":{"type":"Unconfined"}}"#;
        for (pod, refused) in [
            (pod_with("", &format!(",{default}"), ""), true),
            (pod(default), true),
            (pod_with(annotation, "", ""), true),
            (pod(unconfined), false),
            (pod_with("", &format!(",{unconfined}"), default), false),
        ] {
            assert_eq!(reason(&pod, &without), refused.then_some("AppArmor"), "{:?}", pod.spec());
            assert_eq!(reason(&pod, &with), None);
        }
    }

    fn status(handlers: &[(&str, bool)], strict: bool) -> v1::StatusResponse {
        let handler = |(name, user_namespaces): &(&str, bool)| v1::RuntimeHandler {
            name: (*name).to_owned(),
            features: Some(v1::RuntimeHandlerFeatures {
                user_namespaces: *user_namespaces,
                ..Default::default()
            }),
        };
        v1::StatusResponse {
            runtime_handlers: handlers.iter().map(handler).collect(),
            features: Some(v1::RuntimeFeatures {
                supplemental_groups_policy: strict,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn handlers_are_those_the_runtime_has() {
        let two = status(&[("", false), ("kata", true)], false);
        let run = |spec: &str, status: &v1::StatusResponse| {
            let pod = pod(spec);
            assert!(asks_runtime(&pod), "{spec}");
            handler(&pod, class_name(&pod), status).map_err(|refusal| refusal.message)
        };
        assert!(!asks_runtime(&pod("")));
        assert_eq!(run(r#""runtimeClassName":"kata""#, &two), Ok("kata".to_owned()));
        let error = run(r#""runtimeClassName":"gvisor""#, &two).unwrap_err();
        assert!(error.contains("it has kata"), "{error}");
        // One that names none is asked.
        let unnamed = run(r#""runtimeClassName":"kata""#, &status(&[], false));
        assert_eq!(unnamed, Ok("kata".to_owned()));
        let kata = r#""hostUsers":false,"runtimeClassName":"kata""#;
        assert_eq!(run(kata, &two), Ok("kata".to_owned()));
        let error = run(r#""hostUsers":false"#, &two).unwrap_err();
        assert!(error.ends_with("runtime does not support user namespaces"), "{error}");
        let error = run(kata, &status(&[("kata", false)], false)).unwrap_err();
        assert!(error.contains("handler \"kata\" does not support"), "{error}");
        let strict = r#""securityContext":{"supplementalGroupsPolicy":"Strict"}"#;
        assert_eq!(run(strict, &status(&[], true)), Ok(String::new()));
        assert!(run(strict, &status(&[], false)).is_err());
    }
}
