//! Which certificates a pod asks to be given to trust.
//!
//! Pure. What is asked for is the name of an object like others that a pod's files come
//! from. Upstream: ClusterTrustBundleProjection in the core API.

use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use crate::object::{ObjectKey, ObjectKind};
use crate::quote;

/// Under which value an object keeps its certificates.
pub const ANCHORS: &str = "anchors";

/// A request for certificates of ClusterTrustBundles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TrustAsk {
    /// Those of one bundle.
    Name(String),
    /// Those of a signer's bundles.
    Signer {
        /// The signer.
        name: String,
        /// Which of its bundles; none if nothing is said, all if it is empty.
        selector: Option<LabelSelector>,
    },
}

impl TrustAsk {
    /// What a volume's source asks for; `None` if it names neither bundle nor signer.
    pub fn of_source(source: &ClusterTrustBundleProjection) -> Option<Self> {
        match (&source.name, &source.signer_name) {
            (Some(name), _) => Some(Self::Name(name.clone())),
            (None, Some(name)) => {
                let (name, selector) = (name.clone(), source.label_selector.clone());
                Some(Self::Signer { name, selector })
            }
            (None, None) => None,
        }
    }

    /// The object that answers this.
    pub fn key(&self) -> ObjectKey {
        // Strings, lists and maps with string keys only.
        let name = serde_json::to_string(self).expect("a request can be written as JSON");
        ObjectKey::new(ObjectKind::ClusterTrustBundle, "", &name)
    }

    /// What an object answers, if it is of this kind.
    pub fn of(key: &ObjectKey) -> Option<Self> {
        let text = Some(&key.name).filter(|_| key.kind == ObjectKind::ClusterTrustBundle)?;
        serde_json::from_str(text).ok()
    }

    /// What users are told when there is no such bundle; in upstream's words.
    pub fn missing(&self) -> String {
        match self {
            Self::Name(name) => format!(
                "while getting ClusterTrustBundle: \
                 clustertrustbundle.certificates.k8s.io {} not found",
                quote::go(name)
            ),
            Self::Signer { .. } => "combination of signerName and labelSelector matched zero \
                                    ClusterTrustBundles"
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_tells_what_was_asked_for() {
        let source = |json| serde_json::from_value::<ClusterTrustBundleProjection>(json).unwrap();
        for (from, expected) in [
            (json!({"path": "p", "name": "a:b:c"}), json!({"name": "a:b:c"})),
            (
                json!({"path": "p", "signerName": "x/y"}),
                json!({"signer": {"name": "x/y", "selector": null}}),
            ),
            (
                json!({"path": "p", "signerName": "x/y", "labelSelector": {}}),
                json!({"signer": {"name": "x/y", "selector": {}}}),
            ),
            (
                json!({"path": "p", "signerName": "x/y",
                    "labelSelector": {"matchLabels": {"a": "b"}}}),
                json!({"signer": {"name": "x/y", "selector": {"matchLabels": {"a": "b"}}}}),
            ),
        ] {
            let ask = TrustAsk::of_source(&source(from)).unwrap();
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&ask.key().name).unwrap(),
                expected
            );
            assert_eq!(TrustAsk::of(&ask.key()), Some(ask));
        }
        assert_eq!(TrustAsk::of_source(&source(json!({"path": "p"}))), None);
        assert_eq!(TrustAsk::of(&ObjectKey::new(ObjectKind::Secret, "", r#"{"name":"a"}"#)), None);
    }
}
