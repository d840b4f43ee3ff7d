//! PodCertificateRequests: what is written into one, and what comes of it. Pure.
//!
//! Upstream: createPodCertificateRequest in pkg/kubelet/podcertificate,
//! certificates/v1beta1.

use jiff::Timestamp;
use kubelet_model::base64;
use kubelet_model::certificate::CertificateAsk;
use serde_json::{Value, json};

use crate::pem;

/// Who a certificate is for, besides the pod.
pub(super) struct Identity {
    /// Uid of the pod's service account.
    pub(super) account_uid: String,
    /// This node.
    pub(super) node: String,
    /// Uid of its object.
    pub(super) node_uid: String,
}

/// Namespace and name of a request.
pub(super) type RequestName = (String, String);

/// What has come of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing yet.
    Pending,
    /// The signer will not have it.
    Denied(Words),
    /// The signer cannot do it.
    Failed(Words),
    /// It is signed.
    Issued {
        /// The certificates, as PEM and nothing else.
        chain: String,
        /// When it is time for the next.
        refresh: Timestamp,
        /// When it ends.
        not_after: Timestamp,
    },
}

/// A signer's reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) reason: String,
    pub(super) message: String,
}

/// The request for a certificate.
pub(super) fn body(ask: &CertificateAsk, of: &Identity, request: &[u8]) -> Value {
    let mut spec = json!({
        "signerName": ask.signer,
        "podName": ask.pod,
        "podUID": ask.uid,
        "serviceAccountName": ask.account,
        "serviceAccountUID": of.account_uid,
        "nodeName": of.node,
        "nodeUID": of.node_uid,
        "stubPKCS10Request": base64::encode(request),
    });
    if let Some(seconds) = ask.max_seconds {
        spec["maxExpirationSeconds"] = seconds.into();
    }
    if !ask.annotations.is_empty() {
        spec["unverifiedUserAnnotations"] = json!(ask.annotations);
    }
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": ask.pod, "uid": ask.uid});
    json!({"apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
        "metadata": {"namespace": ask.namespace, "generateName": "req-",
            "ownerReferences": [owner]},
        "spec": spec})
}

/// Which request an object is.
pub(super) fn name_of(object: &Value) -> Option<RequestName> {
    let text = |key: &str| object["metadata"][key].as_str().filter(|text| !text.is_empty());
    Some((text("namespace")?.to_owned(), text("name")?.to_owned()))
}

/// What has come of a request; the first condition that ends it counts.
pub(super) fn verdict(object: &Value) -> Verdict {
    let status = &object["status"];
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        let words = || Words { reason: text("reason"), message: text("message") };
        match condition["type"].as_str() {
            Some("Denied") => return Verdict::Denied(words()),
            Some("Failed") => return Verdict::Failed(words()),
            Some("Issued") => return issued(status),
            _ => {}
        }
    }
    Verdict::Pending
}

/// An API server lets no signer leave anything out; what is of no use has failed.
fn issued(status: &Value) -> Verdict {
    let time = |key: &str| status[key].as_str().and_then(|text| text.parse().ok());
    let chain = pem::clean(status["certificateChain"].as_str().unwrap_or_default());
    match (time("beginRefreshAt"), time("notAfter")) {
        (Some(refresh), Some(not_after)) if !chain.is_empty() => {
            Verdict::Issued { chain, refresh, not_after }
        }
        _ => Verdict::Failed(Words {
            reason: "InvalidStatus".to_owned(),
            message: "it is issued without certificateChain, beginRefreshAt or notAfter".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_request_says_whose_it_is() {
        let mut ask = CertificateAsk {
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            account: "app".to_owned(),
            volume: "v".to_owned(),
            source: 0,
            signer: "example.com/s".to_owned(),
            key_type: "ED25519".to_owned(),
            max_seconds: None,
            annotations: BTreeMap::new(),
        };
        let of = Identity {
            account_uid: "au".to_owned(),
            node: "n".to_owned(),
            node_uid: "nu".to_owned(),
        };
        let mut expected = json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
            "metadata": {"namespace": "ns", "generateName": "req-", "ownerReferences":
                [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u"}]},
            "spec": {"signerName": "example.com/s", "podName": "web", "podUID": "u",
                "serviceAccountName": "app", "serviceAccountUID": "au", "nodeName": "n",
                "nodeUID": "nu", "stubPKCS10Request": "YWJj"}});
        assert_eq!(body(&ask, &of, b"abc"), expected);
        ask.max_seconds = Some(7200);
        ask.annotations.insert("example.com/a".to_owned(), "b".to_owned());
        expected["spec"]["maxExpirationSeconds"] = 7200.into();
        expected["spec"]["unverifiedUserAnnotations"] = json!({"example.com/a": "b"});
        assert_eq!(body(&ask, &of, b"abc"), expected);
    }

    #[test]
    fn verdicts() {
        let words = |reason: &str| Words { reason: reason.to_owned(), message: "m".to_owned() };
        let condition = |kind: &str| json!({"type": kind, "reason": "R", "message": "m"});
        let chain = format!("x\n{}", pem::block("OTHER", b"abc"));
        let whole = json!({"conditions": [condition("Issued")], "certificateChain": chain,
            "beginRefreshAt": "2026-01-01T00:30:00Z", "notAfter": "2026-01-01T01:00:00Z"});
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let good = Verdict::Issued {
            chain: pem::block("CERTIFICATE", b"abc"),
            refresh: time("2026-01-01T00:30:00Z"),
            not_after: time("2026-01-01T01:00:00Z"),
        };
        for (status, expected) in [
            (json!(null), Verdict::Pending),
            (json!({"conditions": [condition("Other")]}), Verdict::Pending),
            (json!({"conditions": [condition("Denied")]}), Verdict::Denied(words("R"))),
            (
                json!({"conditions": [condition("Other"), condition("Failed"), condition("Issued")]}),
                Verdict::Failed(words("R")),
            ),
            (whole.clone(), good),
        ] {
            assert_eq!(verdict(&json!({"status": status})), expected, "{status}");
        }
        for part in ["certificateChain", "beginRefreshAt", "notAfter"] {
            let mut status = whole.clone();
            status[part] = "no".into();
            let verdict = verdict(&json!({"status": status}));
            assert!(matches!(verdict, Verdict::Failed(_)), "{part}: {verdict:?}");
        }
        let object = json!({"metadata": {"namespace": "ns", "name": "req-1"}});
        assert_eq!(name_of(&object), Some(("ns".to_owned(), "req-1".to_owned())));
        assert_eq!(name_of(&json!({})), None);
    }
}
