//! Registry logins from a pod's own secrets.
//!
//! Looks up the Secrets that the pod names; holds logins and never prints them.
//! Writes nothing. Upstream: pkg/credentialprovider/secrets, getPullSecretsForPod
//! in pkg/kubelet/kubelet_pods.go.

use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::docker_config::{DockerConfigError, parse_json, parse_legacy};
use super::keyring::{Keyring, Login, Logins};
use super::records::PullSecret;
use crate::object_cache::Objects;

/// Types of secrets that hold logins, and the key they are under.
const JSON: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
const LEGACY: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

/// The logins of a pod's secrets.
#[derive(Debug, Default)]
pub struct PodSecrets(Vec<Known>);

/// A secret and its logins.
#[derive(Debug)]
struct Known {
    key: ObjectKey,
    uid: String,
    logins: Logins,
}

/// A login, and the secret it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretLogin {
    pub(super) login: Login,
    pub(super) secret: PullSecret,
}

impl PodSecrets {
    /// The logins, and the names of secrets that are missing or hold none.
    pub fn of(pod: &DesiredPod, objects: &Objects) -> (Self, Vec<String>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let names = pod.spec().image_pull_secrets.iter().flatten().map(|secret| &secret.name);
        for name in names.filter(|name| !name.is_empty()) {
            let key = ObjectKey::new(ObjectKind::Secret, pod.namespace(), name);
            let known = objects.get(&key).map(|object| (object.uid.clone(), read(&object)));
            match known {
                Some((uid, Ok(logins))) => found.push(Known { key, uid, logins }),
                Some((_, Err(error))) => {
                    tracing::warn!(secret = %key, %error, "pull secret not used");
                    missing.push(name.clone());
                }
                None => missing.push(name.clone()),
            }
        }
        (Self(found), missing)
    }

    /// Every login for a repository, the most specific place first.
    pub(super) fn find(&self, repository: &str) -> Vec<SecretLogin> {
        let mut all = Keyring::default();
        self.0.iter().for_each(|known| all.add(&known.logins));
        let from = |login: &Login| {
            self.0.iter().find(|known| {
                let mut own = Keyring::default();
                own.add(&known.logins);
                own.find(repository).contains(login)
            })
        };
        let tracked = |login: Login| {
            let Known { key, uid, .. } = from(&login)?;
            let secret = PullSecret {
                uid: uid.clone(),
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                credential_hash: hash_of(&login),
            };
            Some(SecretLogin { login, secret })
        };
        all.find(repository).into_iter().filter_map(tracked).collect()
    }
}

/// The logins in a secret; none if it is for something else.
fn read(object: &ConfigObject) -> Result<Logins, DockerConfigError> {
    let is = |(of, _): (&str, &str)| object.secret_type == of;
    let content = |(_, key): (&str, &str)| object.data.get(key).filter(|value| !value.is_empty());
    match (is(JSON).then(|| content(JSON)), is(LEGACY).then(|| content(LEGACY))) {
        (Some(Some(content)), _) => parse_json(content),
        (_, Some(Some(content))) => parse_legacy(content),
        _ => Ok(Logins::new()),
    }
}

/// As upstream hashes it: as JSON, with `<`, `>` and `&` escaped.
fn hash_of(login: &Login) -> String {
    #[derive(Serialize)]
    struct Auth<'a> {
        #[serde(skip_serializing_if = "str::is_empty")]
        username: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        password: &'a str,
    }
    let auth = Auth { username: &login.username, password: &login.password };
    // Two strings can always be written.
    let json = serde_json::to_string(&auth).unwrap_or_default();
    let json = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    Sha256::digest(json.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use kubelet_model::Source;

    use super::*;
    use crate::object_cache;
    use crate::runtime_manager::testing::pod_with;

    fn secret(name: &str, secret_type: &str, key: &str, content: &str) -> Arc<ConfigObject> {
        Arc::new(ConfigObject {
            key: ObjectKey::new(ObjectKind::Secret, "ns", name),
            uid: format!("uid-of-{name}"),
            secret_type: secret_type.to_owned(),
            data: BTreeMap::from([(key.to_owned(), content.into())]),
            binary: BTreeMap::new(),
        })
    }

    #[test]
    fn logins_come_from_the_secrets_a_pod_names() {
        let (writer, objects) = object_cache::new();
        let login = |place: &str, user: &str| {
            format!(r#"{{"{place}":{{"username":"{user}","password":"s3cret"}}}}"#)
        };
        let json = format!(r#"{{"auths":{}}}"#, login("r.io", "json"));
        writer.replace(
            Source::File,
            &[
                secret("json", JSON.0, JSON.1, &json),
                secret("legacy", LEGACY.0, LEGACY.1, &login("r.io/team", "legacy")),
                secret("other", "Opaque", JSON.1, &json),
                secret("broken", JSON.0, JSON.1, "s3cret"),
            ],
        );
        let names = ["json", "legacy", "other", "broken", "none", ""];
        let names: Vec<String> = names.iter().map(|n| format!(r#"{{"name":"{n}"}}"#)).collect();
        let pod = pod_with("", "", &format!(r#""imagePullSecrets":[{}]"#, names.join(",")));
        let (secrets, missing) = PodSecrets::of(&pod, &objects);
        assert_eq!(missing, ["broken", "none"]);
        let found = secrets.find("r.io/team/app");
        let users = found.iter().map(|SecretLogin { login, secret }| {
            (login.username.as_str(), secret.name.as_str(), secret.uid.as_str())
        });
        let expected = [("legacy", "legacy", "uid-of-legacy"), ("json", "json", "uid-of-json")];
        assert_eq!(users.collect::<Vec<_>>(), expected);
        assert_eq!(secrets.find("elsewhere.io/app"), []);
        assert!(!format!("{secrets:?} {found:?}").contains("s3cret"));
    }

    #[test]
    fn a_login_is_hashed_as_upstream_does() {
        let login = Login { username: "a<b".into(), password: String::new() };
        let expected = Sha256::digest(br#"{"username":"a\u003cb"}"#);
        let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash_of(&login), expected);
    }
}
