//! Records of pulls as they lie on disk, to the letter of upstream.
//!
//! Plain data. Upstream: ImagePullIntent and ImagePulledRecord of
//! kubelet.config.k8s.io/v1beta1.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What is written.
const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// What is also read.
const OLD_VERSION: &str = "kubelet.config.k8s.io/v1alpha1";
const INTENT: &str = "ImagePullIntent";
const RECORD: &str = "ImagePulledRecord";
/// Names of records begin so.
const FILE_PREFIX: &str = "sha256-";

/// A pull that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullIntent {
    kind: String,
    api_version: String,
    /// As the container's spec has it.
    pub image: String,
}

/// A pull that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PulledRecord {
    kind: String,
    api_version: String,
    /// The last change.
    pub last_updated_time: Timestamp,
    /// The image in the runtime's words.
    pub image_ref: String,
    /// What it was pulled with, by name without tag and digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credential_mapping: BTreeMap<String, PullCredentials>,
}

/// Whose credentials could pull an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullCredentials {
    /// Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_secrets: Vec<PullSecret>,
    /// Service accounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_service_accounts: Vec<PullServiceAccount>,
    /// Nobody's, or the node's: every pod may use the image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_pods_accessible: bool,
}

impl PullCredentials {
    /// Every pod of the node may use the image.
    pub fn node_wide() -> Self {
        Self { node_pods_accessible: true, ..Self::default() }
    }
}

/// A secret and a digest of what was in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullSecret {
    /// Uid.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Hexadecimal SHA-256 of the login in it.
    pub credential_hash: String,
}

impl PullSecret {
    /// The same secret, whatever is in it?
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullServiceAccount {
    /// Uid.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl PullIntent {
    /// The pull of an image begins.
    pub fn new(image: &str) -> Self {
        Self { kind: INTENT.to_owned(), api_version: VERSION.to_owned(), image: image.to_owned() }
    }
}

impl PulledRecord {
    /// A record without credentials.
    pub fn new(image_ref: &str, now: Timestamp) -> Self {
        Self {
            kind: RECORD.to_owned(),
            api_version: VERSION.to_owned(),
            last_updated_time: whole_seconds(now),
            image_ref: image_ref.to_owned(),
            credential_mapping: BTreeMap::new(),
        }
    }
}

/// Upstream's times have no fractions.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The file of a record: names of images hold slashes.
pub fn file_name(key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    digest.iter().fold(FILE_PREFIX.to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// Is a file of this name a record?
pub fn is_record_name(name: &str) -> bool {
    name.starts_with(FILE_PREFIX) && !name.ends_with(".tmp")
}

/// A record that can be read from disk.
pub trait OnDisk: Serialize + for<'de> Deserialize<'de> {
    /// Kind and version, to check and to bring up to date.
    fn header(&mut self) -> (&str, &mut String);
    /// The kind it must have.
    const KIND: &'static str;
}

impl OnDisk for PullIntent {
    const KIND: &'static str = INTENT;
    fn header(&mut self) -> (&str, &mut String) {
        (&self.kind, &mut self.api_version)
    }
}

impl OnDisk for PulledRecord {
    const KIND: &'static str = RECORD;
    fn header(&mut self) -> (&str, &mut String) {
        (&self.kind, &mut self.api_version)
    }
}

/// As written to disk.
pub fn encode(record: &impl OnDisk) -> Result<Vec<u8>, String> {
    let mut text = serde_json::to_vec(record).map_err(|error| error.to_string())?;
    text.push(b'\n');
    Ok(text)
}

/// Reads a record; true if it is in an old version.
pub fn decode<T: OnDisk>(content: &[u8]) -> Result<(T, bool), String> {
    let mut record: T = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let (kind, version) = record.header();
    if kind != T::KIND {
        return Err(format!("its kind is {kind:?}, not {}", T::KIND));
    }
    let old = match version.as_str() {
        VERSION => false,
        OLD_VERSION => true,
        other => return Err(format!("its apiVersion {other:?} is unknown")),
    };
    *version = VERSION.to_owned();
    Ok((record, old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_upstreams() {
        let name = file_name("docker.io/testing/test:latest");
        assert_eq!(name, "sha256-aef2af226629a35d5f3ef0fdbb29fdbebf038d0acd8850590e8c48e1e283aa56");
        let intent = encode(&PullIntent::new("docker.io/testing/test:latest")).unwrap();
        let want = r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"docker.io/testing/test:latest"}"#;
        assert_eq!(String::from_utf8(intent).unwrap(), format!("{want}\n"));

        let record = r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"testimageref","credentialMapping":{"docker.io/testing/test":{"kubernetesSecrets":[{"uid":"testsecretuid","namespace":"default","name":"pull-secret","credentialHash":"testsecrethash"}]},"other":{"nodePodsAccessible":true}}}"#;
        let (decoded, old) = decode::<PulledRecord>(record.as_bytes()).unwrap();
        assert!(!old);
        assert_eq!(String::from_utf8(encode(&decoded).unwrap()).unwrap(), format!("{record}\n"));
    }

    #[test]
    fn an_old_version_is_read_and_another_kind_is_not() {
        let text = r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1alpha1","image":"x"}"#;
        assert_eq!(decode(text.as_bytes()).unwrap(), (PullIntent::new("x"), true));
        for broken in [
            r#"{"kind":"Pod","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"x"}"#,
            r#"{"kind":"ImagePullIntent","apiVersion":"v9","image":"x"}"#,
            r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"x","more":1}"#,
            "{",
        ] {
            assert!(decode::<PullIntent>(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
