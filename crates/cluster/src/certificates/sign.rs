//! Has a request signed: makes the object, and waits for its certificate.
//!
//! Owns nothing. Who approves and who signs is the cluster's affair. Upstream: client-go
//! util/certificate/csr.

use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, ApiError, Call, Follower, News, Selection, Spread, path};
use jiff::Timestamp;
use kubelet_model::base64;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::parse;
use super::request::{Key, Kind};
use super::template::Template;

const API: &str = "apis/certificates.k8s.io/v1";
const REQUESTS: &str = "certificatesigningrequests";

/// Why there is no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The request cannot be made.
    #[error("cannot create certificate signing request: {0}")]
    Create(#[source] ApiError),
    /// A request of that name is there, and cannot be read.
    #[error("cannot retrieve certificate signing request: {0}")]
    Get(#[source] ApiError),
    /// A request of that name is there, and is another's.
    #[error("certificate signing request {name} is not compatible: {why}; delete it")]
    Incompatible {
        /// Which.
        name: String,
        /// Why.
        why: String,
    },
    /// A request of that name got a certificate that is too old by now.
    #[error("the certificate of the signing request {0} has expired")]
    Stale(String),
    /// Somebody said no.
    #[error("certificate signing request is denied, reason: {reason}, message: {message}")]
    Denied {
        /// In a word.
        reason: String,
        /// In full.
        message: String,
    },
    /// The signer said no.
    #[error("certificate signing request failed, reason: {reason}, message: {message}")]
    Failed {
        /// In a word.
        reason: String,
        /// In full.
        message: String,
    },
    /// It is gone, or another has taken its place.
    #[error("certificate signing request {0} was deleted")]
    Deleted(String),
    /// Nobody said anything.
    #[error(
        "certificate signing request {name} was not approved and signed in {} s{}; look at it \
         with `kubectl get csr {name}`",
        .limit.as_secs(),
        .last.as_ref().map(|error| format!(" ({error})")).unwrap_or_default()
    )]
    Unanswered {
        /// Which.
        name: String,
        /// How long it was waited for.
        limit: Duration,
        /// What last kept it from being looked at.
        last: Option<ApiError>,
    },
    /// There is no request to make, or a certificate that cannot be read.
    #[error("{0}")]
    Unusable(String),
}

/// A request that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// Its name.
    pub name: String,
    uid: String,
}

/// How a request is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// By the server.
    Server,
    /// By what it asks for: one that is there already is taken over.
    Digest,
}

/// Makes a request for what is wanted.
pub(super) async fn submit(
    api: &dyn Api,
    kind: Kind,
    key: &Key,
    wanted: &Template,
    naming: Naming,
    now: Timestamp,
) -> Result<Submitted, SignError> {
    let usages = kind.usages(key);
    let request = key.request(wanted).map_err(SignError::Unusable)?;
    let name = match naming {
        Naming::Server => None,
        Naming::Digest => Some(key.request_name(wanted, &usages)),
    };
    let metadata = match &name {
        Some(name) => json!({"name": name}),
        None => json!({"generateName": "csr-"}),
    };
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": metadata,
        "spec": {"request": base64::encode(request.as_bytes()), "signerName": kind.signer(),
            "usages": usages},
    });
    let made = match (api.call(Call::post(&path(API, "", &[REQUESTS]), object)).await, name) {
        (Ok(made), _) => made,
        (Err(error), Some(name)) if error.is_conflict() => {
            let call = Call::get(&path(API, "", &[REQUESTS, &name]));
            let found = api.call(call).await.map_err(SignError::Get)?;
            compatible(&found, &name, kind, key, wanted, now)?;
            found
        }
        (Err(error), _) => return Err(SignError::Create(error)),
    };
    let text = |key: &str| made["metadata"][key].as_str().unwrap_or_default().to_owned();
    Ok(Submitted { name: text("name"), uid: text("uid") })
}

/// Whether a request that is there already is the one that was to be made.
fn compatible(
    found: &Value,
    name: &str,
    kind: Kind,
    key: &Key,
    wanted: &Template,
    now: Timestamp,
) -> Result<(), SignError> {
    let other = |why: String| SignError::Incompatible { name: name.to_owned(), why };
    let bytes = |value: &Value| value.as_str().and_then(base64::decode).unwrap_or_default();
    let signer = found["spec"]["signerName"].as_str().unwrap_or_default();
    if signer != kind.signer() {
        return Err(other(format!("it is for the signer {signer:?}")));
    }
    if let Some(why) = key.differs_from(&bytes(&found["spec"]["request"]), wanted) {
        return Err(other(why));
    }
    let certificate = bytes(&found["status"]["certificate"]);
    if !certificate.is_empty() {
        let expiry = parse::first_expiry(&certificate).map_err(other)?;
        if expiry < now {
            return Err(SignError::Stale(name.to_owned()));
        }
    }
    Ok(())
}

/// Waits for the certificate of a request, in PEM.
pub(super) async fn issued(
    api: Arc<dyn Api>,
    spread: Spread,
    of: &Submitted,
    limit: Duration,
) -> Result<Vec<u8>, SignError> {
    let selection = Selection {
        path: path(API, "", &[REQUESTS]),
        query: vec![("fieldSelector", format!("metadata.name={}", of.name))],
    };
    let mut follower = Follower::new(api, selection, spread);
    let mut last = None;
    let wait = async {
        loop {
            match follower.next().await {
                News::All(all) => match all.first() {
                    Some(object) => {
                        if let Some(certificate) = verdict(object, of)? {
                            return Ok(certificate);
                        }
                    }
                    None => return Err(SignError::Deleted(of.name.clone())),
                },
                News::Put(object) => {
                    if let Some(certificate) = verdict(&object, of)? {
                        return Ok(certificate);
                    }
                }
                News::Gone(_) => return Err(SignError::Deleted(of.name.clone())),
                News::Failing(error) => last = Some(error),
            }
        }
    };
    match timeout(limit, wait).await {
        Ok(ended) => ended,
        Err(_) => Err(SignError::Unanswered { name: of.name.clone(), limit, last }),
    }
}

/// What has become of a request so far.
fn verdict(object: &Value, of: &Submitted) -> Result<Option<Vec<u8>>, SignError> {
    if object["metadata"]["uid"] != of.uid.as_str() {
        return Err(SignError::Deleted(of.name.clone()));
    }
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice);
    let find = |kind: &str| conditions.unwrap_or_default().iter().find(|one| one["type"] == kind);
    let words = |condition: &Value| {
        let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    };
    if let Some((reason, message)) = find("Denied").map(words) {
        return Err(SignError::Denied { reason, message });
    }
    if let Some((reason, message)) = find("Failed").map(words) {
        return Err(SignError::Failed { reason, message });
    }
    let certificate = object["status"]["certificate"].as_str().unwrap_or_default();
    if find("Approved").is_none() || certificate.is_empty() {
        return Ok(None);
    }
    let bytes = base64::decode(certificate);
    bytes.map(Some).ok_or_else(|| SignError::Unusable("the certificate is no base64".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_approved_counts() {
        let of = Submitted { name: "csr-1".into(), uid: "u".into() };
        let object = |kinds: &[&str], certificate: &str| {
            let conditions: Vec<Value> = kinds
                .iter()
                .map(|kind| json!({"type": kind, "reason": "R", "message": "m"}))
                .collect();
            json!({"metadata": {"uid": "u"},
                "status": {"conditions": conditions, "certificate": certificate}})
        };
        let read = |object: &Value| verdict(object, &of).map_err(|error| error.to_string());
        assert_eq!(read(&object(&[], "")), Ok(None));
        assert_eq!(read(&object(&["Approved"], "")), Ok(None));
        assert_eq!(read(&object(&[], "eA==")), Ok(None));
        assert_eq!(read(&object(&["Approved"], "eA==")), Ok(Some(b"x".to_vec())));
        let denied = "certificate signing request is denied, reason: R, message: m";
        assert_eq!(read(&object(&["Approved", "Denied"], "eA==")), Err(denied.to_owned()));
        let failed = "certificate signing request failed, reason: R, message: m";
        assert_eq!(read(&object(&["Failed"], "eA==")), Err(failed.to_owned()));
        assert!(read(&object(&["Approved"], "*")).is_err());
        assert!(read(&json!({"metadata": {"uid": "other"}})).unwrap_err().contains("deleted"));
    }

    #[test]
    fn a_request_that_is_there_must_be_the_same() {
        let key = Key::generate().unwrap();
        let wanted = Template::client("n1");
        let of = |key: &Key, kind: Kind, certificate: &[u8]| {
            let request = base64::encode(key.request(&wanted).unwrap().as_bytes());
            let object = json!({"spec": {"request": request, "signerName": kind.signer()},
                "status": {"certificate": base64::encode(certificate)}});
            let now = crate::certificates::test_parts::minute(50);
            let found =
                compatible(&object, "n", Kind::Client, &self::key_of(&key.pem()), &wanted, now);
            found.map_err(|error| error.to_string()).err().unwrap_or_default()
        };
        let made = |to| crate::certificates::test_parts::issued("a", &[], 0, to).certificate;
        assert_eq!(of(&key, Kind::Client, b""), "");
        assert_eq!(of(&key, Kind::Client, &made(90)), "");
        assert!(of(&key, Kind::Client, &made(40)).contains("has expired"));
        assert!(of(&key, Kind::Serving, b"").contains("for the signer"));
        let other = Key::generate().unwrap();
        let request = base64::encode(other.request(&wanted).unwrap().as_bytes());
        let object = json!({"spec": {"request": request, "signerName": Kind::Client.signer()}});
        let found = compatible(&object, "n", Kind::Client, &key, &wanted, Timestamp::UNIX_EPOCH);
        assert!(found.unwrap_err().to_string().contains("another key"));
    }

    fn key_of(pem: &str) -> Key {
        Key::from_pem(pem.as_bytes()).unwrap()
    }
}
