//! What a driver wants: its CSIDriver object, or what holds without one. Pure.
//!
//! Upstream: the users of csiDriverLister in pkg/volume/csi.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::storage::v1::CSIDriverSpec;
use kubelet_model::token::{EXPIRES, TOKEN, TokenAsk};
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind};
use serde_json::{Value, json};

/// The key under which drivers find tokens.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// How a volume lives, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::volume_manager) enum Life {
    /// As long as its pod.
    Ephemeral,
    /// Longer.
    Persistent,
}

impl Life {
    pub(in crate::volume_manager) fn as_str(self) -> &'static str {
        match self {
            Self::Ephemeral => "Ephemeral",
            Self::Persistent => "Persistent",
        }
    }
}

/// When the agent gives a volume to the pod's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupPolicy {
    /// If it has a named file system and no other node uses it.
    #[default]
    OnceWithFsType,
    /// Always.
    File,
    /// Never.
    None,
}

/// What a driver wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Volumes are attached before they are mounted.
    pub attach: bool,
    /// It is told about the pod: with inline volumes, and with others.
    pub pod_info: (bool, bool),
    /// Whom volumes are given to.
    pub group: GroupPolicy,
    /// It is asked again and again to mount what is mounted.
    pub republish: bool,
    /// Audience and seconds of the tokens it is given.
    pub tokens: Vec<(String, i64)>,
    /// It is given them with the secrets.
    pub tokens_in_secrets: bool,
    /// It mounts with the SELinux label that it is given.
    pub mounts_labels: bool,
    /// The cluster keeps count of how many volumes it can attach.
    pub limits: bool,
    /// Which lives its volumes may have: none are listed if nothing describes it.
    lives: Lives,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Lives {
    /// Nobody says.
    Any,
    /// There is no object.
    NoObject,
    Only(Vec<String>),
}

impl Default for Policy {
    /// Of a node of its own: nobody describes drivers, and nobody attaches volumes. It
    /// is told about the pod with every inline volume, and gives them to whoever asks.
    fn default() -> Self {
        Self { attach: false, pod_info: (true, false), lives: Lives::Any, ..Self::undescribed() }
    }
}

impl Policy {
    /// In a cluster without an object for the driver.
    pub(in crate::volume_manager) fn undescribed() -> Self {
        Self {
            attach: true,
            pod_info: (false, false),
            group: GroupPolicy::default(),
            republish: false,
            tokens: Vec::new(),
            tokens_in_secrets: false,
            mounts_labels: false,
            limits: false,
            lives: Lives::NoObject,
        }
    }

    /// What an object says.
    ///
    /// # Errors
    /// It cannot be read: nobody knows what the driver wants.
    pub(in crate::volume_manager) fn read(object: Option<&ConfigObject>) -> Result<Self, String> {
        let Some(object) = object else { return Ok(Self::undescribed()) };
        let Some(spec) = object.spec::<CSIDriverSpec>() else {
            let name = &object.key.name;
            return Err(format!("the spec of CSIDriver {name:?} cannot be read; correct it"));
        };
        Ok(Self::described(spec))
    }

    fn described(spec: CSIDriverSpec) -> Self {
        let info = spec.pod_info_on_mount.unwrap_or(false);
        let tokens = spec.token_requests.unwrap_or_default().into_iter();
        Self {
            attach: spec.attach_required.unwrap_or(true),
            pod_info: (info, info),
            group: match spec.fs_group_policy.as_deref() {
                Some("File") => GroupPolicy::File,
                Some("None") => GroupPolicy::None,
                _ => GroupPolicy::OnceWithFsType,
            },
            republish: spec.requires_republish.unwrap_or(false),
            tokens: tokens
                .map(|token| (token.audience, token.expiration_seconds.unwrap_or_default()))
                .collect(),
            tokens_in_secrets: spec.service_account_token_in_secrets.unwrap_or(false),
            mounts_labels: spec.se_linux_mount.unwrap_or(false),
            limits: spec.node_allocatable_update_period_seconds.is_some_and(|every| every > 0),
            lives: match spec.volume_lifecycle_modes {
                // As an API server would have set it.
                None => Lives::Only(vec![Life::Persistent.as_str().to_owned()]),
                Some(modes) if modes.is_empty() => {
                    Lives::Only(vec![Life::Persistent.as_str().to_owned()])
                }
                Some(modes) => Lives::Only(modes),
            },
        }
    }

    /// May its volumes live like this?
    ///
    /// # Errors
    /// Why not, in upstream's words.
    pub(in crate::volume_manager) fn check(&self, driver: &str, life: Life) -> Result<(), String> {
        let mode = life.as_str();
        match (&self.lives, life) {
            (Lives::Any, _) | (Lives::NoObject, Life::Persistent) => Ok(()),
            (Lives::NoObject, Life::Ephemeral) => Err(format!(
                "volume mode {mode:?} not supported by driver {driver} (no CSIDriver object)"
            )),
            (Lives::Only(modes), _) if modes.iter().any(|known| known == mode) => Ok(()),
            (Lives::Only(modes), _) => {
                let modes: Vec<String> = modes.iter().map(|mode| format!("{mode:?}")).collect();
                Err(format!(
                    "volume mode {mode:?} not supported by driver {driver} (only supports [{}])",
                    modes.join(" ")
                ))
            }
        }
    }
}

/// The object that describes a driver.
pub(in crate::volume_manager) fn driver_key(driver: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::CsiDriver, "", driver)
}

/// Whose volume it is, as drivers are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIdentity {
    /// The pod's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// As whom it runs.
    pub account: String,
}

impl PodIdentity {
    pub(in crate::volume_manager) fn of(pod: &DesiredPod) -> Self {
        Self {
            name: pod.name().to_owned(),
            namespace: pod.namespace().to_owned(),
            uid: pod.uid().as_str().to_owned(),
            account: pod.spec().service_account_name.clone().unwrap_or_default(),
        }
    }

    /// What drivers are told, under CSI's own keys.
    pub(super) fn info(&self, life: Life) -> BTreeMap<String, String> {
        let ephemeral = life == Life::Ephemeral;
        let entries = [
            ("pod.name", self.name.clone()),
            ("pod.namespace", self.namespace.clone()),
            ("pod.uid", self.uid.clone()),
            ("serviceAccount.name", self.account.clone()),
            ("ephemeral", ephemeral.to_string()),
        ];
        entries.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)).into()
    }

    /// The tokens that a driver wants, by audience.
    pub(in crate::volume_manager) fn token_keys(
        &self,
        policy: &Policy,
    ) -> Vec<(String, ObjectKey)> {
        let ask = |(audience, seconds): &(String, i64)| TokenAsk {
            namespace: self.namespace.clone(),
            account: self.account.clone(),
            audience: audience.clone(),
            seconds: *seconds,
            pod: self.name.clone(),
            uid: self.uid.clone(),
        };
        policy.tokens.iter().map(|wanted| (wanted.0.clone(), ask(wanted).key())).collect()
    }
}

/// Tokens for a driver; never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PodTokens(BTreeMap<String, String>);

impl fmt::Debug for PodTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PodTokens({})", self.0.len())
    }
}

impl PodTokens {
    /// Tokens by audience, as drivers read them.
    pub(in crate::volume_manager) fn of(tokens: &[(String, Arc<ConfigObject>)]) -> Self {
        if tokens.is_empty() {
            return Self::default();
        }
        let text = |object: &ConfigObject, key| {
            let bytes = object.value(key).unwrap_or_default();
            Value::String(String::from_utf8_lossy(bytes).into_owned())
        };
        let all = tokens.iter().map(|(audience, token)| {
            let status = json!({TOKEN: text(token, TOKEN), EXPIRES: text(token, EXPIRES)});
            (audience.clone(), status)
        });
        let all = Value::Object(all.collect()).to_string();
        Self(BTreeMap::from([(TOKENS.to_owned(), all)]))
    }

    /// As entries of what a driver is told.
    pub(super) fn entries(&self) -> BTreeMap<String, String> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(data: &[(&str, &str)]) -> ConfigObject {
        let value = |(key, text): &(&str, &str)| ((*key).to_owned(), text.as_bytes().to_vec());
        ConfigObject {
            key: driver_key("d"),
            uid: String::new(),
            secret_type: String::new(),
            data: data.iter().map(value).collect(),
            binary: BTreeMap::new(),
        }
    }

    #[test]
    fn an_object_says_what_the_driver_wants() {
        let spec = r#"{"attachRequired":false,"podInfoOnMount":true,"fsGroupPolicy":"File",
            "requiresRepublish":true,"serviceAccountTokenInSecrets":true,"seLinuxMount":true,
            "tokenRequests":[{"audience":"a","expirationSeconds":600},{"audience":""}],
            "volumeLifecycleModes":["Persistent","Ephemeral"]}"#;
        let policy = Policy::read(Some(&object(&[("spec", spec)]))).expect("a policy");
        assert!(!policy.attach && policy.republish && policy.tokens_in_secrets);
        assert!(policy.mounts_labels && !Policy::undescribed().mounts_labels);
        assert_eq!((policy.pod_info, policy.group), ((true, true), GroupPolicy::File));
        assert_eq!(policy.tokens, [("a".to_owned(), 600), (String::new(), 0)]);
        assert_eq!(policy.check("d", Life::Ephemeral), Ok(()));
        let bare = Policy::read(Some(&object(&[("spec", "{}")]))).expect("a policy");
        assert!(bare.attach && bare.pod_info == (false, false) && !bare.republish);
        assert_eq!(
            bare.check("d", Life::Ephemeral).unwrap_err(),
            r#"volume mode "Ephemeral" not supported by driver d (only supports ["Persistent"])"#
        );
    }

    #[test]
    fn an_object_that_cannot_be_read_is_not_taken_for_none() {
        let broken = object(&[("spec", r#"{"attachRequired":"perhaps"}"#)]);
        assert_eq!(
            Policy::read(Some(&broken)).unwrap_err(),
            "the spec of CSIDriver \"d\" cannot be read; correct it"
        );
        assert_eq!(Policy::read(None), Ok(Policy::undescribed()));
    }

    #[test]
    fn without_an_object_only_persistent_volumes_are_had() {
        let none = Policy::undescribed();
        assert!(none.attach);
        assert_eq!(none.check("d", Life::Persistent), Ok(()));
        assert_eq!(
            none.check("d", Life::Ephemeral).unwrap_err(),
            r#"volume mode "Ephemeral" not supported by driver d (no CSIDriver object)"#
        );
        let alone = Policy::default();
        assert!(!alone.attach && alone.pod_info == (true, false));
        assert_eq!(alone.check("d", Life::Ephemeral), Ok(()));
    }

    #[test]
    fn tokens_are_told_by_audience_and_never_printed() {
        let token = object(&[(TOKEN, "hunter2"), (EXPIRES, "2026-01-01T00:00:00Z")]);
        let tokens = PodTokens::of(&[("a".to_owned(), Arc::new(token))]);
        let told: Value = serde_json::from_str(&tokens.entries()[TOKENS]).unwrap();
        let status = json!({"token": "hunter2", "expirationTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(told, json!({"a": status}));
        assert!(!format!("{tokens:?}").contains("hunter2"));
        assert_eq!(PodTokens::of(&[]).entries(), BTreeMap::new());
    }
}
