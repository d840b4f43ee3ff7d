//! What makes a pod from a file or URL a static pod of this node.
//!
//! Pure. The uid is a hash of the pod as written, so it survives restarts and
//! upgrades and changes with every edit. Upstream: pkg/kubelet/config/common.go.

use std::fmt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus, Toleration};

use crate::object::ObjectKey;
use crate::pod::{CONFIG_HASH, Source};

/// Where a manifest came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// A URL.
    Url(String),
}

impl Origin {
    /// The source such a manifest belongs to.
    pub fn source(&self) -> Source {
        match self {
            Self::File(_) => Source::File,
            Self::Url(_) => Source::Http,
        }
    }
}

/// For messages: a URL's password is left out.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match self {
            Self::File(path) => return write!(f, "{}", path.display()),
            Self::Url(url) => url,
        };
        let Some((scheme, rest)) = url.split_once("://") else {
            return f.write_str(url);
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        match rest[..end].rfind('@') {
            Some(at) => write!(f, "{scheme}://***{}", &rest[at..]),
            None => f.write_str(url),
        }
    }
}

/// FNV-1a over 128 bits.
#[derive(Debug, Clone)]
pub struct Fnv128(u128);

impl Default for Fnv128 {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv128 {
    const PRIME: u128 = (1 << 88) + 0x13b;

    /// Hashes more bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 ^= u128::from(*byte);
            self.0 = self.0.wrapping_mul(Self::PRIME);
        }
    }

    /// The hash as 32 lower-case hexadecimal digits.
    pub fn hex(&self) -> String {
        format!("{:032x}", self.0)
    }

    /// The hash of these bytes as 32 lower-case hexadecimal digits.
    pub fn hex_of(bytes: &[u8]) -> String {
        let mut hash = Self::default();
        hash.write(bytes);
        hash.hex()
    }
}

/// Gives a decoded pod this node's identity: uid, name, namespace, node, hash
/// annotation, toleration and phase. Call it before defaulting: the uid then
/// does not depend on the defaults of this release.
pub fn make_static(mut pod: Pod, node_name: &str, origin: &Origin) -> Pod {
    let given = pod.metadata.uid.take().filter(|uid| !uid.is_empty());
    let uid = given.unwrap_or_else(|| generate_uid(&pod, node_name, origin));

    let meta = &mut pod.metadata;
    let name = meta.name.take().unwrap_or_default();
    meta.name = Some(format!("{name}-{}", node_name.to_lowercase()));
    if meta.namespace.as_deref().unwrap_or_default().is_empty() {
        meta.namespace = Some("default".to_owned());
    }
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(CONFIG_HASH.to_owned(), uid.clone());
    meta.uid = Some(uid);

    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node_name.to_owned());
    if matches!(origin, Origin::File(_)) {
        tolerate_no_execute(spec);
    }
    // What the manifest says about its own status is not an observation.
    pod.status = Some(PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() });
    pod
}

fn generate_uid(pod: &Pod, node_name: &str, origin: &Origin) -> String {
    let mut hash = Fnv128::default();
    // A Value sorts its keys, so equal pods have equal text.
    let canonical = serde_json::to_value(pod).map(|value| value.to_string());
    // A Pod holds only strings, numbers, lists and maps with string keys.
    hash.write(canonical.expect("a decoded pod can be written as JSON").as_bytes());
    write_place(&mut hash, node_name, origin);
    hash.hex()
}

/// Hashes where a manifest lies.
fn write_place(hash: &mut Fnv128, node_name: &str, origin: &Origin) {
    match origin {
        Origin::File(path) => {
            hash.write(format!("host:{node_name}").as_bytes());
            hash.write(b"file:");
            hash.write(path.as_os_str().as_encoded_bytes());
        }
        Origin::Url(url) => hash.write(format!("url:{url}").as_bytes()),
    }
}

/// The uid of an object that gives itself none. Its content stays out of it: a
/// login that is renewed is still the same object, and a hash of a secret would
/// help to guess it.
pub(super) fn object_uid(key: &ObjectKey, node_name: &str, origin: &Origin) -> String {
    let mut hash = Fnv128::default();
    hash.write(key.to_string().as_bytes());
    write_place(&mut hash, node_name, origin);
    hash.hex()
}

/// A static pod outlives every taint on its node.
fn tolerate_no_execute(spec: &mut PodSpec) {
    let wanted = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let tolerations = spec.tolerations.get_or_insert_default();
    let same_taint = |old: &Toleration| {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        text(&old.key).is_empty()
            && text(&old.effect) == "NoExecute"
            && text(&old.operator) == "Exists"
            && text(&old.value).is_empty()
    };
    match tolerations.iter_mut().find(|old| same_taint(old)) {
        Some(old) => *old = wanted,
        None => tolerations.push(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_stay_out_of_messages() {
        let shown = |url: &str| Origin::Url(url.to_owned()).to_string();
        assert_eq!(shown("http://u:p@ss@h/x?a@b"), "http://***@h/x?a@b");
        assert_eq!(shown("http://h/x@y"), "http://h/x@y");
    }

    #[test]
    fn fnv_matches_published_vectors() {
        let hash = |text: &str| {
            let mut hash = Fnv128::default();
            hash.write(text.as_bytes());
            hash.hex()
        };
        assert_eq!(hash(""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(hash("a"), "d228cb696f1a8caf78912b704e4a8964");
        assert_eq!(hash("foobar"), "343e1662793c64bf6f0d3597ba446f18");
    }
}
