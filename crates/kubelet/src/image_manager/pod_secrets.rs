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

/// Stands before what is wrong with a secret, in the message of a failed pull.
pub const BAD_PULL_SECRET: &str = "cannot use the image pull secret ";

/// A secret of a type that holds logins, without logins that can be read. Never
/// holds its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{BAD_PULL_SECRET}{}/{}: {place}: {error}", .secret.namespace, .secret.name)]
pub(super) struct BadPullSecret {
    secret: ObjectKey,
    /// The key it has its logins under.
    place: &'static str,
    #[source]
    error: DockerConfigError,
}

/// The logins of a pod's secrets.
#[derive(Debug, Default)]
pub struct PodSecrets {
    known: Vec<Known>,
    /// The first that is malformed: the pod pulls nothing until it is mended.
    bad: Option<BadPullSecret>,
}

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
    /// The logins, and the names of secrets that are missing.
    pub fn of(pod: &DesiredPod, objects: &Objects) -> (Self, Vec<String>) {
        let (mut secrets, mut missing) = (Self::default(), Vec::new());
        let names = pod.spec().image_pull_secrets.iter().flatten().map(|secret| &secret.name);
        for name in names.filter(|name| !name.is_empty()) {
            let key = ObjectKey::new(ObjectKind::Secret, pod.namespace(), name);
            let Some(object) = objects.get(&key) else {
                missing.push(name.clone());
                continue;
            };
            match read(&object) {
                Ok(logins) => secrets.known.push(Known { key, uid: object.uid.clone(), logins }),
                Err(bad) => secrets.bad = secrets.bad.or(Some(bad)),
            }
        }
        (secrets, missing)
    }

    /// Every login for a repository, the most specific place first.
    ///
    /// # Errors
    /// As upstream, one malformed secret spoils them all, whatever it is for.
    pub(super) fn find(&self, repository: &str) -> Result<Vec<SecretLogin>, BadPullSecret> {
        if let Some(bad) = &self.bad {
            return Err(bad.clone());
        }
        let mut all = Keyring::default();
        self.known.iter().for_each(|known| all.add(&known.logins));
        let from = |login: &Login| {
            self.known.iter().find(|known| {
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
        Ok(all.find(repository).into_iter().filter_map(tracked).collect())
    }
}

/// The logins in a secret; none if it is for something else.
fn read(object: &ConfigObject) -> Result<Logins, BadPullSecret> {
    let parse = [(JSON, parse_json as fn(&[u8]) -> _), (LEGACY, parse_legacy)];
    let of_type = parse.into_iter().find(|((of, _), _)| object.secret_type == *of);
    let Some(((_, place), parse)) = of_type else { return Ok(Logins::new()) };
    match object.data.get(place).filter(|content| !content.is_empty()) {
        Some(content) => parse(content).map_err(|error| BadPullSecret {
            secret: object.key.clone(),
            place,
            error,
        }),
        None => Ok(Logins::new()),
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

    fn naming(names: &[&str]) -> DesiredPod {
        let names: Vec<String> = names.iter().map(|n| format!(r#"{{"name":"{n}"}}"#)).collect();
        pod_with("", "", &format!(r#""imagePullSecrets":[{}]"#, names.join(",")))
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
                secret("empty", JSON.0, JSON.1, ""),
            ],
        );
        let pod = naming(&["json", "legacy", "other", "empty", "none", ""]);
        let (secrets, missing) = PodSecrets::of(&pod, &objects);
        assert_eq!(missing, ["none"]);
        let found = secrets.find("r.io/team/app").unwrap();
        let users = found.iter().map(|SecretLogin { login, secret }| {
            (login.username.as_str(), secret.name.as_str(), secret.uid.as_str())
        });
        let expected = [("legacy", "legacy", "uid-of-legacy"), ("json", "json", "uid-of-json")];
        assert_eq!(users.collect::<Vec<_>>(), expected);
        assert_eq!(secrets.find("elsewhere.io/app"), Ok(vec![]));
        assert!(!format!("{secrets:?} {found:?}").contains("s3cret"));
    }

    #[test]
    fn a_malformed_secret_spoils_the_others_and_is_not_missing() {
        let (writer, objects) = object_cache::new();
        let good = r#"{"auths":{"r.io":{"username":"joe","password":"s3cret"}}}"#;
        let auth = r#"{"r.io":{"auth":"s3cret"}}"#;
        writer.replace(
            Source::File,
            &[
                secret("good", JSON.0, JSON.1, good),
                secret("text", JSON.0, JSON.1, "s3cret"),
                secret("auth", LEGACY.0, LEGACY.1, auth),
            ],
        );
        for (names, expected) in [
            (
                ["good", "text", "auth"],
                "cannot use the image pull secret ns/text: .dockerconfigjson: not a docker \
                 configuration: line 1, column 1",
            ),
            (
                ["auth", "good", "none"],
                "cannot use the image pull secret ns/auth: .dockercfg: the auth of r.io is not \
                 base64 of user:password",
            ),
        ] {
            let (secrets, missing) = PodSecrets::of(&naming(&names), &objects);
            assert_eq!(missing.contains(&"none".to_owned()), names.contains(&"none"));
            assert!(missing.len() <= 1, "{missing:?}");
            let error = secrets.find("elsewhere.io/app").unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(!format!("{secrets:?} {error:?}").contains("s3cret"));
        }
    }

    #[test]
    fn a_login_is_hashed_as_upstream_does() {
        let login = Login { username: "a<b".into(), password: String::new() };
        let expected = Sha256::digest(br#"{"username":"a\u003cb"}"#);
        let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash_of(&login), expected);
    }
}
